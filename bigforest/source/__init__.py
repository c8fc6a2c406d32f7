"""Tables to train on and to predict for, wherever they are."""

from bigforest.source.files import SeparatedPath, may_be_csv
from bigforest.source.open import open_source, opens_quickly
from bigforest.source.source import Source

__all__ = ["SeparatedPath", "Source", "may_be_csv", "open_source", "opens_quickly"]
