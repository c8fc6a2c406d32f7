"""Tables to train on and to predict for, wherever they are."""

from bigforest.source.files import SeparatedPath, may_be_csv, separated, separator_of
from bigforest.source.open import (
    check_csv,
    collected,
    declared_categories,
    open_source,
    opens_quickly,
    table_in_memory,
)
from bigforest.source.source import Reading, Source

__all__ = [
    "Reading",
    "SeparatedPath",
    "Source",
    "check_csv",
    "collected",
    "declared_categories",
    "may_be_csv",
    "open_source",
    "opens_quickly",
    "separated",
    "separator_of",
    "table_in_memory",
]
