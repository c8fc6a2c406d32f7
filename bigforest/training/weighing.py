"""Growing the trees of a table with wide weights: trees are grown with narrower weights, then weighed (oob/weigh.py).

Parts are grown in a subfolder of the forest, where an interrupted run finds them again; a part in the forest has been
weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bigforest.common.events import Listener
from bigforest.execution.resources import Resources
from bigforest.forest.format.files import Header, write_levels
from bigforest.forest.format.nodes import part_path
from bigforest.grow.forest import Grower, missing_parts
from bigforest.grow.memory import GrowPlan
from bigforest.oob.weigh import weigh_estimate, weigh_parts
from bigforest.schema.config import TrainConfig
from bigforest.storage.atomic import remove
from bigforest.store.store import Store

# The folder of the parts that are still to be weighed, in that of the forest.
_LIGHT = "light"


class WeighingGrower(Grower):
    """A `Grower` whose parts are weighed. None are kept: nodes are other ones then."""

    def __init__(
        self,
        store: Store,
        config: TrainConfig,
        directory: Path,
        resources: Resources,
        listener: Listener,
        way: GrowPlan | None = None,
    ) -> None:
        """Raises ConfigError when the memory of `resources` is too little, before anything is grown."""
        weigh_estimate(store.shape, config, resources).check(resources.memory)
        light = directory / _LIGHT
        light.mkdir(exist_ok=True)
        write_levels(light, Header(store.spec, config, store.levels()))
        super().__init__(store, config, light, resources, listener, way)
        self._weighed, self._resources = directory, resources

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        if failure[0] is None:
            remove(self._task[2])

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        store, config, light = self._task
        wanted = missing_parts(store, config, self._weighed, parts, advance)
        super().grow(wanted, lambda _: None)
        if self._resources.memory is not None:
            self.rest()
        weigh_parts(store, config, light, self._weighed, wanted, self._resources, advance)
        for part in wanted:
            part_path(light, part.start).unlink()


def grower_of(
    store: Store,
    config: TrainConfig,
    directory: Path,
    resources: Resources,
    listener: Listener,
    way: GrowPlan | None = None,
    keep: bool = False,
) -> Grower:
    """What grows parts of the forest of (store, config) into `directory`; way: as for `grow_forest`; keep: as for
    Grower."""
    if store.spec.wide_weights:
        return WeighingGrower(store, config, directory, resources, listener, way)
    return Grower(store, config, directory, resources, listener, way, keep)
