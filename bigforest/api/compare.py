"""`bigforest.compare`: compare candidates on one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bigforest.api.files import named_job
from bigforest.api.given import with_options
from bigforest.common.errors import ConfigError, shown
from bigforest.common.events import Listener
from bigforest.common.progress import watching
from bigforest.execution.arguments import resources_of
from bigforest.execution.connect import crew_of
from bigforest.race.comparison import Comparison
from bigforest.race.run import Race, parse_duration
from bigforest.schema.train_options import OPTIONS
from bigforest.storage.atomic import TemporaryFolder
from bigforest.storage.paths import as_path


@with_options
def compare(
    data: Any,
    target: Any = None,
    *,
    candidates: Mapping[str, Mapping[str, Any]] | str | Path | int | None = None,
    metric: str | None = None,
    budget: str | float | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    exclude: Sequence[str] = (),
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
    scheduler: Any = None,
) -> Comparison:
    """Compare configurations by their out-of-bag loss, and keep the best forest.

    All candidates grow on one presorted table, with the same bags, 25 trees at a time. From 50 trees on, a candidate is
    retired if its loss exceeds that of the best by more than three standard errors of the difference, paired by row. At
    the end, the winner is the first in the list whose loss is within one standard error of the best. Its forest is the
    one that `train` grows with the same options; it is not trained again.

    Parameters
    ----------
    data : path or table
        The table or store, as for `train`.
    target : str or ArrayLike or None, default=None
        The target column, as for `train`.
    candidates : mapping, path, int or None, default=None
        Options of `train` by the name of the candidate, the simplest first; or a TOML file with a table for each; or
        the number of default candidates to use. None for all default candidates.
    metric : {"log_loss", "error", "auc", "mse", "poisson_deviance"} or None, default=None
        Loss to compare. None for log_loss (classification) or mse (regression; poisson_deviance if the options have
        that impurity).
    budget : str or float or None, default=None
        Time after which no more trees are grown, such as "10m". It is checked between rounds only and affects nothing
        else. None to grow `trees` trees for all candidates.
    out : path or None, default=None
        Folder of the comparison. Repeating an interrupted comparison continues it. None for a temporary folder, which
        exists as long as the result.
    options : mapping or None, default=None
        Options of `train` that apply to all candidates, such as {"trees": 200, "group": "patient"}.
    exclude, overwrite, threads, scratch, memory, listener, scheduler
        As for `train`.

    Returns
    -------
    Comparison

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError
        As for `train`; also for candidates without out-of-bag rows.

    Notes
    -----
    Candidates with different out-of-bag fractions (`sample_fraction`) are evaluated with different numbers of trees per
    row. With few trees this favours candidates that leave out more rows.
    """
    if not isinstance(options, Mapping | None):
        raise ConfigError(f"options must be a mapping of options of training to values, not {shown(options)}")
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            raise ConfigError(f"there is no option {name!r} of training; see bigforest.train")
    job = named_job(data, target, exclude, given)
    seconds = parse_duration(budget)
    resources = resources_of(threads, scratch, memory)
    holding = TemporaryFolder(resources.scratch) if out is None else None
    folder = as_path(out) if out is not None else holding.path / "comparison"  # type: ignore[union-attr]
    with watching(listener) as events, crew_of(scheduler, resources, folder, events, beside=True) as resources:
        race = Race(job, candidates, metric, seconds, folder, resources, events)
        found = race.run(overwrite=overwrite)
    return found if holding is None else Comparison(found.path, holding)
