"""The workers behind a client of Dask: which there are, what they can do and have done, and what is wrong with some."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bigforest.errors import BigForestError, ClusterError, listed
from bigforest.execution import exchange, worker
from bigforest.execution.exchange import RunNumber
from bigforest.execution.worker import Facts, Ledger
from bigforest.storage.atomic import TemporaryFolder

Result = TypeVar("Result")

# Tasks that others have taken over from a worker before it gets work last: the first one of a new worker takes long.
_RACES = 2
# Seconds for which the workers are taken to be the same: asking takes milliseconds of client and scheduler.
_FRESH = 15.0
# Seconds for workers to appear.
_PATIENCE = 60.0


class Cluster:
    """The workers behind a client of Dask.

    spent    what each of them has done so far.
    trouble  what was wrong with some of them: they are slow, or their disk is full. They get work last.
    races    how many tasks others have taken over from each.
    discarded  files that workers are to remove.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.spent: Ledger = {}
        self.trouble: dict[str, str] = {}
        self.races: Counter[str] = Counter()
        self.discarded: list[str] = []
        self._runs = RunNumber(f"{client.id}/{secrets.token_hex(8)}", 0)
        self._threads: dict[str, int] = {}
        self._looked = -_FRESH

    def check(self) -> list[str]:
        """Raise ClusterError unless there are workers with the same versions; returns further notices."""
        with self.errors("looking at the workers"):
            try:
                self.client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise ClusterError(f"the scheduler has no workers after {_PATIENCE:.0f} s; start some") from error
            facts = self._facts()
        needed = worker.versions_here()
        for address, found in facts.items():
            wrong = worker.version_error(needed, found.versions, f"the worker {address}")
            if wrong is not None:
                raise wrong
        watched = sorted(address for address, found in facts.items() if found.monitored)
        if not watched:
            return []
        return [
            f"Dask watches the memory of {listed(watched, 3)} and counts mapped files as used, so it may pause or kill "
            "workers for no reason; start workers with --memory-limit 0, and set memory instead"
        ]

    def new_run(self) -> RunNumber:
        """The number of a run that begins now, when all earlier ones have ended."""
        self._runs = self._runs._replace(number=self._runs.number + 1)
        return self._runs

    def end(self) -> None:
        """Have workers forget the parts that they still keep, as far as the scheduler answers."""
        if self._runs.number and self.client.status == "running":
            with contextlib.suppress(BigForestError):
                self.on_each(exchange.forget, self.new_run())  # which forgets those of all earlier runs first

    def threads(self) -> dict[str, int]:
        """Threads of each worker there is, or was just now, except for those in trouble, unless all are."""
        if time.monotonic() > self._looked + _FRESH:
            with self.errors("asking for the workers"):
                self._threads = dict(self.client.nthreads())
            self._looked = time.monotonic()
        good = {address: count for address, count in self._threads.items() if address not in self.trouble}
        return good or self._threads

    def check_folder(self, folder: Path, option: str) -> None:
        """Raise ClusterError, naming the option to change, unless all workers see `folder` and may write there."""
        question, answer, content = secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(16)
        with TemporaryFolder(folder.resolve()) as here:
            asked = here / question
            asked.write_text(content, encoding="utf-8")
            found = self.on_each(worker.look, str(asked), content, answer)
            for address, wrong in found.items():
                if wrong:
                    raise ClusterError(
                        f"the worker {address} cannot use the folder {folder} ({wrong}); give as {option} a folder on "
                        "a disk that all machines share under the same path"
                    )
            if len(list(here.glob(f"{answer}-*"))) < len(found):
                raise ClusterError(
                    f"what workers write to {folder} is not visible here; give as {option} a folder on a disk that "
                    "all machines share under the same path"
                )

    def note_lost(self, addresses: Collection[str]) -> None:
        """What these workers held could not be had."""
        self._looked = -_FRESH if addresses else self._looked
        gone = set(addresses) - {*self.threads(), *self.trouble} if addresses else ()
        self.trouble |= dict.fromkeys(gone, "was lost, and what it had counted was counted again")

    def note_slow(self, addresses: Iterable[str]) -> None:
        """Others have taken over a task from each of these workers."""
        for address in addresses:
            self.races[address] += 1
            if self.races[address] == _RACES:
                self.trouble[address] = "is much slower than the others, which have taken over its tasks"

    def other_than(self, busy: Collection[str], several: Iterable[str]) -> str | None:
        """The first of several workers that is not among the busy ones, and of which no trouble is known."""
        return next((one for one in several if one not in busy and one not in self.trouble), None)

    def take_discarded(self) -> tuple[str, ...]:
        """The share of a worker of the files that are to be removed, which are then taken to be so."""
        share = -(-len(self.discarded) // max(1, len(self._threads)))
        taken = tuple(self.discarded[:share])
        del self.discarded[:share]
        return taken

    def on_each(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """What the function returns in each worker; a worker that goes away meanwhile is left out."""
        packed = pickle.dumps((self._runs, self.discarded, function, arguments))
        self.discarded = []
        with self.errors(f"calling {function.__name__}"):
            found = self.client.run(worker.off_loop, packed, on_error="return")
        return {address: result for address, result in found.items() if _is_result(address, result)}

    def _facts(self) -> dict[str, Facts]:
        """What the workers say; they drop what they keep for clients that have gone."""
        try:
            there = self.client.run_on_scheduler(worker.clients_there)
            found = self.client.run(worker.describe_worker, there, on_error="return")
        except ImportError as error:
            raise ClusterError(f"a worker cannot load bigforest ({error}); install the same version there") from error
        return {address: result for address, result in found.items() if _is_result(address, result)}

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Raise ClusterError if the connection to the scheduler is lost while the block runs."""
        from concurrent.futures import CancelledError

        from distributed.client import FutureCancelledError

        try:
            yield
        except BigForestError:
            raise
        except (OSError, CancelledError, FutureCancelledError, RuntimeError, ValueError, AttributeError) as error:
            if self.client.status == "running" and not isinstance(error, OSError):
                raise
            raise ClusterError(
                f"the connection to the scheduler was lost while {doing} ({type(error).__name__}: {error})"
            ) from error


def _is_result(address: str, result: Any) -> bool:
    """Whether it is a result and no failure of the connection to a worker, which has gone away then."""
    if isinstance(result, BigForestError):
        raise result
    if isinstance(result, ImportError):
        raise ClusterError(
            f"the worker {address} cannot load bigforest ({result}); install the same version there"
        ) from result
    if isinstance(result, OSError):
        return False
    if isinstance(result, Exception):
        raise ClusterError(f"the worker {address} failed ({type(result).__name__}: {result})") from result
    return True
