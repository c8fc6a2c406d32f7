"""`bigforest.report_forest`: a report about a forest as one self-contained HTML file.

Its sections are: the forest with its data and options; accuracy; errors by class, by row (the largest out-of-bag
losses) and by slice of the table; importance of the features and dependence on them; trees; and how to reproduce the
forest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bigforest.columns.labels import label_type, proba_names
from bigforest.columns.types import without_words
from bigforest.errors import ConfigError, DataError, api, counted, listed, shown
from bigforest.events import Listener
from bigforest.metrics.numbers import quantile_grid
from bigforest.options.train_config import TrainConfig
from bigforest.options.train_options import options_in_use, value_text
from bigforest.options.values import is_integer, label_text
from bigforest.plot.accuracy import has_rejection, limits_table, number_losses, with_standard_error
from bigforest.plot.draw import altair, converter, one_line, without_checks
from bigforest.plot.explanations import map_chart
from bigforest.plot.forest import importance_chart
from bigforest.plot.plot import MAP, Pictures
from bigforest.predict.forest import Forest, opened_forest
from bigforest.predict.training_column import has_training_targets
from bigforest.report import page
from bigforest.source.source import Source
from bigforest.storage.atomic import OutputKind, check_output, staged
from bigforest.storage.paths import as_path

_REPORT = OutputKind("report")
# Most names in a list.
_LISTED = 10
# Columns of `forest.run` with versions.
_VERSIONS = ("bigforest", "python", "numpy", "numba", "polars")


def card(forest: Forest) -> list[str]:
    """Return pieces of HTML: facts about the forest and its data, the candidates of a comparison, and all options."""
    spec, config, origin = forest.spec, forest.config, forest.origin
    grown_on = "a table in memory or on standard input" if origin is None or origin.data is None else origin.data
    if origin is not None and origin.merged:
        grown_on = "; ".join(f"{piece.forest} ({counted(piece.trees, 'tree')})" for piece in origin.merged)
    classes = f"{counted(len(forest.classes), 'class')}, {_list_values(forest.classes)}"
    target = "a number" if forest.is_regression else classes
    lacking = "without a target or of weight 0" if spec.weight and spec.weight.name else "without a target"
    pairs = [
        ("target", f"{spec.target.name}: {target}"),
        ("grown on" if not (origin and origin.merged) else "merged from", grown_on),
        ("rows", f"{spec.rows:,}" + (f", and {spec.dropped:,} {lacking} left out" if spec.dropped else "")),
        ("features", f"{len(spec.features):,}: {_list_values(spec.feature_names)}"),
        ("trees", f"{forest.trees:,}, family {config.family}"),
    ]
    if origin is not None and origin.exclude:
        pairs.append(("columns left out", _list_values(list(origin.exclude))))
    if forest.revised:
        pairs.append(("since then", forest.revised))
    pieces = []
    if forest.is_tuned:
        pairs.append(("chosen", forest.files.winner))
        candidates = forest.tuning.select(
            "candidate", "trees", "loss", "difference", "standard_error", "seconds", "retired"
        )
        pieces.append(page.folded("The candidates", page.html_table(candidates.columns, candidates.rows())))
    options = [
        (name, value_text(value))
        for name, value in options_in_use(asdict(config)).items()
        if name not in ("trees", "family")
    ]
    return [page.facts(pairs), *pieces, page.folded("All options", page.facts(options))]


def again(forest: Forest) -> list[str]:
    """Return pieces of HTML: the command that grows the forest again, the seed, versions and fingerprint of the table.

    A merged forest has no such command. The command of a revised forest does not include the revision.
    """
    run, origin = forest.run.row(0, named=True), forest.origin
    pairs = [("seed", str(forest.config.seed)), *((name, str(run[name])) for name in _VERSIONS)]
    if origin is not None and origin.fingerprint:
        pairs.append(("fingerprint of the table", origin.fingerprint))
    if origin is not None and origin.merged:
        note = page.text("The forest was merged from others; each has its own seed and table.")
        return [note, page.facts(pairs)]
    before = f" This command grows it as it was before it was {forest.revised}." if forest.revised else ""
    return [
        page.text(f"The same table, options and seed give the same forest, for any number of threads.{before}"),
        page.code(shlex.join(command(forest))),
        page.facts(pairs),
    ]


def command(forest: Forest) -> list[str]:
    """Return the words of the command that grows the forest again, with DATA in place of a table without a path.

    It has the options that differ from the defaults of the family, and always family, trees, seed and task.
    """
    origin, config = forest.origin, forest.config
    words = ["bigforest", "train", (origin.data if origin is not None else None) or "DATA"]
    words += ["--target", forest.spec.target.name]
    words += [] if forest.spec.separator is None else ["--separator", forest.spec.separator]
    for column in origin.exclude if origin is not None else ():
        words += ["--exclude", column]
    plain = TrainConfig.of(family=config.family).for_task(forest.spec.target.task)
    for name, value in options_in_use(asdict(config)).items():
        if name in ("family", "trees", "seed", "task") or value != getattr(plain, name):
            words += list(_flags(name, value))
    return words


def _flags(name: str, value: Any) -> Iterator[str]:
    """Yield the words of an option of the command line."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield flag if value else f"--no-{name.replace('_', '-')}"
    elif name == "class_weight" and isinstance(value, tuple):
        yield from (flag, json.dumps({str(label): weight for label, weight in value}, ensure_ascii=False))
    elif isinstance(value, tuple):
        for entry in value:
            yield from (flag, str(entry))
    else:
        yield from (flag, str(value))


