"""The result of a comparison, read from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from bigforest.common.errors import ConfigError
from bigforest.common.forks import check_polars_threads
from bigforest.common.html import facts_table, rows_table
from bigforest.plot.draw import HEIGHT, WIDTH, altair, chart_of, finish_chart
from bigforest.predict.forest import Forest, read_forest
from bigforest.race.race_state import FILE, RaceState
from bigforest.storage.paths import as_path

WINNER = "winner.forest"


class Comparison:
    """The result of a comparison: the candidates, their out-of-bag losses, and the winning forest.

    candidates  DataFrame, a row per candidate in the order given: candidate, options (JSON of its own), trees, loss,
                difference to the best and its standard_error, paired by row, seconds, bytes of the forest, retired
                (reason; null for candidates that finished) and winner. The loss is that of the candidate's last round.
    curve       DataFrame, a row per candidate and round: candidate, trees, loss, difference, standard_error.
    metric      the loss: log_loss, error or auc (1 minus the area) for classification, mse or
                poisson_deviance for regression.
    winner      name of the winning candidate.
    cross_fitted  cross-fitted loss: each half of the rows with the candidate selected on the other half.
    stopped     why the comparison ended before all trees were grown; None if all were grown.
    path        the folder.
    """

    def __init__(self, path: str | Path, holding: object = None) -> None:
        """path: of a finished comparison; holding: kept while it is in use. Raises ConfigError and FormatError."""
        self.path = as_path(path)
        self._holding = holding
        if not (self.path / FILE).is_file():
            raise ConfigError(f"{path} is not a comparison; check the path, or make one with bigforest.compare")
        state = RaceState.read(self.path)
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
        """Facts besides the tables."""
        crossed = "unknown" if self.cross_fitted is None else f"{self.cross_fitted:.6g}"
        return {
            "winner": f"{self.winner}, of {self.candidates.height} candidates",
            self.metric.replace("_", " "): f"{self.loss:.6g} on the rows that chose it, {crossed} cross-fitted",
            **({"stopped": self.stopped} if self.stopped else {}),
        }

    def plot(self) -> Any:
        """Plot the losses against the number of trees, as an Altair chart. Needs the extra `plot`."""
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


def candidate_table(state: RaceState) -> pl.DataFrame:
    """`Comparison.candidates`."""
    last = {name: standing for each in state.rounds for name, standing in each.losses.items()}
    rows = []
    for name, options in state.candidates.items():
        costs = state.seconds.get(name, 0.0), state.size.get(name, 0)
        facts = (name, json.dumps(options), state.grown.get(name, 0), *last.get(name, (None, None, None)))
        rows.append((*facts, *costs, state.retired.get(name), name == state.winner))
    return pl.DataFrame(rows, schema=_CANDIDATES, orient="row")


def curve_table(state: RaceState) -> pl.DataFrame:
    """`Comparison.curve`."""
    rows = [(name, each.trees, *standing) for each in state.rounds for name, standing in each.losses.items()]
    return pl.DataFrame(rows, schema={"candidate": pl.String, "trees": pl.Int64, **_LOSSES}, orient="row")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
