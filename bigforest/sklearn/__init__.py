"""bigforest's forests as estimators of scikit-learn: `from bigforest.sklearn import BigForestClassifier`.

Needs scikit-learn: pip install 'bigforest[sklearn]'.
"""

from __future__ import annotations

try:
    import sklearn as sklearn  # the package, not this one
except ImportError as error:
    raise ImportError("bigforest.sklearn needs scikit-learn: pip install 'bigforest[sklearn]'") from error

from bigforest.sklearn.classifier import BigForestClassifier
from bigforest.sklearn.regressor import BigForestRegressor

__all__ = ["BigForestClassifier", "BigForestRegressor"]
