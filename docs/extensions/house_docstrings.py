"""Docstrings that list their arguments in two columns, `name  meaning`, are shown as numpydoc shows its parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


# A name, or several with commas, then at least two spaces, then the meaning; what is indented goes on with it.
_ENTRY = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*) {2,}(\S.*)$")
# A name that ends in an underscore, as scikit-learn's attributes do, which reStructuredText takes for a link.
_TRAILING = re.compile(r"(?<=\w)_(?=[,) ]|$)")
_NUMPYDOC = re.compile(r"^(Parameters|Attributes|Returns|Yields|Raises)$")


def numpydoc_lines(lines: list[str], heading: str) -> list[str]:
    """The docstring with its two-column entries in a section of numpydoc at the end; others are left as they are."""
    if any(_NUMPYDOC.match(line) for line in lines):
        return lines
    text: list[str] = []
    entries: list[str] = []
    in_entry = False
    for line in lines:
        entry = _ENTRY.match(line)
        if entry:
            entries += [entry[1], f"    {entry[2]}"]
        elif in_entry and line.startswith("  "):
            entries.append(f"    {line.strip()}")
        else:
            text.append(line)
        in_entry = bool(entry) or (in_entry and line.startswith("  "))
    if not entries:
        return lines
    return [*text, "", heading, "-" * len(heading), *entries, ""]


def _escaped(line: str) -> str:
    """A line whose names that end in an underscore are no links; what stands between backticks is left alone."""
    if re.match(r"^\w+_ : ", line):  # the name that a section of numpydoc describes
        name, colon, kind = line.partition(" : ")
        return f"{name}{colon}{_escaped(kind)}"
    pieces = line.split("`")
    pieces[::2] = [_TRAILING.sub(r"\\_", piece) for piece in pieces[::2]]
    return "`".join(pieces)


def _translate(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [_escaped(line) for line in lines]
    lines[:] = numpydoc_lines(lines, "Attributes" if what == "class" else "Parameters")


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: Any, result: Any) -> Any:
    """No arguments for classes that functions make."""
    made_by_users = name == "bigforest.TrainConfig" or name.startswith("bigforest.sklearn.")
    return None if what != "class" or made_by_users else ("", None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before numpydoc, whose priority is 500."""
    app.connect("autodoc-process-docstring", _translate, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
