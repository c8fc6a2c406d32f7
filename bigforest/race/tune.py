"""`train(tune=...)`: a comparison, and then the forest of the winner."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from bigforest.common.errors import ConfigError, shown
from bigforest.common.events import Listener, Notice
from bigforest.execution.resources import Resources
from bigforest.forest.contents import TUNING_FILE
from bigforest.forest.format.files import write_table
from bigforest.forest.format.schema import TUNING, TUNING_KIND
from bigforest.predict.forest import Forest, is_forest, read_forest
from bigforest.race.candidates import check_candidate_count
from bigforest.race.comparison import Comparison
from bigforest.race.run import Race, name_table, parse_duration, run_race
from bigforest.storage.atomic import TemporaryFolder, check_output
from bigforest.training.run import TrainingJob


def _keep_candidates(found: Comparison) -> None:
    """Write the candidates among the files of the winner."""
    forest = found.forest
    table = found.candidates.with_columns(
        metric=pl.lit(found.metric), cross_fitted=pl.when("winner").then(pl.lit(found.cross_fitted, pl.Float64))
    )
    made = table.select(TUNING.names).to_arrow().cast(pa.schema([field.with_nullable(True) for field in TUNING]))
    path = forest.directory / TUNING_FILE
    path.parent.mkdir(exist_ok=True)
    write_table(pa.table(made.columns, schema=TUNING), path, TUNING_KIND, forest.spec, forest.config)


def tuned_forest(
    job: TrainingJob,
    tune: int | str,
    out: str | Path | None,
    resources: Resources,
    listener: Listener,
    *,
    overwrite: bool,
) -> Forest:
    """The forest of the winner among some default candidates, at `out` or temporary; events become notices.

    tune  number of candidates, or the time limit.
    """
    if isinstance(tune, bool) or not isinstance(tune, int | str):
        raise ConfigError(f"tune must be a number of candidates, or a time such as 10m, not {shown(tune)}")
    count, budget = (tune, None) if isinstance(tune, int) else (None, parse_duration(tune, "tune", "a number or "))
    if count is not None:
        check_candidate_count(count, name="tune")
    if out is not None:
        check_output(out, overwrite=overwrite, kind="forest", is_ours=is_forest)
    holding = TemporaryFolder(resources.scratch)
    try:
        found = run_race(
            Race(job, count, None, budget), holding.path / "comparison", resources, listener, overwrite=False
        )
        if job.location is None:
            name_table(found.forest.directory, None, job.exclude)
        _keep_candidates(found)
        listener(Notice("; ".join(f"{name}: {value}" for name, value in found.facts().items())))
        if out is None:
            return read_forest(found.forest.directory, holding=holding)
        found.forest.write(out, overwrite)
    except BaseException:
        holding.remove()
        raise
    holding.remove()
    return read_forest(out)
