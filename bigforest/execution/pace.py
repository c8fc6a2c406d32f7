"""How long the tasks of a call take, so that one which takes much longer than the others is seen."""

from __future__ import annotations

import time
from statistics import median

# A task is late if it takes more than LEAST_SECONDS, and more than _TIMES the usual time of the call's tasks.
LEAST_SECONDS = 10.0
_TIMES = 3.0


class Pace:
    """The tasks of a call, by number, from when they are handed out until they have ended."""

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}
        self._took: list[float] = []

    def begin(self, number: int) -> None:
        """The task has been handed out, or is late and has to be looked at again."""
        self._begun[number] = time.monotonic()

    def end(self, number: int) -> None:
        """The task has ended."""
        begun = self._begun.pop(number, None)
        if begun is not None:
            self._took.append(time.monotonic() - begun)

    def late(self) -> list[int]:
        """The tasks that are late, when at least as many have ended as are left; each once, unless it begins again."""
        if len(self._took) < max(1, len(self._begun)):
            return []
        limit = time.monotonic() - max(LEAST_SECONDS, _TIMES * median(self._took))
        found = [number for number, begun in self._begun.items() if begun < limit]
        for number in found:
            del self._begun[number]
        return found
