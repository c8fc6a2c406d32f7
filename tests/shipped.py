"""What an installed wheel with kernels must do: train and predict every kind of table without compiling anything.

    NUMBA_CACHE_DIR=EMPTY python tests/shipped.py

Prints the kernels that were compiled, and exits with 1 if there are any. Not a test by itself: run it with a wheel that
`python -m bigforest.api.ship` made, in a fresh environment. CI does so for the first forest of README.md alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import bigforest
from bigforest.api.warm_up import KINDS
from bigforest.common.events import silent
from bigforest.kernels.compiler.cache import folders

_ROWS = 3000


def table(mixed: bool, numbers: bool, classes: int) -> pl.DataFrame:
    """Columns of one to four bytes of codes and a target, with missing values and categories where `mixed`."""
    draw = np.random.default_rng(3)
    frame = pl.DataFrame(
        {
            "wide": draw.normal(size=_ROWS),
            "small": draw.integers(0, 20, _ROWS),
            "flag": draw.integers(0, 2, _ROWS).astype(bool),
            "weight": draw.random(_ROWS),
        }
    )
    if mixed:
        names = pl.Series("text", [f"level {number}" for number in draw.integers(0, 40, _ROWS)])
        gaps = draw.random(_ROWS) < 0.1
        frame = frame.with_columns(names, wide=pl.when(pl.Series(gaps)).then(None).otherwise(pl.col("wide")))
    score = frame["small"] + 10 * frame["wide"].fill_null(0.0) + pl.Series(draw.normal(size=_ROWS))
    return frame.with_columns(y=score if numbers else (score.rank() * classes / (_ROWS + 1)).floor().cast(pl.Int64))


def main() -> int:
    """Run the command."""
    with tempfile.TemporaryDirectory() as name:
        for kind, (mixed, numbers, options) in KINDS.items():
            for classes in (2,) if numbers else (2, 5):
                for more in ({},) if "subspace" in kind else ({}, {"weight": "weight", "min_leaf": 3}):
                    quantiles: dict[str, Any] = {"keep_targets": True} if numbers else {}
                    train(table(mixed, numbers, classes), Path(name), {**options, **more, **quantiles}, numbers)
            print(kind, *compiled(), flush=True)
    return int(bool(compiled()))


def train(frame: pl.DataFrame, folder: Path, options: dict[str, Any], numbers: bool) -> None:
    """A forest by the file, and answers in memory and into a file."""
    data, out = folder / "table.parquet", folder / "forest"
    frame.write_parquet(data)
    forest = bigforest.train(data, "y", trees=4, out=out, overwrite=True, listener=silent, **options)
    forest.predict(frame, **({"quantiles": [0.1, 0.9]} if numbers else {}))
    bigforest.predict_file(out, data, folder / "predictions.parquet", overwrite=True)


def compiled() -> list[str]:
    """Names of kernels in the caches that this process writes to."""
    return sorted(path.name.split("-")[0] for folder in folders() for path in folder.glob("*.nbc"))


if __name__ == "__main__":
    sys.exit(main())
