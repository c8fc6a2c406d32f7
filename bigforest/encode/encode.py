"""Encoding: from a Source to a store. Every column is presorted once; a cell becomes the rank of its value, its *code*.

1. `column_roles` names target, groups, weights and features (roles.py).
2. `plan_encode` divides the features into tasks that fit the memory budget (memory.py).
3. Nested columns are unnested. Files with nested columns, and small files, are copied to larger flat files.
4. The target is read and written, which decides the rows that are kept. Then weights are written (rows.py).
5. Each task encodes some features, categories or numbers, in memory or in pieces, and writes a part (features.py). The
   parts are appended to the store in the order of the features.
6. Groups and manifest are written, and the store is renamed to its final name (store/writer.py).

    column     values               dictionary            codes
    height     1.5  null  0.5  1.5  [NaN, 0.5, 1.5]       2 0 1 2     0 = missing, if any is
    colour     red  blue  blue red  [blue, red]           1 0 0 1

Counts of rows and positions in files have 64 bits. Row numbers within a column in memory, or within a part of a column,
have 32 bits, because neither has 2**32 rows. Codes have at most 32 bits: more distinct values are an error. Oracle:
tests/naive/encode.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from bigforest.encode.arguments import column_arguments
from bigforest.encode.features import encode_category, encode_in_memory, encode_in_pieces
from bigforest.encode.memory import EncodeJob, plan_encode
from bigforest.encode.notices import column_notices
from bigforest.encode.roles import ColumnRoles, column_roles
from bigforest.encode.rows import encode_groups, encode_row_weights, encode_target, notice_repeats
from bigforest.encode.targets import FoundClasses, FoundNumbers, why_regression
from bigforest.encode.values import FEW_ROWS, compile_presort, key_size, value_bytes
from bigforest.errors import DataError, api, listed
from bigforest.events import Listener, Notice, Stage, stage
from bigforest.execution.compile_stage import ENCODING, announced
from bigforest.execution.connect import open_resources
from bigforest.execution.executor import Executor, in_order
from bigforest.execution.resources import Resources, resources_of
from bigforest.options.signatures import documented_options, explicit_options, given
from bigforest.options.train_config import TrainConfig
from bigforest.options.values import Task
from bigforest.progress import watching
from bigforest.source.open import check_csv, open_source, opens_quickly
from bigforest.source.source import Reading, Source
from bigforest.source.spool import repacked
from bigforest.storage.atomic import TemporaryFolder, check_output, naming_full_disk, staged
from bigforest.storage.paths import as_path, copy, is_remote
from bigforest.store.format import STORE
from bigforest.store.store import Store
from bigforest.store.writer import Part, PartWriter, StoreWriter


def encode(
    source: Source,
    roles: ColumnRoles,
    path: Path,
    *,
    config: TrainConfig,
    resources: Resources,
    listener: Listener,
    overwrite: bool = False,
) -> Store:
    """Presort the columns of `source` into a store at `path`, and open it.

    roles   roles of the columns, for the same configuration (`column_roles`).
    config  the store depends on its max_bins, task, categories, missing, weight, class_weight and group.

    Rows without a target, or of weight 0, are left out, with a Notice. The bytes of the store depend only on the table,
    on the CSV separator if the user named one, and on these options.

    Anonymous memory: at most resources.memory; without a budget 12 bytes per row and thread, 16 for values of 64 bits,
    in addition to the memory of the source (memory.py). The budget includes the distinct values of categories, but not
    the distinct values of groups.

    Raises DataError for an unusable table, ConfigError if the memory does not suffice or a disk is full, and
    OutputExistsError if `path` exists, unless it is to be overwritten. Nothing is left on disk after an error.
    """
    columns, name, kinds = roles.columns, roles.target, roles.kinds
    for message in _role_notices(source, roles, config):
        listener(Notice(message))
    asked, config = config.task, config.for_task(roles.task)
    sizes = {column: value_bytes(columns[column].dtype) for column in kinds}
    categories = [column for column, kind in kinds.items() if kind == "category"]
    plan = plan_encode(source.rows, sizes, resources, categories, binned=isinstance(config.max_bins, int))
    with (
        staged(path, STORE, overwrite=overwrite) as folder,
        TemporaryFolder(resources.scratch) as scratch,
        naming_full_disk(path.parent, scratch.parent),
        source.unchanged(),
        # Tasks write their parts next to the store, or in scratch if only scratch is shared with other machines.
        StoreWriter(
            folder, max_bins=config.max_bins, parts=scratch / "parts" if is_remote(scratch) else None
        ) as writer,
        stage("encode", len(kinds), "columns", listener) as running,
    ):
        names = [*kinds, name, *roles.others]
        separator, source = (
            source.separator,
            repacked(source, {column: columns[column] for column in names}, scratch, resources.limits.copy_cells),
        )
        if source.rows > FEW_ROWS:
            with announced(ENCODING, listener):
                compile_presort({key_size(sizes[column]) for column, kind in kinds.items() if kind == "numeric"})
        target, counts = encode_target(source, name, config, plan, writer, listener)
        dropped = source.rows - target.kept
        for message in _target_notices(target, dropped, asked, config.weight):
            listener(Notice(message))
        column_of = {column: columns[column].column for column in kinds}
        rows_file = _shared_rows(writer, scratch)
        plan = replace(plan, rows=target.kept)
        job = EncodeJob(source, rows_file, config.max_bins, plan, writer.parts, scratch, column_of, kinds)
        weight = encode_row_weights(job, target.spec, counts, config, writer, listener)
        # A table in memory is encoded by this process.
        executor = (resources if source.files else replace(resources, cluster=None)).executor(plan.workers)
        writer.shared = executor.remote and not is_remote(scratch)
        _encode_features(job, writer, running, executor)
        groups = None
        if config.group is not None:
            groups = encode_groups(job, config.group, columns[config.group].dtype, writer)
        writer.finish(target.spec, dropped, groups, weight, config.missing, separator)
    store = Store.open(path, verify=False)
    for message in column_notices(store):
        listener(Notice(message))
    if config.bootstrap and groups is None and (repeats := notice_repeats(store)):
        listener(Notice(repeats))
    return store


def _role_notices(source: Source, roles: ColumnRoles, config: TrainConfig) -> Iterator[str]:
    """Yield messages about how columns are read, which columns are left out, and the chosen target and task."""
    yield from source.notices
    if coded := [name for name in source.coded if roles.kinds.get(name) == "numeric"]:
        yield (
            f"these columns were categories in pandas or Arrow, and are read as plain numbers: "
            f"{listed([*map(repr, coded)])}; name them as {api('categories')} if the numbers are codes"
        )
    for index in roles.indexes:
        called = f"the column {index!r}" if index else "the first column, which has no name,"
        yield f"{called} is an index that pandas wrote, and is left out; rename it to use it as a feature"
    name, task = roles.target, roles.task
    if roles.rivals:
        rivals = f"{listed([*map(repr, roles.rivals)])} {'is a feature' if len(roles.rivals) == 1 else 'are features'}"
        yield (
            f"the target is {name!r}, and {rivals}; name the column to predict as {api('target')}, and leave out "
            f"copies of it with {api('exclude')}"
        )
    if config.task is None and (why := roles.why or why_regression(source, roles.columns[name])):
        other, if_so = ("classification", "classes") if task == "regression" else ("regression", "counts or quantities")
        yield f"{name!r} has {why}, so this is a {task}; set {api('task')} to {other} if these are {if_so}"


def _target_notices(
    target: FoundClasses | FoundNumbers, dropped: int, asked: Task | None, weight: str | None
) -> Iterator[str]:
    """Yield messages about dropped rows, a constant target, and very many classes if no task was requested."""
    name, classes = target.spec.name, len(target.spec.classes)
    if dropped:
        reason = "" if weight is None else f", or 0 in {weight!r},"
        rows_have, are = ("1 row has", "is") if dropped == 1 else (f"{dropped:,} rows have", "are")
        yield f"{rows_have} no value in {name!r}{reason} and {are} left out"
    if target.constant:
        yield f"all rows have the same value in {name!r}, so every tree is a single leaf"
    if asked is None and 2 < classes <= target.kept < 2 * classes:
        yield (
            f"{name!r} has {classes:,} classes in {target.kept:,} rows, too few to learn a class from; if it has "
            "names or measurements, choose another target, or convert them to numbers"
        )


def _shared_rows(writer: StoreWriter, scratch: Path) -> Path | None:
    """Return the file of the rows to encode, where all tasks can read it; None for all rows."""
    rows = writer.row_numbers()
    if rows is None or not is_remote(scratch):
        return rows
    copy(rows, scratch / rows.name)
    return scratch / rows.name


def encode_group(job: EncodeJob, index: int, names: Sequence[str]) -> Part | list[str]:
    """Task: encode a group of features as part `index`. Return the part, or the unusable features with reasons."""
    with PartWriter(job.parts, index) as part:
        wrong: list[str] = []
        if job.kinds[names[0]] == "category":
            for name in names:
                encode_category(job, name, part)
        elif job.plan.in_memory(names):
            wrong = encode_in_memory(job, names, part)
        else:
            wrong = encode_in_pieces(job, names[0], part)
        return wrong or part.part()


def _encode_features(job: EncodeJob, writer: StoreWriter, running: Stage, executor: Executor) -> None:
    """Encode the features concurrently, and append them in order. Raises DataError that names all unusable features."""
    groups = job.plan.groups
    wrong: list[str] = []

    def append(_: int, part: Part | list[str]) -> None:
        if isinstance(part, list):
            wrong.extend(part)
        elif not wrong:
            writer.append(part)

    append_in_order = in_order(append)

    def collect(index: int, part: Part | list[str]) -> None:
        running.advance(len(groups[index]))
        append_in_order(index, part)

    executor.run(encode_group, list(enumerate(groups)), collect, (job,))
    if wrong:
        raise DataError(
            f"these features cannot be used: {listed(wrong)}. Exclude the columns, or convert or drop the values"
        )
    if writer.shared:
        writer.join(executor)


@documented_options
@explicit_options
def encode_store(
    data: Any,
    out: str | Path,
    *,
    target: str | ArrayLike | None = None,
    # Options, written by docs/options.py.
    max_bins: Literal["exact"] | int = "exact",
    group: str | ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    class_weight: Mapping[Any, float] | str | Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    # End of the options.
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Store:
    """Presort a table into the store `out`, to train on it many times.

    Arguments that are not described here, and the errors, are the same as for `train`.

    Parameters
    ----------
    data : path or table
        The table, as for `train`.
    out : path
        Folder of the store.
    target : str or ArrayLike or None, default=None
        The target column, as for `train`.
    overwrite : bool, default=False
        Replace an existing store at `out`.

    Returns
    -------
    Store

    Examples
    --------
    >>> import bigforest as bf
    >>> rows = {"size": [1.0, 2.0, 2.0, 4.0], "kind": ["a", "a", "b", "b"]}
    >>> store = bf.encode_store(rows, "kind.store", target="kind")
    >>> bf.train(store, trees=5).trees
    5
    """
    resources = resources_of(threads, scratch, memory)
    data, target, left_out, options = column_arguments(data, target, exclude, given(locals()))
    config = TrainConfig(**options)
    check_csv(data, config.missing)
    if not opens_quickly(data):
        check_output(out, STORE, overwrite=overwrite)
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, as_path(out), listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
    ):
        reading = Reading(missing=config.missing, excluded=frozenset(left_out), categories=frozenset(config.categories))
        source = open_source(data, scratch=work, memory=resources.memory, reading=reading)
        roles = column_roles(source, target, left_out, config)
        return encode(
            source, roles, as_path(out), config=config, resources=resources, listener=listener, overwrite=overwrite
        )
