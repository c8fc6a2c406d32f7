"""Functions that all plots share: Altair, colours, labels from data, titles with captions, dates, charts as files.

Files are SVG, PNG, and HTML that needs no network. Trees compare dates as numbers; plots show them as dates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bigforest.errors import ConfigError
from bigforest.export.trees import library
from bigforest.predict.forest import Forest
from bigforest.storage.atomic import OutputKind, staged

try:
    import resource
except ImportError:  # not POSIX: no such limits
    resource = None  # type: ignore[assignment]

# Colours of text and lines, and of axes and other lines behind the data. A report replaces INK by its colour of text
# (report/page.py).
INK = "#1b1c1d"
FAINT = "#8a8b8c"
# Colours that colour-blind readers can distinguish (Okabe and Ito 2008).
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#b59f00", "#8a8b8c")
# Colours of small and of large numbers. DEEP is also visible on a dark page.
PALE, DEEP = "#d3e3f0", "#0b6aa5"
WIDTH, HEIGHT = 420, 280
# A browser uses the first of these fonts that it has. The first three are equally wide, and layouts fit this width.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
# Label of all values that are not shown separately.
OTHERS = "(others)"
# Address space in bytes that a process needs to draw charts: V8, in which vl_convert runs, reserves nearly 70 GB.
_ADDRESSES = 75_000_000_000
# Points of a curve that are drawn.
_POINTS = 500
# Characters of a name or a label that are shown.
_SHOWN = 40
# Numbers of a size from _SMALLEST to before _LARGEST are written without a power of ten.
_SMALLEST, _LARGEST = 1e-4, 1e15


def altair() -> Any:
    """Return the library Altair. Raises ConfigError if it is not installed."""
    return library("altair", "plot")


def without_checks() -> AbstractContextManager[None]:
    """Return a context in which Altair does not compare parts of charts with their schema.

    The comparison takes a seventh of the time of a report. Tests compare the charts of all plots.
    """
    context: AbstractContextManager[None] = altair().utils.schemapi.debug_mode(False)
    return context


def one_line(value: object, most: int = _SHOWN) -> str:
    """Return a value from data as a short text without control characters."""
    text = "missing" if value is None else str(value)
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def labels_of(values: Sequence[object]) -> list[str]:
    """Return values as texts that all differ, because axes merge equal texts."""
    labels: dict[str, None] = {}
    for value in values:
        text, number = one_line(value), 2
        while text in labels:
            text, number = f"{one_line(value, _SHOWN - 6)} ({number})", number + 1
        labels[text] = None
    return list(labels)


def texts_of(column: pl.Series, shown: Sequence[object] | None = None) -> pl.Series:
    """Return the values of a column as texts, as `labels_of` does.

    shown  values that have texts; others become OTHERS. None for all values
    """
    values = column.unique(maintain_order=True).to_list() if shown is None else shown
    texts = dict(zip(values, labels_of(values), strict=True))
    return pl.Series(column.name, [texts.get(value, OTHERS) for value in column.to_list()], pl.String)


def number_text(value: float, digits: int = 4, sign: str = "") -> str:
    """Return a number as text: rounded to `digits` digits, or to a whole number if that has more digits.

    sign  "+" to mark positive numbers.

    Very small and very large numbers have a power of ten.
    """
    size = abs(value)
    if size == 0 or not isfinite(size):
        return f"{value:g}"
    if not _SMALLEST <= size < _LARGEST:
        return f"{value:{sign}.{digits}g}"
    text = f"{value:{sign},.{max(0, digits - 1 - floor(log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def most_different(predictions: Mapping[str | None, float], most: int) -> list[str | None]:
    """Return the `most` levels with the lowest and the highest predictions, ascending; None is the missing level.

    predictions  prediction of each level; more than `most`
    """
    ranked = sorted(predictions, key=lambda level: predictions[level])
    return ranked[: most // 2] + ranked[-(most - most // 2) :]


def chart_of(table: pl.DataFrame) -> Any:
    """Return a chart of the rows of a small table. Numbers that are not finite become null."""
    floats = [name for name, dtype in table.schema.items() if dtype.is_float()]
    clean = table.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in floats)
    values = tuple(clean.to_dicts())  # Altair would copy a list with every chart that is composed
    return altair().Chart(altair().Data(values=values))


def finish_chart(chart: Any, title: str, caption: Sequence[str]) -> Any:
    """Return the chart with a title, the lines of the caption below the title, and the style of all plots."""
    alt = altair()
    axis = {"labelColor": INK, "titleColor": INK, "domainColor": FAINT, "tickColor": FAINT, "gridColor": FAINT}
    return (
        chart.properties(
            title=alt.Title(one_line(title, 90), subtitle=[one_line(line, 110) for line in caption], anchor="start")
        )
        .configure(background="white", font=FONT, padding=12)
        .configure_axis(
            **axis,
            gridOpacity=0.25,
            labelFontSize=11,
            labelFlush=False,  # True would move the outer labels inwards, where they touch their neighbours
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=10,
        )
        # No descriptions of marks: they are expressions in which Vega-Lite does not escape a backslash of a name.
        .configure_mark(color=COLORS[0], aria=False)
        .configure_title(color=INK, subtitleColor=INK, fontSize=14, subtitleFontSize=11, offset=12)
        .configure_legend(labelColor=INK, titleColor=INK, titleFontWeight="normal")
        .configure_header(labelColor=INK, titleColor=INK)
        .configure_view(stroke=None)
        .configure_range(category=list(COLORS))
    )


def thinned(curve: pl.DataFrame) -> pl.DataFrame:
    """Return about _POINTS rows of a table, at equal distances, with the first and the last row."""
    if curve.height <= _POINTS:
        return curve
    step = -(-curve.height // _POINTS)
    return pl.concat([curve[:-1].gather_every(step), curve[-1:]])


FORMATS = ("svg", "png", "html")
PICTURE = OutputKind("picture")
# Pixels of a PNG for a pixel of the chart.
_SCALE = 2.0
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bigforest</title>
<script>{bundle}</script>
</head>
<body>
<div id="picture"></div>
<script>vegaEmbed("#picture", {spec}, {{"mode": "vega-lite", "actions": false}});</script>
</body>
</html>
"""


