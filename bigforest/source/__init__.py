"""Tables to train on and to predict for, wherever they are."""

from bigforest.source.memory import frame_from_numpy
from bigforest.source.open import open_source
from bigforest.source.source import Source

__all__ = ["Source", "frame_from_numpy", "open_source"]
