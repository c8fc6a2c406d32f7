"""`forest.plot`: the pictures of a forest, as Altair charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bigforest.common.errors import ConfigError, shown
from bigforest.execution.arguments import resources_of
from bigforest.explain.explain import explain_forest
from bigforest.explain.row_table import sampled
from bigforest.plot.confusion import confusion_chart
from bigforest.plot.contributions import swarm_chart, waterfall_chart
from bigforest.plot.dependence import dependence_chart
from bigforest.plot.draw import altair
from bigforest.plot.error import error_chart
from bigforest.plot.importance import importance_chart
from bigforest.plot.scores import precision_recall_chart, reliability_chart, roc_chart
from bigforest.plot.shape import depth_chart, leaves_chart, time_chart
from bigforest.plot.tree import DEPTH, MOST_DEPTH, tree_chart
from bigforest.predict.forest import Forest
from bigforest.source import Source, open_source
from bigforest.storage.atomic import TemporaryFolder

# Rows of a table that are looked at together.
_SLICE = 1 << 16
_DRAWN = 1000


@dataclass(frozen=True)
class Pictures:
    """The pictures of a forest: `forest.plot.error()` and so on give Altair charts, which notebooks show.

    forest  whose pictures they are.
    how     options of `bigforest.explain_forest` that say how to run: threads, memory, scratch, listener, scheduler.

    All raise ConfigError where the extra `plot` is not installed or the forest lacks what is to be drawn.
    """

    forest: Forest
    how: dict[str, Any] | None = None

    def error(self) -> Any:
        """Out-of-bag error against the number of trees, with a band of two standard errors."""
        self._heard()
        return error_chart(self.forest)

    def confusion(self) -> Any:
        """Rows out of bag by true and voted class."""
        self._heard(classes=True)
        return confusion_chart(self.forest)

    def reliability(self) -> Any:
        """Probabilities out of bag against the shares of rows that are of the class."""
        self._heard(classes=True)
        return reliability_chart(self.forest)

    def roc(self) -> Any:
        """ROC curve of the rows out of bag: of two classes the second, of several each against the rest."""
        self._heard(classes=True)
        return roc_chart(self.forest)

    def precision_recall(self) -> Any:
        """Precision against recall of the rows out of bag, classes as in `roc`."""
        self._heard(classes=True)
        return precision_recall_chart(self.forest)

    def importance(self) -> Any:
        """The most important features by the decrease of impurity, with two standard errors over the trees."""
        return self._importance("importance", None)

    def unbiased(self, data: Any) -> Any:
        """The same by rows out of bag (MDI-oob); `data` is the table the forest was grown on."""
        return self._importance("unbiased", data)

    def permutation(self, data: Any) -> Any:
        """The same by permuting rows out of bag; `data` is the table the forest was grown on."""
        return self._importance("permutation", data)

    def dependence(self, data: Any, features: Sequence[str] | None = None) -> Any:
        """Partial dependence on features, the most important unless given, over a sample of the rows of `data`."""
        altair()
        if features is not None and any(not isinstance(name, str) for name in features):
            raise ConfigError(f"features must be names, not {shown(features)}; pairs are tables of explain_forest")
        rows, _ = self._drawn(data)
        found = explain_forest(self.forest, rows, parts="dependence", features=features, **(self.how or {}))
        return dependence_chart(found["dependence"], self.forest.is_regression)

    def waterfall(self, data: Any, row: int = 0, label: Any = None) -> Any:
        """What features add to the answer on a row of `data`, by its number; `label` is the class, see `swarm`."""
        altair()
        with self._source(data) as source:
            if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < source.rows:
                raise ConfigError(f"row must be a number from 0 to {source.rows - 1}, not {shown(row)}")
            rows = pl.concat(list(source.batches([*source.schema], 1, row, row + 1)))
        return waterfall_chart(self._contributions(rows, label), rows.row(0, named=True), row)

    def swarm(self, data: Any, label: Any = None) -> Any:
        """What features add to the answers on rows of `data`, drawn if there are more than 1,000.

        label  class whose probability is explained; None for the second of two, and of several the one of most rows.
        """
        altair()
        rows, of = self._drawn(data)
        return swarm_chart(self._contributions(rows, label), rows, of)

    def depth(self) -> Any:
        """Leaves by level, and the depth of the trees."""
        return depth_chart(self.forest)

    def leaves(self) -> Any:
        """Leaves by the rows they hold."""
        return leaves_chart(self.forest)

    def tree(self, number: int = 0, depth: int = DEPTH) -> Any:
        """A tree down to a level: conditions, classes and rows."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self.forest.trees:
            raise ConfigError(f"tree must be a number from 0 to {self.forest.trees - 1}, not {shown(number)}")
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= MOST_DEPTH:
            raise ConfigError(f"depth must be a number of levels from 0 to {MOST_DEPTH}, not {shown(depth)}")
        return tree_chart(self.forest, number, depth)

    def time(self) -> Any:
        """Seconds of each stage of the run."""
        return time_chart(self.forest)

    def _heard(self, classes: bool = False) -> None:
        """Raise ConfigError where no row is out of bag, or where numbers are predicted but `classes` needed."""
        altair()
        if classes and self.forest.is_regression:
            raise ConfigError("the forest predicts numbers; this picture is of classes")
        if not self.forest.oob.rows_used:
            raise ConfigError("every row is in the bag of every tree, so there is nothing out of bag to draw")

    def _importance(self, kind: str, data: Any) -> Any:
        altair()
        found = explain_forest(self.forest, data, parts=kind, **(self.how or {}))
        return importance_chart(found[kind], kind)

    def _contributions(self, rows: pl.DataFrame, label: Any) -> pl.DataFrame:
        if label is None and len(self.forest.classes) > 2:
            label = self._largest_class()
        classes = None if label is None else [label]
        found = explain_forest(self.forest, rows, parts="contributions", classes=classes, **(self.how or {}))
        return found["contributions"].sort("row")

    def _largest_class(self) -> Any:
        """The class that most rows of the bags have."""
        roots = self.forest.nodes.filter(pl.col("node") == 0).select(pl.col("counts")).collect().to_series()
        sums = [sum(counts) for counts in zip(*roots.to_list(), strict=True)]
        return self.forest.classes[sums.index(max(sums))]

    def _source(self, data: Any) -> _Opened:
        return _Opened(data, self.how or {})

    def _drawn(self, data: Any) -> tuple[pl.DataFrame, int]:
        """All rows of a table, or a sample of them, and how many there are."""
        with self._source(data) as source:
            chosen = sampled(source.rows, _DRAWN, 0)
            pieces, begin = [], 0
            for piece in source.batches([*source.schema], _SLICE):
                own = chosen[(chosen >= begin) & (chosen < begin + piece.height)]
                pieces.append(piece[(own - begin).tolist()])
                begin += piece.height
            return pl.concat(pieces), source.rows


class _Opened:
    """A table as a Source within a `with` block."""

    def __init__(self, data: Any, how: dict[str, Any]) -> None:
        if data is None:
            raise ConfigError("this needs rows: give data, a table with the features of the forest")
        self._resources = resources_of(how.get("threads"), how.get("scratch"), how.get("memory"))
        self._data = data
        self._folder = TemporaryFolder(self._resources.scratch)

    def __enter__(self) -> Source:
        try:
            return open_source(self._data, scratch=self._folder.path, memory=self._resources.memory)
        except BaseException:
            self._folder.remove()
            raise

    def __exit__(self, *_: object) -> None:
        self._folder.remove()
