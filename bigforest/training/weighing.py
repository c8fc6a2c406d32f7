"""Growing the trees of a table with wide weights: trees are grown with narrower weights, then weighed (oob/weigh.py).

Parts are grown in a subfolder of the forest, where an interrupted run finds them again; a part in the forest has been
weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bigforest.forest.files import write_levels
from bigforest.forest.nodes import part_path
from bigforest.grow.forest import ForestJob, Grower, missing_parts
from bigforest.grow.memory import GrowPlan
from bigforest.oob.weigh import weigh_estimate, weigh_parts
from bigforest.storage.atomic import remove

# The folder of the parts that are still to be weighed, in that of the forest.
_LIGHT = "light"


class WeighingGrower(Grower):
    """A `Grower` whose parts are weighed. None are kept: nodes are other ones then."""

    def __init__(self, job: ForestJob, way: GrowPlan | None = None) -> None:
        """Raises ConfigError when the memory is too little, before anything is grown."""
        weigh_estimate(job.store.shape, job.config, job.resources).check(job.resources.memory)
        self._weighed, light = job, job._replace(directory=job.directory / _LIGHT)
        light.directory.mkdir(exist_ok=True)
        write_levels(light.directory, light.header())
        super().__init__(light, way)

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        if failure[0] is None:
            remove(self._job.directory)

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        wanted = missing_parts(self._weighed, parts, advance)
        super().grow(wanted, lambda _: None)
        if self._job.resources.memory is not None:
            self.rest()
        weigh_parts(self._weighed, self._job.directory, wanted, advance)
        for part in wanted:
            part_path(self._job.directory, part.start).unlink()


def grower_of(job: ForestJob, way: GrowPlan | None = None, keep: bool = False) -> Grower:
    """What grows parts of a forest; way, keep: as for Grower."""
    return WeighingGrower(job, way) if job.store.spec.wide_weights else Grower(job, way, keep)
