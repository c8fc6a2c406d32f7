"""What the pages need to run: the sample data and some simulated tables in the current folder, and how to show tables.

Pages import this first, in a cell that is not shown. `fill` is also called by the test that runs the commands, and by

python docs/extensions/page_setup.py FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def flights(rows: int, seed: int) -> pl.DataFrame:
    """Simulated flights: text, numbers, dates and missing values, and whether each is late."""
    draw = np.random.default_rng(seed)
    carrier = draw.choice(["Aquila", "Boreas", "Corvus", "Draco"], rows, p=[0.4, 0.3, 0.2, 0.1])
    origin = draw.choice(["EWR", "JFK", "LGA"], rows)
    hour = draw.integers(5, 24, rows)
    distance = draw.gamma(3.0, 350.0, rows).round()
    wind = draw.gamma(2.0, 5.0, rows).round(1)
    slow = {"Aquila": 0.0, "Boreas": 0.4, "Corvus": 1.0, "Draco": -0.6}
    score = 0.22 * (hour - 14) + 0.09 * (wind - 10) + np.vectorize(slow.get)(carrier) + draw.logistic(size=rows)
    day = pl.Series(draw.integers(20454, 20819, rows)).cast(pl.Int32).cast(pl.Date)  # of the year 2026
    return pl.DataFrame(
        {
            "carrier": carrier,
            "origin": origin,
            "day": day,
            "hour": hour,
            "distance": distance,
            "wind": np.where(draw.random(rows) < 0.1, np.nan, wind),
            "delay": (12 * score + 20).clip(0).round(1),
            "late": np.where(score > 0.8, "yes", "no"),
        }
    ).with_columns(pl.col("wind").fill_nan(None))


def fill(folder: Path, rows: int = 1200) -> None:
    """Put `examples` and the tables that the pages name, of so many flights, into a folder."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(EXAMPLES, target_is_directory=True)
    table = flights(rows, 1)
    table.drop("delay").write_parquet(folder / "flights.parquet")
    (folder / "flights").mkdir(exist_ok=True)
    for part in range(2):
        table.drop("delay").gather_every(2, part).write_parquet(folder / "flights" / f"part-{part}.parquet")
    table.drop("late").write_parquet(folder / "delays.parquet")
    draw = np.random.default_rng(5)
    x, y = draw.random((2, 200))
    noisy = np.where(x + draw.normal(0, 0.4, 200) > 0.5, "u", "v")
    pl.DataFrame({"a": x, "b": y, "y": noisy}).write_parquet(folder / "table.parquet")
    new = flights(rows // 4, 2).drop("delay", "late")
    new.write_parquet(folder / "new.parquet")
    new.write_csv(folder / "new.csv")
    new.write_csv(folder / "others.csv", separator="~")
    for name, seed in (("test", 3), ("tuning", 4), ("more", 5)):
        flights(rows // 4, seed).drop("delay").write_parquet(folder / f"{name}.parquet")


def show_tables_and_figures() -> None:
    """Short tables, and figures that fit the page."""
    from matplotlib import pyplot as plt

    pl.Config.set_tbl_rows(8)
    pl.Config.set_tbl_hide_column_data_types(True)
    pl.Config.set_tbl_hide_dataframe_shape(True)
    pl.Config.set_fmt_str_lengths(40)
    plt.rcParams.update({"figure.figsize": (7, 3.6), "figure.dpi": 90, "axes.spines.top": False})
    plt.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})


def plain_terminal() -> None:
    """Cells that begin with %%sh show what commands print, 90 columns without colours, which a kernel would force."""
    from IPython import get_ipython

    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    environment |= {"COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb"}

    def sh(line: str, cell: str) -> None:
        run = subprocess.run(["bash", "-euc", cell], env=environment, capture_output=True, text=True)
        print(run.stdout, end="")
        if run.returncode:
            raise RuntimeError(run.stderr)

    get_ipython().register_magic_function(sh, "cell")


def pictures_as_svg() -> None:
    """Altair charts are shown as they are drawn without a browser; the pages load nothing from elsewhere."""
    import altair

    from bigforest.plot.draw import converter

    def drawn(spec: dict[str, Any], **_: object) -> dict[str, str]:
        return {"image/svg+xml": converter().vegalite_to_svg(spec, allowed_base_urls=[])}

    altair.renderers.register("svg", drawn)
    altair.renderers.enable("svg")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    fill(folder)
    print(f"wrote {', '.join(sorted(path.name for path in folder.iterdir()))} to {folder}")
