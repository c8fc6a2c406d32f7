"""The directory of a forest: opening it, its tables and facts, and copying it.

    f.forest/
      trees/part-NNNNNNN.parquet    the nodes of consecutive trees; NNNNNNN is the number of the first tree
      features.parquet              importance of each feature
      run.parquet                   stages of training; in its metadata origin, lambda, power, rounds, checksums
      refine/trees.parquet          trees of the boosted stage                 refine
      levels.parquet                levels of categories                       if there are categories
      ranks.parquet                 ranks of the training values               ranks
      boosting.parquet              error and weight of each tree              sampling adaboost or arc-x4
      targets/                      training targets in each leaf              keep_targets
      oob/                          out-of-bag report                          bootstrap, until revised or merged
      oob/votes/part-NNNNNNN.parquet  leaf of each out-of-bag row              keep_votes
      validation/curve.parquet      error on a validation set                  validation
      tuning/candidates.parquet     candidates of a comparison                 tune

The column on the right has the option or condition under which a file exists. Every Parquet file names its kind, format
version, dataspec and configuration (files.py); the columns are in format.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_type, label_values
from bigforest.errors import ConfigError, api, damaged_forest
from bigforest.forest.files import (
    Header,
    check_bytes,
    check_file,
    file_kind,
    has_levels,
    read_header,
    read_table,
    read_tree_votes,
    with_rows,
)
from bigforest.forest.format import (
    BOOSTING,
    CALIBRATED,
    FEATURES,
    LEAF_TARGETS,
    PRUNED,
    RANKS,
    REFINEMENT,
    RUN,
    SHARPENED,
    SHRUNK,
    TARGET_VALUES,
    TUNING,
    UNREFINED,
    VALIDATION,
    VOTES,
    FileFormat,
    levels_format,
    oob_formats,
    trees_format,
)
from bigforest.forest.nodes import TreeArrays
from bigforest.forest.oob_report import OobReport, oob_rows_files
from bigforest.forest.parts import (
    Span,
    batches,
    check_parts,
    parts_in,
    read_trees,
)
from bigforest.forest.ranks import Ranks, read_ranks
from bigforest.forest.refinement import read_refinement
from bigforest.forest.run_file import (
    Choices,
    Origin,
    RunStamp,
    read_choices,
    read_origin,
    same_run,
    write_run,
)
from bigforest.forest.tables import scan, to_frame
from bigforest.options.train_config import TrainConfig
from bigforest.storage.atomic import OutputKind, staged
from bigforest.storage.paths import absolute_path, as_path, local_path
from bigforest.storage.regular_files import copy_regular, open_regular
from bigforest.store.levels import Levels

Result = TypeVar("Result")

_REVISED = {
    PRUNED: "pruned",
    CALIBRATED: "calibrated",
    SHRUNK: "shrunk",
    SHARPENED: "sharpened",
    UNREFINED: "unrefined",
}


def is_forest(path: Path) -> bool:
    """Return True if `path` is the directory of a forest, of any version, complete or damaged."""
    return file_kind(RUN.at(path)) == RUN.kind


FOREST = OutputKind("forest", is_forest)


def _small_files(config: TrainConfig) -> list[FileFormat]:
    """Return the formats of the single files that every forest of this configuration has."""
    return [FEATURES, RUN, *([RANKS] if config.ranks else []), *([BOOSTING] if config.boosts else [])]


def _of_same_run(read: Callable[[ForestFiles], Result]) -> Callable[[ForestFiles], Result]:
    """Decorate a method that reads files: raise FormatError if another forest has replaced the opened one."""

    @wraps(read)
    def checked(files: ForestFiles) -> Result:
        with files.same_run():
            return read(files)

    return checked


class ForestFiles:
    """The files of a forest: facts from their metadata, and their tables, read on access.

    `Forest` (predict/forest.py), the class for users, holds a ForestFiles and documents its tables.

    directory   absolute path of the forest, which does not depend on the current folder.
    header      dataspec (`spec`) and configuration (`config`), which all files repeat, and the levels of categories.
    choices     lambda, power and rounds of the boosted stage, chosen after the trees were grown.
    changed     stages (format.py) that changed `choices` and are not in the files: by Forest.shrink, Forest.sharpen,
                Forest.unrefined.
    holding     object that keeps a temporary directory as long as this object or a LazyFrame of its files exists; or
                None.
    parts       the files of trees, in order, each with its trees and number of nodes.
    part_files  paths of `parts`.
    stamp       identity of the run that was opened, checked by all later reads (run_file.py); None while run.parquet
                is missing.
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        choices: Choices,
        holding: object = None,
        *,
        stamp: RunStamp | None,
        parts: Sequence[Span],
        changed: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.header = header
        self.spec, self.config, self.identity = header.spec, header.config, header.identity
        self.choices = choices
        self.shrinkage, self.power, self.rounds = choices.shrinkage, choices.power, choices.rounds
        self.changed = changed
        self.holding = holding
        self.stamp = stamp
        self.parts = list(parts)
        self.part_files = [part.path for part in parts]

    @classmethod
    def open(cls, path: str | Path, holding: object = None) -> ForestFiles:
        """Open a directory. Check metadata and columns of the files that every forest has. Raises FormatError."""
        directory = absolute_path(path)
        stamp = RunStamp.of(directory)
        with same_run(stamp):
            header, parts = check_parts(directory)
            for file_format in _small_files(header.config):
                check_file(file_format.at(directory), file_format, header)
            label_type(header.spec.target)
            return cls(directory, header, read_choices(directory), holding, stamp=stamp, parts=parts)

    @classmethod
    def of_run(cls, directory: Path, choices: Choices, holding: object = None) -> ForestFiles:
        """Return the files of a run that has written its trees. Only trees and levels need to exist."""
        directory = absolute_path(directory)
        stamp = RunStamp.of(directory)
        header, parts = check_parts(directory)
        return cls(directory, header, choices, holding, stamp=stamp, parts=parts)

    def with_choices(self, choices: Choices, *stages: str) -> ForestFiles:
        """Return the same files with other choices, and with `stages` added to `changed`."""
        changed = (*self.changed, *stages)
        return ForestFiles(
            self.directory, self.header, choices, self.holding, stamp=self.stamp, parts=self.parts, changed=changed
        )

    def same_run(self) -> AbstractContextManager[None]:
        """Check before and after the block: raise FormatError if another forest has replaced the opened one."""
        return same_run(self.stamp)

    @property
    def trees(self) -> int:
        return self.config.trees

    @property
    def node_count(self) -> int:
        """Number of nodes of all trees, from metadata."""
        return sum(part.stop for part in self.parts)

    @property
    def is_regression(self) -> bool:
        return self.spec.target.is_regression

    @property
    def classes(self) -> list[Any]:
        return [] if self.is_regression else label_values(self.spec.target)

    @property
    def levels(self) -> Levels:
        assert self.header.levels is not None
        return self.header.levels

    @property
    def nodes(self) -> pl.LazyFrame:
        classes = len(self.spec.target.classes)
        return scan(
            self.part_files,
            trees_format(self.spec).columns,
            lambda path, names: batches(path, classes, names),
            self.holding,
            self.stamp,
        )

    def each_tree(self) -> Iterator[TreeArrays]:
        """Read and check the nodes of every tree, in order. One tree is in memory at a time. Raises FormatError."""
        with self.same_run():
            for part in self.parts:
                yield from read_trees(part, self.header)

    def tree_arrays(self, number: int) -> TreeArrays:
        """Read and check the nodes of one tree, from the file that has it. Raises FormatError."""
        part = next(part for part in self.parts if number in part.trees)
        with self.same_run():
            return next(islice(read_trees(part, self.header), number - part.trees.start, None))

    def read(self, file_format: FileFormat) -> pl.DataFrame:
        """Read a file of one table. Raises FormatError, also if the table is empty."""
        path = file_format.at(self.directory)
        with self.same_run():
            return to_frame(with_rows(read_table(path, file_format, self.header), path))

    @property
    def run(self) -> pl.DataFrame:
        return self.read(RUN)

    @cached_property
    @_of_same_run
    def origin(self) -> Origin | None:
        return read_origin(self.directory)

    @cached_property
    def revised(self) -> str | None:
        """Revision after training: the first that applies of "pruned", "calibrated", "shrunk", "sharpened" and
        "unrefined"; None if none does."""
        return next((word for stage, word in _REVISED.items() if stage in self.stages), None)

    @property
    def stages(self) -> list[str]:
        """Stages of training, and all revisions since."""
        return [*self.run["stage"], *self.changed]

    @property
    def is_refined(self) -> bool:
        return self.rounds.amount > 0

    @_of_same_run
    def read_refinement(self) -> TreeArrays:
        """Read and check the trees of the boosted stage of a refined forest. Raises FormatError."""
        return read_refinement(self.directory, self.header, int(self.rounds.amount))

    @property
    def has_oob(self) -> bool:
        return self.config.bootstrap and not (self.origin and self.origin.merged) and not self.revised

    @cached_property
    @_of_same_run
    def oob(self) -> OobReport:
        if not self.config.bootstrap:
            raise ConfigError(
                "the forest was grown without bootstrap, so no row is out of bag; evaluate it on a test set, or train "
                f"with {api('bootstrap')}"
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
        return OobReport(self.directory, self.header, self.holding, self.stamp, self.is_refined)

    @property
    def has_votes(self) -> bool:
        """True if the leaves of out-of-bag rows are kept. They are the same for any lambda and power."""
        return self.config.keep_votes and self.revised not in (_REVISED[PRUNED], _REVISED[CALIBRATED])

    @property
    def has_targets(self) -> bool:
        return self.config.keep_targets

    @property
    @_of_same_run
    def has_validation(self) -> bool:
        return not self.changed and VALIDATION.at(self.directory).exists()

    @property
    @_of_same_run
    def is_tuned(self) -> bool:
        return TUNING.at(self.directory).exists()

    @property
    def tuning(self) -> pl.DataFrame:
        if not self.is_tuned:
            raise ConfigError(f"the forest was not chosen among candidates; train it with {api('tune')}")
        table = self.read(TUNING)
        if table["winner"].sum() != 1 or table["candidate"].n_unique() < table.height:
            raise damaged_forest(f"{TUNING.at(self.directory)} must have one winner, and name each candidate once")
        return table

    @property
    def winner(self) -> str:
        """A text that names the winning candidate of the comparison, and its loss. Raises as `tuning`."""
        tuning = self.tuning
        [winner] = tuning.filter("winner").to_dicts()
        metric = winner["metric"].replace("_", " ")
        crossed = "" if winner["cross_fitted"] is None else f", {winner['cross_fitted']:.6g} cross-fitted"
        loss = "" if winner["loss"] is None else f": {metric} {winner['loss']:.6g} on the rows that chose it{crossed}"
        return f"{winner['candidate']}, of {tuning.height} candidates{loss}"

    @cached_property
    @_of_same_run
    def tree_votes(self) -> NDArray[np.float64] | None:
        """Weight of the vote of each tree, float64 [trees]; None if all trees vote equally. Raises FormatError."""
        return read_tree_votes(self.directory, self.header)

    @cached_property
    @_of_same_run
    def ranks(self) -> Ranks | None:
        return read_ranks(self.directory, self.header) if self.config.ranks else None

    @property
    @_of_same_run
    def paths(self) -> list[Path]:
        formats = _small_files(self.config)
        formats += [REFINEMENT] if self.is_refined else []
        formats += [levels_format(self.spec)] if has_levels(self.spec) else []
        formats += [VALIDATION] if self.has_validation else []
        formats += [TUNING] if self.is_tuned else []
        paths = [*self.part_files, *(file_format.at(self.directory) for file_format in formats)]
        if self.has_targets:
            paths += [*parts_in(self.directory, LEAF_TARGETS), TARGET_VALUES.at(self.directory)]
        paths += parts_in(self.directory, VOTES) if self.has_votes else []
        if self.has_oob:
            by_name = oob_formats(self.spec.target, self.config.criterion)
            by_name.pop("rows")
            paths += oob_rows_files(self.directory)
            paths += [file_format.at(self.directory) for file_format in by_name.values()]
        return paths

    def copy(self, path: str | Path, *, overwrite: bool) -> None:
        """Copy the forest to the directory `path`, with its `choices`; see `Forest.write`.

        Raises OutputExistsError, and FormatError for files that are damaged or links.
        """
        with staged(path, FOREST, overwrite=overwrite) as copy, self.same_run():
            for source in self.paths:
                target = copy / source.relative_to(self.directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                with open_regular(local_path(source)):
                    check_bytes(source)  # before the copy, because a damaged file may have any size
                copy_regular(source, target)
                # Check the copy too: the source may have changed meanwhile.
                check_bytes(target)
                if read_header(target, None)[0].identity != self.identity:
                    raise damaged_forest(
                        f"{source} belongs to another forest, as its dataspec or configuration differs"
                    )
            if self.changed:
                seconds = {**dict(self.run.select("stage", "seconds").iter_rows()), **dict.fromkeys(self.changed, 0.0)}
                threads = self.run["threads"][0]
                write_run(copy, seconds, threads, self.header, self.origin, self.choices)
        if as_path(path).resolve() == self.directory.resolve():
            self.stamp = RunStamp.of(self.directory)  # the copy has replaced the forest itself
