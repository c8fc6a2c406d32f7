"""Growing the trees of a table with wide weights: trees are grown with narrower weights, then weighed (oob/weigh.py).

Parts are grown in a subfolder of the forest, where an interrupted run finds them again; a part in the forest has been
weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bigforest.common.events import Listener
from bigforest.execution.resources import Resources
from bigforest.forest.format.files import write_levels
from bigforest.forest.format.nodes import part_path
from bigforest.grow.forest import Grower, KeptTrees, missing_parts
from bigforest.grow.memory import GrowPlan
from bigforest.oob.weigh import check_weighing, weigh_parts
from bigforest.schema.config import TrainConfig
from bigforest.storage.atomic import remove
from bigforest.store.store import Store

# The folder of the parts that are still to be weighed, in that of the forest.
_LIGHT = "light"


class WeighingGrower:
    """A `Grower` whose parts are weighed."""

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
        check_weighing(store, config, resources)
        self._light = directory / _LIGHT
        self._light.mkdir(exist_ok=True)
        write_levels(self._light, store.levels(), store.spec, config)
        self._grower = Grower(store, config, self._light, resources, listener, way)
        self._task = (store, config, self._light, directory)
        self._resources = resources
        self.together = self._grower.together

    def __enter__(self) -> WeighingGrower:
        self._grower.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._grower.__exit__(*failure)
        if failure[0] is None:
            remove(self._light)

    def grown(self) -> KeptTrees | None:
        """See Grower: nodes are other ones once they are weighed."""
        return None

    def rest(self) -> None:
        """See Grower."""
        self._grower.rest()

    def grow(self, parts: Sequence[range], advance: Callable[[int], None]) -> None:
        """See Grower."""
        store, config, light, directory = self._task
        wanted = missing_parts(store, config, directory, parts, advance)
        self._grower.grow(wanted, lambda _: None)
        if self._resources.memory is not None:
            self.rest()
        weigh_parts(store, config, light, directory, wanted, self._resources, advance)
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
) -> Grower | WeighingGrower:
    """What grows parts of the forest of (store, config) into `directory`; way: as for `grow_forest`; keep: as for
    Grower."""
    if store.spec.wide_weights:
        return WeighingGrower(store, config, directory, resources, listener, way)
    return Grower(store, config, directory, resources, listener, way, keep)