def _list_values(values: list[Any]) -> str:
    return listed([one_line(value) for value in values], _LISTED)


# Number of slices of a feature of numbers or dates.
_PARTS = 5
# Number of slices of a category: its most frequent levels. A feature of numbers or dates with at most as many values,
# missing included, has a slice for each value.
_LEVELS = 20
# Smallest slice, in rows.
LEAST_ROWS = 20
# Number of features to slice: the most important ones.
_FEATURES = 50
_EPSILON = float(np.finfo(np.float64).eps)


def row_errors(forest: Forest) -> pl.DataFrame:
    """Return columns row and error of the out-of-bag rows.

    The error is 1 for a wrong or rejected prediction, otherwise 0. For regression, it is the loss (`number_losses`).
    """
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    if forest.is_regression:
        error = number_losses(forest)
    else:
        error = pl.col("truth").ne_missing(pl.col("prediction")).cast(pl.Float64)
    return voted.select("row", error=error).collect(engine="streaming")


def worst_rows(forest: Forest, most: int = 10) -> pl.DataFrame:
    """Return the `most` rows of largest out-of-bag loss, the largest first.

    The columns are row, truth, prediction, p_truth (for classes only) and loss.

    p_truth  probability of the true class
    loss     for classification -log(p_truth), with p_truth at least the eps of float64; for regression the squared
             error, or the Poisson deviance with that impurity
    """
    voted = forest.oob.rows.filter(pl.col("trees") > 0)
    if forest.is_regression:
        losses = voted.with_columns(loss=number_losses(forest))
        columns = ["row", "truth", "prediction", "loss"]
    else:
        kind = label_type(forest.spec.target)
        share = pl.coalesce(
            pl.when(pl.col("truth") == pl.lit(label).cast(kind)).then(pl.col(name))
            for label, name in zip(forest.classes, proba_names(forest.spec.target), strict=True)
        )
        losses = voted.with_columns(p_truth=share).with_columns(
            loss=-pl.col("p_truth").clip(lower_bound=_EPSILON).log()
        )
        columns = ["row", "truth", "prediction", "p_truth", "loss"]
    return losses.select(columns).sort(["loss", "row"], descending=[True, False]).head(most).collect(engine="streaming")


def slices(forest: Forest, source: Source, most: int = 10) -> pl.DataFrame:
    """Return the `most` slices of largest excess, the largest first.

    The columns are feature, slice (a text), rows, error, standard_error and excess.

    source  training table

    slice   at least LEAST_ROWS out-of-bag rows. Their values of a feature lie between two quantiles (numbers and
            dates), are the same (categories, and numbers and dates with few values), or are missing
    excess  error of the slice minus the error of all rows, in standard errors of the slice. Slices without a positive
            excess are left out. Among many slices, some have a high excess by chance
    """
    errors = row_errors(forest)
    rows, error = errors["row"].to_numpy(), errors["error"].to_numpy()
    mean, deviation = float(error.mean()), float(error.std())
    lines = []
    ranked = forest.features.sort("importance", descending=True, maintain_order=True)["name"]
    plain = [name for name in ranked if name in source.schema and not source.schema[name].is_nested()]
    for name in plain[:_FEATURES]:
        column = source.column(name).alias("").gather(rows)  # without a name: see `cells` in columns/types.py
        for text, inside in _parts(column):
            size = int(inside.sum())
            if LEAST_ROWS <= size < error.size:
                part = error[inside]
                spread = max(float(part.std(ddof=1)), 1e-3 * deviation) / size**0.5
                if part.mean() > mean and spread > 0:
                    high = float(part.mean())
                    lines.append((name, text, size, high, spread, (high - mean) / spread))
    numbers = dict.fromkeys(("error", "standard_error", "excess"), pl.Float64)
    schema = {"feature": pl.String, "slice": pl.String, "rows": pl.Int64, **numbers}
    table = pl.DataFrame(lines, schema=schema, orient="row")
    return table.sort("excess", descending=True, maintain_order=True).head(most)


