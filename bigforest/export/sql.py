"""An SQL query with the trees of a forest as CASE expressions, for DuckDB, SQLite, PostgreSQL, MySQL and MariaDB.

Each step selects from the one before:

    WITH step0 AS (SELECT t."id" AS k0, CAST(t."x" AS ...) AS f0 ...   cells in the types that trees compare
    step1 AS (SELECT k0, CASE WHEN f0 <= 0 OR -f0 <= 0 THEN f0 END ... NaN is missing
    step2 AS (SELECT k0, (0 + CASE WHEN f0 <= 1.5e0 ...) / 20e0 AS v0  mean over the trees
    SELECT k0 AS "id", v0 AS "prediction" FROM step2                   names of the result

    k  columns to keep       v  means of votes, then probabilities or the number
    f  features of trees     s  sums of the boosted stage, then scores

Names of columns of the table occur only in the first and in the last SELECT, so they clash with no others. In the first
SELECT they are quoted and follow the alias of the table: without a column x, SQLite takes "x" for a text, but refuses
t."x".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigforest.columns.labels import proba_names
from bigforest.columns.types import kind_of
from bigforest.errors import ConfigError, api, counted, damaged_forest, shown
from bigforest.events import Listener, silent
from bigforest.export.trees import ExportedTree, exported_trees, stage_trees
from bigforest.forest.forest_files import ForestFiles
from bigforest.forest.refinement import Link
from bigforest.kernels.refine.link import LOGISTIC, POISSON, SOFTMAX, SQUARED
from bigforest.options.values import check_word, names_of

if TYPE_CHECKING:
    from bigforest.columns.dataspec import FeatureSpec

_TO = "SQL"
# Spaces that training strips from text: White_Space of Unicode.
_SPACES = "".join(map(chr, [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F]))
_SPACES += "\u205f\u3000"
# Limit of the argument of EXP, as in kernels/refine/link.py: databases raise an error for results beyond float64.
_MOST = 700.0
_LARGEST = float(np.finfo(np.float64).max)
_MAX_WHOLE = 2**63 - 1


class _Dialect(NamedTuple):
    """Syntax in which databases differ.

    quote    character around names
    number   expression of a column as float64; {} is the column, here and below
    flag     expression of a boolean column as an integer
    text     expression of a column as text that is compared byte by byte
    trimmed  as `text`, without spaces around it
    zero     float64 with which a sum begins: PostgreSQL adds literals as decimals
    has_nan  True if numbers may be NaN, which is larger than all others
    escapes  True if a backslash in text escapes the next character
    """

    quote: str
    number: str
    flag: str
    text: str
    trimmed: str
    zero: str
    has_nan: bool
    escapes: bool

    def name(self, name: str) -> str:
        """Return a name in quotes. Raises ConfigError for a name that no database allows."""
        if not name or "\x00" in name:
            raise ConfigError(f"SQL has no names that are empty or have a NUL, as {name!r}; rename it")
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def literal(self, text: str) -> str:
        if "\x00" in text:
            raise ConfigError(f"SQL has no text with a NUL, as in {text!r}; use another format")
        if self.escapes and "\\" in text:
            return f"_utf8mb4 X'{text.encode().hex()}'"
        return "'" + text.replace("'", "''") + "'"


_DIALECTS = {
    "standard": _Dialect(
        quote='"',
        number="CAST({} AS DOUBLE PRECISION)",
        flag="CAST({} AS INTEGER)",
        text="CAST({} AS VARCHAR)",
        trimmed=f"TRIM(CAST({{}} AS VARCHAR), '{_SPACES}')",
        zero="CAST(0 AS DOUBLE PRECISION)",
        has_nan=True,
        escapes=False,
    ),
    "mysql": _Dialect(
        quote="`",
        number="({} + 0e0)",
        flag="CAST({} AS SIGNED)",
        text="CONVERT({} USING utf8mb4) COLLATE utf8mb4_bin",
        trimmed=f"REGEXP_REPLACE(CONVERT({{}} USING utf8mb4), '^[{_SPACES}]+|[{_SPACES}]+$', '') COLLATE utf8mb4_bin",
        zero="0e0",
        has_nan=False,
        escapes=True,
    ),
}


class _Query:
    """A query that is made step by step. Each step is a SELECT from the step before, the first from the table.

    table  name of the table, in quotes.
    """

    def __init__(self, table: str) -> None:
        self._steps: list[str] = []
        self._source = f"{table} AS t"
        self._name = "step"
        while self._name in table.casefold():
            self._name += "_"

    def select(self, columns: Iterable[tuple[str, str]]) -> None:
        """Add a step; columns: pairs of an expression and a name.

        Each step also has a row number, which is never used: its window function keeps optimizers from replacing the
        name of a column by its expression in the next step, which would compute trees for each use of their sum.
        """
        name = f"{self._name}{len(self._steps)}"
        self._steps.append(f"{name} AS (\n{self._selecting([*columns, ('ROW_NUMBER() OVER ()', 'n')])})")
        self._source = name

    def text(self, columns: Iterable[tuple[str, str]]) -> str:
        """Return the query: all steps, and a last SELECT of these columns."""
        return f"WITH {', '.join(self._steps)}\n{self._selecting(columns)}"

    def _selecting(self, columns: Iterable[tuple[str, str]]) -> str:
        lines = ",\n  ".join(value if value == name else f"{value} AS {name}" for value, name in columns)
        return f"SELECT\n  {lines}\nFROM {self._source}\n"


class _Cell:
    """A feature as a column of the query, and the conditions of nodes that split on it.

    name       name of the column in the query.
    value      expression of the column of the table.
    is_number  True if the column is a float64.
    """

    def __init__(self, files: ForestFiles, place: int, sql: _Dialect) -> None:
        feature = files.spec.features[place]
        self.name, self._feature, self._sql = f"f{place}", feature, sql
        is_flag = feature.dtype == "Boolean"
        self.is_number = not is_flag and kind_of(feature.dtype).family == "number"
        form = sql.flag if is_flag else sql.number
        if feature.kind == "category" and not is_flag:
            levels = files.levels.of(place).to_list()
            if self.is_number:
                self._check_distinct(levels)
            else:  # levels of older forests may have spaces
                form = sql.trimmed if all(level == level.strip(_SPACES) for level in levels) else sql.text
        self.value = form.format(f"t.{sql.name(feature.name)}")

    @property
    def without_nan(self) -> tuple[str, str]:
        """Expression of the column with NULL in place of NaN, and name of the column."""
        if not self.is_number or not self._sql.has_nan:
            return self.name, self.name
        return f"CASE WHEN {self.name} <= 0 OR -{self.name} <= 0 THEN {self.name} END", self.name

    def condition(self, tree: ExportedTree, node: int) -> str:
        """Return a condition that is true if a row goes left, and false or NULL if it goes right."""
        listed, missing_left = tree.levels[node], tree.missing_left(node)
        if listed is None:
            threshold = float(tree.threshold[node])
            if threshold == math.inf:  # all values go left
                return "1 = 1" if missing_left else f"{self.name} IS NOT NULL"
            lowest = threshold == -math.inf
            test = f"{self.name} < {_number(-_LARGEST)}" if lowest else f"{self.name} <= {_number(threshold)}"
            return f"{test} OR {self.name} IS NULL" if missing_left else test
        words = [self._literal(level) for level in listed if level is not None]
        test = f"{self.name} IN ({', '.join(words)})" if words else "1 = 0"
        if tree.default_left[node]:
            test = f"NOT ({test})"
        return f"{self.name} IS NULL OR ({test})" if missing_left else f"{self.name} IS NOT NULL AND ({test})"

    def _literal(self, level: str) -> str:
        if self._feature.dtype == "Boolean":
            return str(int(level == "true"))
        return _number(float(int(level))) if self.is_number else self._sql.literal(level)

    def _check_distinct(self, levels: Sequence[str]) -> None:
        """Raise ConfigError if two levels are the same float64, and FormatError for a level that is no whole number."""
        try:
            values = {float(int(level)) for level in levels}
        except ValueError as error:
            raise damaged_forest(
                f"a level of the feature {self._feature.name!r} is no whole number: {error}"
            ) from error
        if len(values) < len(levels):
            raise ConfigError(
                f"the levels of {self._feature.name!r} are whole numbers beyond 2**53, some of which SQL takes for the "
                "same; train on text in their place, or use another format"
            )


def to_sql(files: ForestFiles, table: str, keep: Sequence[str], dialect: str, listener: Listener = silent) -> str:
    if not isinstance(table, str) or not table:
        raise ConfigError(f"{api('table')} must be the name of a table, not {shown(table)}")
    check_word(dialect, tuple(_DIALECTS), "dialect")
    sql, keep = _DIALECTS[dialect], names_of(keep, "keep")
    names = ["prediction"] if files.is_regression else proba_names(files.spec.target)
    _check_names(files, keep, names)
    _check_types(files.spec.features)
    trees = list(exported_trees(files, _TO, listener))
    stage = stage_trees(files) if files.is_refined else []
    used = np.unique(np.concatenate([tree.feature[tree.left >= 0] for tree in (*trees, *stage)])).tolist()
    cells = {place: _Cell(files, place, sql) for place in used}

    kept = [(f"k{place}", f"k{place}") for place in range(len(keep))]
    query = _Query(sql.name(table))
    columns = [(f"t.{sql.name(name)}", alias) for name, (_, alias) in zip(keep, kept, strict=True)]
    query.select([*columns, *((cell.value, cell.name) for cell in cells.values())])
    if any(cell.is_number for cell in cells.values()) and sql.has_nan:
        query.select([*kept, *(cell.without_nan for cell in cells.values())])
    count = _number(float(len(trees)))
    votes = [f"v{output}" for output in range(len(names))]
    sums = [(f"({total}) / {count}", alias) for total, alias in zip(_sums(trees, cells, sql), votes, strict=True)]
    scores = []
    if stage:
        totals = _sums(stage, cells, sql)
        scores = [f"s{output}" for output in range(len(totals))]
        sums += zip(totals, scores, strict=True)
    query.select([*kept, *sums])
    shares = _to_power(votes, files.power.amount)
    if stage:
        if shares != votes:
            query.select([*kept, *zip(shares, votes, strict=True), *zip(scores, scores, strict=True)])
        for step in _correction_selects(votes, scores, Link(files.spec, files.config)):
            query.select([*kept, *step])
        shares = votes
    if not files.is_regression:
        labels = [_literal(label, sql) for label in files.classes]
        query.select([*kept, (_choice(votes, labels), "label"), *zip(shares, votes, strict=True)])
        names, votes = ["prediction", *names], ["label", *votes]
    results = [*(name for name, _ in kept), *votes]
    text = query.text(zip(results, map(sql.name, [*keep, *names]), strict=True))
    target = " ".join(files.spec.target.name.split())
    return f"-- {counted(files.trees, 'tree')} of bigforest for {target}\n{text}"


def _check_names(files: ForestFiles, keep: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigError for result columns (`keep`, `names`) of the same name, ignoring case, and for columns of the
    table whose names differ only in case."""
    taken = {name.casefold() for name in ("prediction", *names)}
    for name in keep:
        if name.casefold() in taken:
            raise ConfigError(
                f"{api('keep')} cannot have {name!r}: the query has this column already, if upper and lower case are "
                "the same; "
                f"rename it, or drop it from {api('keep')}"
            )
        taken.add(name.casefold())
    spec = files.spec
    others = [
        role.name for role in (spec.target, spec.group, spec.weight) if role is not None and role.name is not None
    ]
    name_of: dict[str, str] = {}
    for name in [*spec.feature_names, *others, *keep]:
        first = name_of.setdefault(name.casefold(), name)
        if first != name:
            raise ConfigError(
                f"the columns {first!r} and {name!r} differ in upper and lower case alone, and most databases take "
                "them for one; rename one of them"
            )


