"""Reproduce a table or a figure of the texts behind bigforest, by one command each.

    python -m benchmarks.reproduce --list
    python -m benchmarks.reproduce ITEM [ITEM ...] --data DIR [--out FOLDER] [--draws N] [--trees N] [--seed N]
    python -m benchmarks.reproduce all --data DIR
    python -m benchmarks.reproduce --index FOLDER

DIR has the folders mnist and uci, as far as the item needs them. Writes FOLDER/ITEM.parquet (a row per draw), ITEM.md
(ours, standard error, reference, distance, verdict) and ITEM.svg. Options are taken exactly; without --draws and
--trees an item has its own numbers of them, which its result says. Items of one command that measure the same share
what they found. Where data or a library is missing it says so in one line and exits with 2.
--index writes FOLDER/index.md from the results of all items: what the texts claim, and whether it holds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

if TYPE_CHECKING:
    from outcome import Given, Outcome

LIBRARIES = ("matplotlib", "sklearn")
_EXTRA = "bench"
_ALL = "all"


class Item(NamedTuple):
    """What there is to reproduce: the module and function that do it, further arguments, folders of data it needs."""

    what: str
    module: str
    function: str
    more: tuple[str, ...] = ()
    data: str = ""

    def run(self, given: Given) -> Outcome:
        """Do it."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        # figure_of takes the method first, figure_4 the letter last.
        found: Outcome = function(*self.more, given) if self.module == "ho_items" else function(given, *self.more)
        return found


ITEMS = {
    "ho-table-1": Item("Ho 1995, Table 1: single trees", "ho_items", "table_1", (), "mnist"),
    "ho-figure-1": Item("Ho 1995, Figure 1: CAP trees in subspaces", "ho_items", "figure_of", ("CAP",), "mnist"),
    "ho-figure-2": Item("Ho 1995, Figure 2: perceptron trees in subspaces", "ho_items", "figure_of", ("PER",), "mnist"),
    "ho-passes": Item("Ho 1995: passes of a perceptron", "ho_items", "passes", (), "mnist"),
    "ho-many-trees": Item("Ho 1995: up to 500 trees", "ho_items", "many_trees", (), "mnist"),
    "rerf-figure-1": Item("Randomer forests, Figure 1: simulations", "rerf_items", "figure_1"),
    "rerf-figure-2": Item("Randomer forests, Figure 2: seconds", "rerf_items", "figure_2"),
    "rerf-figure-3": Item("Randomer forests, Figure 3: transformations", "rerf_items", "figure_3"),
    "rerf-figure-4a": Item("Randomer forests, Figure 4a: error and time", "set_items", "figure_4", ("a",), "uci"),
    "rerf-figure-4b": Item("Randomer forests, Figure 4b: every set", "set_items", "figure_4", ("b",), "uci"),
    "rerf-figure-a1": Item("Randomer forests, Figure A1: number of trees", "rerf_items", "figure_a1"),
    "rerf-figure-a2": Item("Randomer forests, Figure A2: modified Trunk", "rerf_items", "figure_a2"),
    "rerf-readings": Item("Randomer forests: two readings of the draft", "rerf_items", "readings"),
    "rotation-picture": Item("Rotation forests: decision surfaces", "ho_items", "rotation_picture"),
    "tomasi": Item("Tomasi 2017: one feature per node against several", "set_items", "tomasi", (), "uci"),
    "breiman-2001": Item("Breiman 2001, Table 2: Forest-RI and AdaBoost", "set_items", "breiman_2001", (), "uci"),
    "arcing": Item("Breiman 1998: bagging, arcing and AdaBoost", "set_items", "arcing", (), "uci"),
}


def main() -> int:
    """Run an item; 2 where that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("items", nargs="*", metavar="ITEM", help="what to reproduce, or all; see --list")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--index", type=Path, metavar="FOLDER", help="write the page of all results in a folder")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with mnist and uci")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reproduced"), help="folder of the results")
    parser.add_argument("--draws", type=_count, help="repetitions")
    parser.add_argument("--trees", type=_count, help="trees of every forest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=_count, default=os.cpu_count() or 1, help="that measure side by side")
    given = parser.parse_args()
    if given.list:
        for name, item in ITEMS.items():
            print(f"{name:18} {item.what}" + (f" (needs {item.data})" if item.data else ""))
        return 0
    if given.index is not None:
        return _index(given.index)
    if not given.items:
        parser.error("say which item, or --list")
    strange = [name for name in given.items if name not in (*ITEMS, _ALL)]
    if strange:
        parser.error(f"{strange[0]} is no item; --list says which there are")
    missing = [library for library in LIBRARIES if find_spec(library) is None]
    if missing:
        print(f"this needs {' and '.join(missing)}: pip install 'bigforest[{_EXTRA}]'", file=sys.stderr)
        return 2
    names = list(ITEMS) if _ALL in given.items else list(dict.fromkeys(given.items))
    return max([_run(name, given) for name in names])


def _run(name: str, given: argparse.Namespace) -> int:
    from outcome import Given, NotPossibleError, seconds_of_processor, write

    item, begin = ITEMS[name], seconds_of_processor()
    asked = Given(given.data, given.draws, given.trees, given.seed, given.processes)
    try:
        if item.data:
            asked.folder(item.data)
        found = item.run(asked)
    except NotPossibleError as error:
        print(error, file=sys.stderr)
        return 2
    options = [f" --{name} {getattr(given, name)}" for name in ("draws", "trees") if getattr(given, name) is not None]
    command = f"python -m benchmarks.reproduce {name} --data DIR --seed {given.seed}{''.join(options)}"
    print(write(name, item.what, command, found, given.out, begin), flush=True)
    return 0


def _index(folder: Path) -> int:
    from claims import write_index
    from outcome import NotPossibleError

    try:
        print(write_index(folder, {name: item.what for name, item in ITEMS.items()}))
    except NotPossibleError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
