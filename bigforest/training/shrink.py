"""Shrinking a finished forest, with an explicit lambda or with the lambda of the lowest out-of-bag loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bigforest.errors import ConfigError, DataError, api
from bigforest.events import Listener
from bigforest.execution.resources import resources_of
from bigforest.forest.ballots import lambdas_to_try
from bigforest.forest.forest_files import is_forest
from bigforest.forest.ranks import ranked_store
from bigforest.forest.run_file import write_run
from bigforest.grow.forest import ForestJob
from bigforest.oob.report import write_oob
from bigforest.options.values import check_amount
from bigforest.predict.forest import Forest, opened_forest, read_forest, trees_alone
from bigforest.progress import watching
from bigforest.source import separated
from bigforest.storage.atomic import TemporaryFolder, staged
from bigforest.training.plan import open_table, resolve
from bigforest.training.run import StageTimer
from bigforest.training.run_folder import Run


def shrink_forest(
    forest: Forest | str | Path,
    out: str | Path,
    *,
    amount: float | None = None,
    data: Any = None,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Forest:
    """Shrink the leaves of a forest by another lambda (Agarwal et al. 2022), and write it to `out`.

    The trees do not change, byte for byte. `Forest.shrink` does the same without writing, and explains lambda.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    out : str or Path
        Folder of the new forest.
    amount : float or None, default=None
        Lambda, in rows; the new forest then has no out-of-bag report. None to select the lambda with the lowest
        out-of-bag log loss (mean squared error for regression, or Poisson deviance), as `train` does with
        shrink="auto"; the table is then read again, and a new report is made.
    data : table or path, default=None
        The training table, or a store of it. None if it is still in the same place.
    threads, scratch, memory, overwrite, listener
        As for `train`.

    Returns
    -------
    Forest

    Raises
    ------
    ConfigError
        For a forest without out-of-bag rows.
    DataError
        For another table.
    FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.shrink_forest(forest, "shrunk.forest", amount=5.0).shrinkage.amount
    5.0
    """
    if amount is not None:
        check_amount(amount)
    [forest] = trees_alone([opened_forest(forest)], "shrinking", listener)
    if amount is not None:
        forest.shrink(amount).write(out, overwrite)
        return read_forest(out)
    resources = resources_of(threads, scratch, memory)
    lambdas = _lambdas(forest)
    origin = forest.origin
    assert origin is not None
    if data is None and origin.data is None:
        raise ConfigError(
            f"the forest was grown on a table in memory; give it again as {api('data')}, or set {api('amount')}"
        )
    data = separated(origin.data, forest.spec.separator) if data is None else data
    run = Run(data, forest.spec.target.name, origin.exclude, forest.config, origin.fingerprint)
    with (
        watching(listener) as listener,
        staged(out, overwrite=overwrite, kind="forest", is_ours=is_forest) as directory,
        TemporaryFolder(resources.scratch) as work,
    ):
        timer = StageTimer(listener)
        resources = replace(resources, scratch=work)
        plan = resolve(run, open_table(run, work, memory=resources.memory), resources)
        store = plan.for_store(plan.make_store(work / "table.store", timer)).store
        if store.fingerprint != origin.fingerprint:
            raise DataError(
                "the table is not the one that the forest was grown on: columns or values differ; give that one"
            )
        forest.shrink(0.0).write(directory)
        store = ranked_store(store, forest.config, directory)
        report = write_oob(ForestJob(store, forest.config, directory, resources, timer), lambdas)
        seconds = dict(forest.run.select("stage", "seconds").iter_rows()) | {"oob": timer.seconds["oob"]}
        write_run(directory, seconds, resources.workers, forest.files.header, origin, report)
    return read_forest(out)


def _lambdas(forest: Forest) -> tuple[float, ...]:
    """Return the lambdas to choose from. Raises ConfigError if none can be chosen."""
    advice = f"set {api('amount')}"
    if not forest.config.bootstrap:
        raise ConfigError(f"the forest was grown without bootstrap, so no row is out of bag to choose by; {advice}")
    if forest.config.boosts:
        raise ConfigError(
            f"with sampling {forest.config.sampling!r} the out-of-bag error is biased, so nothing is chosen by it; "
            f"{advice}"
        )
    if forest.origin is None or forest.origin.merged or forest.revised in ("pruned", "calibrated"):
        raise ConfigError(
            f"the forest was {forest.revised or 'merged'}, so its out-of-bag rows are not known; {advice}"
        )
    wanted = replace(forest.config, shrink="auto")
    lambdas = lambdas_to_try(wanted, forest.spec.rows, forest.spec.target.answer_width)
    if not lambdas:
        what = "votes are hard" if forest.config.vote == "hard" else "the table has too many rows and classes"
        raise ConfigError(f"lambda cannot be chosen where {what}; {advice}")
    return lambdas