def converter() -> Any:
    """Return the library that draws charts without a browser.

    Raises ConfigError if it is not installed, or if it would end the process because of a low limit of address space.
    """
    limit = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _ADDRESSES:
        raise ConfigError(
            f"the address space of processes is limited to {limit / 1e9:.1f} GB (ulimit -v), and the library "
            f"that draws charts reserves up to {_ADDRESSES / 1e9:.0f} GB of it, most of which it does not use; raise "
            "the limit"
        )
    return library("vl_convert", "plot")


def _specification(chart: Any) -> dict[str, Any]:
    """Return the chart in Vega-Lite. It is not validated: this would take as long as drawing. Tests validate all."""
    return dict(chart.to_dict(validate=False))


def svg_of(chart: Any) -> str:
    """Convert a chart to SVG. The converter escapes text from data."""
    return converter().vegalite_to_svg(_specification(chart), allowed_base_urls=[])


def html_of_chart(chart: Any) -> str:
    """Return an HTML page that shows a chart without network. Data is escaped, so that it cannot end the script."""
    spec = json.dumps(_specification(chart), allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    bundle = converter().javascript_bundle().replace("</script", "<\\/script")
    return _PAGE.format(bundle=bundle, spec=spec)


def write_chart(chart: Any, path: Path, *, overwrite: bool) -> None:
    """Write a chart into a file. The suffix of its name is one of FORMATS. Raises OutputExistsError."""
    kind = path.suffix.removeprefix(".")
    if kind == "png":
        content: bytes = converter().vegalite_to_png(_specification(chart), scale=_SCALE, allowed_base_urls=[])
    else:
        content = (svg_of(chart) if kind == "svg" else html_of_chart(chart)).encode()
    with staged(path, PICTURE, overwrite=overwrite) as made:
        made.write_bytes(content)


# Milliseconds of a day, and of a unit of datetimes.
_DAY = 86_400_000.0
_UNITS = {"ms": 1.0, "us": 1e-3, "ns": 1e-6}
_DATETIME = re.compile(r"Datetime\(time_unit='(ms|us|ns)'")
# Milliseconds since 1970 of a larger size are shown as a number, not as a date.
_LARGEST_MOMENT = 1e15


def milliseconds(forest: Forest) -> dict[str, float]:
    """Return for each feature of dates or datetimes, by name, how many milliseconds the number 1 means.

    The result is empty for a forest on ranks, whose thresholds are not dates.
    """
    if forest.config.ranks:
        return {}
    step_of = {}
    for feature in forest.spec.features:
        unit = _DATETIME.match(feature.dtype)
        if feature.kind == "numeric" and (feature.dtype == "Date" or unit):
            step_of[feature.name] = _UNITS[unit[1]] if unit else _DAY
    return step_of


def moment_text(value: float, step: float | None) -> str:
    """Return a value of a feature as text: a date, a date and time, or a number.

    step  unit of the feature (`milliseconds`); None if it is no date
    """
    if step is None or not abs(value * step) < _LARGEST_MOMENT:
        return number_text(value, 5)
    moment = np.datetime64(floor(value * step), "ms")
    return str(moment.astype("datetime64[D]" if step == _DAY else "datetime64[s]")).replace("T", " ")
