"""Run scikit-learn's own tests of its forests with bigforest's estimators in their place, and write a table of them.

python benchmarks/sklearn_forest_tests.py [-k EXPRESSION]      # writes benchmarks/sklearn_forest_tests.md

RandomForestClassifier and RandomForestRegressor become BigForestClassifier and BigForestRegressor, the extremely
randomised trees the same with splitter="random" and bootstrap=False; RandomTreesEmbedding, which transforms, stays
scikit-learn's and is left out. Leaves have one row unless a test says otherwise, as scikit-learn's have; all other
defaults are bigforest's. Every test that does not pass needs a reason here; one without is called unexplained, and the
script then ends with an error.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import sklearn.ensemble

from bigforest.sklearn import BigForestClassifier, BigForestRegressor

TABLE = Path(__file__).with_suffix(".md")

MULTIOUTPUT = "several outputs are refused"
CRITERION = "the criteria absolute_error and poisson are not there"
REPEATS = "a row that a bag has twice counts twice for min_samples_leaf"
SILENT = "friedman_mse is taken without a warning"
PRIVATE = "looks at private parts or at attributes of trees that only scikit-learn's forests have"
SHRUNK = "leaves are shrunk as rows out of bag decide: the score asked for on training rows is missed"

# Why tests do not pass: the name of a test, a part of its parameters ("" for any), and the reason.
REASONS: list[tuple[str, str, str]] = [
    ("test_forest_classifier_oob", "", MULTIOUTPUT),
    ("test_sparse_input", "", MULTIOUTPUT),
    ("test_multioutput", "", MULTIOUTPUT),
    ("test_multioutput_string", "", MULTIOUTPUT),
    ("test_classes_shape", "", MULTIOUTPUT),
    ("test_forest_regressor_oob", "X1", MULTIOUTPUT),
    ("test_regression_criterion", "squared_error-RandomForest", SHRUNK),
    ("test_regression_criterion", "friedman_mse-RandomForest", SHRUNK),
    ("test_classifier_error_oob_score_multiclass_multioutput", "", MULTIOUTPUT),
    ("test_forest_multioutput_integral_regression_target", "", MULTIOUTPUT),
    ("test_class_weight_balanced_and_bootstrap_multi_output", "", MULTIOUTPUT),
    ("test_class_weight_errors", "", MULTIOUTPUT),
    ("test_class_weights_forest", "", PRIVATE),
    ("test_validate_y_class_weight", "", PRIVATE),
    ("test_memory_layout", "", PRIVATE),
    ("test_min_impurity_decrease", "", PRIVATE),
    ("test_backend_respected", "", PRIVATE),
    ("test_importances_asymptotic", "", PRIVATE),
    ("test_warm_start", "", PRIVATE),
    ("test_distribution", "", PRIVATE),
    ("test_estimators_samples", "", PRIVATE),
    ("test_mse_criterion_object_segfault_smoke_test", "", PRIVATE),
    ("test_max_samples_geq_one", "", PRIVATE),
    ("test_min_samples_leaf", "RandomForest", REPEATS),
    ("test_poisson_vs_mse", "", CRITERION),
    ("test_poisson_y_positive_check", "", CRITERION),
    ("test_friedman_mse_deprecation", "", SILENT),
    ("test_balance_property_random_forest", "poisson", CRITERION),
    ("test_regression_criterion", "absolute_error", CRITERION),
    ("test_importances", "absolute_error", CRITERION),
    ("test_missing_values_is_resilient", "absolute_error", CRITERION),
    ("test_missing_values_is_resilient", "poisson", CRITERION),
    ("test_missing_value_is_predictive", "absolute_error", CRITERION),
    ("test_missing_value_is_predictive", "poisson", CRITERION),
]


def variant(name: str, base: type, **defaults: Any) -> type:
    """The estimator under another name and with other defaults, which scikit-learn reads from the signature."""
    own: Any = base.__init__
    init = FunctionType(own.__code__, own.__globals__, "__init__", own.__defaults__, own.__closure__)
    init.__kwdefaults__ = {**own.__kwdefaults__, **defaults}
    return type(name, (base,), {"__init__": init, "__module__": __name__})


RandomForestClassifier = variant("RandomForestClassifier", BigForestClassifier)
RandomForestRegressor = variant("RandomForestRegressor", BigForestRegressor, min_samples_leaf=1)
ExtraTreesClassifier = variant("ExtraTreesClassifier", BigForestClassifier, splitter="random", bootstrap=False)
ExtraTreesRegressor = variant(
    "ExtraTreesRegressor", BigForestRegressor, splitter="random", bootstrap=False, min_samples_leaf=1, max_features=1.0
)
FORESTS = (RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor)


class Results:
    """A plugin of pytest that keeps how every test ended, and the last line of its error."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is reported of a test."""
        name = report.nodeid.partition("::")[2]
        if report.when == "call" or report.outcome != "passed":
            error = str(getattr(report.longrepr, "reprcrash", "") or report.longrepr or "")
            self.found[name] = (report.outcome, error.strip().partition("\n")[0])


