"""The state of a comparison after each round, from which it can continue after an interruption: race.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bigforest.common.checks import is_integer
from bigforest.common.errors import BigForestError
from bigforest.race.candidates import given_candidates
from bigforest.race.rules import Standing
from bigforest.storage.atomic import write_durably
from bigforest.storage.regular_files import read_json_text
from bigforest.storage.state_file import StateFormat

FILE = "race.json"
STATE_FORMAT = StateFormat("bigforest-comparison", 1, "start again with overwrite, or choose another output")


def announce(folder: Path) -> None:
    """Mark an empty folder as that of a comparison, whose table is not encoded yet."""
    with write_durably(folder / FILE) as path:
        path.write_text(json.dumps(STATE_FORMAT.mark()) + "\n", encoding="utf-8")


def has_begun(folder: Path) -> bool:
    """Whether a folder has more than the mark of `announce`."""
    if not (folder / FILE).is_file():
        return False
    try:
        return bool(json.loads(read_json_text(folder / FILE)) != STATE_FORMAT.mark())
    except (OSError, ValueError, RecursionError, BigForestError):
        return True  # damaged, as RaceState.read says


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round.

    losses   the standing of each candidate.
    retired  the candidates that retired after the round, and why.
    """

    trees: int
    losses: dict[str, Standing]
    retired: dict[str, str]


@dataclass(slots=True)
class RaceState:
    """The settings of a comparison, and the results and costs of its rounds.

    data         absolute path of the table or store; None for a table in memory.
    fingerprint  `Store.fingerprint` of the table.
    options      those that all candidates have.
    seconds      spent on each candidate; trees: that each has; size: bytes of its forest.
    """

    data: str | None
    target: str | None
    exclude: list[str]
    fingerprint: str
    metric: str
    trees: int
    options: dict[str, Any]
    candidates: dict[str, dict[str, Any]]
    rounds: list[Round] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None
    winner: str | None = None
    cross_fitted: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What two comparisons must have in common for the one to continue the other."""
        names = ("target", "exclude", "metric", "trees", "options", "candidates")
        return json.loads(json.dumps({name: asdict(self)[name] for name in names}, default=str))

    @property
    def retired(self) -> dict[str, str]:
        """All candidates that have retired, and why."""
        return {name: why for each in self.rounds for name, why in each.retired.items()}

    @property
    def racing(self) -> list[str]:
        """The candidates that have not retired."""
        return [name for name in self.candidates if name not in self.retired]

    def write(self, folder: Path) -> None:
        """Write race.json into the folder of the comparison."""
        STATE_FORMAT.write(folder / FILE, json.loads(json.dumps(asdict(self), default=str)))

    @classmethod
    def read(cls, folder: Path) -> RaceState:
        """Inverse of `write`. Raises FormatError when the file is missing, damaged or of another version."""
        return STATE_FORMAT.read(folder / FILE, cls._of)

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> RaceState:
        state = cls(**{**raw, "rounds": [_round(each) for each in raw["rounds"]]})
        _check(state)
        return state


def _round(raw: dict[str, Any]) -> Round:
    losses = {str(name): Standing(*map(float, three)) for name, three in raw["losses"].items()}
    return Round(int(raw["trees"]), losses, {str(name): str(why) for name, why in raw["retired"].items()})


def _check(state: RaceState) -> None:
    """Raise ValueError for inconsistent entries: names become folders, so unknown names are refused."""
    known = set(given_candidates(state.candidates, {}))
    tables: list[Mapping[str, Any]] = [state.retired, state.seconds, state.grown, state.size]
    for names in [*tables, *(each.losses for each in state.rounds)]:
        if not set(names) <= known:
            raise ValueError("an unknown candidate is named")
    if state.winner is not None and not any(state.winner in each.losses for each in state.rounds):
        raise ValueError("the winner has no loss")
    texts = [state.fingerprint, state.metric, *state.exclude]
    perhaps = [text for text in (state.data, state.target, state.stopped) if text is not None]
    counts = [state.trees, *state.grown.values(), *state.size.values(), *(each.trees for each in state.rounds)]
    numbers = [*state.seconds.values(), *([] if state.cross_fitted is None else [state.cross_fitted])]
    if not (
        all(isinstance(text, str) for text in [*texts, *perhaps])
        and all(is_integer(count, 0, 2**63 - 1) for count in counts)
        and all(type(number) is float or is_integer(number, 0, 2**63 - 1) for number in numbers)
        and isinstance(state.options, dict)
        and state.racing
    ):
        raise ValueError("an entry is of another type")
