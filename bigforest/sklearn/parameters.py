"""Conversion of the estimators' parameters to options of `bigforest.train`. Most names are the same."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Number
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bigforest.encode.arguments import plain_options
from bigforest.errors import ConfigError, DataError, shown, write_names
from bigforest.execution.resources import available_threads
from bigforest.options.declaration import is_within
from bigforest.options.package_names import IMPURITIES
from bigforest.options.signatures import ABSENT, SKLEARN_NAMES
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import OPTIONS
from bigforest.options.values import BOOSTED, plain

# Parameters of the estimators by the names that `bigforest.train` has for them.
_PARAMETER = {option: parameter for parameter, option in SKLEARN_NAMES.items()}
_PARAMETER |= {"group": "groups", "weight": "sample_weight", "data": "X"}

# Parameters that have the name of an option, but may have other values.
_CONVERTED = ("bootstrap", "class_weight", "categories")
# Parameters that may have several values, or check their values on their own.
_SEVERAL = ("class_weight", "categories", "axes_from", "min_level", "subspace", "random_state", "monotonic_cst")
CLASS_CRITERIA = {name: name for name, task in IMPURITIES.items() if task == "classification"} | {"log_loss": "entropy"}
NUMBER_CRITERIA = {"squared_error": "variance", "friedman_mse": "variance", "poisson": "poisson"}


def check_single(parameters: Mapping[str, Any]) -> None:
    """Raise ConfigError for an array, a list or another object as a parameter that has a single value.

    Comparing an array with a word, as for "auto", would raise an error of numpy.
    """
    for name, value in parameters.items():
        single = value is None or isinstance(plain(value), str | Number | os.PathLike) or callable(value)
        if not single and name not in _SEVERAL:
            raise ConfigError(f"{name} must be a single number or word, not {shown(value)}")


def training_options(
    parameters: Mapping[str, Any], criteria: Mapping[str, str], rows: int, *, weighted: bool, outputs: int
) -> dict[str, Any]:
    """Return the options of training except for seed and class_weight.

    parameters  parameters of the estimator, by name.
    criteria    impurities by the names of criteria.
    rows        number of rows of the table, for parameters that are fractions.
    weighted    True if the rows have weights.
    outputs     number of targets, each with a forest of its own.

    Raises ConfigError for a parameter that cannot be used.
    """
    if parameters["monotonic_cst"] is not None:
        raise ConfigError(f"monotonic_cst is not supported, leave it at None: {ABSENT['monotonic_cst']}")
    family = parameters["family"]
    trees = parameters["n_estimators"]
    if not _is_whole(trees) or trees < 1:
        raise ConfigError(f"n_estimators must be a whole number of at least 1, not {trees!r}")
    if family == "tree" and trees != 1:
        raise ConfigError(f"the family tree is a single tree, and n_estimators is {trees}; make it 1")
    if outputs > 1:
        _check_shared(parameters, outputs)
    criterion = parameters["criterion"]
    if not isinstance(criterion, str) or criterion not in criteria:
        raise ConfigError(f"criterion must be one of {', '.join(criteria)}, not {criterion!r}")
    share = parameters["min_weight_fraction_leaf"]
    if not isinstance(share, int | float | np.floating) or not 0.0 <= share <= 0.5:
        raise ConfigError(f"min_weight_fraction_leaf must be from 0.0 to 0.5, not {share!r}")
    options = {name: value for name, value in parameters.items() if name in OPTIONS and name not in _CONVERTED}
    options |= {
        "trees": int(trees),
        "impurity": criteria[criterion],
        "min_split": _rows_of("min_samples_split", parameters["min_samples_split"], rows, 2),
        "sample_fraction": _share_of(parameters["max_samples"], parameters["bootstrap"], rows),
    }
    # With weights, the first row of a leaf may weigh little and all others count as rows of mean weight: one row more
    # guarantees the share.
    fewest = math.ceil(float(share) * rows) + (weighted and share > 0.0)
    if parameters["min_samples_leaf"] != "auto":
        fewest = max(fewest, _rows_of("min_samples_leaf", parameters["min_samples_leaf"], rows, 1))
    if fewest:
        options["min_leaf"] = fewest
    # "auto" is the default of the family.
    if parameters["max_features"] != "auto":
        options["mtry"] = _drawn(parameters["max_features"])
    if parameters["bootstrap"] != "auto":
        options["bootstrap"] = parameters["bootstrap"]
    # Boosting has its own defaults, as it allows neither soft votes nor a lambda that is selected out of bag.
    for name, general in (("vote", "soft"), ("shrink", "auto")):
        if parameters.get("sampling") in BOOSTED and options.get(name) == general:
            del options[name]
    return plain_options(options)


def balanced_in_bags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for class_weight="balanced_subsample", to be added to `options`.

    Stratified bags keep the class shares, so weights that are balanced in the table are balanced in each bag, too.
    Without bags, the weights are only balanced in the table. Raises ConfigError for bags with groups or with another
    sampling.
    """
    balanced = {**options, "class_weight": "balanced"}
    if not TrainConfig.of(**balanced).bootstrap:
        return {"class_weight": "balanced"}
    if options["sampling"] not in ("uniform", "stratified") or "group" in options:
        raise ConfigError(
            'class_weight="balanced_subsample" draws each class by itself; drop groups and sampling, or use "balanced"'
        )
    return {"class_weight": "balanced", "sampling": "stratified"}


