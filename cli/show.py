"""Display of results on standard output: tables and aligned facts for people, one JSON object for programs."""

from __future__ import annotations

import json as jsonlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Width of output to a file or another program: so large that nothing is folded or cut.
PIPE_WIDTH = 1000
# Width at which `words` breaks lines of that output.
PIPE_WORDS = 100
# Minimum width of a column of text, whose text is folded if the table is wider than the terminal.
_MIN_TEXT = 8
# Remark on errors by number of trees, for a forest with a boosted stage.
TREES_ALONE = "trees alone, without the boosted stage"
# Spaces between columns.
_GAP = 2

Facts = Mapping[str, Any]


def show(facts: Facts, draw: Callable[[Facts], None], *, json: bool, quiet: bool = False) -> None:
    """Print `facts` as JSON, or let `draw` print them for people unless quiet."""
    if json:
        typer.echo(jsonlib.dumps(_finite(facts), ensure_ascii=False))
    elif not quiet:
        draw(facts)


def lines(*pairs: tuple[str, str]) -> None:
    """Print names and values in two columns. Long values are folded within their column."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text("\n".join(map(plain, value.split("\n")))))
    _print(grid)


def plain(text: str) -> str:
    r"""Return the text on one line, with control characters as escapes such as `\t` or `\x1b`."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def words(text: str) -> str:
    """Return a long value for `lines`. Add line breaks if the output is no terminal: a terminal folds the value."""
    return text if _console().is_terminal else fill(text, PIPE_WORDS, break_long_words=False, break_on_hyphens=False)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table: first `left` columns of text, then columns of numbers.

    Numbers are never broken: in a narrow terminal the headings are, and text is folded.
    """
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    columns = [[plain(cell) for cell in column] for column in zip(headings, *rows, strict=True)]
    narrow = sum(max(map(len, column)) + _GAP for column in columns) > _console().width
    needed = 0
    for position, (heading, *cells) in enumerate(columns):
        longest, text = max(map(len, cells), default=0), position < left
        width = max(min(_MIN_TEXT, longest) if text else longest, *map(len, heading.split(" ")))
        shown = Text(heading.replace(" ", "\n") if narrow else heading)
        drawn.add_column(shown, justify="left" if text else "right", overflow="fold", min_width=width, no_wrap=not text)
        needed += width + _GAP
    for row in rows:
        drawn.add_row(*(Text(plain(cell)) for cell in row))
    _print(drawn, needed)


def count(number: int, noun: str = "") -> str:
    """Return a number as text: 12,345; with a noun 1 row or 12,345 rows."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def rounded(value: float | None, error: float = 0.0) -> str:
    """Return a number rounded to the first digit of its standard error, or to the second if the first is 1 or 2.

    Without a standard error (0, infinite or nan) it has six significant digits. None is "unknown". Numbers below
    0.000001 and from 10**15 on are such as 6.1e-10.
    """
    if value is None:
        return "unknown"
    if not (math.isfinite(value) and 0.0 < error < math.inf):
        return f"{value:.6g}"
    places = -math.floor(math.log10(error / 3.0))
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    if not -6 <= magnitude < 15 and places + magnitude >= 0:
        return f"{value:.{places + magnitude}e}"
    return f"{round(value, places):z,.{max(0, places)}f}"


def share_error(share: float, rows: int) -> float:
    """Return the standard error of a share of rows: above 0 even for the shares 0 and 1; infinite without rows."""
    return math.sqrt((max(0.0, share * (1.0 - share)) + 1.0 / rows) / rows) if rows else math.inf


def mean_error(mean: float, rows: int) -> float:
    """Return the standard error of a mean loss, if its standard deviation equals the mean; infinite without rows."""
    return abs(mean) / math.sqrt(rows) if rows else math.inf


def percent(share: float | None, rows: int | None = None) -> str:
    """Return a share such as 4.21 %. With `rows`, the standard error determines the digits. None is "unknown"."""
    if share is None or rows is None:
        return "unknown" if share is None else f"{100 * share:.2f} %"
    return f"{rounded(100 * share, 100 * share_error(share, rows))} %"


def number_cells(values: Iterable[float | None]) -> list[str]:
    """Return the numbers of a column as text; None is "".

    All have the same number of decimals, just enough for four significant digits of the largest number. If that is
    below 0.000001, or 10**15 or more, all are such as 6.130e-10.
    """
    values = list(values)
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    magnitude = math.floor(math.log10(largest)) if largest else 3
    form = f"z.{max(0, 3 - magnitude)}f" if -6 <= magnitude < 15 else "z.3e"
    return ["" if value is None else f"{value:{form}}" for value in values]


