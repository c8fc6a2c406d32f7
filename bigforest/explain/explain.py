"""`bigforest.explain_forest`: from a forest, and rows, to a folder of tables."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigforest.events import Listener
from bigforest.execution.arguments import resources_of
from bigforest.execution.connect import open_resources
from bigforest.execution.forks import check_polars_threads
from bigforest.explain.job import ExplainJob
from bigforest.explain.options import ExplainOptions
from bigforest.explain.plan import MAKERS, asked_parts, plan_parts
from bigforest.explain.tables import Explanation, ExplanationFolder, digest
from bigforest.planning.memory import add_estimates
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.rows import open_rows
from bigforest.progress import watching
from bigforest.source import Source
from bigforest.storage.atomic import TemporaryFolder, made_folder, naming_full_disk
from bigforest.storage.paths import as_path

# Rows of a table in memory that are hashed at a time.
_HASHED_ROWS = 1 << 17


def explain_forest(
    forest: Forest | str | Path,
    data: Any = None,
    out: str | Path | None = None,
    *,
    parts: Iterable[str] | str | None = None,
    loss: str | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    new_rows: bool = False,
    classes: Sequence[Any] | None = None,
    features: Sequence[Any] | None = None,
    grid: int = 20,
    individual: int = 0,
    sample: int | None = None,
    rows: Sequence[int] = (),
    neighbors: int = 10,
    rules: int = 20,
    seed: int = 0,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Explanation:
    """Explain the predictions of a forest, as tables in the folder `out`.

    Results do not depend on threads, memory and workers.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path, default=None
        Rows to explain, a table as for `train`. Parts that use out-of-bag rows need the training table with the target.
    out : str, Path or None, default=None
        Folder of the tables, each a Parquet file that appears when it is complete. An existing table of the same
        forest, data and options is kept, so repeating an interrupted run continues it. None for a temporary folder,
        which exists as long as the Explanation.
    parts : iterable of str, str or None, default=None
        Parts of the explanation: of the forest alone ("importance", "trees"), of any rows ("contributions", "shap",
        "interactions", "dependence", "effects"), and of out-of-bag rows ("unbiased", "permutation", "local",
        "strength", "proximities", "filling"). None for the fast ones ("importance", "unbiased", "permutation",
        "strength", "trees"), as far as there are rows.
    loss : str or None, default=None
        Loss for permutation importance: "error" or "log_loss", "mse" for regression, "poisson_deviance" or "mse" with
        the impurity poisson.
    groups : mapping or None, default=None
        Features to permute together, in addition to each feature alone: lists of names, by the name of the group.
    new_rows : bool, default=False
        The rows are not training rows: all of them are out of bag.
    classes : sequence or None, default=None
        Classes to explain in contributions and dependence. None for all, or for the second of two. Refused for a
        regression forest.
    features : sequence or None, default=None
        Features for dependence and effects: names, and pairs of names. None for the 10 with the largest decrease of
        impurity.
    grid : int, default=20
        Maximum number of values of a feature at which dependence is evaluated. For a category, all levels in the rows
        are used.
    individual : int, default=0
        Rows of the sample whose individual curves are kept.
    sample : int or None, default=None
        Number of rows to sample for the mean of dependence, and for local, interactions, proximities and filling. None
        for 1,000, 1,000, 100, 10,000 and all rows with a missing value.
    rows : sequence of int, default=()
        Rows that local, interactions, proximities and filling explain, instead of a sample.
    neighbors : int, default=10
        Number of rows with the largest proximity to keep for each row.
    rules : int, default=20
        Number of leaves to show as rules, the most informative ones.
    seed : int, default=0
        Seed of permutations and samples.
    overwrite, threads, scratch, memory, listener, scheduler
        As for `predict_file`.

    Returns
    -------
    Explanation

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> explanation = bf.explain_forest(forest, table, parts=["importance", "permutation"])
    >>> explanation["permutation"]["feature"].to_list()
    ['length', 'width']
    """
    given = {name: value for name, value in locals().items() if name in ExplainOptions.__dataclass_fields__}
    forest = opened_forest(forest)
    given |= {"parts": asked_parts(parts, data, forest), "groups": {} if groups is None else groups}
    options = ExplainOptions(**given)
    resources = resources_of(threads, scratch, memory)
    check_polars_threads()
    holding = TemporaryFolder(resources.scratch) if out is None else None
    home = as_path(out) if out is not None else holding.path / "explanation"  # type: ignore[union-attr]
    with (
        watching(listener) as listener,
        open_resources(scheduler, resources, home, listener, beside=True) as resources,
        TemporaryFolder(resources.scratch) as work,
        naming_full_disk(home),
    ):
        source = None if data is None else open_rows(data, forest.spec, scratch=work, memory=resources.memory)
        folder = ExplanationFolder(home, *_made_of(forest, source), overwrite=overwrite)
        job = ExplainJob(forest, source, options, resources, listener, folder, work)
        with made_folder(home):
            plans = plan_parts(job)
            add_estimates([plan.need for plan in plans.values()]).check(resources.memory)
            # First those that may refuse the rows, so that nothing is written then.
            for part in sorted(plans, key=lambda part: MAKERS[part].needs != "out of bag"):
                MAKERS[part].write(job, plans[part])
    return Explanation(home, holding)


def _made_of(forest: Forest, source: Source | None) -> tuple[str, str]:
    """A digest of a forest, and of a table."""
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in forest.part_files]
    return digest(forest.identity, stamps), digest(None if source is None else _rows_of(source))


def _rows_of(source: Source) -> list[Any]:
    if source.files and not source.spooled:
        return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in source.files]
    schema = {name: str(dtype) for name, dtype in source.schema.items()}
    hashes = [
        zlib.crc32(batch.hash_rows(0).to_numpy().tobytes()) for batch in source.batches([*source.schema], _HASHED_ROWS)
    ]
    return [schema, source.rows, hashes]
