"""Tasks on a Dask cluster.

Only small arguments and results go over the network: tasks carry paths, ranges, counts and finished pieces. Data that
all tasks of a run share is sent once, unless it is very small, and passed from worker to worker.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

from bigforest.errors import ClusterError
from bigforest.execution import exchange, worker
from bigforest.execution.cluster import Cluster
from bigforest.execution.exchange import HeldParts
from bigforest.execution.executor import Executor, Part, PartBatch, TaskBatch, merge_lists
from bigforest.execution.task_run import AHEAD, SMALL, Call, TaskRun, name_of

Result = TypeVar("Result")

# Seconds between two fetches of results, if nothing but the progress is waiting for them.
_BETWEEN_FETCHES = 2.0
# A task takes milliseconds of client and scheduler, so it makes several calls: at most a share of what is left for its
# worker, one of _ROUNDS, but about one of _FINEST of what all calls take at least; and at most _TURNS for each thread
# where the progress is watched.
_ROUNDS = 1.5
_FINEST = 12
_TURNS = 8
# How often parts of lost workers are requested again.
_PART_TRIES = 8


class ClusterExecutor(Executor):
    """The executor of a cluster; at most `slots` tasks at once in each process."""

    remote = True

    def __init__(self, cluster: Cluster, slots: int) -> None:
        self._cluster = cluster
        self._slots = slots

    @property
    def size(self) -> int:
        """See Executor."""
        return max(1, len(self._seats()))

    @property
    def processes(self) -> int:
        """See Executor."""
        return max(1, len(self._cluster.threads()))

    def discard(self, files: Sequence[Path]) -> None:
        """See Executor."""
        self._cluster.discarded += map(str, files)

    def run_on_all_workers(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """See Executor."""
        return list(self._cluster.on_each(function, *arguments).values())

    def _each(self, job: TaskBatch[Result], on_result: Callable[[int, Result], None]) -> None:
        most = _TURNS * self._slots if job.watched else None
        sizes = share_out(job.costs or [1] * len(job.arguments), self.processes, most, even=job.even)
        patience = math.inf if job.even or not job.watched else _BETWEEN_FETCHES
        for index, result in self._results(job, sizes, patience):
            on_result(index, result)

    def _merged(self, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]) -> Result:
        """As a single part, which has no owner where it is small."""
        several = TaskBatch(partial(worker.one_part, job.function), job.arguments, job.shared)
        found: list[Result] = self._parts(several, PartBatch(merge, worker.merged_part, [()]))
        return found[0]

    def _parts(self, job: TaskBatch[list[Part]], of_parts: PartBatch[Part, Result]) -> list[Result]:
        """Parts held by a lost worker are computed again."""
        finished: dict[int, Result] = {}
        merge = partial(merge_lists, of_parts.merge)
        for _ in range(_PART_TRIES):
            left = [number for number in range(len(of_parts.own)) if number not in finished]
            with TaskRun(self._cluster, job, 1, min(self.processes, len(job.arguments))) as run:
                held = [found for _, found in self._hold(run, job, merge)]
                if of_parts.finish is worker.merged_part and all(own.part for own in held):
                    finished[0] = reduce(of_parts.merge, (pickle.loads(own.part) for own in held))
                    left = []
                shares = _cut(left, self.processes)
                calls = [run.finish(of_parts, share, held) for share in shares]
                near = _near(calls, self._spread(len(calls)))
                for at, results in run.completed(near, len(calls) + 1, patience=math.inf):
                    found = dict(zip(shares[at], results, strict=True))
                    lost = {number: own for number, own in found.items() if isinstance(own, exchange.LostPart)}
                    finished |= {number: own for number, own in found.items() if number not in lost}
                    self._cluster.note_lost({own.args[0] for own in lost.values()})
            if run.handed_on or len(finished) < len(of_parts.own):
                run.stop()
            if len(finished) == len(of_parts.own):
                return [finished[number] for number in range(len(finished))]
        raise ClusterError(
            f"workers were lost {_PART_TRIES} times while they ran {name_of(job.function)}; look for the reason in "
            "their logs (often too little memory), and resume"
        )

    def _hold(
        self, run: TaskRun, job: TaskBatch[Result], merge: Callable[[Result, Result], Result]
    ) -> Iterator[tuple[int, HeldParts]]:
        """Where the results of one task for each worker are, which does a share of the calls on all its threads.

        As long as the workers are the same, the same share goes to each, which finds there what it fetched or read
        before; another does it where one is busy elsewhere or has gone.
        """
        seats = self._spread(len(job.arguments))
        cuts = [0, *(at for at in range(1, len(seats)) if seats[at] != seats[at - 1]), len(seats)]
        calls = [
            run.hold(job.arguments[first:stop], merge, min(self._slots, stop - first), SMALL // (len(cuts) - 1))
            for first, stop in pairwise(cuts)
        ]
        return run.completed(_near(calls, [seats[first] for first in cuts[:-1]]), len(calls) + 1, patience=math.inf)

    def _spread(self, tasks: int) -> list[str | None]:
        """The preferred workers of these tasks: consecutive tasks share a worker."""
        seats = self._seats()
        return [seats[number * len(seats) // tasks] if seats else None for number in range(tasks)]

    def _seats(self) -> list[str]:
        """The addresses of the workers, each as often as it has slots."""
        threads = sorted(self._cluster.threads().items())
        return [address for address, count in threads for _ in range(min(count, self._slots))]

    def _in_order(self, job: TaskBatch[Result]) -> Iterator[Result]:
        early: dict[int, Result] = {}
        following = 0
        for index, result in self._results(job, [1] * len(job.arguments), 0.0):
            early[index] = result
            while following in early:
                yield early.pop(following)
                following += 1

    def _results(self, job: TaskBatch[Result], sizes: Sequence[int], patience: float) -> Iterator[tuple[int, Result]]:
        """The results with their numbers, as tasks end that each make several of the calls."""
        if not job.arguments:
            return
        starts = list(accumulate(sizes, initial=0))
        with TaskRun(self._cluster, job, self._slots, len(sizes)) as run:
            calls = ((run.call(job.arguments[first:stop]), None) for first, stop in pairwise(starts))
            seats = [min(size, self._slots) for size in sizes]
            for number, results in run.completed(calls, AHEAD * self.size, seats, patience=patience):
                yield from enumerate(results, starts[number])


def share_out(costs: Sequence[float], processes: int, most: int | None = None, *, even: bool = False) -> list[int]:
    """How many calls, which cost so much, each task makes on the threads of a worker, `most` of them: fewer towards the
    end, so that all workers finish at the same time; even ones in a task for each worker."""
    if even:
        return [len(own) for own in _cut(range(len(costs)), processes)]
    sizes = []
    total = left = sum(costs)
    following = 0
    while following < len(costs):
        share = max(left / _ROUNDS, total / _FINEST) / processes
        first, taken = following, costs[following]
        following += 1
        while following < len(costs) and following - first != most and taken + costs[following] <= share:
            taken += costs[following]
            following += 1
        sizes.append(following - first)
        left -= taken
    return sizes


def _near(calls: Sequence[Call], workers: Sequence[str | None]) -> Iterator[tuple[Call, str | None]]:
    """Each task with the worker that had better do it."""
    return zip(calls, workers, strict=True)


def _cut(numbers: Sequence[int], shares: int) -> list[Sequence[int]]:
    """The numbers in at most this number of shares of about equal length."""
    shares = min(shares, len(numbers))
    return [numbers[share * len(numbers) // shares : (share + 1) * len(numbers) // shares] for share in range(shares)]