def _check_shared(parameters: Mapping[str, Any], outputs: int) -> None:
    """Raise ConfigError for a parameter with which the outputs would have other bags or other numbers of trees."""
    if parameters.get("sampling") in BOOSTED:
        raise ConfigError(
            f"sampling={parameters['sampling']!r} follows the errors of one output, and y has {outputs}; use "
            "sklearn.multioutput.MultiOutputClassifier, or another sampling"
        )
    if parameters["stop_oob"] is not None:
        raise ConfigError(
            f"stop_oob stops at another number of trees for each of the {outputs} outputs of y; leave it at None"
        )


def seed_of(random_state: Any) -> int:
    """Return a seed: the given number, or one drawn as in scikit-learn's estimators. Raises ConfigError below 0."""
    if _is_whole(random_state):
        if random_state < 0:
            raise ConfigError(f"random_state must be at least 0, not {random_state!r}")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def threads_of(n_jobs: Any) -> int | None:
    """Return the number of threads, or None for all processors. Raises ConfigError."""
    if n_jobs is None:
        # Set by joblib for its workers, which share the processors.
        most = os.environ.get("NUMBA_NUM_THREADS", "")
        return min(int(most), available_threads()) if most.isdigit() and int(most) else None
    if not _is_whole(n_jobs) or n_jobs == 0:
        raise ConfigError(f"n_jobs must be None or a whole number other than 0, not {n_jobs!r}")
    return int(n_jobs) if n_jobs > 0 else max(1, available_threads() + 1 + int(n_jobs))


@contextmanager
def names_of_parameters(called: Mapping[str, str]) -> Iterator[Callable[[str], str]]:
    """Let errors name options and columns as the estimators do. Yield a function that renames both in a message.

    called  replacements in messages: a text, such as the quoted name of a column that `fit` has added, and the
            parameter to write instead. The block may add some.
    """

    def renamed(message: str) -> str:
        message = write_names(message, _PARAMETER.get)
        for text, parameter in called.items():
            message = message.replace(text, parameter)
        return message

    try:
        yield renamed
    except (ConfigError, DataError) as error:
        raise type(error)(renamed(error.text)) from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _rows_of(name: str, value: Any, rows: int, least: int) -> int:
    """Return a number of rows from a parameter: a count, or a fraction of `rows`, rounded up, but at least `least`.

    Raises ConfigError.
    """
    if _is_whole(value) and value >= least:
        return int(value)
    if isinstance(value, float | np.floating) and 0.0 < value <= 1.0:
        return max(least, math.ceil(value * rows))
    raise ConfigError(
        f"{name} must be a whole number of at least {least} or a fraction of the rows, above 0.0 and at most 1.0, "
        f"not {value!r}"
    )


def _share_of(max_samples: Any, bootstrap: Any, rows: int) -> float:
    """Return max_samples as a fraction of the rows, 1.0 for None. Raises ConfigError."""
    if max_samples is None:
        return 1.0
    if bootstrap is False:
        raise ConfigError(
            "`max_sample` cannot be set if `bootstrap=False`. Either switch to `bootstrap=True` or set "
            "`max_sample=None`."
        )
    share = max_samples / rows if _is_whole(max_samples) else max_samples
    if isinstance(share, float | np.floating) and is_within(float(share), OPTIONS["sample_fraction"].within):
        return float(share)
    raise ConfigError(
        f"max_samples must be a whole number of rows, at least 1 and at most 5 times the {rows} of the table, or a "
        f"fraction of them, above 0.0 and at most 5.0, not {max_samples!r}"
    )


def _drawn(max_features: Any) -> Any:
    if max_features is None or (isinstance(max_features, float | np.floating) and max_features == 1.0):
        return "all"
    return max_features
