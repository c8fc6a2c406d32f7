"""`bigforest.report_forest`: a report about a forest as one self-contained HTML file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bigforest.errors import ConfigError, api, shown
from bigforest.events import Listener
from bigforest.options.values import is_integer
from bigforest.plot.draw import altair, converter
from bigforest.plot.forest import importance_chart
from bigforest.plot.plot import Pictures
from bigforest.predict.forest import Forest, opened_forest
from bigforest.report import page
from bigforest.report.sections import again, card, quality, wrong
from bigforest.source import Source
from bigforest.storage.atomic import check_output, staged
from bigforest.storage.paths import as_path

_SUFFIX = ".html"
_RULES = 10
# Features in the table of importance.
_SHOWN = 30


def report_forest(
    forest: Forest | str | Path,
    data: Any = None,
    out: str | Path = "report.html",
    *,
    trees: int = 3,
    overwrite: bool = False,
    threads: int | None = None,
    scratch: str | Path | None = None,
    memory: str | int | None = None,
    listener: Listener | None = None,
) -> Path:
    """Write a report about a forest: one self-contained HTML file for screens, phones and print.

    It covers the data and options, the accuracy with its uncertainty, the errors, the important features, the
    dependence of predictions on them, example trees, and how to reproduce the forest.

    Parameters
    ----------
    forest : Forest, str or Path
        A Forest, or its path.
    data : path or table, optional
        The training table, for slices, permutation importance, dependence and contributions. For a forest without an
        out-of-bag report, any rows with its features, for the last two.
    out : str or Path, default="report.html"
        Output file; its name ends in .html.
    trees : int, default=3
        Number of trees to draw, the first ones.
    overwrite : bool, default=False
        Replace an existing file.
    threads, scratch, memory, listener : optional
        As for `explain_forest`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ConfigError
        For invalid options, or if the extra `plot` is not installed.
    DataError
        For rows that do not fit, or, for a forest with an out-of-bag report, rows of another table.
    FormatError
        For a damaged forest.
    OutputExistsError
        If `out` exists.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> forest = bf.train(table, "kind", trees=10)
    >>> bf.report_forest(forest, table, "kind.html").name
    'kind.html'
    """
    if not is_integer(trees, 0):
        raise ConfigError(f"{api('trees')} must be a number of trees, 0 or more, not {shown(trees)}")
    out = as_path(out)
    if out.suffix.lower() != _SUFFIX:
        raise ConfigError(f"the name of a report ends in {_SUFFIX}, not {out.name!r}; choose another output")
    check_output(out, overwrite=overwrite, kind="report", is_ours=Path.is_file)
    forest = opened_forest(forest)
    altair()
    converter()
    plot = Pictures(forest, {"threads": threads, "scratch": scratch, "memory": memory, "listener": listener})
    with ExitStack() as stack:
        source = None if data is None else stack.enter_context(plot.opened(data))
        made = _page(plot, data, source, trees)
    with staged(out, overwrite=overwrite, kind="report", is_ours=Path.is_file) as path:
        path.write_text(made, encoding="utf-8")
    return out


def _page(plot: Pictures, data: Any, source: Source | None, trees: int) -> str:
    forest = plot.forest
    # First what is out of bag, which refuses a table that is not that of training.
    matters = _matters(plot, data, source)
    sections = [
        ("Forest and data", card(forest)),
        ("Accuracy", quality(plot)),
        ("Errors", [*wrong(plot, source), *_alike(plot, data, source)]),
        ("Feature importance", matters),
        ("Dependence on features", _dependence(plot, data)),
        ("Trees", _trees(plot, trees)),
        ("How to reproduce the forest", [*again(forest), page.picture(plot.time(), "Time by stage")]),
    ]
    return page.page(f"Forest for {forest.spec.target.name}", sections)


def _alike(plot: Pictures, data: Any, source: Source | None) -> list[str]:
    if source is None or not plot.forest.has_oob or not plot.forest.oob.rows_used:
        return []
    return [page.picture(plot.map(data), "Map of rows by proximity")]


def _matters(plot: Pictures, data: Any, source: Source | None) -> list[str]:
    pieces = [page.picture(plot.importance(), "Importance by decrease of impurity")]
    note = "The decrease of impurity favours features with many values"
    if plot.forest.config.boosts:
        return [*pieces, page.text(f"{note}; other importances are not available for a boosted forest.")]
    if source is None or not plot.forest.has_oob:
        return [*pieces, page.text(f"{note}; importance on out-of-bag rows, from the training table, does not.")]
    found = plot.explain("permutation", data)["permutation"]
    rows = found.sort("importance", descending=True, nulls_last=True).head(_SHOWN)
    drawn = importance_chart(found, "permutation")
    return [
        page.picture(drawn, "Importance by permutation"),
        page.html_table(rows.columns, rows.rows()),
        page.text(f"{note}; permutation on out-of-bag rows does not."),
        *pieces,
    ]


def _dependence(plot: Pictures, data: Any) -> list[str]:
    if data is None:
        return [page.text("Pass the training table to the report to see how predictions depend on features.")]
    return [
        page.picture(plot.dependence(data), "Partial dependence", wide=True),
        page.picture(plot.swarm(data), "Contributions of features to predictions"),
        page.picture(plot.waterfall(data), "Contributions to the prediction of the first row"),
    ]


def _trees(plot: Pictures, trees: int) -> list[str]:
    forest = plot.forest
    pieces = [page.picture(plot.depth(), "Depth"), page.picture(plot.leaves(), "Leaf sizes")]
    rules = plot.explain("trees", rules=_RULES)["rules"]
    table = page.html_table(rules.columns, [tuple(_number(cell) for cell in row) for row in rules.rows()])
    pieces.append(page.folded("Most informative leaves", table))
    for number in range(min(trees, forest.trees)):
        drawn = page.picture(plot.tree(number), f"Tree {number}", wide=True)
        pieces.append(page.folded(f"Tree {number}", drawn))
    return pieces


def _number(cell: Any) -> Any:
    """Return labels of classes as text; numbers unchanged."""
    return cell if isinstance(cell, int | float) and not isinstance(cell, bool) else str(cell)
