"""The state of a comparison in race.json, from which it continues after an interruption, and its result for users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.errors import BigForestError, ConfigError, api
from bigforest.execution.forks import check_polars_threads
from bigforest.html import facts_table, rows_table
from bigforest.options.values import is_integer
from bigforest.plot.draw import HEIGHT, WIDTH, altair, chart_of, finish_chart
from bigforest.predict.forest import Forest, read_forest
from bigforest.storage.atomic import write_durably
from bigforest.storage.paths import as_path
from bigforest.storage.regular_files import read_json_text
from bigforest.storage.state_file import StateFormat
from bigforest.training.candidates import Standing, given_candidates
from bigforest.training.run_folder import Run

FILE = "race.json"
STATE_FORMAT = StateFormat("bigforest-comparison", 2, f"start again with {api('overwrite')}, or choose another output")


def announce(folder: Path) -> None:
    """Mark an empty folder as the folder of a comparison whose table is not encoded yet."""
    with write_durably(folder / FILE) as path:
        path.write_text(json.dumps(STATE_FORMAT.mark()) + "\n", encoding="utf-8")


def has_begun(folder: Path) -> bool:
    """Return True if race.json has more than the mark of `announce`."""
    if not (folder / FILE).is_file():
        return False
    try:
        return bool(json.loads(read_json_text(folder / FILE)) != STATE_FORMAT.mark())
    except (OSError, ValueError, RecursionError, BigForestError):
        return True  # damaged, as ComparisonState.read says


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a round.

    trees    number of trees of each candidate.
    losses   standing of each candidate that was evaluated.
    retired  candidates that do not go on, with the reasons: too far behind, or cannot be grown.
    """

    trees: int
    losses: dict[str, Standing]
    retired: dict[str, str]


@dataclass(slots=True)
class ComparisonState:
    """The settings of a comparison, and the results and costs of its rounds: race.json.

    run           the table, and the options that all candidates share.
    metric        loss that is compared.
    options       explicit options of all candidates, without `trees`.
    candidates    options of each candidate.
    seconds       time spent on each candidate.
    grown         number of trees of each candidate.
    size          bytes of the forest of each candidate.
    stopped       why the comparison ended before all trees were grown; None if it did not.
    winner        None while trees grow.
    cross_fitted  cross-fitted loss of the winner; None if it is unknown.
    """

    run: Run
    metric: str
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
        """Settings of the comparison. A saved comparison is continued only if its settings are equal."""
        compared = {"metric": self.metric, "options": self.options, "candidates": self.candidates}
        shared = {"target": self.run.target, "exclude": self.run.exclude, "trees": self.run.config.trees}
        return json.loads(json.dumps(compared | shared, default=str))

    @property
    def retired(self) -> dict[str, str]:
        return {name: why for each in self.rounds for name, why in each.retired.items()}

    @property
    def remaining(self) -> list[str]:
        return [name for name in self.candidates if name not in self.retired]

    def write(self, folder: Path) -> None:
        """Write race.json into the folder of the comparison."""
        entries = {name: getattr(self, name) for name in self.__slots__ if name != "run"}
        entries["rounds"] = [asdict(each) for each in self.rounds]
        entries["run"] = self.run.to_json()
        STATE_FORMAT.write(folder / FILE, json.loads(json.dumps(entries, default=str)))

    @classmethod
    def read(cls, folder: Path) -> ComparisonState:
        """Read race.json. Raises FormatError if the file is missing, damaged or of another version."""
        return STATE_FORMAT.read(folder / FILE, cls._of)

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> ComparisonState:
        rounds = []
        for each in raw["rounds"]:
            losses = {str(name): Standing(*map(float, three)) for name, three in each["losses"].items()}
            retired = {str(name): str(why) for name, why in each["retired"].items()}
            rounds.append(Round(int(each["trees"]), losses, retired))
        state = cls(**{**raw, "run": Run.from_json(raw["run"]), "rounds": rounds})
        _check(state)
        return state


def _check(state: ComparisonState) -> None:
    """Raise ValueError for inconsistent entries. Unknown names are refused because names become folders."""
    names_known = set(given_candidates(state.candidates, {}))
    tables: list[Mapping[str, Any]] = [state.retired, state.seconds, state.grown, state.size]
    for names in [*tables, *(each.losses for each in state.rounds)]:
        if not set(names) <= names_known:
            raise ValueError("an unknown candidate is named")
    if state.winner is not None and not any(state.winner in each.losses for each in state.rounds):
        raise ValueError("the winner has no loss")
    counts = [*state.grown.values(), *state.size.values(), *(each.trees for each in state.rounds)]
    numbers = [*state.seconds.values(), *([] if state.cross_fitted is None else [state.cross_fitted])]
    if not (
        isinstance(state.metric, str)
        and isinstance(state.stopped, str | None)
        and state.run.fingerprint is not None
        and all(is_integer(count, 0, 2**63 - 1) for count in counts)
        and all(type(number) is float or is_integer(number, 0, 2**63 - 1) for number in numbers)
        and isinstance(state.options, dict)
        and state.remaining
    ):
        raise ValueError("an entry is of another type")


WINNER = "winner.forest"


