"""Encoding: from a Source to a store, each column presorted once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bigforest.columns.types import Leaf, is_nested, leaves
from bigforest.encode.categories import numbers_in_text
from bigforest.encode.features import EncodeJob, compile_presort, encode_group, feature_kinds, kept_column
from bigforest.encode.memory import plan_encode
from bigforest.encode.pieces import encode_in_pieces
from bigforest.encode.rows import check_group, encode_groups, encode_row_weights, encode_target, notice_repeats
from bigforest.encode.targets import (
    DistinctValues,
    FoundClasses,
    FoundNumbers,
    check_column,
    find_target,
    find_task,
    why_regression,
)
from bigforest.encode.values import value_bytes
from bigforest.encode.weights import check_weight
from bigforest.errors import DataError, listed
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.execution.compiling import ENCODING, announced
from bigforest.execution.executor import Executor
from bigforest.execution.resources import Resources
from bigforest.options.train_config import TrainConfig, check_features
from bigforest.options.values import Task
from bigforest.source import Source
from bigforest.source.source import source_of_files
from bigforest.storage.atomic import TemporaryFolder, naming_full_disk, staged
from bigforest.storage.paths import copy, is_remote, write_atomically
from bigforest.store.format import is_store
from bigforest.store.store import Store
from bigforest.store.writer import Part, StoreWriter, write_range

DEFAULTS = TrainConfig()
# Bytes of rows unnested at a time, with the bytes guessed for a value of any type.
_SLICE_BYTES = 32 << 20
_VALUE_BYTES = 16


def encode(
    source: Source,
    target: str | None,
    path: Path,
    *,
    config: TrainConfig = DEFAULTS,
    exclude: Sequence[str] = (),
    resources: Resources,
    listener: Listener,
    roles: ColumnRoles | None = None,
) -> Store:
    """Presort the columns of `source` into a store at `path`, and open it.

    target     the column to learn; None takes the first of target, label, class and y that there is.
    config     of which max_bins, task, categories, weight, class_weight and group matter here. The distinct values of
               groups, and of categories, are held in memory; no budget knows of those of groups.
    exclude    columns that are neither features nor kept.
    roles      what `column_roles` gives for these arguments, if that is known.

    Structs and arrays of a fixed length are unnested (columns/types.py); files that have some are copied flat to the
    scratch folder first. Rows without a target, or of weight 0, are left out, with a Notice. The bytes of the store
    depend on the rows of the table and on these options only. Anonymous memory: no more than resources.memory; without
    that, 12 bytes per row and thread, 16 where values have 64 bits, beside what the source holds (encode/memory.py).

    Raises DataError when the table cannot be learned from, ConfigError when the memory is too little or a disk is
    full, and OutputExistsError when something is at `path`. Nothing is left behind then.
    """
    columns, name, task, others, kinds, values = roles or column_roles(source, target, exclude, config)
    if task == "regression" and config.task is None and (why := why_regression(source, columns[name])):
        choose = 'for classification use --task classification, in Python task="classification"'
        listener(Notice(f"{name!r} has {why}, so this is a regression; {choose}"))
    asked, config = config.task, config.settled(task)
    sizes = {one: value_bytes(columns[one].dtype) for one in kinds}
    alone = [one for one, kind in kinds.items() if kind == "category"]
    plan = plan_encode(source.rows, sizes, resources, alone, binned=isinstance(config.max_bins, int))
    with (
        staged(path, overwrite=False, kind="store", is_ours=is_store) as folder,
        TemporaryFolder(resources.scratch) as scratch,
        naming_full_disk(path.parent, scratch.parent),
        # Tasks leave their parts beside the store, which is made here, or where other machines can, too.
        StoreWriter(
            folder, max_bins=config.max_bins, parts=scratch / "parts" if is_remote(scratch) else None
        ) as writer,
        stage("encode", len(kinds), "columns", listener) as running,
    ):
        source = _flattened(source, columns, [*kinds, name, *others], scratch)
        with announced(ENCODING, listener):
            compile_presort()
        found, counts = encode_target(source, name, config, plan, writer, listener, values)
        dropped = source.rows - found.kept
        for message in _target_notices(found, dropped, asked, config.weight):
            listener(Notice(message))
        column_of = {one: columns[one].column for one in kinds}
        rows_file = _shared_rows(writer, scratch)
        plan = replace(plan, rows=found.kept)
        job = EncodeJob(source, rows_file, config.max_bins, plan, writer.parts, scratch, column_of, kinds)
        weight = encode_row_weights(job, found.spec, counts, config, writer, listener)
        # A table in memory stays where it is.
        executor = (resources if source.files else replace(resources, cluster=None)).executor(plan.workers)
        writer.shared = executor.remote and not is_remote(scratch)
        _encode_features(job, writer, running, executor)
        groups = None
        if config.group is not None:
            groups = encode_groups(
                config.group, columns[config.group].dtype, partial(kept_column, job, config.group), writer
            )
        writer.finish(found.spec, dropped, groups, weight, config.missing)
    store = Store.open(path, verify=False)
    for message in numbers_in_text(store):
        listener(Notice(message))
    if config.bootstrap and groups is None:
        # A worker looks where it finds the store: it takes the client more than its task.
        notices = executor.gather(notice_repeats, [(store,)]) if writer.shared else [notice_repeats(store)]
        for message in filter(None, notices):
            listener(Notice(message))
    return store


def _target_notices(
    found: FoundClasses | FoundNumbers, dropped: int, asked: Task | None, weight: str | None
) -> Iterator[str]:
    """What to say about a target: rows were dropped, it has one value, or too many classes if no task was asked for."""
    name, classes = found.spec.name, len(found.spec.classes)
    if dropped:
        reason = "" if weight is None else f", or 0 in {weight!r},"
        rows_have, are = ("1 row has", "is") if dropped == 1 else (f"{dropped:,} rows have", "are")
        yield f"{rows_have} no value in {name!r}{reason} and {are} left out"
    if found.constant:
        yield f"all rows have the same value in {name!r}, so every tree is a single leaf"
    if asked is None and 2 < classes <= found.kept < 2 * classes:
        yield (
            f"{name!r} has {classes:,} classes in {found.kept:,} rows, too few to learn a class from; if it has "
            "names or measurements, choose another target, or convert them to numbers"
        )


class ColumnRoles(NamedTuple):
    """What the columns of a table are for: all of them, and the name of the target, its task, groups and weights, and
    the kind of each feature; and the values of the target, if they were read and are classes."""

    columns: dict[str, Leaf]
    target: str
    task: Task
    others: list[str]
    kinds: dict[str, str]
    values: DistinctValues | None


def column_roles(source: Source, target: str | None, exclude: Collection[str], config: TrainConfig) -> ColumnRoles:
    """What the columns are for, arguments as in `encode`. Raises DataError and ConfigError where one cannot be that."""
    columns = leaves(source.schema)
    name = find_target(columns, target)
    task, values = find_task(source, columns[name], config.task)
    config.settled(task)
    others = _groups_and_weights(config, columns, name)
    kinds = feature_kinds(columns, name, [*exclude, *others], config.categories)
    check_features(config, kinds)
    return ColumnRoles(columns, name, task, others, kinds, values)


def _groups_and_weights(config: TrainConfig, columns: Mapping[str, Leaf], target: str) -> list[str]:
    """The columns that are neither target nor features: groups and weights. Raises DataError when one cannot be."""
    roles = {}
    for role, name, check in (("group", config.group, check_group), ("weight", config.weight, check_weight)):
        if name is not None:
            check_column(name, columns, role)
            if name == target or name in roles:
                other = "target" if name == target else "column of groups"
                raise DataError(f"{name!r} is the {other} and cannot also be the {role}; choose another column")
            check(name, columns[name].dtype)
            roles[name] = role
    return list(roles)


def _flattened(source: Source, leaves: dict[str, Leaf], names: Sequence[str], scratch: Path) -> Source:
    """The Source of the columns `names` among `leaves`, which are those of `source`.

    A table in memory is unnested as it is read. Of files, every read of one feature would read its whole column, so
    they are copied flat to Parquet files in `scratch` first, some rows at a time.
    """
    columns = list(dict.fromkeys(leaves[name].column for name in names))
    if not any(is_nested(source.schema[column]) for column in columns):
        return source
    flat = [leaves[name].expr.alias(name) for name in names]
    schema = {name: leaves[name].dtype for name in names}
    if source.frame is not None and not source.files:
        return replace(source, schema=schema, frame=source.frame.select(flat))
    rows = max(1, _SLICE_BYTES // (_VALUE_BYTES * len(names)))
    files = []
    for number, frame in enumerate(source.batches(columns, rows)):
        files.append(scratch / f"flat-{number:06}.parquet")
        with write_atomically(files[-1]) as file:
            frame.select(flat).write_parquet(file, compression="lz4", statistics=False)
    return source_of_files(files, source.name)


def _shared_rows(writer: StoreWriter, scratch: Path) -> Path | None:
    """The file of the rows to encode, where tasks find it; None for all rows."""
    rows = writer.row_numbers()
    if rows is None or not is_remote(scratch):
        return rows
    copy(rows, scratch / rows.name)
    return scratch / rows.name


def _encode_features(job: EncodeJob, writer: StoreWriter, running: Stage, executor: Executor) -> None:
    """Encode the features side by side, append them in order. Raises DataError naming all that are unfit."""
    split = job.plan.split(executor.size)
    whole: dict[int, tuple[str, ...]] = {}
    pieces: dict[int, str] = {}
    for group in job.plan.groups:
        if split == 1 and (job.kinds[group[0]] == "category" or job.plan.in_memory(group)):
            whole[len(whole) + len(pieces)] = group
        else:
            for name in group:
                pieces[len(whole) + len(pieces)] = name
    waiting: dict[int, list[Part] | list[str]] = {}
    wrong: list[str] = []
    following = 0

    def collect(index: int, result: list[Part] | list[str]) -> None:
        nonlocal following
        running.advance(len(whole.get(index, "1")))
        waiting[index] = result
        while following in waiting:
            for one in waiting.pop(following):
                if isinstance(one, str):
                    wrong.append(one)
                elif not wrong:
                    writer.append(one)
            following += 1

    numbers = list(whole)
    executor.run(encode_group, list(whole.items()), lambda at, result: collect(numbers[at], result), (job,))
    waves = list(pieces.items())
    for first in range(0, len(waves), executor.size):
        for index, result in encode_in_pieces(job, dict(waves[first : first + executor.size]), split, executor).items():
            collect(index, result)
    if wrong:
        raise DataError(
            f"these features cannot be used: {listed(wrong)}. Exclude the columns, or convert or drop the values"
        )
    if writer.shared:
        ranges = writer.ranges()

        def written(index: int, _: None) -> None:
            writer.written(ranges[index])

        executor.run(write_range, [(wanted,) for wanted in ranges], written, even=True)
