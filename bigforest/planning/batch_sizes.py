"""Batch sizes: how much of a table each stage reads at a time. Tests use small ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Batch sizes of the stages. No byte of any result depends on them. Tests use small ones.

    Constants beside the code are: sizes that files depend on, such as rows of a row group or of a file; sizes that fit
    a processor's cache; and how much of a forest's files is decoded at a time, also by readers without resources.

    Encoding (encode/):

    slice_rows      rows of a column that are read at a time.
    cells_per_read  columns of few rows are read together, up to this many cells, because each read has a fixed cost.
    presort_rows    rows of a column that are presorted at once; row numbers within them have 32 bits.
    levels_waiting  levels of a category that wait until they are made one list, at least.

    The out-of-bag report (oob/), without a budget of memory:

    group_bytes      bytes of trees that go over the rows together, at most;
    group_row_bytes  or this many for each row of the table, if that is more: growing took memory in proportion to rows.

    Prediction and explanations (predict/, explain/):

    batch_rows     rows that are read at a time.
    explain_bytes  bytes of trees that a task explains together.
    explain_pairs  pairs of features that are counted together.
    """

    slice_rows: int = 1 << 18
    cells_per_read: int = 1 << 21
    presort_rows: int = 2**32 - 1
    levels_waiting: int = 1 << 18

    group_bytes: int = 48 << 20
    group_row_bytes: int = 16

    batch_rows: int = 1 << 17
    explain_bytes: int = 256 << 20
    explain_pairs: int = 1 << 18


USUAL = Limits()
