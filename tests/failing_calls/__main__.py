"""python -m tests.failing_calls: let every call of every command fail, and count the trials and the wrong ones.

In each turn every call fails once, one with the first error, the next with the second, and so on; in the next turn with
the next error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.failing_calls.commands import COMMANDS, make_home
from tests.failing_calls.server import Server, compiled
from tests.failing_calls.trials import ERRORS, Trials


def main() -> int:
    """Return 1 if a trial went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.failing_calls", description=__doc__)
    parser.add_argument("--command", choices=list(COMMANDS), action="append", help="only this one; may be repeated")
    parser.add_argument("--error", choices=list(ERRORS), action="append", help="only this one; may be repeated")
    parser.add_argument("--turn", type=int, action="append", metavar="N", help="only this one, from 0")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th call")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="begin with this call")
    chosen = parser.parse_args()
    tried = wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_home(folder / "home", folder / "place")
        with Server(compiled(folder)) as server:
            trials = Trials(server, folder)
            for command in chosen.command or COMMANDS:
                calls = trials.undisturbed(command).calls
                errors = chosen.error or list(ERRORS)
                for turn in chosen.turn or range(len(errors)):
                    before = wrong
                    for number, call in enumerate(range(chosen.first, calls, chosen.every), turn):
                        tried += 1
                        try:
                            trials.fail(command, call, errors[number % len(errors)])
                        except AssertionError as failure:
                            wrong += 1
                            print(f"{failure}\n", flush=True)
                    print(f"{command}, turn {turn}: {calls} calls, {wrong - before} wrong", flush=True)
    print(f"{tried} trials, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
