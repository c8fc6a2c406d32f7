"""Run scikit-learn's own tests of its forests, and those of its tools that use forests, with bigforest's estimators in
their place, and write a table of them.

python benchmarks/sklearn_forest_tests.py [-k EXPRESSION]      # writes benchmarks/sklearn_forest_tests.md

RandomForestClassifier and RandomForestRegressor become BigForestClassifier and BigForestRegressor, the extremely
randomised trees the same with splitter="random" and bootstrap=False; RandomTreesEmbedding, which transforms, stays
scikit-learn's and is left out. `estimator`, scikit-learn's template of a tree, is there for a test of memory layouts
that asks whether it takes sparse matrices. Leaves have one row unless a test says otherwise, as scikit-learn's have;
all other defaults are bigforest's. Every test that does not pass needs a reason here; one without is called
unexplained, and the script then ends with an error.
"""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import sklearn
import sklearn.ensemble

from bigforest.sklearn import BigForestClassifier, BigForestRegressor

TABLE = Path(__file__).with_suffix(".md")
FOREST_TESTS = "ensemble/tests/test_forest.py"
# Tests of tools; those that name a forest are run.
TOOL_TESTS = (
    "ensemble/tests/test_common.py",
    "ensemble/tests/test_voting.py",
    "ensemble/tests/test_stacking.py",
    "ensemble/tests/test_bagging.py",
    "ensemble/tests/test_weight_boosting.py",
    "feature_selection/tests/test_from_model.py",
    "feature_selection/tests/test_rfe.py",
    "inspection/tests/test_partial_dependence.py",
    "inspection/tests/test_permutation_importance.py",
    "model_selection/tests/test_validation.py",
    "preprocessing/tests/test_target_encoder.py",
    "tests/test_calibration.py",
    "tests/test_multioutput.py",
    "tests/test_pipeline.py",
    "utils/tests/test_parallel.py",
    "utils/tests/test_validation.py",
)

CRITERION = "the criterion absolute_error is not there"
WORDS = "the error has other words"
REPEATS = "a row that a bag has twice counts twice for min_samples_leaf"
PRIVATE = "looks at private parts that only scikit-learn's forests have"
CLONED = "leaves of a forest with bags are shrunk, and those of a tree fitted alone are not (its splits are the same)"
CHANCE = "asks for what scikit-learn's random numbers give"
WEIGHED = "weighing a row is not repeating it: bags are of rows"
TIES = "two libraries break ties between features otherwise, and impurities of leaves are not stored for regression"
SHRUNK = "leaves are shrunk as rows out of bag decide: the score asked for on training rows is missed"

# Why tests do not pass: the name of a test, a part of its parameters ("" for any), and the reason.
REASONS: list[tuple[str, str, str]] = [
    ("test_forest_multioutput_integral_regression_target", "", CHANCE),
    ("test_estimators_samples", "True", CLONED),
    ("test_set_estimator_drop", "", CHANCE),
    ("test_multi_output_classification_sample_weights", "", WEIGHED),
    ("test_recursion_decision_tree_vs_forest_and_gbdt", "", TIES),
    ("test_regression_criterion", "squared_error-RandomForest", SHRUNK),
    ("test_regression_criterion", "friedman_mse-RandomForest", SHRUNK),
    ("test_class_weights_forest", "", PRIVATE),
    ("test_validate_y_class_weight", "", PRIVATE),
    ("test_backend_respected", "", PRIVATE),
    ("test_mse_criterion_object_segfault_smoke_test", "", PRIVATE),
    ("test_max_samples_geq_one", "", PRIVATE),
    ("test_min_samples_leaf", "RandomForest", REPEATS),
    ("test_poisson_y_positive_check", "", WORDS),
    ("test_regression_criterion", "absolute_error", CRITERION),
    ("test_importances", "absolute_error", CRITERION),
    ("test_missing_values_is_resilient", "absolute_error", CRITERION),
    ("test_missing_value_is_predictive", "absolute_error", CRITERION),
]


