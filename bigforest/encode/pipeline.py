"""Encoding: from a Source to a store, each column presorted once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigforest.encode.features import choose_features, encode_group, read_groups
from bigforest.encode.target import Target, encode_target, find_target, listed
from bigforest.errors import DataError
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.resources import Resources
from bigforest.schedule.tasks import run
from bigforest.source import Source
from bigforest.store.store import Store
from bigforest.store.writer import Part, StoreWriter


def encode(
    source: Source,
    target: str | None,
    path: Path,
    *,
    max_bins: str | int = "exact",
    exclude: Sequence[str] = (),
    resources: Resources,
    listener: Listener,
    overwrite: bool = False,
) -> Store:
    """Presort the columns of `source` into a store at `path`, and open it.

    target     the column of classes; None takes the one named target, label, class or y.
    max_bins   "exact" gives every distinct value a code; a number, at least 2, caps the codes of each feature.
    exclude    columns that are neither features nor kept.
    overwrite  whether a store that is at `path` already is replaced.

    Rows without a class are left out, with a Notice. The bytes of the store depend on the rows of the table and on
    these options only. Anonymous memory: about 40 bytes per row and thread beside the source's own.

    Raises DataError when the table cannot be learned from, and OutputExistsError; nothing is left at `path` then.
    """
    name = find_target(source.schema, target)
    names = choose_features(source.schema, name, exclude)
    with StoreWriter(path, max_bins=max_bins, overwrite=overwrite) as writer:
        with stage("encode", len(names), "columns", listener) as running:
            classes = encode_target(source.column(name))
            if classes.dropped:
                listener(Notice(f"{classes.dropped} rows have no value in {name!r} and are left out"))
            _encode_features(source, names, classes, max_bins, writer, resources.workers, running)
        writer.finish(classes.spec, classes.codes, classes.kept, classes.dropped)
    return Store.open(path, verify=False)


def _encode_features(
    source: Source,
    names: Sequence[str],
    classes: Target,
    max_bins: str | int,
    writer: StoreWriter,
    workers: int,
    running: Stage,
) -> None:
    """Encode all features side by side and append them in order. Raises DataError naming all that cannot be used."""
    groups = read_groups(len(names), source.rows)
    ended: dict[int, list[Part | str]] = {}
    wrong: list[str] = []
    following = 0

    def collect(index: int, parts: list[Part | str]) -> None:
        nonlocal following
        ended[index] = parts
        running.advance(len(parts))
        while following in ended:
            for part in ended.pop(following):
                if isinstance(part, str):
                    wrong.append(part)
                elif not wrong:
                    writer.append(part)
            following += 1

    tasks = [(source, names, group, classes.kept, max_bins, writer) for group in groups]
    run(encode_group, tasks, workers=workers, on_result=collect)
    if wrong:
        raise DataError(
            f"these features cannot be used: {listed(wrong)}. Missing values cannot be handled yet, and integers must be "
            "exact in float64; exclude the columns, or fill, drop or convert the values"
        )
