"""The digits in a scikit-learn pipeline: search by cross-validation, then accuracy and importances of the best forest.

python examples/sklearn_pipeline.py      # needs pip install 'bigforest[sklearn]'
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from bigforest.sklearn import BigForestClassifier

DIGITS = Path(__file__).parent / "data" / "digits.parquet"


def main() -> None:
    """Search on three quarters of the digits, evaluate on the rest."""
    digits = pl.read_parquet(DIGITS)
    X, y = digits.drop("target").to_pandas(), digits["target"].to_numpy()
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    model = make_pipeline(
        MinMaxScaler().set_output(transform="polars"), BigForestClassifier(n_estimators=50, oob_score=True)
    )
    search = GridSearchCV(model, {"bigforestclassifier__max_features": ["sqrt", 16]}, cv=3).fit(X_train, y_train)
    best = search.best_estimator_[-1]
    print("best parameters", search.best_params_)
    print(f"out-of-bag accuracy {best.oob_score_:.3f}, test accuracy {search.score(X_test, y_test):.3f}")

    importances = pl.DataFrame({"feature": best.feature_names_in_, "importance": best.feature_importances_})
    print(importances.sort("importance", descending=True).head(5))


if __name__ == "__main__":
    main()
