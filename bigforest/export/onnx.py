"""An ONNX model with the trees of a forest: one tree ensemble of the domain ai.onnx.ml.

Rows and thresholds are float64, or float32. Thresholds of float32 are rounded down, so that no float32 row changes
sides. The ensemble is a regressor for classes too, with an output for each class, because the ONNX classifier treats
sums of two classes as scores above or below 0. A boosted stage is a second ensemble. Its sums are added to the link of
the predictions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigforest.errors import ConfigError, counted
from bigforest.events import Listener, silent
from bigforest.export.trees import (
    ExportedTree,
    exported_trees,
    library,
    refuse_categories,
    rounded_down,
    stage_trees,
)
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.refinement import Link
from bigforest.kernels.refine.link import LOGISTIC, POISSON, SQUARED
from bigforest.options.values import check_word
from bigforest.version import __version__

_TO = "ONNX"
_DTYPES = ("float32", "float64")
_INPUT, _LABEL, _SUMS, _SHARES, _PREDICTION = "X", "label", "sums", "probabilities", "prediction"
# Name of the predictions before a boosted stage corrects them.
_PLAIN = "plain"
# Versions of the operators by domain: they have all operators used here, and runtimes of recent years support them.
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8


def to_onnx(files: ForestFiles, dtype: str, listener: Listener = silent) -> Any:
    check_word(dtype, _DTYPES, "dtype")
    onnx = library("onnx", "onnx")
    refuse_categories(files, _TO)
    tensor = onnx.TensorProto.FLOAT if dtype == "float32" else onnx.TensorProto.DOUBLE
    attributes = _ensemble(list(exported_trees(files, _TO, listener)), dtype)
    ensemble = _number_nodes if files.is_regression else _class_nodes
    nodes, outputs = ensemble(onnx, attributes, files)
    if files.is_refined:
        nodes += _correction_nodes(onnx, _ensemble(stage_trees(files), dtype), files)
    if not files.is_regression:
        nodes += _label_nodes(onnx, files)
    rows = onnx.helper.make_tensor_value_info(_INPUT, tensor, [None, len(files.spec.features)])
    graph = onnx.helper.make_graph(nodes, "bigforest", [rows], outputs)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="bigforest", producer_version=__version__)
    model.ir_version = _IR_VERSION
    onnx.helper.set_model_props(
        model,
        {"features": "\n".join(files.spec.feature_names), "target": files.spec.target.name},
    )
    onnx.checker.check_model(model)
    return model


def _ensemble(trees: list[ExportedTree], dtype: str) -> dict[str, Any]:
    """Return the attributes of the tree ensemble: nodes, and votes of leaves. Raises ConfigError as `_check_range`."""
    thresholds = np.concatenate([np.where(tree.left < 0, 0.0, tree.threshold) for tree in trees])
    leaf = np.concatenate([tree.left < 0 for tree in trees])
    number = _concatenate(np.full(tree.nodes, place) for place, tree in enumerate(trees))
    node = _concatenate(np.arange(tree.nodes) for tree in trees)
    votes = np.concatenate([tree.votes for tree in trees])
    _check_range(votes[leaf], len(trees))
    at, output = np.nonzero(leaf[:, None] & ((votes != 0.0) | (votes.shape[1] == 1)))
    nodes = {
        "nodes_treeids": number,
        "nodes_nodeids": node,
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_featureids": _concatenate(np.maximum(tree.feature, 0) for tree in trees),
        "nodes_truenodeids": _concatenate(np.maximum(tree.left, 0) for tree in trees),
        "nodes_falsenodeids": _concatenate(np.maximum(tree.right, 0) for tree in trees),
        "nodes_missing_value_tracks_true": _concatenate(tree.default_left.astype(np.int64) for tree in trees),
        "target_treeids": number[at],
        "target_nodeids": node[at],
        "target_ids": output,
    }
    attributes: dict[str, Any] = {name: values.tolist() for name, values in nodes.items()}
    weights = votes[at, output]
    if dtype == "float32":
        attributes["nodes_values"] = rounded_down(thresholds).tolist()
        attributes["target_weights"] = weights.astype(np.float32).tolist()
    else:
        from_array = library("onnx.numpy_helper", "onnx").from_array
        attributes["nodes_values_as_tensor"] = from_array(thresholds)
        attributes["target_weights_as_tensor"] = from_array(weights)
    return attributes


def _concatenate(arrays: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(list(arrays)).astype(np.int64)


def _check_range(votes: NDArray[np.float64], trees: int) -> None:
    """Raise ConfigError if the votes are too large or too small for float32, in which ONNX predicts.

    The largest vote times the number of trees bounds the sums.
    """
    kind = np.finfo(np.float32)
    largest = float(np.abs(votes).max())
    if largest * trees > float(kind.max) or 0.0 < largest < float(kind.tiny):
        raise ConfigError(
            f"ONNX predicts in float32, whose range does not hold predictions of the size {largest:.2g} added over "
            f"{counted(trees, 'tree')}; train on the target in another unit"
        )


def _trees(onnx: Any, attributes: dict[str, Any], output: str, targets: int, aggregate: str) -> Any:
    """Return the operator that sums ("SUM") or averages ("AVERAGE") the `targets` values of the leaves over the trees.

    attributes  see `_ensemble`
    output      name of the result
    """
    return onnx.helper.make_node(
        "TreeEnsembleRegressor",
        [_INPUT],
        [output],
        domain="ai.onnx.ml",
        n_targets=targets,
        aggregate_function=aggregate,
        **attributes,
    )


def _constant(onnx: Any, name: str, values: Any) -> Any:
    array = np.array(values, np.float32)
    tensor = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, array.shape, array.reshape(-1).tolist())
    return onnx.helper.make_node("Constant", [], [name], value=tensor)


def _number_nodes(onnx: Any, attributes: dict[str, Any], files: ForestFiles) -> tuple[list[Any], list[Any]]:
    """Return the operators and outputs of the model for regression.

    The mean over the trees is named _PLAIN if a boosted stage corrects it.
    """
    node = _trees(onnx, attributes, _PLAIN if files.is_refined else _PREDICTION, 1, "AVERAGE")
    return [node], [onnx.helper.make_tensor_value_info(_PREDICTION, onnx.TensorProto.FLOAT, [None, 1])]


def _class_nodes(onnx: Any, attributes: dict[str, Any], files: ForestFiles) -> tuple[list[Any], list[Any]]:
    """Return the operators and outputs of the model for classification.

    Probabilities are the sums divided by the number of trees, raised to the power of the forest and scaled to sum to 1.
    They are named _PLAIN if a boosted stage corrects them.
    """
    make = onnx.helper.make_node
    shares = _PLAIN if files.is_refined else _SHARES
    nodes = [
        _trees(onnx, attributes, _SUMS, len(files.classes), "SUM"),
        _constant(onnx, "trees", [files.trees]),
        make("Div", [_SUMS, "trees"], ["means" if files.power.amount != 1.0 else shares]),
    ]
    if files.power.amount != 1.0:
        nodes += [
            _constant(onnx, "power", [files.power.amount]),
            make("ReduceMax", ["means"], ["largest"], axes=[1], keepdims=1),  # the largest ratio is 1: no underflow
            make("Div", ["means", "largest"], ["ratios"]),
            make("Pow", ["ratios", "power"], ["raised"]),
            make("ReduceL1", ["raised"], ["total"], axes=[1], keepdims=1),
            make("Div", ["raised", "total"], [shares]),
        ]
    kind = onnx.TensorProto.STRING if isinstance(files.classes[0], str) else onnx.TensorProto.INT64
    return nodes, [
        onnx.helper.make_tensor_value_info(_LABEL, kind, [None]),
        onnx.helper.make_tensor_value_info(_SHARES, onnx.TensorProto.FLOAT, [None, len(files.classes)]),
    ]


def _label_nodes(onnx: Any, files: ForestFiles) -> list[Any]:
    """Return operators for the label with the largest sum of votes or, with a boosted stage, the largest probability.

    Ties go to the first class. Raises ConfigError for labels of a type that ONNX does not have.
    """
    classes = files.classes
    if isinstance(classes[0], str):
        labels, kind = [label.encode() for label in classes], onnx.TensorProto.STRING
    elif isinstance(classes[0], int):  # also booleans, which ONNX lacks as labels
        labels, kind = [int(label) for label in classes], onnx.TensorProto.INT64
        if labels[-1] >= 2**63:
            raise ConfigError(
                f"ONNX labels rows with integers up to 2**63 - 1, and {labels[-1]} is a class; use another format"
            )
    else:
        raise ConfigError(
            f"ONNX labels rows with text or whole numbers, and {files.spec.target.name!r} has others; use another "
            "format"
        )
    make = onnx.helper.make_node
    return [
        make("Constant", [], ["labels"], value=onnx.helper.make_tensor("labels", kind, [len(classes)], labels)),
        make("ArgMax", [_SHARES if files.is_refined else _SUMS], ["place"], axis=1, keepdims=0),
        make("Gather", ["labels", "place"], [_LABEL]),
    ]


def _correction_nodes(onnx: Any, attributes: dict[str, Any], files: ForestFiles) -> list[Any]:
    """Return operators that correct the predictions _PLAIN by the boosted stage, as predict/refine.py does."""
    make, link = onnx.helper.make_node, Link(files.spec, files.config)
    result = _PREDICTION if files.is_regression else _SHARES
    stage = _trees(onnx, attributes, "stage", link.outputs, "SUM")
    if link.loss == SQUARED:
        return [stage, make("Add", [_PLAIN, "stage"], [result])]
    nodes = [
        stage,
        _constant(onnx, "least", [max(link.least, float(np.finfo(np.float32).tiny))]),
        make("Max", [_PLAIN, "least"], ["clipped"]),
        make("Log", ["clipped"], ["logs"]),
    ]
    if link.loss == LOGISTIC:
        return [
            *nodes,
            _constant(onnx, "difference", [[-1.0], [1.0]]),
            make("MatMul", ["logs", "difference"], ["odds"]),
            make("Add", ["odds", "stage"], ["score"]),
            _constant(onnx, "signs", [[-1.0, 1.0]]),
            make("Mul", ["score", "signs"], ["scores"]),
            make("Sigmoid", ["scores"], [result]),
        ]
    last = make("Exp", ["scores"], [result]) if link.loss == POISSON else make("Softmax", ["scores"], [result], axis=1)
    return [*nodes, make("Add", ["logs", "stage"], ["scores"]), last]
