"""The boosted stage of a forest: small trees on the scale of the link, in refine/trees.parquet.

The trees form independent sequences. The trees of a sequence are grown one after the other, each on the errors that
the earlier ones leave. The score of a row is the link of the forest's prediction, plus the mean over the sequences of
the sum of their trees (kernels/refine/link.py). The trees have the form of the trees of the forest (nodes.py
TreeArrays), sorted by sequence and round, and are checked in the same way (parts.py). All sequences have the same
number of rounds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigforest.columns.arrow_arrays import arrow_array, as_numpy
from bigforest.columns.dataspec import DataSpec, TargetSpec
from bigforest.forest.files import Header, decoding, open_checked, write_tables
from bigforest.forest.format import NODES, REFINEMENT
from bigforest.forest.nodes import TreeArrays, nodes_table
from bigforest.forest.parts import WORDS, NodeChecker
from bigforest.kernels.refine.link import LOGISTIC, POISSON, SOFTMAX, SQUARED, correct
from bigforest.options.train_config import TrainConfig

# Number of independent sequences of trees, and number of sequences that leave out each row.
SEQUENCES, LEFT_OUT = 6, 2
# Least probability in the link. Smaller ones are raised to it, so that a class without votes can be corrected.
LEAST_SHARE = 2.0**-10
# Least prediction in the logarithm (Poisson), as a share of TargetSpec.offset, the middle of the targets' range.
LEAST_NUMBER = 2.0**-16


def rounds_of(trees: TreeArrays) -> int:
    return trees.roots.size // SEQUENCES


class Link:
    """The link of the predictions of a forest, see kernels/refine/link.py.

    loss     one of SQUARED, LOGISTIC, SOFTMAX and POISSON.
    least    smallest probability, or number; it replaces smaller ones.
    outputs  number of scores of a row, see `outputs_of`.
    """

    def __init__(self, spec: DataSpec, config: TrainConfig) -> None:
        target = spec.target
        if target.is_regression:
            poisson = config.criterion == "poisson"
            self.loss, self.least = (POISSON, LEAST_NUMBER * target.offset) if poisson else (SQUARED, 0.0)
        else:
            self.loss = LOGISTIC if len(target.classes) == 2 else SOFTMAX
            self.least = LEAST_SHARE
        self.outputs = outputs_of(spec)

    def start(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the stage starts from, float64 [rows, outputs]: numbers, odds of the second class or
        probabilities. The link takes their logarithms implicitly (kernels/refine/link.py).

        predictions  float64 [rows, classes] or [rows, 1]
        """
        if self.loss == SQUARED:
            return predictions
        raised = np.maximum(predictions, self.least, order="C")
        return raised[:, 1:] / raised[:, :1] if self.loss == LOGISTIC else raised

    def corrected(self, predictions: NDArray[np.float64], added: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predictions with the stage, float64 [rows, classes] or [rows, 1]. May overwrite `added`.

        predictions  predictions of the forest, of the same shape
        added        float64 [rows, outputs], sums of the stage on the scale of the link
        """
        if self.loss == SQUARED:
            return predictions + added
        loss, result = self.loss, np.ascontiguousarray(added)
        if loss == LOGISTIC:  # softmax of two classes: no probability is computed as 1 minus the other
            loss, result = SOFTMAX, np.hstack([np.zeros(added.shape), added])
        correct(loss, np.maximum(predictions, self.least, order="C"), result)
        return result


def outputs_of(spec: DataSpec) -> int:
    """Return the number of scores of a row: 1 for regression and for two classes, else the number of classes."""
    classes = len(spec.target.classes)
    return classes if classes > 2 else 1


def write_refinement(directory: Path, trees: TreeArrays, header: Header) -> None:
    """Write the trees of a boosted stage, by sequence and round, into the forest `directory`."""
    starts, rounds, value = trees.starts, rounds_of(trees), trees.value
    assert value is not None
    tree = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    number = np.arange(trees.feature.size) - starts[tree]
    nodes = trees._replace(value=None)
    table = nodes_table(nodes, tree.astype(np.uint32), number.astype(np.uint32), _regression_header(header))
    values = pa.ListArray.from_arrays(
        arrow_array(np.arange(len(value) + 1, dtype=np.int32) * value.shape[1]), arrow_array(value.reshape(-1))
    )
    columns = {name: table[name] for name in REFINEMENT.columns.names if name in NODES.names}
    columns["sequence"] = arrow_array((tree // rounds).astype(np.uint32))
    columns["round"] = arrow_array((tree % rounds).astype(np.uint32))
    columns["values"] = values.cast(REFINEMENT.columns.field("values").type)
    write_tables([REFINEMENT.table(columns)], REFINEMENT.at(directory), REFINEMENT, header)


def read_refinement(directory: Path, header: Header, rounds: int) -> TreeArrays:
    """Read and check the boosted stage of the forest in `directory`, of this many rounds. Raises FormatError."""
    path = REFINEMENT.at(directory)
    checker, trees = NodeChecker(path, _regression_header(header), 0), SEQUENCES * rounds
    require = checker.require
    file = open_checked(path, REFINEMENT, header, WORDS)
    require(trees <= file.metadata.num_rows, "it has fewer nodes than trees")
    with decoding(path):
        table = file.read(use_threads=False).unify_dictionaries().combine_chunks()
        table.validate(full=True)
    columns = {name: table[name].combine_chunks() for name in REFINEMENT.columns.names}
    sequence, number = as_numpy(columns["sequence"]), as_numpy(columns["round"])
    in_range = number.max(initial=0) < rounds and sequence.max(initial=0) < SEQUENCES
    require(in_range, "a round or a sequence is out of range")
    # The columns of the nodes of a regression forest, with values of 0.
    as_nodes = columns | {
        "tree": arrow_array(sequence.astype(np.uint32) * np.uint32(rounds) + number),
        "terms": pa.nulls(number.size, NODES.field("terms").type),
        "counts": pa.nulls(number.size, NODES.field("counts").type),
        "value": arrow_array(np.zeros(number.size)),
    }
    nodes = checker.check(pa.RecordBatch.from_arrays([as_nodes[name] for name in NODES.names], names=NODES.names))
    require(checker.last_tree() == trees - 1, "there are not as many trees as rounds in each sequence")
    outputs, lengths = outputs_of(header.spec), np.diff(as_numpy(columns["values"].offsets))
    require((lengths == outputs).all(), f"values must hold {outputs} numbers")
    value = as_numpy(columns["values"].flatten()).reshape(-1, outputs)
    require(np.isfinite(value).all(), "a value is not finite")
    return nodes._replace(value=np.ascontiguousarray(value))


def _regression_header(header: Header) -> Header:
    """Return the header that a regression forest of the same features would have: its nodes have no counts."""
    target = TargetSpec(header.spec.target.name, "Float64", (), "regression")
    spec = DataSpec(header.spec.rows, 0, header.spec.features, target)
    return Header(spec, header.config, header.levels)