def _check_types(features: Sequence[FeatureSpec]) -> None:
    """Raise ConfigError for columns whose values have no portable form in SQL."""
    nested = [repr(feature.name) for feature in features if feature.table_column != feature.name]
    if nested:
        raise ConfigError(
            f"nested columns, such as {nested[0]}, cannot be exported to SQL; unnest them before training"
        )
    odd = [
        f"{feature.name!r} ({feature.dtype})"
        for feature in features
        if kind_of(feature.dtype).family not in ("number", "text")
    ]
    if odd:
        raise ConfigError(
            f"dates and times cannot be exported to SQL, such as the features {', '.join(odd[:5])}; "
            "train on numbers in their place"
        )


def _sums(trees: Sequence[ExportedTree], cells: Mapping[int, _Cell], sql: _Dialect) -> list[str]:
    """Return for each output the sum of the votes of trees, added in their order."""
    conditions = [_conditions(tree, cells) for tree in trees]
    return [
        "({})".format("\n  + ".join([sql.zero, *map(_case, conditions, (tree.votes[:, output] for tree in trees))]))
        for output in range(trees[0].votes.shape[1])
    ]


def _conditions(tree: ExportedTree, cells: Mapping[int, _Cell]) -> list[str | None]:
    features = enumerate(tree.feature.tolist())
    return [None if feature < 0 else cells[feature].condition(tree, node) for node, feature in features]


