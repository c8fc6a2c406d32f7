"""How long the command line takes to start and to train on something small.

    python benchmarks/cli_start.py [--rounds 10]

Compares `bigforest --help` with the help of a bare typer app of one command, interleaved, and times training
on examples/data/digits.parquet twice: with an empty cache of compiled kernels, and with the one it filled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "data" / "digits.parquet"
BARE = """
import typer

app = typer.Typer()


@app.command()
def hello(name: str = "you") -> None:
    print(name)


app()
"""


def seconds(command: list[str], **environment: str) -> float:
    """Wall seconds of one process; its output is thrown away, its failure is not."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return time.perf_counter() - begin


def main() -> None:
    """Start-up against a bare typer app, and the second training on digits."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    command = Path(sys.executable).parent / "bigforest"
    if not command.exists():
        raise SystemExit("bigforest is not installed beside this Python; pip install -e '.[bench]' first")
    ours = [str(command)]
    with tempfile.TemporaryDirectory(prefix="bigforest-bench-") as scratch:
        bare = Path(scratch) / "bare.py"
        bare.write_text(BARE, encoding="utf-8")
        times: dict[str, list[float]] = {"bare": [], "ours": []}
        for _ in range(rounds):
            times["bare"].append(seconds([sys.executable, str(bare), "--help"]))
            times["ours"].append(seconds([*ours, "--help"]))
        train = [*ours, "train", str(DIGITS), "--out", f"{scratch}/digits.forest", "--overwrite"]
        first, second = (seconds(train, NUMBA_CACHE_DIR=f"{scratch}/kernels") for _ in range(2))
    typer_help, our_help = (statistics.median(times[name]) for name in ("bare", "ours"))
    print("| what | seconds |")
    print("|---|---|")
    print(f"| bare typer app, --help, median of {rounds} | {typer_help:.3f} |")
    print(f"| bigforest --help, median of {rounds} | {our_help:.3f} ({our_help / typer_help:.2f} times) |")
    print(f"| bigforest train on digits, nothing compiled yet | {first:.2f} |")
    print(f"| bigforest train on digits, compiled before | {second:.2f} |")


if __name__ == "__main__":
    main()
