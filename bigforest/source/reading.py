"""Options of reading a table: what training or the user knows about its columns."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """Options of reading a table.

    separator  of CSV files, the character between values; None to find it in the header.
    numbers    of CSV files, columns of numbers: one with only "NA" and the like has no values, and is not text.
    missing    texts that mean a missing value in every column of CSV files.
    texts      columns of text, even if all their values are numbers or dates, such as 001.
    needed     columns that are read; None for all.
    excluded   columns that are not read.
    empty      whether a table may have no rows.
    usual      the separator of training, which new files have if it divides their header.
    target     name of y in a pair (X, y); None for that of y itself, or "target".
    kept       columns whose text in CSV and NDJSON files is needed: one that is no text has it as `text_name`, too.

    A column that is not read may have any values: if it cannot be read, it becomes one without values.
    """

    separator: str | None = None
    numbers: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()
    needed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    empty: bool = False
    target: str | None = None
    kept: frozenset[str] = frozenset()
    usual: str | None = None

    def needs(self, name: str) -> bool:
        """Return True if a column is read."""
        return name not in self.excluded and (self.needed is None or name in self.needed)


EVERYTHING = Reading()


def text_name(name: str) -> str:
    """Return the name of the column with the text that a column of numbers or dates has in the files."""
    return f"\1text of {name}"
