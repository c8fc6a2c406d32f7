"""Encoding: from a Source to a store, each column presorted once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigforest.encode.features import choose_features, encode_group, read_groups
from bigforest.encode.target import Target, encode_target, find_target, listed
from bigforest.errors import DataError
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.output import staged
from bigforest.resources import Resources
from bigforest.schedule.tasks import run
from bigforest.source import Source
from bigforest.store.format import is_store
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
) -> Store:
    """Presort the columns of `source` into a store at `path`, and open it.

    target     the column of classes; None takes the one named target, label, class or y.
    max_bins   "exact" gives every distinct value a code; a number, 2 or more, caps the codes of a feature.
    exclude    columns that are neither features nor kept.

    Rows without a class are left out, with a Notice. The bytes of the store depend on the rows of the table
    and on these options only. Anonymous memory: about 40 bytes per row and thread beside the source's own.

    Raises DataError when the table cannot be learned from, and OutputExistsError when something is at `path`.
    Nothing is left behind then.
    """
    name = find_target(source.schema, target)
    names = choose_features(source.schema, name, exclude)
    with (
        staged(path, overwrite=False, kind="store", is_ours=is_store) as folder,
        StoreWriter(folder, max_bins=max_bins) as writer,
    ):
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
    """Encode the features side by side, append them in order. Raises DataError naming all that are unfit."""
    groups = read_groups(names, source.rows)
    waiting: dict[int, Part | list[str]] = {}
    wrong: list[str] = []
    following = 0

    def collect(index: int, result: Part | list[str]) -> None:
        nonlocal following
        running.advance(len(groups[index]))
        waiting[index] = result
        while following in waiting:
            part = waiting.pop(following)
            following += 1
            if isinstance(part, list):
                wrong.extend(part)
            elif not wrong:
                writer.append(part)

    tasks = [(index, source, group, classes.kept, max_bins, writer) for index, group in enumerate(groups)]
    run(encode_group, tasks, workers=workers, on_result=collect)
    if wrong:
        raise DataError(
            f"these features cannot be used: {listed(wrong)}. Missing values are not handled yet, and "
            "integers must be exact in float64; exclude the columns, or fill, drop or convert the values"
        )
