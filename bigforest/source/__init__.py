"""Tables to train on and to predict for, wherever they are."""

from bigforest.source.files import SeparatedPath
from bigforest.source.open import open_source, opens_quickly
from bigforest.source.source import Source

__all__ = ["SeparatedPath", "Source", "open_source", "opens_quickly"]
