"""The files of a grown forest: what is in its directory, as tables and facts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import label_values
from bigforest.errors import ConfigError, api, damaged_forest
from bigforest.forest import ranks as training_ranks
from bigforest.forest.choices import Choices
from bigforest.forest.files import Header, has_levels, read_features, read_origin, read_table, with_rows
from bigforest.forest.format import (
    CALIBRATED,
    PRUNED,
    RUN,
    SHARPENED,
    SHRUNK,
    TUNING,
    TUNING_KIND,
    VALIDATION,
    VALIDATION_KIND,
    nodes_schema,
)
from bigforest.forest.leaf_targets import targets_files
from bigforest.forest.leaf_votes import read_votes, votes_files
from bigforest.forest.origin import Origin
from bigforest.forest.parts import (
    Nodes,
    Span,
    batches,
    check_count,
    check_order,
    check_part,
    first_tree,
    join_nodes,
    part_paths,
    read_span,
)
from bigforest.forest.tables import scan, to_frame
from bigforest.options.train_config import TrainConfig
from bigforest.predict.oob_report import OobReport, oob_rows_files
from bigforest.predict.tree_votes import FILE as BOOSTING_FILE
from bigforest.predict.tree_votes import read_boosting
from bigforest.store.levels import FILE as LEVELS_FILE
from bigforest.store.levels import Levels

VALIDATION_FILE = Path("validation", "curve.parquet")
TUNING_FILE = Path("tuning", "candidates.parquet")
_REVISED = {PRUNED: "pruned", CALIBRATED: "calibrated", SHRUNK: "shrunk", SHARPENED: "sharpened"}


class Contents:
    """The files in the directory of a forest; GrownForest (grown.py) adds the trees in memory.

    Functions that read files alone take Contents. So grown.py can import those that it needs (calibration, bags).

    directory  where its files are.
    spec       the dataspec: features and target of the training table.
    config     the configuration it was grown with.
    shrinkage  by what the values of its leaves are shrunk, and how that was chosen; power: to which power shares of
               classes are raised, likewise.
    identity   equal for all files of one forest and no others: its dataspec and configuration.
    part_files  the files of its trees.
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        parts: Sequence[Span] | None,
        choices: Choices,
        holding: object = None,
        *,
        changed: tuple[str, ...] = (),
    ) -> None:
        """header: with levels; parts: None if they are checked when they are first read; changed:
        the stages by which `choices` are others than those of the files."""
        self.directory = directory
        self.spec: DataSpec = header.spec
        self.config: TrainConfig = header.config
        self.choices, self.shrinkage, self.power = choices, choices.shrinkage, choices.power
        self._changed = changed
        self.header = header
        self.identity = header.identity
        self.part_files = part_paths(directory) if parts is None else [part.path for part in parts]
        if parts is not None:
            self._parts = list(parts)
        self._holding = holding

    @cached_property
    def _parts(self) -> list[Span]:
        """What the parts say they hold. Raises FormatError."""
        return [check_part(path, self.header) for path in self.part_files]

    @property
    def is_temporary(self) -> bool:
        """Whether its files go away with this object."""
        return self._holding is not None

    @property
    def trees(self) -> int:
        """Number of trees."""
        return self.config.trees

    @property
    def node_count(self) -> int:
        """Number of nodes of all trees, as the parts say."""
        return sum(part.stop for part in self._parts)

    @property
    def classes(self) -> list[Any]:
        """Labels of the target in ascending order; none for regression.

        Dates, times and decimals are Python's, which lose what is below a microsecond.
        """
        return [] if self.is_regression else label_values(self.spec.target)

    @property
    def is_regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return self.spec.target.is_regression

    @property
    def nodes(self) -> pl.LazyFrame:
        """One row per node, by tree and node; columns as in docs/reference/files.md."""
        return self._scan_nodes(self.part_files)

    def tree_nodes(self, number: int) -> pl.LazyFrame:
        """`nodes` of one tree. Only the part that has it is read."""
        part = bisect_right(self.part_files, number, key=first_tree) - 1
        return self._scan_nodes(self.part_files[part : part + 1]).filter(pl.col("tree") == number)

    def each_tree(self) -> Iterator[pl.DataFrame]:
        """`nodes` of every tree, one after the other. A part is in memory at a time."""
        for path in self.part_files:
            yield from self._scan_nodes([path]).collect().partition_by("tree", maintain_order=True)

    def _scan_nodes(self, paths: list[Path]) -> pl.LazyFrame:
        """The nodes in these parts."""
        classes = len(self.spec.target.classes)
        return scan(
            paths,
            nodes_schema(self.spec),
            lambda path, names: batches(Span(path), classes, names),
            self._holding,
        )

    def read_parts(self) -> list[Nodes]:
        """The checked nodes of each part. Raises FormatError."""
        parts = [join_nodes(list(read_span(span, self.header))) for span in self._parts]
        trees = [part.roots.size for part in parts]
        check_order(self.part_files, [part.tree for part in parts], trees)
        check_count(self.directory, sum(trees), self.header)
        return parts

    @property
    def features(self) -> pl.DataFrame:
        """One row per feature with its importance; columns as in docs/reference/files.md."""
        return to_frame(read_features(self.directory / "features.parquet", self.spec, self.identity))

    @property
    def run(self) -> pl.DataFrame:
        """One row per stage of the run that grew the forest; columns as in docs/reference/files.md."""
        path = self.directory / "run.parquet"
        return to_frame(with_rows(read_table(path, "run", RUN, self.identity), path))

    @cached_property
    def origin(self) -> Origin | None:
        """The table the forest was grown on, or the forests it was merged from; None if it does not say."""
        return read_origin(self.directory)

    @cached_property
    def revised(self) -> str | None:
        """What was done since the trees were grown, "pruned", "calibrated", "shrunk" or "sharpened", if anything."""
        stages = [*self.run["stage"], *self._changed]
        return next((word for stage, word in _REVISED.items() if stage in stages), None)

    @property
    def has_oob(self) -> bool:
        """Whether there is an out-of-bag report: trees had bags, and the forest was neither merged nor revised."""
        return self.config.bootstrap and not (self.origin and self.origin.merged) and not self.revised

    @property
    def has_bags(self) -> bool:
        """Whether there is an out-of-bag report, and the bags can be drawn again: the forest is not boosted."""
        return self.has_oob and not self.config.boosts

    @cached_property
    def oob(self) -> OobReport:
        """The out-of-bag report. Raises ConfigError for a forest without one (`has_oob`), and FormatError."""
        if not self.config.bootstrap:
            raise ConfigError(
                "the forest was grown without bootstrap, so no row is out of bag; "
                f"evaluate it on a test set, or train with {api('bootstrap')}"
            )
        if self.origin and self.origin.merged:
            raise ConfigError(
                f"the forest was merged from {', '.join(piece.forest for piece in self.origin.merged)}, so it has no "
                "out-of-bag report of its own; evaluate it on a test set, or look at their reports"
            )
        if self.revised:
            raise ConfigError(
                f"the forest was {self.revised}, and has no out-of-bag report since; evaluate it on a test set"
            )
        return OobReport(self.directory, self.spec, self.config.criterion, self.identity, self._holding)

    @property
    def has_votes(self) -> bool:
        """Whether the votes of trees on out-of-bag rows are kept with the forest; they are the same by any lambda and
        power."""
        return self.config.keep_votes and self.revised not in (_REVISED[PRUNED], _REVISED[CALIBRATED])

    @property
    def oob_votes(self) -> pl.LazyFrame:
        """One row per tree and training row that is not in its bag, by tree and row, with its leaf; columns as in
        docs/reference/files.md. A merged forest has those of the forests it was merged from.

        Raises ConfigError for a forest without them (`has_votes`), and FormatError.
        """
        if not self.has_votes:
            raise ConfigError(
                f"the votes of the trees are not kept with this forest; train it with {api('keep_votes')}"
            )
        return read_votes(self.directory, self.identity, self._holding)

    @property
    def has_targets(self) -> bool:
        """Whether the training targets in its leaves are kept with the forest, from which it predicts quantiles."""
        return self.config.keep_targets

    @property
    def has_validation(self) -> bool:
        """Whether the forest was trained with a validation set."""
        return not self._changed and (self.directory / VALIDATION_FILE).exists()

    @property
    def validation(self) -> pl.DataFrame:
        """Error on the validation set after each tree; columns as in docs/reference/files.md.

        Raises ConfigError for a forest that was trained without one, and FormatError.
        """
        if not self.has_validation:
            raise ConfigError(
                f"the forest was trained without a validation set; evaluate it on one with {api('validate_forest')}"
            )
        path = self.directory / VALIDATION_FILE
        return to_frame(with_rows(read_table(path, VALIDATION_KIND, VALIDATION, self.identity), path))

    @property
    def is_tuned(self) -> bool:
        """Whether the forest is the winner of a comparison that `train(tune=...)` made."""
        return (self.directory / TUNING_FILE).exists()

    @property
    def tuning(self) -> pl.DataFrame:
        """The candidates that the forest was chosen from; columns as in docs/reference/files.md.

        Raises ConfigError for a forest that was not chosen by `tune`, and FormatError.
        """
        if not self.is_tuned:
            raise ConfigError(f"the forest was not chosen among candidates; train it with {api('tune')}")
        path = self.directory / TUNING_FILE
        found = to_frame(read_table(path, TUNING_KIND, TUNING, self.identity))
        if found["winner"].sum() != 1 or found["candidate"].n_unique() < found.height:
            raise damaged_forest(f"{path} does not have one winner and different names of candidates")
        return found

    @property
    def boosting(self) -> pl.DataFrame:
        """One row per tree of a boosted forest: its weighted error and its vote; columns as in
        docs/reference/files.md.

        Raises ConfigError for a forest that is not boosted, and FormatError.
        """
        if not self.config.boosts:
            raise ConfigError(
                f"the forest was grown with sampling {self.config.sampling!r}, and all its trees have equal votes"
            )
        return to_frame(read_boosting(self.directory, self.header))

    @property
    def levels(self) -> Levels:
        """The levels of categories."""
        assert self.header.levels is not None
        return self.header.levels

    @cached_property
    def ranks(self) -> training_ranks.Ranks | None:
        """The ranks of the training table, where the forest was grown on them."""
        return training_ranks.read_ranks(self.directory, self.spec, self.identity) if self.config.ranks else None

    def _files(self) -> list[Path]:
        """The files that make up the forest, all of which a copy needs."""
        small = [self.directory / "features.parquet", self.directory / "run.parquet"]
        small += [self.directory / training_ranks.FILE] if self.config.ranks else []
        small += [self.directory / BOOSTING_FILE] if self.config.boosts else []
        small += [self.directory / LEVELS_FILE] if has_levels(self.spec) else []
        small += [self.directory / VALIDATION_FILE] if self.has_validation else []
        small += [self.directory / TUNING_FILE] if self.is_tuned else []
        small += targets_files(self.directory) if self.has_targets else []
        small += votes_files(self.directory) if self.has_votes else []
        small += oob_rows_files(self.directory) if self.has_oob else []
        names = ["curve", "metrics", *([] if self.is_regression else ["confusion"])] if self.has_oob else []
        return [*self.part_files, *small, *(self.directory / "oob" / f"{name}.parquet" for name in names)]
