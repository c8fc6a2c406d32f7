"""Evaluate a forest on a validation set: error by number of trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.dataspec import DataSpec
from bigforest.columns.labels import known_codes
from bigforest.columns.types import cells
from bigforest.errors import ConfigError, DataError
from bigforest.events import Listener, stage
from bigforest.execution.executor import Executor
from bigforest.execution.resources import Resources, resources_of
from bigforest.forest.files import file_kind, write_tables
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.format import VALIDATION
from bigforest.forest.run_file import Choices
from bigforest.forest.tables import to_frame
from bigforest.predict.files import tell_of_training
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.inputs import TableInput
from bigforest.predict.passes import RowsNamed
from bigforest.predict.predictor import Predictor, RowRouter, chunk_rows
from bigforest.predict.rows import FeatureMap, RowBatch, check_schema, open_rows
from bigforest.predict.vote_rule import REJECTED
from bigforest.progress import watching
from bigforest.source.source import Source
from bigforest.storage.atomic import OutputKind, TemporaryFolder, staged

# Rows whose labels are checked together.
_BATCH_ROWS = 1 << 17
# Pieces of a batch per thread. Fast threads take over pieces from slow ones.
_PIECES = 4
_WHERE = "the validation set"
# End of the notice if the forest was trained on the validation rows.
KNOWN_ROWS = "so the error is too low; give rows that it was not trained on"
_CURVE = OutputKind("validation curve", lambda path: file_kind(path) == VALIDATION.kind)


def validate_forest(
    forest: Forest | str | Path,
    data: Any,
    out: str | Path | None = None,
    *,
    vote: str | None = None,
    ties: str | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    scratch: str | Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> pl.DataFrame:
    """Compute the error of a forest on a validation set by number of trees, without its boosted stage.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : table or path
        A table as for `train`, with the target. Rows without a label are ignored. All others have the same weight, even
        if training used weights.
    out : str, Path or None, default=None
        Also write the curve to this Parquet file.
    vote, ties
        As for `predict_file`.
    threads, memory, scratch, overwrite, listener
        As for `train`.

    Returns
    -------
    DataFrame
        One row per number of trees; columns as in docs/reference/files.md, validation/curve.parquet.

    Raises
    ------
    ConfigError, DataError, FormatError, OutputExistsError

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.validate_forest(forest, table)["error"].to_list()[-1]
    0.0
    """
    resources = resources_of(threads, scratch, memory)
    forest = opened_forest(forest)
    with watching(listener) as listener, TemporaryFolder(resources.scratch) as work:
        tell_of_training(forest, data, KNOWN_ROWS, listener)
        source = open_rows(data, forest.spec, scratch=work)
        if out is None:
            return to_frame(measure(forest, source, vote, ties, resources, listener))
        with staged(out, _CURVE, overwrite=overwrite) as made:
            table = measure(forest, source, vote, ties, resources, listener)
            write_tables([table], made, VALIDATION, forest.files.header)
        return to_frame(table)


def write_validation(
    directory: Path, source: Source, choices: Choices, resources: Resources, listener: Listener
) -> None:
    """Write the validation curve of a run that has written its trees. Raises as `measure` does."""
    forest = Forest(ForestFiles.of_run(directory, choices))
    table = measure(forest, source, None, None, resources, listener)
    write_tables([table], VALIDATION.at(directory), VALIDATION, forest.files.header)


def measure(
    forest: Forest, source: Source, vote: str | None, ties: str | None, resources: Resources, listener: Listener
) -> pa.Table:
    """Return the error by number of trees, a table VALIDATION. Raises ConfigError, DataError and FormatError."""
    spec = forest.spec
    features, rule = check_validation(source, spec), forest.rules.make(vote, ties)
    validated = TableInput(forest.reader, source, features, rule, [spec.target.name])
    passes = forest.loader.passes(rule, validated, resources)
    counts = np.zeros((2, forest.trees), np.int64)
    labelled = 0
    with stage("validate", forest.trees * source.rows, "votes", listener) as progress:
        for begin in range(0, source.rows, max(1, passes.rows)):
            end = min(begin + passes.rows, source.rows)
            votes = np.zeros((end - begin, len(spec.target.classes)))
            tree = 0
            for entries in passes.groups:
                predictor = passes.load(entries)
                span, start = slice(tree, tree + predictor.packed.roots.size), begin
                for batch in validated.batches(begin, end, passes.batch, passes.used):
                    truth = known_codes(cells(batch, spec.target.name), spec, _WHERE)
                    labelled += int(np.count_nonzero(truth >= 0)) if tree == 0 else 0
                    batch_votes = votes[start - begin : start - begin + batch.height]
                    with RowsNamed(start, batch.height):
                        rows = validated.read(batch, passes.used)
                        counts[:, span] += _count_errors(predictor, rows, start, truth, batch_votes, resources.workers)
                    start += batch.height
                    progress.advance(batch.height * predictor.packed.roots.size)
                tree = span.stop
                del predictor  # before the next group is loaded
    validated.unseen.tell(listener)
    curve = {
        "trees": np.arange(1, forest.trees + 1, dtype=np.uint32),
        "error": counts[0] / labelled,
        "rejected": counts[1].astype(np.uint64),
        "rows": np.full(forest.trees, labelled, np.uint64),
    }
    return VALIDATION.table(curve)


def _count_errors(
    predictor: Predictor, rows: RowBatch, first: int, truth: NDArray[np.int32], votes: NDArray[np.float64], workers: int
) -> NDArray[np.int64]:
    """Count wrong and rejected predictions after each of these trees, int64 [2, trees].

    first  number of the first row, for random draws.
    truth  int32 [rows], class of each row; -1 for a row without a label, which is not counted.
    votes  float64 [rows, classes], votes of the earlier trees, to which these trees add.

    A rejected row counts as wrong, too. Raises DataError if a value is missing, some splits are on projections and the
    forest has no fill values.
    """
    from bigforest.kernels.predict.flat_tree import TILE

    packed = predictor.packed
    step = max(1, min(chunk_rows(rows), -(-rows.rows // (_PIECES * workers * TILE)) * TILE))

    def count(begin: int) -> NDArray[np.int64]:
        end = min(begin + step, rows.rows)
        router = RowRouter(packed, predictor.spec)
        inputs = router.inputs(rows, begin, end)
        piece_votes, piece_truth = votes[begin:end], truth[begin:end]
        numbers = np.arange(first + begin, first + end, dtype=np.uint64)
        counts = np.zeros((2, packed.roots.size), np.int64)
        for tree in range(packed.roots.size):
            router.vote(inputs, packed.roots[tree : tree + 1], predictor.leaf_votes, piece_votes)
            codes = predictor.rule.decide(piece_votes, numbers)
            counts[0, tree] = np.count_nonzero((codes != piece_truth) & (piece_truth >= 0))
            counts[1, tree] = np.count_nonzero((codes == REJECTED) & (piece_truth >= 0))
        return counts

    begins = [(begin,) for begin in range(0, rows.rows, step)]
    return sum(Executor(workers).gather(count, begins), np.zeros((2, packed.roots.size), np.int64))


def check_validation(source: Source, spec: DataSpec) -> FeatureMap:
    """Return the places of the features in the table.

    Raises ConfigError for regression. Raises DataError if the table lacks a feature or the target, has a label that the
    forest does not know, or has no label at all.
    """
    if spec.target.is_regression:
        raise ConfigError(
            f"this is a regression forest for {spec.target.name!r}, and validation curves are for classification; "
            "use predict for R2, MSE and MAE"
        )
    features = check_schema(source.schema, spec)
    if spec.target.name not in source.schema:
        raise DataError(f"{_WHERE} lacks the target {spec.target.name!r}; it needs rows with their labels")
    targets = (cells(batch, spec.target.name) for batch in source.batches([spec.target.name], _BATCH_ROWS))
    if not any([(known_codes(target, spec, _WHERE) >= 0).any() for target in targets]):  # noqa: C419 (checks the labels of all batches)
        raise DataError(f"no row of {_WHERE} has a {spec.target.name!r}; there is nothing to evaluate on")
    return features
