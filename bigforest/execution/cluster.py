"""Workers behind a Dask client: their number, checks that they fit the client, and their statistics."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bigforest.errors import BigForestError, ClusterError, api, listed
from bigforest.execution import worker
from bigforest.execution.worker import TaskStats
from bigforest.storage.atomic import TemporaryFolder

Result = TypeVar("Result")

# Seconds for which the workers are taken to be the same: asking takes milliseconds of client and scheduler.
_FRESH = 15.0
# Seconds for workers to appear.
_PATIENCE = 60.0


class Cluster:
    """The workers behind a client of Dask, for one run of bigforest. session: identifies the run."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.session = secrets.token_hex(8)
        self._threads: dict[str, int] = {}
        self._looked = -_FRESH
        self._seats: list[Any] = []
        self._seated: set[str] = set()

    def check(self) -> list[str]:
        """Raise ClusterError unless there are workers with the same versions; return further notices."""
        with self.errors("looking at the workers"):
            try:
                self.client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise ClusterError(f"the scheduler has no workers after {_PATIENCE:.0f} s; start some") from error
            known = self.client.scheduler_info()["workers"]
        infos = self.on_each(worker.describe_worker)
        needed = worker.versions_here()
        for address, info in infos.items():
            wrong = worker.version_error(needed, info.versions, f"the worker {address}")
            if wrong is not None:
                raise wrong
        watched = sorted(address for address in infos.keys() & known if known[address]["memory_limit"])
        watched = [address for address in watched if infos[address].monitored]
        if not watched:
            return []
        return [
            f"Dask watches the memory of {listed(watched, 3)} and counts mapped files as used, so it may pause or kill "
            "workers for no reason; start workers with --memory-limit 0, and set memory instead"
        ]

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker, as of a few seconds ago at most."""
        if time.monotonic() > self._looked + _FRESH:
            with self.errors("asking for the workers"):
                self._threads = dict(self.client.nthreads())
            self._looked = time.monotonic()
        return self._threads

    def seats(self) -> list[Any]:
        """Return futures of a seat (worker.Seat) on each worker."""
        workers = set(self.threads())
        if self._seated != workers or not self._seats:
            group = f"bigforest-make-seat-{secrets.token_hex(8)}"
            keys = [(group, number) for number in range(max(1, len(workers)))]
            with self.errors("handing out seats"):
                self._seats = self.client.map(worker.make_seat, range(len(keys)), key=keys, pure=False)
            self._seated = workers
        return self._seats

    def stats(self) -> dict[str, TaskStats]:
        """Return what each worker has done in this run, as far as it still answers."""
        if self.client.status != "running":
            return {}
        with contextlib.suppress(BigForestError), self.errors("asking what workers did"):
            found = self.client.run(worker.take_stats, self.session, on_error="return")
            return {address: one for address, one in found.items() if isinstance(one, TaskStats) and one.tasks}
        return {}

    def check_folder(self, folder: Path, option: str) -> None:
        """Raise ClusterError, naming the option to change, unless all workers see `folder` and may write there."""
        question, answer, content = secrets.token_hex(8), secrets.token_hex(8), secrets.token_hex(16)
        with TemporaryFolder(folder.resolve()) as here:
            asked = here / question
            asked.write_text(content, encoding="utf-8")
            found = self.on_each(worker.check_shared_file, str(asked), content, answer)
            for address, wrong in found.items():
                if wrong:
                    raise ClusterError(
                        f"the worker {address} cannot use the folder {folder} ({wrong}); give as {api(option)} a "
                        "folder on a disk that all machines share under the same path"
                    )
            if len(list(here.glob(f"{answer}-*"))) < len(found):
                raise ClusterError(
                    f"what workers write to {folder} is not visible here; give as {api(option)} a folder on a disk "
                    "that all machines share under the same path"
                )

    def on_each(self, function: Callable[..., Result], *arguments: Any) -> dict[str, Result]:
        """Return the result of the function in each worker; a worker that goes away meanwhile is left out."""
        packed = pickle.dumps((function, arguments))
        with self.errors(f"calling {function.__name__}"):
            try:
                found = self.client.run(worker.run_off_loop, packed, on_error="return")
            except ImportError as error:
                raise ClusterError(
                    f"a worker cannot load bigforest ({error}); install the same version there"
                ) from error
        return {address: result for address, result in found.items() if _has_result(address, result)}

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Raise ClusterError if the connection to the scheduler is lost while the block runs."""
        from concurrent.futures import CancelledError

        lost = (OSError, CancelledError)
        try:
            yield
        except BigForestError:
            raise
        except (*lost, RuntimeError, ValueError, AttributeError) as error:
            if self.client.status == "running" and not isinstance(error, lost):
                raise
            raise ClusterError(
                f"the connection to the scheduler was lost while {doing} ({type(error).__name__}: {error})"
            ) from error


def _has_result(address: str, result: Any) -> bool:
    """Return False if the connection to the worker was lost. Raise the error of the function."""
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
