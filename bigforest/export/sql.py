"""An SQL query with the trees of a forest as CASE expressions, for any database that supports these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bigforest.columns.labels import proba_names
from bigforest.columns.types import kind_of
from bigforest.errors import ConfigError, api, counted, shown
from bigforest.events import Listener, silent
from bigforest.execution.arguments import column_names
from bigforest.export.trees import ExportedTree, exported_trees
from bigforest.forest.forest_files import ForestFiles

if TYPE_CHECKING:
    from bigforest.columns.dataspec import FeatureSpec

_TO = "SQL"
_NUMBERS = ("number", "boolean")


def to_sql(files: ForestFiles, table: str, keep: Sequence[str], listener: Listener = silent) -> str:
    """Convert a forest to an SQL query: see `Forest.to_sql`."""
    if not isinstance(table, str) or not table:
        raise ConfigError(f"{api('table')} must be the name of a table, not {shown(table)}")
    features = files.spec.features
    _check(features)
    trees = list(exported_trees(files, _TO, listener))
    names = ["prediction"] if files.is_regression else proba_names(files.spec.target)
    keep = column_names(keep, "keep")
    _check_kept(keep, names)
    kept = [quoted(name) for name in keep]
    inner = names if files.is_regression else _free_names(keep, len(names))
    means = []
    for output, name in enumerate(inner):
        votes = "\n  + ".join(_case(tree, output, features) for tree in trees)
        means.append(f"({votes}) / {_number(float(len(trees)))} AS {quoted(name)}")
    columns = ",\n  ".join([*kept, *means])
    query = f"SELECT\n  {columns}\nFROM {quoted(table)}"
    head = f"-- {counted(files.trees, 'tree')} of bigforest for {' '.join(files.spec.target.name.split())}\n"
    if files.is_regression:
        return f"{head}{query}\n"
    power, shares = files.power.amount, [quoted(own) for own in inner]
    if power != 1.0:
        raised = [f"POWER({own}, {_number(power)})" for own in shares]
        shares = [f"{own} / ({' + '.join(raised)})" for own in raised]
    named = [f"{own} AS {quoted(name)}" for own, name in zip(shares, names, strict=True)]
    outer = [*kept, f"{_label(files.classes, inner)} AS {quoted('prediction')}", *named]
    return f"{head}SELECT {', '.join(outer)} FROM (\n{query}\n) AS votes\n"


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _check_kept(keep: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigError for columns that clash with others: most databases ignore case."""
    taken = {name.casefold() for name in ("prediction", *names)}
    for name in keep:
        if name.casefold() in taken:
            raise ConfigError(
                f"{api('keep')} cannot have {name!r}: the query has this column already, if upper and lower case are "
                "the same; "
                f"rename it, or drop it from {api('keep')}"
            )
        taken.add(name.casefold())


def _free_names(keep: Sequence[str], count: int) -> list[str]:
    """Return names that differ from the kept ones; names of classes may differ only in case."""
    start = "share"
    while any(name.casefold().startswith(start) for name in keep):
        start += "_"
    return [f"{start}{number}" for number in range(count)]


def _check(features: Sequence[FeatureSpec]) -> None:
    """Raise ConfigError for columns whose values have no portable form in SQL."""
    nested = [repr(feature.name) for feature in features if feature.home != feature.name]
    if nested:
        raise ConfigError(
            f"nested columns, such as {nested[0]}, cannot be exported to SQL; unnest them before training"
        )
    odd = [
        f"{feature.name!r} ({feature.dtype})"
        for feature in features
        if feature.kind == "numeric" and kind_of(feature.dtype).family not in _NUMBERS
    ]
    if odd:
        raise ConfigError(
            f"dates and times cannot be exported to SQL, such as the features {', '.join(odd[:5])}; "
            "train on numbers in their place"
        )


def _case(tree: ExportedTree, output: int, features: Sequence[FeatureSpec]) -> str:
    """Return the votes of a tree for an output as a CASE expression. Subtrees whose leaves have equal votes become one
    value."""
    said: dict[int, str] = {}
    for number in reversed(range(tree.nodes)):  # children come after their parents
        left, right = int(tree.left[number]), int(tree.right[number])
        if left < 0:
            said[number] = _number(float(tree.votes[number, output]))
            continue
        below, above = said.pop(left), said.pop(right)
        condition = _condition(tree, number, features[tree.feature[number]])
        said[number] = below if below == above else f"CASE WHEN {condition} THEN {below} ELSE {above} END"
    return said[0]


def _condition(tree: ExportedTree, node: int, feature: FeatureSpec) -> str:
    """Return a condition that is true, and not NULL, if a row goes left."""
    name = quoted(feature.name)
    listed = tree.levels[node]
    missing_left = tree.missing_left(node)
    if listed is None:
        value = f"CAST({name} AS INTEGER)" if feature.dtype == "Boolean" else name
        threshold = float(tree.threshold[node])
        if threshold == math.inf:  # all values go left
            return "1 = 1" if missing_left else f"{name} IS NOT NULL"
        if threshold == -math.inf:
            raise ConfigError(
                f"SQL has no portable infinities, and the feature {feature.name!r} is split at one; use another format"
            )
        test = f"{value} <= {_number(threshold)}"
        return f"{test} OR {name} IS NULL" if missing_left else test
    test = _among(feature, [level for level in listed if level is not None])
    if tree.default_left[node]:
        test = f"NOT ({test})"
    return f"{name} IS NULL OR ({test})" if missing_left else f"{name} IS NOT NULL AND ({test})"


def _among(feature: FeatureSpec, levels: Sequence[str]) -> str:
    """Return a condition that is true if a category that is not missing has one of these levels."""
    name = quoted(feature.name)
    if not levels:
        return "1 = 0"
    if feature.dtype == "Boolean":
        return f"CAST({name} AS INTEGER) IN ({', '.join(str(int(level == 'true')) for level in levels)})"
    if "Int" in feature.dtype:
        return f"{name} IN ({', '.join(levels)})"
    return f"{name} IN ({', '.join(map(_text, levels))})"


def _label(classes: Sequence[Any], names: Sequence[str]) -> str:
    """Return an expression for the class with the largest share, the lowest among ties."""
    cases = [
        "WHEN "
        + " AND ".join(f"{quoted(name)} >= {quoted(other)}" for other in names[place + 1 :])
        + f" THEN {_literal(classes[place])}"
        for place, name in enumerate(names[:-1])
    ]
    return f"CASE {' '.join(cases)} ELSE {_literal(classes[-1])} END" if cases else _literal(classes[-1])


def _literal(label: Any) -> str:
    if isinstance(label, str):
        return _text(label)
    if isinstance(label, Decimal):
        return format(label, "f")
    if not isinstance(label, bool | int | float):
        raise ConfigError(f"SQL has no portable dates and times, and {label} is a class; train on classes of text")
    return str(label).upper() if isinstance(label, bool) else repr(label)


def _text(text: str) -> str:
    if "\x00" in text:
        raise ConfigError(f"SQL has no text with a NUL, as in {text!r}; use another format")
    return "'" + text.replace("'", "''") + "'"


def _number(value: float) -> str:
    """Return a float64 literal, with an exponent: databases parse others as decimals."""
    return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
