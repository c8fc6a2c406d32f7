"""Bags of the trees of a forest. They are drawn again instead of stored.

A bag depends on the seed, the number of the tree, the options and the number of rows; if bags are drawn by class or by
group, also on the classes or groups of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import label_codes
from bigforest.columns.types import group_names, is_text_type, level_text
from bigforest.errors import ConfigError, DataError, api, counted
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.run_file import MergedForest
from bigforest.options.train_config import TrainConfig
from bigforest.planning.memory import Shape
from bigforest.source.in_memory import series_of

if TYPE_CHECKING:
    from bigforest.sampling.bags import Sampler


_AS_TRAINED = "give that column as it was in training"


class BagInputs(NamedTuple):
    """Data from which the bags of a forest are drawn. A Sampler reads them in place of a Store.

    target  class of each row, if bags are drawn by class; empty otherwise.
    groups  group of each row, if whole groups are drawn; None otherwise.
    """

    spec: DataSpec
    target: NDArray[Any]
    groups: NDArray[Any] | None

    @property
    def rows(self) -> int:
        return self.spec.rows

    def labels(self, start: int, stop: int) -> NDArray[Any]:
        return self.target[start:stop]

    def groups_of(self, start: int, stop: int) -> NDArray[Any]:
        assert self.groups is not None
        return self.groups[start:stop]

    @property
    def shape(self) -> Shape:
        return Shape(self.rows, (), 0, self.spec.target.answer_width)


def bags_of(files: ForestFiles, trees: Sequence[int], group: Any) -> pl.DataFrame:
    """Return the table of `Forest.inbag` for these trees. Raises ConfigError and DataError."""
    rows = _row_numbers(files)
    groups = group_codes(files.spec, files.config, group, rows)
    bags = tree_bags(files, groups)
    drawn = {tree: bags.bag(tree) for tree in trees}
    if groups is not None and files.has_oob:  # the counts of all bags reveal other groups
        outside = np.zeros(rows.size, np.uint32)
        for tree in range(files.trees):
            outside += (drawn[tree] if tree in drawn else bags.bag(tree)) == 0
        if not np.array_equal(files.oob.rows.select("trees").collect().to_series().to_numpy(), outside):
            raise DataError(f"group differs from the groups of training; {_AS_TRAINED}")
    return pl.DataFrame({"row": rows, **{str(tree): bag for tree, bag in drawn.items()}})


def tree_bags(files: ForestFiles, groups: NDArray[np.uint32] | None) -> TreeBags:
    """Return the bags of a forest. Raises ConfigError.

    groups  code of the group of each training row; None unless whole groups are drawn.
    """
    by_class = files.config.draws_by_class
    target = _classes(files) if by_class else np.empty(0, np.uint16)
    return TreeBags.of(files, BagInputs(files.spec, target, groups))


class TreeBags:
    """The bags of the trees of a forest. A bag is drawn when it is requested. Can be pickled.

    config  configuration of the forest.
    merged  forests that this forest was merged from, each with a seed; empty if it was not merged.
    inputs  data from which bags are drawn.
    """

    def __init__(self, config: TrainConfig, merged: Sequence[MergedForest], inputs: BagInputs) -> None:
        self.config = config
        self._merged = merged
        self.inputs = inputs
        self._samplers: dict[int, Sampler] = {}

    @classmethod
    def of(cls, files: ForestFiles, inputs: BagInputs) -> TreeBags:
        """Return the bags of a forest. Raises ConfigError for boosting, where bags depend on the errors of trees."""
        from bigforest.sampling.bags import unknown_bags

        if files.config.boosts:
            raise unknown_bags(files.config)
        return cls(files.config, () if files.origin is None else files.origin.merged, inputs)

    def __reduce__(self) -> tuple[type[TreeBags], tuple[TrainConfig, Sequence[MergedForest], BagInputs]]:
        return TreeBags, (self.config, self._merged, self.inputs)  # without the samplers

    def bag(self, tree: int) -> NDArray[np.uint16]:
        """Draw the bag of a tree: how often each training row is in it, uint16 [rows]."""
        from bigforest.sampling.bags import Sampler

        seed, number = self._origin(tree)
        if seed not in self._samplers:
            inputs: Any = self.inputs
            self._samplers[seed] = Sampler(inputs, replace(self.config, seed=seed))
        return self._samplers[seed].bag(number)

    def _origin(self, tree: int) -> tuple[int, int]:
        """Return the seed that a tree was grown with, and the number of the tree in the forest of that seed."""
        for piece in self._merged:
            if piece.first_tree <= tree < piece.first_tree + piece.trees:
                return piece.seed, tree - piece.first_tree
        return self.config.seed, tree


def _row_numbers(files: ForestFiles) -> NDArray[np.uint64]:
    """Return the numbers of the training rows in their table. Raises ConfigError if they are not known."""
    if not files.spec.dropped:
        return np.arange(files.spec.rows, dtype=np.uint64)
    if not files.has_oob:
        raise ConfigError(
            f"the table has {counted(files.spec.dropped, 'row')} left out, and only an out-of-bag report says which; "
            "this forest has none"
        )
    return files.oob.rows.select("row").collect().to_series().to_numpy()


def _classes(files: ForestFiles) -> NDArray[np.uint16]:
    """Return the class of each training row. Raises ConfigError without an out-of-bag report."""
    truth = files.oob.rows.select("truth").collect().to_series()
    codes = label_codes(truth, files.spec.target)
    assert codes is not None
    return codes.astype(np.uint16)


def _as_in_training(groups: pl.Series, trained: str) -> pl.Series:
    """Convert text to numbers, or numbers to text, so that groups sort as in training; trained: name of their type."""
    was_text = trained.startswith(("String", "Categorical", "Enum"))
    if was_text == is_text_type(groups.dtype):
        return groups
    if was_text:
        return level_text(groups)
    return groups.cast(pl.Int128 if "Int" in trained else pl.Float64, strict=False)


def group_codes(spec: DataSpec, config: TrainConfig, group: Any, rows: NDArray[np.uint64]) -> NDArray[np.uint32] | None:
    """Return the code of the group of each row, its rank among the groups; None if rows are drawn.

    group  column of groups in the training table; None if it is not given
    rows   numbers of the training rows in this table

    Raises ConfigError and DataError.
    """
    if not config.bootstrap or config.group is None or spec.group is None:
        if group is not None:
            raise ConfigError(f"the bags of this forest were not drawn by groups; drop {api('group')}")
        return None
    if group is None:
        raise ConfigError(
            f"whole groups of {config.group!r} were drawn, which are not kept with the forest; give that column of the "
            "training table as group"
        )
    column = _as_in_training(group_names(series_of(group, config.group, "group")), spec.group.dtype)
    if len(column) != spec.rows + spec.dropped:
        raise DataError(
            f"group has {counted(len(column), 'row')}, and the training table had {spec.rows + spec.dropped:,}"
        )
    codes = column.gather(rows).rank("dense")
    if codes.null_count() or codes.max() != spec.group.groups:
        raise DataError(f"group does not name the {counted(spec.group.groups, 'group')} of training; {_AS_TRAINED}")
    return codes.to_numpy().astype(np.uint32) - np.uint32(1)