def variant(name: str, base: type, **defaults: Any) -> type:
    """The estimator under another name and with other defaults, which scikit-learn reads from the signature."""
    own: Any = base.__init__
    init = FunctionType(own.__code__, own.__globals__, "__init__", own.__defaults__, own.__closure__)
    init.__kwdefaults__ = {**own.__kwdefaults__, **defaults}
    template = SimpleNamespace(splitter="best")
    return type(name, (base,), {"__init__": init, "__module__": __name__, "estimator": template})


RandomForestClassifier = variant("RandomForestClassifier", BigForestClassifier, min_samples_leaf=1)
RandomForestRegressor = variant("RandomForestRegressor", BigForestRegressor, min_samples_leaf=1)
ExtraTreesClassifier = variant(
    "ExtraTreesClassifier", BigForestClassifier, splitter="random", bootstrap=False, min_samples_leaf=1
)
ExtraTreesRegressor = variant(
    "ExtraTreesRegressor", BigForestRegressor, splitter="random", bootstrap=False, min_samples_leaf=1, max_features=1.0
)
FORESTS = (RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor)


class Results:
    """A plugin of pytest that keeps how every test of a file ended, and the last line of its error."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Of tests of tools, take those that name a forest."""
        if self.file in TOOL_TESTS:
            items[:] = [item for item in items if _names_forest(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what is reported of a test."""
        name = report.nodeid.partition("::")[2]
        if report.when == "call" or report.outcome != "passed":
            error = str(getattr(report.longrepr, "reprcrash", "") or report.longrepr or "")
            self.found[name] = (report.outcome, error.strip().partition("\n")[0])


def _names_forest(item: Any) -> bool:
    text = inspect.getsource(item.function) + repr(getattr(getattr(item, "callspec", None), "params", ""))
    return "RandomForest" in text or "ExtraTrees" in text


def reason_of(test: str) -> str:
    """Why a test does not pass."""
    name, _, parameters = test.partition("[")
    for known, part, reason in REASONS:
        if name == known and part in parameters:
            return reason
    return "unexplained"


def table_of(results: Sequence[Results]) -> str:
    """The results as Markdown: of the tests of forests, then of tools."""
    found = results[0].found
    counts = Counter(outcome for outcome, _ in found.values())
    failed = [name for name, (outcome, _) in found.items() if outcome == "failed"]
    reasons: dict[str, list[str]] = {}
    for name in failed:
        reasons.setdefault(reason_of(name), []).append(name)
    lines = [
        "# scikit-learn's tests of its forests, on bigforest's estimators",
        "",
        f"Made by `benchmarks/sklearn_forest_tests.py`: `sklearn/{FOREST_TESTS}` of scikit-learn "
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
    lines += ["", "Tests of tools that name a forest:", "", "| file | passed | failed |", "|---|---|---|"]
    for result in results[1:]:
        counts = Counter(outcome for outcome, _ in result.found.values())
        failed = [f"`{name}`: {reason_of(name)}" for name, (outcome, _) in result.found.items() if outcome == "failed"]
        lines.append(f"| `{result.file}` | {counts['passed']} | {'; '.join(failed) or 0} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; the number is 1 where one does not pass without a known reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", help="only tests whose names fit this expression of pytest; writes no table")
    chosen = parser.parse_args(arguments).k
    for forest in FORESTS:
        setattr(sklearn.ensemble, forest.__name__, forest)
    results = [Results(file) for file in (FOREST_TESTS, *TOOL_TESTS)]
    only = chosen or "not RandomTreesEmbedding and not random_trees and not random_hasher"
    unexplained = []
    for result in results:
        path = Path(sklearn.__file__).parent / result.file
        options = [str(path), "-q", "--no-header", "-p", "no:cacheprovider", "-c", os.devnull, "--tb=line", "-k", only]
        pytest.main(options, plugins=[result])
        for name, (outcome, error) in result.found.items():
            if outcome == "failed" and reason_of(name) == "unexplained":
                unexplained.append(name)
                print(f"unexplained: {result.file}: {name}: {error}")
    if not chosen:
        TABLE.write_text(table_of(results), encoding="utf-8")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
