"""What makes pages from sources: docstrings, result files, commands."""

from __future__ import annotations

import re

import pytest

from docs.extensions.house_docstrings import _escaped, numpydoc_lines
from docs.extensions.result_pages import page_text


def test_docstring__in_two_columns_gets_a_section() -> None:
    lines = ["What it does.", "", "data, rows  a table,", "            of rows", "out         a file", "", "Raises X."]
    assert numpydoc_lines(lines, "Parameters") == [
        *("What it does.", "", "", "Raises X.", ""),
        *("Parameters", "----------", "data, rows", "    a table,", "    of rows", "out", "    a file", ""),
    ]


def test_docstring__without_columns_or_with_sections_is_left_alone() -> None:
    for lines in (["One line.", "", "More text."], ["A.", "", "Parameters", "----------", "x  y", ""]):
        assert numpydoc_lines(lines, "Parameters") == lines


@pytest.mark.parametrize(
    ("line", "escaped"),
    [
        ("ndarray of shape (n_samples, n_classes_)", r"ndarray of shape (n_samples, n_classes\_)"),
        ("classes_ : ndarray of shape (n_classes_,)", r"classes_ : ndarray of shape (n_classes\_,)"),
        ("in the order of `classes_`, and", "in the order of `classes_`, and"),
        ("min_leaf is a name", "min_leaf is a name"),
    ],
)
def test_docstring__names_that_end_in_an_underscore_are_no_links(line: str, escaped: str) -> None:
    assert _escaped(line) == escaped


def test_result_page__has_a_title_its_source_and_links_to_pages() -> None:
    text = "Text with [a result](suite.md), [a script](suite.py) and ![a picture](reproduce/x.png), [out](https://a.b)."
    page = page_text(text, "peers.md")
    assert page.startswith("# peers\n\n*The file `benchmarks/peers.md` of the sources.*\n")
    assert "[a result](suite.md), a script (`suite.py`) and ![a picture](x.png), [out](https://a.b)" in page


@pytest.mark.needs("sphinx")
def test_command_page__has_every_option_of_every_command() -> None:
    from docs.extensions.command_pages import command_page, commands

    sections = dict(re.findall(r"^## bigforest (\S+)\n(.*?)(?=^## |\Z)", command_page(), re.MULTILINE | re.DOTALL))
    assert list(sections) == list(commands())
    for name, command in commands().items():
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("-")}
        assert options <= set(re.findall(r"`(--?[\w-]+)`", sections[name])), name


@pytest.mark.needs("sphinx")
def test_reading_order__deals_executed_pages_to_all_processes() -> None:
    from sphinx.util.parallel import make_chunks

    from docs.extensions.reading_order import dealt

    for pages, processes in ((116, 2), (116, 4), (7, 2), (3, 2), (40, 3)):
        cells = {f"page{place}": 10 * (place % 5) if place > 0.7 * pages else 0 for place in range(pages)}
        order = dealt(cells, processes)
        assert sorted(order) == sorted(cells)
        chunks = [sum(cells[page] for page in chunk) for chunk in make_chunks(order, processes)]
        full = len(chunks) - len(chunks) % processes or len(chunks)
        assert max(chunks[:full]) - min(chunks[:full]) <= 40
        assert not any(chunks[full:])
