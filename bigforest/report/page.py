"""Pieces of the page of a report. In `report/`, only this module writes HTML, and it escapes all text from data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from bigforest.plot.draw import INK, number_text, one_line, svg_of

# Longest text of a cell, in characters.
_CELL = 200
# Most rows of a table without buttons to sort it.
_UNSORTED_ROWS = 2

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1c1d; --back: #ffffff; --line: #c9ccd0; --quiet: #5a5f66; --link: #005a8f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --back: #16181b; --line: #44484e; --quiet: #a9afb7; --link: #7cc4f2; }
}
body { color: var(--ink); background: var(--back); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 60rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
nav a, a { color: var(--link); } nav a { margin-right: 1rem; white-space: nowrap; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.wide { overflow-x: auto; } figure { margin: 1rem 0; } figure svg { height: auto; max-width: 100%; overflow: visible; }
.wide > svg { max-width: none; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left;
  vertical-align: top; }
.wide > table { overflow-wrap: normal; } th, td.number { white-space: nowrap; }
th[scope=row] + td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
th button { font: inherit; font-weight: bold; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }
th button::after { content: " \\2195"; color: var(--quiet); }
pre { white-space: pre-wrap; border: 1px solid var(--line); padding: .5rem; font-size: .85rem; }
summary { cursor: pointer; font-weight: bold; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
@media print {
  :root { --ink: #000; --back: #fff; --line: #999; --quiet: #333; --link: #000; color-scheme: light; }
  nav { display: none; } figure, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; }
  th button::after { content: ""; }
  .wide { overflow: visible; } .wide > svg { max-width: 100%; } th { white-space: normal; }
}
"""

_SCRIPT = """
function reachable() {  // lets the keyboard scroll boxes whose content is wider
  document.querySelectorAll(".wide").forEach(function (box) {
    if (box.scrollWidth > box.clientWidth) { box.tabIndex = 0; } else { box.removeAttribute("tabindex"); }
  });
}
reachable();
window.addEventListener("resize", reachable);
document.querySelectorAll("details").forEach(function (part) { part.addEventListener("toggle", reachable); });
document.querySelectorAll("th button").forEach(function (button) {
  button.addEventListener("click", function () {
    var head = button.parentNode, body = head.closest("table").tBodies[0], at = head.cellIndex;
    var down = head.getAttribute("aria-sort") !== "descending";
    var key = function (row) { var v = row.cells[at].dataset.value; return v === undefined ? null : Number(v); };
    var text = function (row) { return row.cells[at].textContent; };
    Array.from(body.rows).sort(function (a, b) {
      var x = key(a), y = key(b);
      var order = x !== null && y !== null ? x - y : text(a).localeCompare(text(b));
      return down ? -order : order;
    }).forEach(function (row) { body.appendChild(row); });
    Array.from(head.parentNode.cells).forEach(function (cell) { cell.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
});
"""


def page(title: str, sections: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return the whole file. A section is a heading and its pieces of HTML; sections without pieces are left out."""
    kept = [(heading, pieces) for heading, pieces in sections if pieces]
    links = "".join(f'<a href="#s{number}">{escape(heading)}</a>' for number, (heading, _) in enumerate(kept))
    body = "".join(
        f'<section id="s{number}"><h2>{escape(heading)}</h2>{"".join(pieces)}</section>'
        for number, (heading, pieces) in enumerate(kept)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        f"<title>{escape(one_line(title, 80))}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(one_line(title, 80))}</h1><nav>{links}</nav>{body}</main><script>{_SCRIPT}</script></body>"
        "</html>\n"
    )


def text(words: str) -> str:
    return f"<p>{escape(words)}</p>"


def heading(words: str) -> str:
    return f"<h3>{escape(words)}</h3>"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{_shown(value)}</td></tr>' for name, value in pairs)
    return f'<div class="wide"><table>{rows}</table></div>'


def html_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table, numbers aligned right. With more than _UNSORTED_ROWS rows, a click on a heading sorts them."""
    numbers = [all(isinstance(row[at], int | float) or row[at] is None for row in rows) for at in range(len(headings))]
    names = [heading.replace("_", " ") for heading in headings]
    head = "".join(_head(name, number, len(rows)) for name, number in zip(names, numbers, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell(cell, number) for cell, number in zip(row, numbers, strict=True))}</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def code(words: str) -> str:
    return f"<pre><code>{escape(words)}</code></pre>"


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def picture(chart: Any, label: str, *, wide: bool = False) -> str:
    """Draw a chart as a figure, with text in the colour of the page. A `wide` figure scrolls instead of shrinking."""
    return f"<figure{' class=wide' if wide else ''}>{inline_svg(svg_of(chart), label)}</figure>"


def inline_svg(svg: str, label: str) -> str:
    """Return SVG for a page: no background, no namespaces, ids unique in the page, a label for screen readers."""
    prefix = re.sub(r"\W", "", label)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)
    svg = re.sub(r'<rect width="[^"]*" height="[^"]*" fill="white"/>', "", svg, count=1)
    svg = svg.replace(f'="{INK}"', '="currentColor"')
    svg = re.sub(r'id="((?:clip|gradient)[\w-]*)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r"url\(#((?:clip|gradient)[\w-]*)\)", rf"url(#{prefix}-\1)", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def number_or_unknown(value: float | None, digits: int = 4) -> str:
    return "unknown" if value is None or value != value else number_text(value, digits)


def _shown(value: object) -> str:
    return escape(one_line(value, _CELL))


def _head(name: str, number: bool, rows: int) -> str:
    kind = ' class="number"' if number else ""
    inside = f'<button type="button">{escape(name)}</button>' if rows > _UNSORTED_ROWS else escape(name)
    return f'<th scope="col"{kind}>{inside}</th>'


def _cell(value: Any, is_number: bool) -> str:
    if not is_number:
        return f"<td>{_shown(value)}</td>"
    if value is None or value != value:
        return '<td class="number"></td>'
    text = f"{value:,}" if isinstance(value, int) else number_text(value)
    return f'<td class="number" data-value="{float(value)!r}">{text}</td>'
