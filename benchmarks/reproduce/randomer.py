"""Reproduce Randomer forests: simulations, transformations, and the comparison on 120 data sets.

    python benchmarks/reproduce/randomer.py --data DIR [--quick] [--only simulations|peers|sets|report] [--out FOLDER]

Tomita, Maggioni and Vogelstein, Randomer Forests (arXiv 1506.03410, first version), Figures 1, 2, 3, A1, A2 and the
comparison on the data sets of Fernandez-Delgado et al. 2014, which DIR/uci holds as Parquet files with the column
`target` (120 of the 121: all but miniboone). 10 draws of 100 rows, 500 to 1500 trees, majority vote, one thread.
`peers` is scikit-learn's random forest on the draws that have a reference number: where RF is not near the reference,
it says whether that is for the draws or for the trees.

Every simulation and every set is a file of its own under FOLDER/parts, written when it is whole; a second run makes
those that are missing, what has a reference number first, and the report of all that are there:
FOLDER/simulations.parquet, sets.parquet, report.md and the figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cells import Options, collect, measure_peer, measure_sets, measure_setting, measure_settings, settings
from report import write_report

SETTINGS_HELP = "these simulations only, as parity-3-raw or trunk-501-rotated"
HERE = Path(__file__).resolve().parent


def main() -> None:
    """Measure what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with uci/*.parquet")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "randomer")
    parser.add_argument("--quick", action="store_true", help="50 trees, 3 draws, the 40 smallest sets")
    parser.add_argument("--only", choices=["simulations", "peers", "sets", "report"], help="leave the rest as it is")
    names = [setting.name() for setting in settings()]
    parser.add_argument("--settings", nargs="+", choices=names, default=names, metavar="NAME", help=SETTINGS_HELP)
    parser.add_argument("--trials", type=int, help="draws of a simulation; 10, with --quick 3")
    parser.add_argument("--trees", type=int, help="trees in simulations; as in the text, with --quick 50")
    parser.add_argument("--set-trees", type=int, help="trees on a data set; 500, with --quick 50")
    parser.add_argument("--min-leaf", type=int, default=1, help="fewest bag rows of a leaf")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    trials = given.trials or (3 if given.quick else 10)
    set_trees = given.set_trees or (50 if given.quick else 500)
    trees = given.trees or (50 if given.quick else None)
    options = Options(trials, trees, set_trees, given.min_leaf, given.seed)
    parts = given.out / "parts"
    if given.only in (None, "sets") and not (given.data / "uci").is_dir():
        parser.error(f"{given.data / 'uci'} is not there; say with --data where it is, or leave sets out with --only")
    chosen = [setting for setting in settings() if setting.name() in given.settings]
    if given.only in (None, "simulations"):
        measure_settings(chosen, measure_setting, options, parts / "simulations")
    if given.only in (None, "peers"):
        known = [setting for setting in chosen if setting.is_known()]
        measure_settings(known, measure_peer, options, parts / "peers")
    if given.only in (None, "sets"):
        measure_sets(options, given.data / "uci", parts / "sets", 40 if given.quick else None)
    mark = options.of_simulations()
    simulations, peers = (collect(parts / name, mark) for name in ("simulations", "peers"))
    write_report(simulations, peers, collect(parts / "sets", options.of_sets()), given.out)


if __name__ == "__main__":
    main()
