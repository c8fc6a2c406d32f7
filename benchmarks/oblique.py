"""Oblique forests against YDF's and, where it is installed, treeple's: the same number of projections and trees.

    python benchmarks/oblique.py --data DIR [--sets synthetic,mnist] [--trees 20] [--rounds 3] [--threads 2]

k = ceil(p**(2/3)) projections per node, of two features on average with weights of +-1. bigforest-redraw, the axis
forest of sqrt(p) features, is there for comparison. Writes results/oblique.parquet and results/oblique.md.

treeple is built for older releases of scikit-learn, so it takes an environment of its own, with this package and its
extra `bench`, and then `pip install treeple "scikit-learn<1.7"`.
"""

from __future__ import annotations

from importlib import import_module

from runs import arguments, machine, plan_of, run
from tables import markdown, save, sized, summary

COLUMNS = {
    "set": ("data", "{}"),
    "size": ("rows x features", "{}"),
    "contestant": ("contestant", "{}"),
    "fit_seconds": ("fit, best (s)", "{:.2f}"),
    "fit_median": ("median (s)", "{:.2f}"),
    "fit_ratio": ("times as fast as the faster oblique peer", "{:.1f}"),
    "predict_seconds": ("predict (s)", "{:.3f}"),
    "accuracy": ("test accuracy", "{:.4f}"),
    "oob_error": ("out-of-bag error", "{:.4f}"),
    "splits_per_tree": ("splits per tree", "{:,.0f}"),
}


def _works(name: str) -> bool:
    """Whether a package can be imported: treeple is built for one version of scikit-learn."""
    try:
        import_module(name)
    except (ImportError, ValueError):
        return False
    return True


def main() -> None:
    """Oblique forests side by side in one run."""
    everyone = "bigforest-oblique,bigforest-redraw,ydf-oblique" + (",treeple" if _works("treeple") else "")
    options = arguments(main.__doc__, sets="synthetic,mnist", contestants=everyone, trees=20, rounds=3).parse_args()
    runs = run(plan_of(options))
    text = f"{options.trees} trees, {options.threads} threads, {options.rounds} rounds. Machine: {machine()}.\n\n"
    save("oblique", runs, text + markdown(sized(summary(runs)), COLUMNS), options.out)


if __name__ == "__main__":
    main()
