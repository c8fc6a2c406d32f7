"""The bags of the trees of a forest. They depend on seed and options, are not stored, and are recomputed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import label_codes
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape

if TYPE_CHECKING:
    from bigforest.predict.contents import Contents
    from bigforest.sampling.bags import Sampler


class BagInputs(NamedTuple):
    """What bags depend on besides the configuration. A Sampler takes it in place of a Store.

    target  class of each row, where bags are drawn by class; groups: group of each row, where whole ones are drawn.
    """

    spec: DataSpec
    target: NDArray[Any]
    groups: NDArray[Any] | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.spec.rows

    def labels(self, start: int, stop: int) -> NDArray[Any]:
        """The classes of the rows from `start` to before `stop`."""
        return self.target[start:stop]

    def groups_of(self, start: int, stop: int) -> NDArray[Any]:
        """The groups of the rows from `start` to before `stop`."""
        assert self.groups is not None
        return self.groups[start:stop]

    @property
    def shape(self) -> Shape:
        """What decides the bytes of the draws."""
        return Shape(self.rows, (), 0, self.spec.target.answer_width)


def bags_of(forest: Contents, trees: Sequence[int], group: Any) -> pl.DataFrame:
    """`Forest.inbag` for these trees. Raises ConfigError and DataError."""
    rows = _row_numbers(forest)
    bags = tree_bags(forest, group_codes(forest.spec, forest.config, group, rows))
    return pl.DataFrame({"row": rows, **{str(tree): bags.bag(tree) for tree in trees}})


def tree_bags(forest: Contents, groups: NDArray[np.uint32] | None) -> TreeBags:
    """The bags of a forest; groups: of each training row, where whole ones are drawn. Raises ConfigError."""
    by_class = forest.config.bootstrap and forest.config.draws_by_class
    target = _classes(forest) if by_class else np.empty(0, np.uint16)
    return TreeBags(forest, BagInputs(forest.spec, target, groups))


class TreeBags:
    """The bags of the trees of a forest, each drawn when it is requested."""

    def __init__(self, forest: Contents, known: BagInputs) -> None:
        """Raises ConfigError where bags cannot be drawn again."""
        from bigforest.sampling.bags import not_drawn_again

        if forest.config.boosts:
            raise not_drawn_again(forest.config)
        self._forest = forest
        self._known = known
        self._samplers: dict[int, Sampler] = {}

    def __reduce__(self) -> tuple[type[TreeBags], tuple[Contents, BagInputs]]:
        return TreeBags, (self._forest, self._known)

    def bag(self, tree: int) -> NDArray[np.uint16]:
        """How often each training row is in the bag of the tree, uint16 [rows]."""
        from bigforest.sampling.bags import Sampler

        seed, number = _origin(self._forest, tree)
        if seed not in self._samplers:
            known: Any = self._known
            self._samplers[seed] = Sampler(known, replace(self._forest.config, seed=seed))
        return self._samplers[seed].bag(number)


def _origin(forest: Contents, tree: int) -> tuple[int, int]:
    """The seed a tree was grown with, and its number among the trees of that seed."""
    for piece in forest.origin.merged if forest.origin is not None else ():
        if piece.first_tree <= tree < piece.first_tree + piece.trees:
            return piece.seed, tree - piece.first_tree
    return forest.config.seed, tree


def _row_numbers(forest: Contents) -> NDArray[np.uint64]:
    """Numbers of the training rows in their table. Raises ConfigError where they are not kept with the forest."""
    if not forest.spec.dropped:
        return np.arange(forest.spec.rows, dtype=np.uint64)
    if not forest.has_oob:
        raise ConfigError(
            f"{forest.spec.dropped} rows of the table were left out, and only an out-of-bag report says which; this "
            "forest has none"
        )
    return forest.oob.rows.select("row").collect().to_series().to_numpy()


def _classes(forest: Contents) -> NDArray[np.uint16]:
    """The class of each training row. Raises ConfigError where they are not kept with the forest."""
    truth = forest.oob.rows.select("truth").collect().to_series()
    codes = label_codes(truth, forest.spec.target)
    assert codes is not None
    return codes.astype(np.uint16)


def group_codes(spec: DataSpec, config: TrainConfig, given: Any, rows: NDArray[np.uint64]) -> NDArray[np.uint32] | None:
    """The code of each row's group, its rank among the names. Raises ConfigError and DataError."""
    if not config.bootstrap or config.group is None or spec.group is None:
        if given is not None:
            raise ConfigError(f"the bags of this forest were not drawn by groups; drop {api('group')}")
        return None
    if given is None:
        raise ConfigError(
            f"whole groups of {config.group!r} were drawn, which are not kept with the forest; give that column of the "
            "training table as group"
        )
    column = pl.Series(config.group, given)
    column = column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column
    if len(column) != spec.rows + spec.dropped:
        given = counted(len(column), "row")
        raise DataError(f"group has {given}, and the training table had {spec.rows + spec.dropped:,}")
    codes = column.gather(rows).rank("dense")
    if codes.null_count() or codes.max() != spec.group.groups:
        raise DataError(
            f"group does not name the {spec.group.groups} groups of training; give that column as it was in training"
        )
    return codes.to_numpy().astype(np.uint32) - np.uint32(1)
