"""The directive `columns`: the columns of a file of a forest, types by its schema, with what its lines say of each."""

from __future__ import annotations

from docutils import nodes
from schemas import column_table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def meanings_of(lines: list[str]) -> dict[str, str]:
    """What the lines `name: meaning` of a directive say, by name; a line with spaces before goes on with the last."""
    found: dict[str, str] = {}
    for line in filter(None, lines):
        if line[0] == " ":
            found[list(found)[-1]] += f" {line.strip()}"
        else:
            name, _, meaning = line.partition(":")
            found[name] = meaning.strip()
    return found


class ColumnsDirective(SphinxDirective):
    """The table of the columns of the file that its argument names."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            text = column_table(self.arguments[0], meanings_of(list(self.content)))
        except ValueError as error:
            raise self.error(str(error)) from error
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("columns", ColumnsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
