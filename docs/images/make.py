"""Draw the picture of README.md: python docs/images/make.py.

Decision surfaces of one tree and of three forests on `bf.simulate("shapes")`, a tenth of whose labels are wrong.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
from PIL import Image

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import bigforest as bf

PIXELS = 220
FAMILIES = {
    "tree": "one tree",
    "axis": "random forest",
    "rotation": "rotation forest",
    "sparse-oblique": "sparse-oblique forest",
}


def main() -> None:
    """Train the four on 2,000 rows, and show what share of the plane they get right."""
    frame = bf.simulate("shapes", rows=2000, dims=2)
    test = bf.simulate("shapes", rows=20_000, dims=2, sample=1, truth=True)
    steps = (np.arange(PIXELS) + 0.5) / PIXELS * 2 - 1
    x, y = (grid.ravel() for grid in np.meshgrid(steps, steps))
    plane = pl.DataFrame({"x0": x, "x1": y})
    figure, axes = plt.subplots(1, 5, figsize=(11, 2.5))
    axes[0].scatter(frame["x0"], frame["x1"], c=frame["target"], s=1.5, cmap="coolwarm", linewidths=0)
    axes[0].set(title="2,000 rows, 10% wrong labels", xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    for axis, (family, name) in zip(axes[1:], FAMILIES.items(), strict=True):
        forest = bf.train(frame, "target", family=family)
        right = (forest.predict(test.drop("target", "truth"))["prediction"] == test["truth"]).mean()
        shares = forest.predict_proba(plane)["p_1"].to_numpy().reshape(PIXELS, PIXELS)
        axis.imshow(shares, extent=(-1, 1, -1, 1), origin="lower", cmap="coolwarm", vmin=0, vmax=1)
        axis.set_title(f"{name}: {right:.3f}")
    for axis in axes:
        axis.set(xticks=[], yticks=[])
        axis.title.set_fontsize(9)
    figure.tight_layout()
    path = Path(__file__).with_name("shapes.png")
    figure.savefig(path, dpi=110)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
