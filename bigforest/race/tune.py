"""`train(tune=...)`: the race, and then the forest that has won."""

from __future__ import annotations

from pathlib import Path

from bigforest.common.errors import ConfigError, shown
from bigforest.common.events import Listener, Notice
from bigforest.execution.resources import Resources
from bigforest.predict.forest import Forest, is_forest, read_forest
from bigforest.race.run import Race, parse_duration, run_race
from bigforest.storage.atomic import TemporaryFolder, check_output
from bigforest.training.job import TrainingJob


def tuned_forest(
    job: TrainingJob,
    tune: int | str,
    out: str | Path | None,
    resources: Resources,
    listener: Listener,
    *,
    overwrite: bool,
) -> Forest:
    """The forest of the winner among some default candidates, at `out` or temporary; what is told is a notice.

    tune  number of candidates, or the time after which no more trees are grown.
    """
    if isinstance(tune, bool) or not isinstance(tune, int | str):
        raise ConfigError(f"tune must be a number of candidates, or a time such as 10m, not {shown(tune)}")
    count, budget = (tune, None) if isinstance(tune, int) else (None, parse_duration(tune, "tune"))
    if out is not None:
        check_output(out, overwrite=overwrite, kind="forest", is_ours=is_forest)
    holding = TemporaryFolder(resources.scratch)
    try:
        found = run_race(
            Race(job, count, None, budget), holding.path / "comparison", resources, listener, overwrite=False
        )
        listener(Notice("; ".join(f"{name}: {value}" for name, value in found.facts().items())))
        if out is None:
            return read_forest(found.forest.directory, holding=holding)
        found.forest.write(out, overwrite)
    except BaseException:
        holding.remove()
        raise
    holding.remove()
    return read_forest(out)
