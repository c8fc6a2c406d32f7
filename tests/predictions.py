"""`write_predictions` with the defaults of `predict_file`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from bigforest.events import silent
from bigforest.execution.resources import Resources
from bigforest.predict import files
from bigforest.predict.forest import Forest
from bigforest.predict.score import FilePrediction
from bigforest.source.source import Source

_write = partial(files.write_predictions, proba=False, keep=(), listener=silent, overwrite=False)


def write_predictions(forest: Forest, source: Source, out: Path, rule: Any = None, **options: Any) -> FilePrediction:
    """The rows of `source` predicted by a rule, or by that of training, into the file `out`."""
    return _write(forest, source, out, rule or forest.rules.make(), **{"resources": Resources(), **options})