def duration(seconds: float) -> str:
    """Return seconds as text: 0.42 s, 73 s, 5 min or 1 h 02 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(total: int) -> str:
    """Return bytes as text: 0 B, 12 kB, 3.4 MB or 56 GB."""
    amount, unit = float(total), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if amount < 10 and unit != "B" else f"{amount:.0f} {unit}"


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def _print(drawn: Table, needed: int = 0) -> None:
    """Print without trailing spaces, in the width of the terminal, or in `needed` characters if it is narrower."""
    console = _console()
    console.width = max(console.width, needed)
    with console.capture() as capture:
        console.print(drawn, crop=False)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()), color=True)


def table_lines(facts: Facts) -> list[tuple[str, str]]:
    """Return the lines about the training table."""
    lacking = "without a target" if facts["weight"] is None else "without a target or of weight 0"
    dropped = f" (and {count(facts['dropped'])} {lacking} left out)" if facts["dropped"] else ""
    return [
        ("target", plain(facts["target"])),
        ("rows", count(facts["rows"]) + dropped),
        ("features", count(facts["features"])),
        *([("classes", count(facts["classes"]))] if facts["classes"] else []),
    ]


def stop_lines(facts: Facts) -> list[tuple[str, str]]:
    """Return the line about early stopping, if it was used."""
    stop = facts["stop"]
    if stop is None:
        return []
    if facts["trees"] < stop["most"]:
        return [("stopped", f"the out-of-bag error has converged, tolerance {stop['tolerance']:g}")]
    unsettled = f"the out-of-bag error has not converged, tolerance {stop['tolerance']:g}"
    return [("stopped", f"at the maximum of {count(stop['most'])}: {unsettled}")]


def out_of_bag(oob: Facts | None, classes: int) -> str:
    """Return the out-of-bag error and its number of rows in words. `classes` is 0 for regression."""
    if oob is None:
        return "no estimate, because trees were grown on all rows or changed afterwards; use a validation set"
    if not oob["rows"]:
        return "no estimate, because every row is in every bag"
    rows = count(oob["rows"], "row") + (", weighted" if oob.get("weighted") else "")
    if "mse" in oob:
        return f"{_named(number_errors(oob, oob['rows']))} on {rows}"
    biased = "; biased, because hard rows are rarely out of bag: evaluate it on a test set" if oob.get("biased") else ""
    scores = _named(class_scores(oob, classes, oob["rows"]))
    return f"error {percent(oob['error'], oob['rows'])}, {scores} on {rows}{biased}"


def number_errors(facts: Facts, rows: int) -> dict[str, str]:
    """Return the errors of a regression on `rows` rows, by name."""
    means = {"mean Poisson deviance": facts.get("poisson_deviance"), "R2": facts["r2"]}
    means |= {"MSE": facts["mse"], "MAE": facts["mae"]}
    return {
        name: rounded(mean, mean_error(1.0 - mean if name == "R2" else mean, rows))
        for name, mean in means.items()
        if mean is not None
    }


def class_scores(facts: Facts, classes: int, rows: int) -> dict[str, str]:
    """Return log loss and area under the ROC curve on `rows` rows, by name."""
    loss, area = facts["log_loss"], facts["auc"]
    found = {"log loss": rounded(loss, mean_error(loss, rows))}
    if area is not None:
        mean = " (mean of each class against the rest)" if classes > 2 else ""
        found["AUC"] = rounded(area, share_error(area, rows)) + mean
    return found


def _named(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def choice_lines(facts: Facts) -> list[tuple[str, str]]:
    """Return a line each about lambda, the power and the boosted stage.

    A choice that changes nothing has a line only if it was tried, and the power not even then. With `calibration`, the
    losses are of other rows than those of the report, which has all.
    """
    rows = " on rows that are not held out" if facts.get("calibration") else ""
    shrunk = _choice_line(facts["shrinkage"], "lambda", 0.0, rows)
    raised = _choice_line(facts["power"], "power", 1.0, rows)
    refined = _choice_line(facts["refine"], "rounds", 0.0, rows)
    found = (("shrinkage", shrunk), ("probabilities", raised), ("boosted stage", refined))
    return [(name, text) for name, text in found if text]


def _choice_line(choice: Facts, name: str, usual: float, rows: str) -> str:
    """Return the text of a line of `choice_lines`, or an empty text.

    name   name of the value in `choice`: lambda, power or rounds.
    usual  value that changes nothing.
    rows   rows of the losses, in words; empty for all.
    """
    amount, tried = choice[name], choice["tried"]
    value = count(int(amount), "round") if name == "rounds" else f"{name} {amount:g}"
    if not tried:
        return "" if amount == usual else value
    losses = {row[name]: row["loss"] for row in tried}
    if amount == usual:
        none = {"lambda": "no lambda clearly lowers", "rounds": "it does not clearly lower"}.get(name)
        return "" if none is None else f"none: {none} the out-of-bag loss of {losses[usual]:.4g}{rows}"
    lowered = f"out-of-bag loss {losses[amount]:.4g} (cross-fitted {choice['cross_fitted']:.4g})"
    return f"{value}: {lowered} instead of {losses[usual]:.4g}{rows}"


def validation_lines(curve: Facts | None, rounds: float) -> list[tuple[str, str]]:
    """Return the line about the last row of a validation curve, if there is one.

    rounds  rounds of the boosted stage, which the curve does not include.
    """
    if curve is None:
        return []
    alone = f"; {TREES_ALONE}, which predict includes" if rounds else ""
    rejected = f", {count(curve['rejected'])} of them rejected" if curve["rejected"] else ""
    error = percent(curve["error"], curve["rows"])
    return [("validation", f"error {error} on {count(curve['rows'], 'row')}{rejected}{alone}")]


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold: NaN becomes null; infinities, dates and decimals become text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    from bigforest.options.values import label_text

    return label_text(value)  # dates, times and decimals
