"""Importance of features on single rows, against the definition."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.explain.made import Case, bags_of, case_of, grown_case, loss_by
from tests.naive.explain import permuted_change
from tests.thorough import examples

GROUP = {"two": ["x0", "x3"]}


def check(
    case: Case, loss: str, seed: int, groups: dict[str, list[str]], bags: Any = None, rows: tuple[int, ...] = ()
) -> None:
    """Assert that the table is that of the definition, a row at a time."""
    options = {"new_rows": True} if bags is None else {}
    found = case.forest.explain(
        case.frame, parts="local", loss=loss, seed=seed, groups=groups, rows=rows, threads=1, **options
    )["local"]
    names = case.forest.spec.feature_names
    sets = [(name, place, [place]) for place, name in enumerate(names)]
    sets += [
        (name, len(names) + i, [names.index(own) for own in given]) for i, (name, given) in enumerate(groups.items())
    ]
    change: dict[tuple[int, str], list[float]] = {
        (row, name): [] for row in case.kept if not rows or row in rows for name, *_ in sets
    }
    for number, tree in enumerate(case.trees):
        unseen = [row for at, row in enumerate(case.kept) if bags is None or bags[number][at] == 0]
        cells, truth = [case.rows[row] for row in unseen], [case.truth[row] for row in unseen]
        for at, row in enumerate(unseen):
            if (row, names[0]) not in change:
                continue
            weight = [float(other == at) for other in range(len(unseen))]
            for name, stream, places in sets:
                own = permuted_change(tree, cells, truth, weight, places, (seed, number, stream), loss, case.names)
                change[row, name].append(own)
    assert found.select("row", "feature").rows() == list(change)
    assert found["trees"].to_list() == [len(own) for own in change.values()]
    expected = [np.mean(own) if own else None for own in change.values()]
    assert found["importance"].is_null().to_list() == [mean is None for mean in expected]
    numbers = np.array([mean for mean in expected if mean is not None])
    np.testing.assert_allclose(found["importance"].drop_nulls().to_numpy(), numbers, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(8))
@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from(["error", "log_loss", "mse", "oblique"]))
def test_local__is_that_of_the_definition(seed: int, rows: int, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if kind == "oblique":
            check(case_of(kind, Path(folder), rows, seed), "error", seed, {"two": ["x0", "x2"]})
        else:
            check(case_of("numbers" if kind == "mse" else "classes", Path(folder), rows, seed), kind, seed, GROUP)


@pytest.mark.parametrize(
    "options",
    [{}, {"task": "regression"}, {"task": "regression", "impurity": "poisson"}],
    ids=["classes", "numbers", "poisson"],
)
def test_local__looks_at_trees_that_have_not_seen_the_row(options: dict[str, Any]) -> None:
    case = grown_case(60, **options)
    check(case, loss_by(options), 3, {"both": ["a", "b"]}, bags_of(case), tuple(case.kept[2:12]))


def test_local__is_the_same_with_any_resources(tmp_path: Path) -> None:
    case = grown_case()
    first = case.forest.explain(case.frame, parts="local", loss="log_loss", threads=1)["local"]
    again = case.forest.explain(case.frame, tmp_path / "a", parts="local", loss="log_loss", threads=2, memory="1GB")
    assert again["local"].equals(first)
    assert first["row"].unique().to_list() == case.kept
    drawn = case.forest.explain(case.frame, parts="local", loss="log_loss", sample=7)["local"]
    assert drawn["row"].n_unique() == 7
    assert drawn.equals(first.filter(pl.col("row").is_in(drawn["row"].implode())))
