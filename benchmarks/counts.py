"""The Poisson deviance against the variance as criterion on targets that are counts: loss out of bag.

    python benchmarks/counts.py --data DIR

Prints for each target and least size of a leaf the mean Poisson deviance and the mean squared error out of bag of both
criteria, and the mean difference of the deviances of rows with its standard error. A prediction below a thousandth of
the mean counts as that: the deviance of a count from 0 is infinite.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import bigforest as bf

LATE = "NumberOfTime30-59DaysPastDueNotWorse"
LOANS = "NumberRealEstateLoansOrLines"
OTHERS_LATE = ["NumberOfTimes90DaysLate", "NumberOfTime60-89DaysPastDueNotWorse"]
LEAST_SHARE = 1e-3


def tables(data: Path) -> dict[str, pl.DataFrame]:
    """Tables whose target y is a count, or as skewed as one."""
    credit = pl.read_parquet(data / "give_me_some_credit.parquet").filter(pl.col(LATE) < 90).drop("target")
    flights = pl.read_parquet(data / "flights_arrdelay_reg.parquet").sample(150_000, seed=1)
    homes = pl.read_parquet(data / "california_housing_reg.parquet").drop("households", "total_rooms", "total_bedrooms")
    return {
        "credit, times late": credit.drop(OTHERS_LATE).rename({LATE: "y"}),
        "credit, real estate loans": credit.rename({LOANS: "y"}),
        "flights, minutes late": flights.drop("dep_delay", "dep_time")
        .with_columns(y=pl.col("target").clip(0))
        .drop("target"),
        "california, population": homes.rename({"population": "y"}),
    }


def deviance(y: NDArray[np.float64], prediction: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Poisson deviance of each row."""
    mean = np.maximum(prediction, LEAST_SHARE * y.mean())
    return 2.0 * (np.where(y > 0.0, y * np.log(np.maximum(y, 1e-300) / mean), 0.0) - (y - mean))


def main() -> None:
    """Print the lines of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--trees", type=int, default=100)
    given = parser.parse_args()
    for name, table in tables(given.data).items():
        table = table.with_columns(pl.col("y").cast(pl.Float64))
        for min_leaf in (2, 10, 50):
            lost, squared = [], []
            for impurity in ("variance", "poisson"):
                options = {"impurity": impurity, "min_leaf": min_leaf, "mtry": "half", "shrink": "off"}
                forest = bf.train(table, "y", trees=given.trees, **options)
                rows = forest.oob.rows.collect()
                rows = rows.filter(pl.col("prediction").is_not_null())
                y, prediction = rows["truth"].to_numpy(), rows["prediction"].to_numpy()
                lost.append(deviance(y, prediction))
                squared.append(float(np.mean((y - prediction) ** 2)))
            apart = lost[1] - lost[0]
            size = f"{table.height:,} x {table.width - 1}"
            losses = " | ".join(f"{each.mean():.4f}" for each in lost)
            error = apart.std() / apart.size**0.5
            print(
                f"| {name} {size} | {min_leaf} | {losses} | {apart.mean():+.4f} ({error:.4f}) |"
                f" {squared[0]:.4g} | {squared[1]:.4g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
