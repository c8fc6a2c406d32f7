"""The sound forests, stores and tables that are damaged. `python -m tests.fuzz.originals FOLDER` makes them there."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

import bigforest
from tests.fuzz import damage

ROWS = 240


def rows() -> pl.DataFrame:
    """Numbers, categories, missing values, weights and groups."""
    draw = np.random.default_rng(3)
    noise = draw.normal(size=(ROWS, 3))
    return pl.DataFrame(
        {
            "x0": noise[:, 0],
            "x1": np.where(draw.random(ROWS) < 0.1, np.nan, noise[:, 1]),
            "few": draw.integers(0, 5, ROWS),
            "word": [None if n % 11 == 0 else "abcdefg"[n % 7] for n in range(ROWS)],
            "w": draw.integers(1, 4, ROWS).astype(np.float64),
            "g": np.arange(ROWS) // 3,
            "y": pl.Series((noise[:, 0] + noise[:, 2] > 0).astype(np.int8)),
            "z": [None if n % 13 == 0 else float(value) for n, value in enumerate(noise[:, 0] * 3 + noise[:, 2])],
        }
    )


def many_types() -> pl.DataFrame:
    """A column of each type that a feature may have."""
    day = datetime.datetime(2020, 1, 1)
    number = pl.int_range(ROWS, eager=True)
    return rows().with_columns(
        day=pl.Series([day + datetime.timedelta(hours=n) for n in range(ROWS)]),
        date=number.cast(pl.Int32).cast(pl.Date),
        time=pl.Series([datetime.time(n % 24) for n in range(ROWS)]),
        zone=pl.Series([day] * ROWS).dt.replace_time_zone("Europe/Berlin"),
        decimal=number.cast(pl.Decimal(12, 2)),
        enum=pl.Series(["u", "v"] * (ROWS // 2), dtype=pl.Enum(["v", "u"])),
        category=pl.Series(["u", "v"] * (ROWS // 2), dtype=pl.Categorical),
        pair=pl.struct(a=number, b=number % 3 == 0),
        array=pl.Series([[n, n + 1] for n in range(ROWS)], dtype=pl.Array(pl.Int16, 2)),
    )


def make(folder: Path) -> None:
    """Make all of them."""
    table, numeric = rows(), rows().select("x0", "few", "y")
    forests, stores, tables = (folder / name for name in ("forest", "store", "table"))
    for made in (forests, stores, tables):
        made.mkdir()
    rows().write_parquet(folder / "rows.parquet")
    classes = {"trees": 3, "max_depth": 4, "exclude": ["z", "g", "w"]}
    numbers = {"trees": 3, "max_depth": 4, "task": "regression", "exclude": ["y"]}
    bigforest.train(folder / "rows.parquet", "y", out=forests / "mixed", **classes, validate=table)
    bigforest.train(folder / "rows.parquet", "y", out=folder / "other.forest", **{**classes, "seed": 9})
    bigforest.train(table, "z", out=forests / "numbers", weight="w", group="g", keep_targets=True, **numbers)
    bigforest.train(numeric, "y", out=forests / "oblique", trees=3, max_depth=4, family="sparse-oblique")
    dated = numeric.with_columns(y=pl.date(2020, 1, 1 + pl.col("y")))
    kept = {"trees": 3, "max_depth": 4, "shrink": 2.0, "keep_votes": True}
    bigforest.train(dated, "y", out=forests / "dates", **kept)
    bigforest.train(numeric, "y", out=forests / "boosted", trees=3, max_depth=4, sampling="arc-x4", shrink="off")
    bigforest.train(table, "y", out=forests / "refined", refine=2, **classes)
    for forest in [*forests.iterdir(), folder / "other.forest"]:
        damage.unlist(forest)
    bigforest.encode_store(numeric, stores / "numeric", target="y")
    bigforest.encode_store(table, stores / "mixed", target="y", exclude=["z"], weight="w", group="g")
    bigforest.encode_store(
        table, stores / "numbers", target="z", exclude=["y", "w", "g"], task="regression", max_bins=9
    )
    types = many_types()
    types.write_parquet(tables / "plain.parquet", compression="uncompressed", row_group_size=100)
    types.write_parquet(tables / "zstd.parquet", compression="zstd")
    pq.write_table(types.to_arrow(compat_level=pl.CompatLevel.oldest()), tables / "snappy.parquet", use_dictionary=True)
    types.write_ipc(tables / "plain.arrow", compression="uncompressed")
    types.write_ipc(tables / "zstd.arrow", compression="zstd")
    types.write_ipc_stream(tables / "stream.arrow", compression="lz4")
    table.write_csv(tables / "rows.csv")
    table.write_ndjson(tables / "rows.ndjson")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
