"""python -m tests.fuzz --cases 10000 --kind forest --seed 1: try many cases and print those that are not fine."""

from __future__ import annotations

import argparse
import contextlib
import sys

from tests.fuzz.server import Server

KINDS = ("forest", "store", "table")


def main() -> int:
    """Try the cases; 1 where one is not fine."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=300, help="of each kind")
    parser.add_argument("--kind", choices=KINDS, help="only these; all unless given")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    chosen = parser.parse_args()
    kinds = KINDS if chosen.kind is None else (chosen.kind,)
    cases = [(kind, seed, None) for seed in range(chosen.seed, chosen.seed + chosen.cases) for kind in kinds]
    bad = refused = tried = 0
    with Server() as server, contextlib.suppress(KeyboardInterrupt):
        for (kind, seed, _), verdict in server(cases):
            tried += 1
            if verdict.startswith("fine"):
                refused += verdict != "fine 0"
            else:
                bad += 1
                print(f"{kind} {seed}: {verdict}", flush=True)
    print(f"{tried} cases, {refused} of them refused, {bad} bad", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
