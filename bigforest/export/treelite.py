"""A treelite model with the trees of a forest. All numbers are float64; categories are indices of levels."""

from __future__ import annotations

from typing import Any

from bigforest.events import Listener, silent
from bigforest.export.trees import ExportedTree, exported_trees, library, refuse_corrections
from bigforest.forest.forest_files import ForestFiles

_TO = "treelite"


def to_treelite(files: ForestFiles, listener: Listener = silent) -> Any:
    refuse_corrections(files, _TO)
    library("treelite", "treelite")
    builders = library("treelite.model_builder", "treelite")
    outputs = 1 if files.is_regression else len(files.classes)
    builder = builders.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=builders.Metadata(
            num_feature=len(files.spec.features),
            task_type="kRegressor" if files.is_regression else "kMultiClf",
            average_tree_output=True,
            num_target=1,
            num_class=[outputs],
            leaf_vector_shape=(1, outputs),
        ),
        tree_annotation=builders.TreeAnnotation(
            num_tree=files.trees,
            target_id=[0] * files.trees,
            class_id=[0 if outputs == 1 else -1] * files.trees,
        ),
        postprocessor=builders.PostProcessorFunc(name="identity" if files.is_regression else "identity_multiclass"),
        base_scores=[0.0] * outputs,
    )
    places = _places(files)
    for tree in exported_trees(files, _TO, listener):
        builder.start_tree()
        for node in range(tree.nodes):
            builder.start_node(node)
            _add_node(builder, tree, node, places)
            builder.end_node()
        builder.end_tree()
    return builder.commit()


def _places(files: ForestFiles) -> list[dict[str, int]]:
    """Return for each feature the positions of its levels; empty for numeric features."""
    return [
        {level: place for place, level in enumerate(files.levels.of(number).to_list())}
        if feature.kind == "category"
        else {}
        for number, feature in enumerate(files.spec.features)
    ]


def _add_node(builder: Any, tree: ExportedTree, node: int, places: list[dict[str, int]]) -> None:
    left, right, feature = int(tree.left[node]), int(tree.right[node]), int(tree.feature[node])
    if left < 0:
        votes = tree.votes[node].tolist()
        builder.leaf(votes if len(votes) > 1 else votes[0])
        return
    listed = tree.levels[node]
    children = {"left_child_key": left, "right_child_key": right}
    if listed is None:
        builder.numerical_test(
            feature_id=feature,
            threshold=float(tree.threshold[node]),
            default_left=tree.missing_left(node),
            opname="<=",
            **children,
        )
    else:
        builder.categorical_test(
            feature_id=feature,
            default_left=tree.missing_left(node),
            category_list=[places[feature][level] for level in listed if level is not None],
            category_list_right_child=bool(tree.default_left[node]),
            **children,
        )