class Comparison:
    """The result of a comparison: the candidates, their out-of-bag losses, and the winning forest.

    candidates  DataFrame, a row per candidate in the order given: candidate, options (JSON, without the common ones),
                trees, loss, difference to the lowest loss and its standard_error, paired by row, seconds, bytes of the
                forest, retired (reason; null for candidates that finished) and winner. Loss, difference and
                standard_error are of the candidate's last round, null if it had none.
    curve       DataFrame, a row per candidate and round: candidate, trees, loss, difference, standard_error.
    metric      the loss: log_loss, error or auc (1 minus the area, or the mean area) for classification, mse or
                poisson_deviance for regression.
    winner      name of the winning candidate.
    cross_fitted  cross-fitted loss: each half of the rows is evaluated with the candidate that wins on the other half.
    stopped     why the comparison ended before all trees were grown; None if all were grown.
    path        the folder.

    Examples
    --------
    >>> import bigforest as bf
    >>> table = {"length": [1.0, 2.0, 3.0, 4.0] * 10, "width": [1.0, 3.0] * 20, "kind": ["a", "a", "b", "b"] * 10}
    >>> stumps = {"one": {"max_depth": 1}, "two": {"max_depth": 2}}
    >>> comparison = bf.compare(table, "kind", candidates=stumps, options={"trees": 20})
    >>> comparison.candidates["candidate"].to_list()
    ['one', 'two']
    >>> comparison.metric
    'log_loss'
    """

    def __init__(self, path: str | Path, holding: object = None) -> None:
        """Open the finished comparison in the folder `path`. Raises ConfigError and FormatError.

        holding  temporary folder of the comparison, which is removed with this object.
        """
        self.path = as_path(path)
        self._holding = holding
        if not (self.path / FILE).is_file():
            raise ConfigError(f"{path} is not a comparison; check the path, or make one with {api('compare')}")
        state = ComparisonState.read(self.path)
        if state.winner is None:
            raise ConfigError(f"{path}: the comparison is not finished; run it again to continue")
        self.metric, self.winner, self.cross_fitted = state.metric, state.winner, state.cross_fitted
        self.stopped = state.stopped
        check_polars_threads()
        self.candidates, self.curve = candidate_table(state), curve_table(state)

    @property
    def forest(self) -> Forest:
        """The winning forest. Raises FormatError."""
        return read_forest(self.path / WINNER, holding=self._holding)

    @property
    def loss(self) -> float:
        """The loss of the winner, on the rows that selected it."""
        return float(self.candidates["loss"][self.candidates["candidate"].to_list().index(self.winner)])

    def __repr__(self) -> str:
        return f"Comparison({self.winner} of {self.candidates.height} candidates, {self.metric} {self.loss:.6g})"

    def _repr_html_(self) -> str:
        check_polars_threads()
        shown = self.candidates.select(
            "candidate", "trees", "loss", "difference", "standard_error", "seconds", "retired"
        )
        rows = [[_cell(cell) for cell in row] for row in shown.rows()]
        return facts_table("Comparison", self.facts()) + rows_table([n.replace("_", " ") for n in shown.columns], rows)

    def facts(self) -> dict[str, str]:
        """Return the facts that are not in the tables.

        Examples
        --------
        >>> list(comparison.facts())
        ['winner', 'log loss']
        """
        crossed = "unknown" if self.cross_fitted is None else f"{self.cross_fitted:.6g}"
        behind = self.candidates.filter("winner")["difference"][0]
        why = ", the first within a standard error of the lowest loss" if behind else ""
        return {
            "winner": f"{self.winner}, of {self.candidates.height} candidates{why}",
            self.metric.replace("_", " "): f"{self.loss:.6g} on the rows that chose it, {crossed} cross-fitted",
            **({"stopped": self.stopped} if self.stopped else {}),
        }

    def plot(self) -> Any:
        """Plot the losses against the number of trees, as an Altair chart. Needs the extra `plot`.

        Examples
        --------
        >>> comparison.plot().save("comparison.html")
        """
        check_polars_threads()
        alt = altair()
        best = pl.col("candidate") == self.winner
        table = self.curve.with_columns(
            label=pl.when(best).then(pl.col("candidate") + " (winner)").otherwise("candidate")
        )
        line = chart_of(table).properties(width=WIDTH, height=HEIGHT).mark_line(point=True)
        line = line.encode(
            x=alt.X(field="trees", type="quantitative", title="trees"),
            y=alt.Y(
                field="loss", type="quantitative", title=self.metric.replace("_", " "), scale=alt.Scale(zero=False)
            ),
            color=alt.Color(field="label", type="nominal", title=None, sort=None),
        )
        return finish_chart(
            line, "Loss out of bag against the number of trees", ["a line ends where its candidate retired"]
        )


_LOSSES = dict.fromkeys(("loss", "difference", "standard_error"), pl.Float64)
_COSTS = {"seconds": pl.Float64, "bytes": pl.Int64, "retired": pl.String, "winner": pl.Boolean}
_CANDIDATES = {"candidate": pl.String, "options": pl.String, "trees": pl.Int64} | _LOSSES | _COSTS


def candidate_table(state: ComparisonState) -> pl.DataFrame:
    last = {name: standing for each in state.rounds for name, standing in each.losses.items()}
    rows = []
    for name, options in state.candidates.items():
        costs = state.seconds.get(name, 0.0), state.size.get(name, 0)
        facts = (name, json.dumps(options), state.grown.get(name, 0), *last.get(name, (None, None, None)))
        rows.append((*facts, *costs, state.retired.get(name), name == state.winner))
    return pl.DataFrame(rows, schema=_CANDIDATES, orient="row")


def curve_table(state: ComparisonState) -> pl.DataFrame:
    rows = [(name, each.trees, *standing) for each in state.rounds for name, standing in each.losses.items()]
    return pl.DataFrame(rows, schema={"candidate": pl.String, "trees": pl.Int64, **_LOSSES}, orient="row")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