def _parts(column: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return the parts into which `slices` divides rows by a feature: a text, and a mask of the rows."""
    column = column.fill_nan(None) if column.dtype.is_float() else column
    missing = column.is_null().to_numpy()
    parts = [("missing", missing)] if missing.any() else []
    ordered = (column.dtype.is_numeric() or column.dtype.is_temporal()) and column.n_unique() > _LEVELS
    if ordered:
        values = column.to_physical().cast(pl.Float64).to_numpy()
        edges = quantile_grid(values[~missing], _PARTS + 1)
        edge_cells = [column.filter(pl.Series(values == edge))[0] for edge in edges]
        for place, (low, high) in enumerate(pairwise(edges)):
            inside = (values >= low if place == 0 else values > low) & (values <= high) & ~missing
            sign = "from" if place == 0 else "above"
            parts.append((f"{sign} {_value(edge_cells[place])} to {_value(edge_cells[place + 1])}", inside))
        return parts
    counts = column.drop_nulls().value_counts(sort=True).head(_LEVELS)
    levels = sorted(counts.get_column(column.name).to_list(), key=str)
    return parts + [(f"is {one_line(level)}", (column == level).fill_null(False).to_numpy()) for level in levels]


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_CLASSES = 10
# Headings in place of column names that readers of a page may not understand.
_HEADINGS = {
    "p_truth": "probability of the truth",
    "most_often": "most often predicted instead",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "poisson_deviance": "mean Poisson deviance",
    "brier": "Brier score",
    "auc": "area under ROC",
    "f1": "F1",
    "r2": "R²",
    "reject_above": "reject above",
}
_BIASED = (
    "The forest was grown with boosting, so this error is biased: hard rows are often drawn, and so rarely out of bag. "
    "Evaluate it on a test set."
)


def quality(plot: Pictures) -> list[str]:
    """Return pieces of HTML about the accuracy: on out-of-bag rows, and on a validation table if there was one."""
    forest = plot.forest
    if not forest.has_oob:
        pieces = [
            page.text("There is no out-of-bag estimate: the trees were grown on all rows, or were merged or changed.")
        ]
    elif not forest.oob.rows_used:
        pieces = [page.text("There is no estimate: every row is in the bag of every tree.")]
    else:
        pieces = [page.text(_error(forest)), *([page.text(_BIASED)] if forest.config.boosts else [])]
        pieces += [page.picture(plot.error(), "Error by number of trees")]
        pieces += [page.picture(plot.rounds(), "Loss by rounds of the boosted stage")] if forest.rounds.tried else []
        pieces += [page.heading("Metrics out of bag"), _metrics(forest)]
        if not forest.is_regression:
            pieces += [
                page.picture(plot.reliability(), "Reliability of the probabilities"),
                page.picture(plot.roc(), "ROC curves"),
                page.picture(plot.precision_recall(), "Precision and recall"),
            ]
        pieces += _rejection(plot) if has_rejection(forest) else []
    if forest.has_validation:
        last = forest.validation.row(-1, named=True)
        error = page.number_or_unknown(last["error"])
        sentence = f"On the validation table the error is {error}, on {counted(last['rows'], 'row')}."
        pieces.append(page.text(sentence))
    return pieces


def _rejection(plot: Pictures) -> list[str]:
    note = (
        "Effect of reject_above on out-of-bag rows, unweighted: the share of rows that are predicted, and the error "
        "among them. confidence: the lowest probability of the predicted class with which a row is predicted."
    )
    limits = limits_table(plot.forest)
    return [
        page.picture(plot.rejection(), "Error of the predicted rows"),
        *([page.heading("Rejection of uncertain rows"), page.text(note), _table(limits)] if limits.height else []),
    ]


def wrong(plot: Pictures, source: Source | None) -> list[str]:
    """Return pieces of HTML: the confusion, the worst classes and rows, and the worst slices of the training table.

    source  the training table; None for no slices

    Without out-of-bag rows the list is empty.
    """
    forest = plot.forest
    if not forest.has_oob or not forest.oob.rows_used:
        return []
    pieces = []
    if not forest.is_regression:
        pieces += [page.picture(plot.confusion(), "Confusion of classes", wide=len(forest.classes) > 12)]
        pieces += [page.heading("Worst classes"), _table(worst_classes(forest))]
    pieces += [page.heading("Rows with the largest out-of-bag loss"), _table(worst_rows(forest))]
    if source is not None:
        if not forest.has_bags:  # otherwise the explanations have checked it
            _check_table(forest, source)
        table = slices(forest, source)
        pieces.append(page.heading("Slices with the highest out-of-bag error"))
        if table.height:
            unweighted = ", unweighted" if forest.oob.weighted else ""
            note = (
                f"Parts of the table, by one feature, with at least {LEAST_ROWS} rows{unweighted}. excess: error above "
                "that of all rows, in standard errors of the slice; among many slices, a few exceed 2 by chance."
            )
            pieces += [page.text(note), _table(table)]
        else:
            pieces.append(page.text("No slice has a higher error than all rows together."))
    return pieces


def _check_table(forest: Forest, source: Source) -> None:
    """Raise DataError if a table does not have the rows of the out-of-bag report."""
    spec, advice = forest.spec, "give the table of training, with its rows in the same order"
    if spec.target.name not in source.schema:
        raise DataError(f"the table has no column {spec.target.name!r}, which tells its rows from others; {advice}")
    if source.rows != spec.rows + spec.dropped:
        counts = f"{counted(source.rows, 'row')}, and in training there were {spec.rows + spec.dropped:,}"
        raise DataError(f"the table has {counts}; {advice}")
    if not has_training_targets(forest.files, source):
        raise DataError(f"the values of {spec.target.name!r} are not those of training; {advice}")


def worst_classes(forest: Forest) -> pl.DataFrame:
    """Return the _CLASSES classes of lowest recall, worst first.

    The columns are class, rows, recall, precision, f1 and most_often, the class most often predicted for wrong rows.
    """
    metrics, confusion = forest.oob.metrics, forest.oob.confusion
    assert confusion is not None
    wrong = confusion.filter(pl.col("truth") != pl.col("prediction")).sort("rows", descending=True, maintain_order=True)
    often = wrong.group_by("truth", maintain_order=True).first().select("truth", most_often="prediction")
    return (
        metrics.filter(pl.col("class").is_not_null() & (pl.col("rows") > 0))
        .select("class", "rows", "recall", "precision", "f1")
        .join(often, left_on="class", right_on="truth", how="left", maintain_order="left")
        .sort("recall", maintain_order=True)
        .head(_CLASSES)
    )


def _error(forest: Forest) -> str:
    counted_error = pl.DataFrame({"error": [forest.oob.error], "rows": [forest.oob.rows_used]})
    error, rows, spread = with_standard_error(forest, counted_error).row(0)
    sure = ", with row weights" if forest.oob.weighted else ""
    if spread is not None:
        low, high = max(0.0, error - 1.96 * spread), error + 1.96 * spread
        sure = (
            f", standard error {page.number_or_unknown(spread, 2)}, 95% interval {page.number_or_unknown(low)} to "
            f"{page.number_or_unknown(high)}"
        )
    return f"The out-of-bag {forest.oob.measure} is {page.number_or_unknown(error)} on {counted(rows, 'row')}{sure}."


def _metrics(forest: Forest) -> str:
    metrics = forest.oob.metrics
    return _table(metrics if forest.is_regression or metrics.height <= 31 else metrics.tail(1), "all")


def _table(frame: pl.DataFrame, missing: str | None = None) -> str:
    """Return a table as HTML, with labels as text, and `missing` in place of a label that is null."""
    labels = [name for name in ("class", "truth", "prediction", "most_often") if name in frame.columns]
    texts = frame.with_columns(
        pl.Series(name, [missing if cell is None else label_text(cell) for cell in frame[name].to_list()], pl.String)
        for name in labels
        if name == "class" or not frame.schema[name].is_float()
    )
    return page.html_table([_HEADINGS.get(name, name) for name in frame.columns], texts.rows())


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
        The training table, for slices, permutation importance, the map of rows, dependence and contributions. For a
        forest without an out-of-bag report, any rows with its features, for dependence and contributions.
    out : str or Path, default="report.html"
        Output file; its name ends in .html.
    trees : int, default=3
        Number of trees to draw, beginning with the first; 0 for none.
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
        If `out` exists and `overwrite` is False.

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
    check_output(out, _REPORT, overwrite=overwrite)
    forest = opened_forest(forest)
    altair()
    converter()
    plot = Pictures(forest, {"threads": threads, "scratch": scratch, "memory": memory, "listener": listener})
    with without_checks(), nullcontext() if data is None else plot.opened(data) as source:
        made = _page(plot, source, trees)
    with staged(out, _REPORT, overwrite=overwrite) as path:
        path.write_text(made, encoding="utf-8")
    return out


def _page(plot: Pictures, source: Source | None, trees: int) -> str:
    forest = plot.forest
    explained = _explain(plot, source)  # comes first, because it refuses another table than in training
    sections = [
        ("Forest and data", card(forest)),
        ("Accuracy", quality(plot)),
        ("Errors", [*wrong(plot, source), *_map(forest, source, explained)]),
        ("Feature importance", _importance(forest, explained)),
        ("Dependence on features", _dependence(plot, source)),
        ("Trees", _trees(plot, trees, explained["rules"])),
        ("How to reproduce the forest", [*again(forest), page.picture(plot.time(), "Time by stage")]),
    ]
    return page.page(f"Forest for {forest.spec.target.name}", sections)


def _explain(plot: Pictures, source: Source | None) -> dict[str, pl.DataFrame]:
    """Explain the forest and, with the training table, its out-of-bag rows, in one call, which reads the table once."""
    parts, rows = ["importance", "trees"], source if plot.forest.has_bags else None
    options: dict[str, Any] = {"rules": _RULES}
    if rows is not None:
        parts.append("permutation")
        if plot.forest.oob.rows_used:
            parts.append("proximities")
            options |= MAP
    return plot.explain(parts, rows, **options)


def _map(forest: Forest, source: Source | None, explained: dict[str, pl.DataFrame]) -> list[str]:
    if source is None or "neighbors" not in explained:
        return []
    target = without_words(source.column(forest.spec.target.name), forest.spec.missing_words)
    drawn = map_chart(explained["neighbors"], target, not forest.is_regression)
    return [page.picture(drawn, "Map of rows by proximity")]


def _importance(forest: Forest, explained: dict[str, pl.DataFrame]) -> list[str]:
    """Return pieces of HTML: the importance by permutation, if it was computed, and by the decrease of impurity."""
    drawn = importance_chart(forest, explained["importance"], "importance")
    pieces = [page.picture(drawn, "Importance by decrease of impurity")]
    note = "The decrease of impurity favours features with many values"
    if forest.config.boosts:
        return [*pieces, page.text(f"{note}; other importances are not available with boosting.")]
    if "permutation" not in explained:
        return [*pieces, page.text(f"{note}; importance on out-of-bag rows, from the training table, does not.")]
    rows = explained["permutation"].sort("importance", descending=True, nulls_last=True).head(_SHOWN)
    drawn = importance_chart(forest, explained["permutation"], "permutation")
    return [
        page.picture(drawn, "Importance by permutation"),
        page.html_table(rows.columns, rows.rows()),
        page.text(f"{note}; permutation on out-of-bag rows does not."),
        *pieces,
    ]


def _dependence(plot: Pictures, source: Source | None) -> list[str]:
    if source is None:
        return [page.text("Pass the training table to the report to see how predictions depend on features.")]
    return [
        page.picture(plot.dependence(source), "Partial dependence", wide=True),
        page.picture(plot.swarm(source), "Contributions of features to predictions"),
        page.picture(plot.waterfall(source), "Contributions to the prediction of the first row"),
    ]


def _trees(plot: Pictures, trees: int, rules: pl.DataFrame) -> list[str]:
    forest = plot.forest
    pieces = [page.picture(plot.depth(), "Depth"), page.picture(plot.leaves(), "Leaf sizes")]
    pieces.append(page.folded("Most informative leaves", _table(rules)))
    for number in range(min(trees, forest.trees)):
        drawn = page.picture(plot.tree(number), f"Tree {number}", wide=True)
        pieces.append(page.folded(f"Tree {number}", drawn))
    return pieces
