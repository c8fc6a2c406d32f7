"""Encoding: from a Source to a store, each column presorted once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from bigforest.columns import Leaf, leaves
from bigforest.encode.external import compile_external
from bigforest.encode.features import Job, choose_features, encode_group, kept_slices
from bigforest.encode.groups import check_group, encode_groups
from bigforest.encode.keys import value_bytes
from bigforest.encode.need import EncodePlan, plan_encode
from bigforest.encode.nested import flattened
from bigforest.encode.ranks import compile_presort
from bigforest.encode.target import Classes, check_column, class_codes, find_classes, find_target, listed
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
    group: str | None = None,
    resources: Resources,
    listener: Listener,
) -> Store:
    """Presort the columns of `source` into a store at `path`, and open it.

    target     the column of classes; None takes the one named target, label, class or y.
    max_bins   "exact" gives every distinct value a code; a number, 2 or more, caps the codes of a feature.
    exclude    columns that are neither features nor kept.
    group      the column that names the group of each row, which is no feature. Its distinct values are held in memory,
               which no budget knows of.

    Structs and arrays of a fixed length are unnested (columns.py); files that have some are copied flat to the scratch
    folder first. Rows without a class are left out, with a Notice. The bytes of the store depend on the rows of the
    table and on these options only. Anonymous memory: no more than resources.memory; without that, 12 bytes per row
    and thread, 16 where values have 64 bits, beside what the source holds (encode/need.py).

    Raises DataError when the table cannot be learned from, ConfigError when the memory is too little or a disk is
    full, and OutputExistsError when something is at `path`. Nothing is left behind then.
    """
    found = leaves(source.schema)
    name = find_target({one: leaf.dtype for one, leaf in found.items()}, target)
    names = choose_features(found, name, [*exclude, *check_groups(group, found, name)])
    plan = plan_encode(source.rows, {other: value_bytes(found[other].dtype) for other in names}, resources)
    with (
        staged(path, overwrite=False, kind="store", is_ours=is_store) as folder,
        TemporaryFolder(resources.scratch) as scratch,
        naming_full_disk(path.parent, scratch.parent),
        StoreWriter(folder, max_bins=max_bins, parts=_shared_parts(scratch)) as writer,
        stage("encode", len(names), "columns", listener) as running,
    ):
        source = flattened(source, found, [*names, name, *([group] if group else [])], scratch)
        compile_presort()
        if plan.passes > 1:
            compile_external()
        classes = _encode_target(source, name, plan, writer)
        if classes.dropped:
            listener(Notice(f"{classes.dropped} rows have no value in {name!r} and are left out"))
        columns = {one: found[one].column for one in names}
        kept = _shared_rows(writer, scratch)
        job = Job(source, kept, classes.kept, max_bins, plan, writer.parts, scratch, columns)
        # A table in memory stays where it is.
        crew = (resources if source.files else replace(resources, cluster=None)).crew(plan.workers)
        _encode_features(job, writer, running, crew)
        groups = None
        if group is not None:
            column, dtype = group, found[group].dtype
            groups = encode_groups(column, dtype, lambda: _kept_column(job, column), writer)
        writer.finish(classes.spec, classes.dropped, groups)
    return Store.open(path, verify=False)


def check_groups(group: str | None, columns: Mapping[str, Leaf], target: str) -> list[str]:
    """The column of groups, if there is one. Raises DataError when it cannot be."""
    if group is None:
        return []
    check_column(group, columns, "group")
    if group == target:
        raise DataError(f"{group!r} is the target and cannot name the groups too; choose another column")
    check_group(group, columns[group].dtype)
    return [group]


def _kept_column(job: Job, name: str) -> Iterator[pl.Series]:
    return (frame.to_series() for frame in kept_slices(job, [name]))


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
            "integers have at most 64 bits; exclude the columns, or fill, drop or convert the values"
        )
