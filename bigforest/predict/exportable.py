"""The base class of Forest with its conversions to other formats."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module  # exporters stand above forests
from typing import Any

from bigforest.predict.grown import GrownForest


class ExportableForest(GrownForest):
    """A forest that other engines can run. Each format is imported, with its library, when it is requested."""

    def to_onnx(self, dtype: str = "float32") -> Any:
        """Convert the forest to an ONNX model, for the families axis and tree without categories.

        The input X is [rows, features], in the order of `features`, with NaN for missing values. The outputs are the
        label and the probabilities (float32), or the prediction. Booleans are labelled 0 and 1.

        Parameters
        ----------
        dtype : {"float32", "float64"}, default="float32"
            Type of the input. With float32, thresholds are rounded down to it, so that every float32 row goes to the
            same side.

        Returns
        -------
        onnx.ModelProto

        Raises
        ------
        ConfigError
            If ONNX does not support the forest, or onnx is not installed (the extra `onnx`).
        """
        return import_module("bigforest.export.onnx").to_onnx(self, dtype)

    def to_treelite(self) -> Any:
        """Convert the forest to a treelite model, for the families axis and tree, including categories.

        The input is that of `to_matrix`, in float64. The output is the mean over the trees: class probabilities, in the
        order of the classes, or the regression prediction.

        Returns
        -------
        treelite.Model

        Raises
        ------
        ConfigError
            If treelite does not support the forest, or is not installed (the extra `treelite`).
        """
        return import_module("bigforest.export.treelite").to_treelite(self)

    def to_sklearn(self) -> Any:
        """Convert the forest to a scikit-learn forest with the same trees, for the families axis and tree without
        categories.

        scikit-learn converts rows to float32; for these the predictions are the same. It refuses infinite values. The
        impurity of a node for regression is without that of its leaves, which is not stored; importances are exact.

        Returns
        -------
        sklearn.ensemble.RandomForestClassifier or sklearn.ensemble.RandomForestRegressor

        Raises
        ------
        ConfigError
            If scikit-learn does not support the forest, or is not installed (the extra `sklearn`).
        """
        return import_module("bigforest.export.sklearn").to_sklearn(self)

    def to_sql(self, table: str = "rows", keep: Sequence[str] = ()) -> str:
        """Convert the forest to an SQL query that predicts every row of a table, for the families axis and tree.

        NULL is missing; NaN must be converted to NULL. The result has the columns `keep`, then `prediction` and, for
        classification, one column p_<class> per class.

        Parameters
        ----------
        table : str, default="rows"
            Name of the table in the database.
        keep : sequence of str, default=()
            Columns of the table to copy.

        Returns
        -------
        str

        Raises
        ------
        ConfigError
            If SQL does not support the forest: dates and times, nested columns, splits at infinities.
        """
        return import_module("bigforest.export.sql").to_sql(self, table, keep)