def reason_of(test: str) -> str:
    """Why a test does not pass."""
    name, _, parameters = test.partition("[")
    for known, part, reason in REASONS:
        if name == known and part in parameters:
            return reason
    return "unexplained"


def table_of(found: dict[str, tuple[str, str]]) -> str:
    """The results as Markdown."""
    counts = Counter(outcome for outcome, _ in found.values())
    failed = [name for name, (outcome, _) in found.items() if outcome == "failed"]
    reasons: dict[str, list[str]] = {}
    for name in failed:
        reasons.setdefault(reason_of(name), []).append(name)
    lines = [
        "# scikit-learn's tests of its forests, on bigforest's estimators",
        "",
        f"Made by `benchmarks/sklearn_forest_tests.py`: `sklearn/ensemble/tests/test_forest.py` of scikit-learn "
        f"{sklearn.__version__}, Python {platform.python_version()}. Tests of RandomTreesEmbedding alone are left out.",
        "",
        "| passed | failed | skipped |",
        "|---|---|---|",
        f"| {counts['passed']} | {counts['failed']} | {counts['skipped']} |",
        "",
        "Why the rest does not pass:",
        "",
        "| reason | tests | by name |",
        "|---|---|---|",
    ]
    for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        kinds = Counter(name.partition("[")[0] for name in names)
        whole = Counter(name.partition("[")[0] for name in found)
        listed = ", ".join(f"`{kind}` ({count} of {whole[kind]})" for kind, count in kinds.items())
        lines.append(f"| {reason} | {len(names)} | {listed} |")
    passed = Counter(name.partition("[")[0] for name, (outcome, _) in found.items() if outcome == "passed")
    lines += ["", "What passes: " + ", ".join(f"`{kind}` ({count})" for kind, count in passed.items()) + "."]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; the number is 1 where one does not pass without a known reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", help="only tests whose names fit this expression of pytest; writes no table")
    chosen = parser.parse_args(arguments).k
    for forest in FORESTS:
        setattr(sklearn.ensemble, forest.__name__, forest)
    path = Path(sklearn.ensemble.__file__).parent / "tests" / "test_forest.py"
    results = Results()
    only = chosen or "not RandomTreesEmbedding and not random_trees and not random_hasher"
    options = [str(path), "-q", "--no-header", "-p", "no:cacheprovider", "-c", os.devnull, "--tb=line", "-k", only]
    pytest.main(options, plugins=[results])
    unexplained = [name for name, (outcome, _) in results.found.items() if outcome == "failed"]
    unexplained = [name for name in unexplained if reason_of(name) == "unexplained"]
    for name in unexplained:
        print(f"unexplained: {name}: {results.found[name][1]}")
    if not chosen:
        TABLE.write_text(table_of(results.found), encoding="utf-8")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