def _case(conditions: Sequence[str | None], votes: NDArray[np.float64]) -> str:
    """Return the votes of a tree for an output as a CASE expression; votes [nodes], conditions see `_conditions`.

    Subtrees whose leaves have equal votes become one value. A right child continues the CASE of its parent, as parsers
    limit how deep expressions are.
    """
    branches: list[str] = []  # of nodes whose parent is yet to come: last its left child, before it the right one
    begin, end = "CASE ", " END"
    for condition, vote in zip(reversed(conditions), votes[::-1].tolist(), strict=True):
        if condition is None:
            branches.append(_number(vote))
            continue
        below, above = branches.pop(), branches.pop()
        rest = above[len(begin) : -len(end)] if above.startswith(begin) else f"ELSE {above}"
        branches.append(below if below == above else f"{begin}WHEN {condition} THEN {below} {rest}{end}")
    return branches[0]


def _to_power(votes: Sequence[str], power: float) -> list[str]:
    """Return expressions of the probabilities: the means `votes` raised to a power, then scaled to sum to 1."""
    if power == 1.0:
        return list(votes)
    raised = [f"POWER({vote}, {_number(power)})" for vote in votes]
    return [f"{vote} / ({' + '.join(raised)})" for vote in raised]


def _correction_selects(votes: list[str], scores: list[str], link: Link) -> Iterator[list[tuple[str, str]]]:
    """Yield the columns of each SELECT by which the boosted stage corrects the columns `votes`, as predict/refine.py
    does.

    scores  columns of the sums of the stage
    """
    if link.loss == SQUARED:
        yield [(f"{votes[0]} + {scores[0]}", votes[0])]
        return
    least = _number(link.least)
    logs = [f"LN(CASE WHEN {vote} > {least} THEN {vote} ELSE {least} END)" for vote in votes]
    if link.loss == LOGISTIC:
        logs = [f"{logs[1]} - {logs[0]}"]
    yield [(f"{log} + {score}", score) for log, score in zip(logs, scores, strict=True)]
    if link.loss == SOFTMAX:
        yield [*zip(scores, scores, strict=True), (_choice(scores, scores), "most")]
        yield [(f"{score} - most", score) for score in scores]
    most = _number(_MOST)  # between -most and most the exponential is a number
    clip = "CASE WHEN {0} > {1} THEN {1} WHEN {0} < -{1} THEN -{1} ELSE {0} END"
    yield [(clip.format(score, most), score) for score in scores]
    if link.loss == POISSON:
        yield [(f"EXP({scores[0]})", votes[0])]
    elif link.loss == LOGISTIC:
        yield [(f"1e0 / (1e0 + EXP({sign}{scores[0]}))", vote) for sign, vote in zip(("", "-"), votes, strict=True)]
    else:
        yield [(f"EXP({score})", vote) for score, vote in zip(scores, votes, strict=True)]
        yield [(f"{vote} / ({' + '.join(votes)})", vote) for vote in votes]


def _choice(columns: Sequence[str], results: Sequence[str]) -> str:
    """Return an expression for the result of the largest column, the first among ties."""
    cases = [
        f"WHEN {' AND '.join(f'{column} >= {other}' for other in columns[place + 1 :])} THEN {results[place]}"
        for place, column in enumerate(columns[:-1])
    ]
    return f"CASE {' '.join(cases)} ELSE {results[-1]} END" if cases else results[-1]


def _literal(label: Any, sql: _Dialect) -> str:
    if isinstance(label, str):
        return sql.literal(label)
    if isinstance(label, bool):
        return str(label).upper()
    if isinstance(label, Decimal):
        return format(label, "f")
    if isinstance(label, float):
        return _number(label)
    if not isinstance(label, int):
        raise ConfigError(f"SQL has no portable dates and times, and {label} is a class; train on classes of text")
    if label > _MAX_WHOLE:
        raise ConfigError(f"SQL has whole numbers up to 2**63 - 1, and {label} is a class; train on classes of text")
    return str(label)


def _number(value: float) -> str:
    """Return a float64 literal, with an exponent: databases parse others as decimals."""
    text = repr(value)
    return text if "e" in text else f"{text}e0"
