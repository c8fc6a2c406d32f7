"""Encoding: from a Source to a store, each column presorted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bigforest.encode.external import compile_external
from bigforest.encode.features import Job, choose_features, encode_group
from bigforest.encode.keys import value_bytes
from bigforest.encode.need import EncodePlan, plan_encode
from bigforest.encode.ranks import compile_presort
from bigforest.encode.target import Classes, class_codes, find_classes, find_target, listed
from bigforest.errors import DataError
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.output import TemporaryFolder, naming_full_disk, staged
from bigforest.places import copy, is_remote
from bigforest.resources import Resources
from bigforest.schedule.crew import Crew
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

    Rows without a class are left out, with a Notice. The bytes of the store depend on the rows of the table and on
    these options only. Anonymous memory: no more than resources.memory; without that, 12 bytes per row and thread, 16
    where values have 64 bits, beside what the source holds (encode/need.py).

    Raises DataError when the table cannot be learned from, ConfigError when the memory is too little or a disk is
    full, and OutputExistsError when something is at `path`. Nothing is left behind then.
    """
    name = find_target(source.schema, target)
    names = choose_features(source.schema, name, exclude)
    plan = plan_encode(source.rows, {other: value_bytes(source.schema[other]) for other in names}, resources)
    with (
        staged(path, overwrite=False, kind="store", is_ours=is_store) as folder,
        TemporaryFolder(resources.scratch) as scratch,
        naming_full_disk(path.parent, scratch.parent),
        StoreWriter(folder, max_bins=max_bins, parts=_shared_parts(scratch)) as writer,
        stage("encode", len(names), "columns", listener) as running,
    ):
        compile_presort()
        if plan.passes > 1:
            compile_external()
        classes = _encode_target(source, name, plan, writer)
        if classes.dropped:
            listener(Notice(f"{classes.dropped} rows have no value in {name!r} and are left out"))
        job = Job(source, _shared_rows(writer, scratch), classes.kept, max_bins, plan, writer.parts, scratch)
        # A table in memory stays where it is.
        crew = (resources if source.files else replace(resources, cluster=None)).crew(plan.workers)
        _encode_features(job, writer, running, crew)
        writer.finish(classes.spec, classes.dropped)
    return Store.open(path, verify=False)


def _shared_parts(scratch: Path) -> Path | None:
    """Where tasks leave their parts when it cannot be beside the store, which is made here."""
    return scratch / "parts" if is_remote(scratch) else None


def _shared_rows(writer: StoreWriter, scratch: Path) -> Path | None:
    """The file of the rows to encode, where tasks find it; None for all rows."""
    rows = writer.row_numbers()
    if rows is None or not is_remote(scratch):
        return rows
    copy(rows, scratch / rows.name)
    return scratch / rows.name


def _encode_target(source: Source, name: str, plan: EncodePlan, writer: StoreWriter) -> Classes:
    """Read the target twice: for its classes, and to write their codes."""
    found = (frame.to_series() for frame in source.slices([name], plan.slice_rows))
    classes = find_classes(name, source.schema[name], found)
    first = 0
    for frame in source.slices([name], plan.slice_rows):
        codes, places = class_codes(frame.to_series(), classes)
        numbers = None
        if classes.dropped:
            numbers = np.uint64(first) + (np.arange(len(frame), dtype=np.uint64) if places is None else places)
        writer.add_rows(codes, numbers)
        first += len(frame)
    return classes


def _encode_features(job: Job, writer: StoreWriter, running: Stage, crew: Crew) -> None:
    """Encode the features side by side, append them in order. Raises DataError naming all that are unfit."""
    groups = job.plan.groups
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

    crew.run(encode_group, list(enumerate(groups)), collect, (job,))
    if wrong:
        raise DataError(
            f"these features cannot be used: {listed(wrong)}. Missing values are not handled yet, and "
            "integers must be exact in float64; exclude the columns, or fill, drop or convert the values"
        )
