"""The directive `columns`: the columns of a file of a forest, as its schema declares them."""

from __future__ import annotations

from docutils import nodes
from schemas import column_table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ColumnsDirective(SphinxDirective):
    """The table of the columns of the file that its argument names."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        try:
            text = column_table(self.arguments[0])
        except ValueError as error:
            raise self.error(str(error)) from error
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("columns", ColumnsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
