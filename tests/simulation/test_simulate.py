"""Simulated tables: their classes, moments and Bayes errors, and that they depend on their arguments alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import bigforest
from bigforest.errors import BigForestError, ConfigError, OutputExistsError
from bigforest.forest import tables as table_file
from bigforest.simulation.families import (
    Multimodal,
    Purpose,
    Transform,
    haar_rotation,
    parameters,
    random_blocks,
    shape_class,
)
from tests.naive import simulation as naive

KINDS = {"trunk": 5, "parity": 3, "multimodal": 4, "modified-trunk": 5, "orthant": 4, "sparse-parity": 6, "shapes": 3}
# Standard errors a mean of random draws may be off. The seeds are fixed: what passes once passes always.
SIGMAS = 4


def drawn(kind: str, rows: int, dims: int | None = None, **options: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Values [rows, dims] and target [rows]."""
    frame = bigforest.simulate(kind, rows=rows, dims=dims, **options)
    assert isinstance(frame, pl.DataFrame)
    return frame.drop("target").to_numpy(), frame["target"].to_numpy().astype(int)


def assert_mean(draws: NDArray[Any], expected: Any) -> None:
    """The mean of `draws` [rows, ...] is `expected` within its standard error."""
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= SIGMAS * error + 1e-12).all()


# Classes and Bayes errors

EXACT: dict[str, Callable[[list[float]], int]] = {
    "orthant": naive.orthant,
    "sparse-parity": naive.sparse_parity,
    "shapes": naive.shape,
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("dims", [2, 3, 7])
def test_class__is_a_function_of_the_row(kind: str, dims: int) -> None:
    values, target = drawn(kind, 2000, dims, **({"noise": 0.0} if kind == "shapes" else {}))
    assert target.tolist() == [EXACT[kind](row) for row in values.tolist()]
    assert (np.abs(values) < 1).all()
    assert_mean(values, 0)
    assert_mean(values**2, 1 / 3)
    if kind != "shapes":
        assert bigforest.bayes_error(kind, dims=dims) == bigforest.BayesError(0.0, 0.0, "closed form")


RULES: list[tuple[str, int, Callable[[list[float]], int]]] = [
    *(("trunk", dims, lambda row: naive.trunk_rule(row, False)) for dims in (1, 2, 30)),
    *(("modified-trunk", dims, lambda row: naive.trunk_rule(row, True)) for dims in (1, 2, 30)),
    *(("parity", dims, naive.parity_rule) for dims in (1, 2, 4)),
]


@pytest.mark.parametrize(("kind", "dims", "rule"), RULES)
def test_bayes__is_the_error_of_the_best_rule(kind: str, dims: int, rule: Callable[[list[float]], int]) -> None:
    values, target = drawn(kind, 10_000, dims, seed=7)
    wrong = np.array([rule(row) for row in values.tolist()]) != target
    bayes = bigforest.bayes_error(kind, dims=dims)
    assert bayes is not None
    assert (bayes.standard_error, bayes.how) == (0.0, "closed form")
    assert_mean(wrong, bayes.error)


@pytest.mark.parametrize(
    ("kind", "errors"),
    [
        ("trunk", {2: 0.1103, 10: 0.0435, 100: 0.0114, 1000: 0.0031}),
        ("parity", {2: 0.0047, 3: 0.0070, 4: 0.0093, 5: 0.0116, 10: 0.0229}),
        ("modified-trunk", {2: 0.0500, 10: 0.0229, 100: 0.0140, 1000: 0.0120}),
        ("shapes", {2: 0.1, 9: 0.1}),
    ],
)
def test_bayes__has_the_published_values(kind: str, errors: dict[int, float]) -> None:
    for dims, expected in errors.items():
        bayes = bigforest.bayes_error(kind, dims=dims)
        assert bayes is not None
        assert round(bayes.error, 4) == expected


@pytest.mark.parametrize(("dims", "seed"), [(1, 0), (2, 1), (5, 2)])
def test_bayes__of_multimodal_is_the_error_of_the_best_rule(dims: int, seed: int) -> None:
    family = Multimodal(dims, seed)
    covariances = [family.covariance(mode) for mode in range(8)]
    values, target = drawn("multimodal", 2000, dims, seed=seed)
    posteriors = np.array([naive.mixture_posteriors(row, family.means, covariances, 2) for row in values])
    assert np.allclose(family.posteriors(values), posteriors, rtol=1e-9, atol=1e-12)
    wrong = posteriors.argmax(axis=1) != target
    bayes = bigforest.bayes_error("multimodal", dims=dims, seed=seed)
    assert bayes is not None
    assert bayes.how == "Monte Carlo"
    assert 0 < bayes.standard_error < 0.002
    spread = math.hypot(bayes.standard_error, wrong.std() / math.sqrt(len(wrong)))
    assert abs(wrong.mean() - bayes.error) < SIGMAS * spread


def test_bayes__of_many_dims_is_sampled_when_asked() -> None:
    assert bigforest.bayes_error("multimodal", dims=65) is None
    asked = bigforest.bayes_error("multimodal", dims=65, draws=500)
    assert asked is not None
    assert asked.error < 0.001
    with pytest.raises(ConfigError, match="draws must be"):
        bigforest.bayes_error("multimodal", dims=2, draws=1)


# Moments


@pytest.mark.parametrize("kind", ["trunk", "modified-trunk"])
def test_trunk__means_and_variances(kind: str) -> None:
    values, target = drawn(kind, 40_000, 6, seed=3)
    number = np.arange(1, 7)
    centred = values - (2 * target - 1)[:, None] / np.sqrt(number)
    variances = np.sqrt(number) / 2 if kind == "modified-trunk" else np.ones(6)
    assert_mean(centred, 0)
    assert_mean(centred[:, :, None] * centred[:, None, :], np.diag(variances))
    assert_mean(target, 0.5)


def test_parity__means_variances_and_classes() -> None:
    values, target = drawn("parity", 40_000, 3, seed=4)
    corner = (values > 0.5).astype(int)  # wrong for one coordinate in 427
    assert_mean(corner.sum(axis=1) % 2 != target, bigforest.bayes_error("parity", dims=3).error)  # type: ignore[union-attr]
    assert_mean(values, 0.5)
    assert_mean((values - 0.5) ** 2, 1 / 4 + 1 / 32)
    assert_mean(values[:, 0] * values[:, 1], 1 / 4)


def test_multimodal__rows_have_the_means_and_covariances_of_their_modes() -> None:
    family = Multimodal(3, 5)
    [block] = random_blocks(40_000, 3, 5, 0, Purpose.ROWS)
    values, target, _ = family.rows(block)
    for label in range(4):
        mine = values[target == label]
        means = family.means[2 * label : 2 * label + 2]
        second = [family.covariance(2 * label + k) + np.outer(means[k], means[k]) for k in range(2)]
        assert_mean(mine, means.mean(axis=0))
        assert_mean(mine[:, :, None] * mine[:, None, :], np.mean(second, axis=0))
        assert_mean((target == label).astype(float), 0.25)


def test_shapes__noise_flips_its_share_of_labels() -> None:
    table = bigforest.simulate("shapes", rows=20_000, noise=0.3, truth=True, seed=1)
    assert isinstance(table, pl.DataFrame)
    assert table.columns == ["x0", "x1", "truth", "target"]
    plane = table.select("x0", "x1").to_numpy()
    assert np.array_equal(table["truth"].to_numpy(), shape_class(plane[:, 0], plane[:, 1]))
    assert_mean((table["truth"] != table["target"]).to_numpy(), 0.3)
    assert bigforest.bayes_error("shapes", noise=0.3).error == 0.3  # type: ignore[union-attr]
    assert 0.4 < table["truth"].mean() < 0.6  # type: ignore[operator]
    usual = bigforest.simulate("shapes", rows=20_000, truth=True)
    assert isinstance(usual, pl.DataFrame)
    assert_mean((usual["truth"] != usual["target"]).to_numpy(), 0.1)


# Transformations


@pytest.mark.parametrize("dims", [1, 2, 3, 40])
def test_rotation__is_orthogonal_with_determinant_one(dims: int) -> None:
    for seed in range(20):
        rotation = haar_rotation(dims, parameters(seed, Purpose.ROTATION))
        assert np.allclose(rotation @ rotation.T, np.eye(dims), atol=1e-12)
        assert math.isclose(np.linalg.det(rotation), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_transform__turns_and_stretches_the_same_rows(kind: str) -> None:
    dims = KINDS[kind]
    raw, target = drawn(kind, 300, dims, seed=2)
    both = Transform(dims, 2, rotate=True, scale=True)
    assert both.rotation is not None
    assert both.scales is not None
    assert (both.scales >= 0).all()
    assert (both.scales <= 10).all()
    turned = raw @ both.rotation.T
    for options, expected in (
        ({"rotate": True}, turned),
        ({"scale": True}, raw * both.scales),
        ({"affine": True}, turned * both.scales),
        ({"rotate": True, "scale": True}, turned * both.scales),
    ):
        found, same = drawn(kind, 300, dims, seed=2, **options)
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert np.array_equal(target, same)


def test_scale__is_uniform_up_to_ten() -> None:
    scales = Transform(20_000, 0, rotate=False, scale=True).scales
    assert scales is not None
    assert_mean(scales, 5)
    assert_mean((scales - 5) ** 2, 100 / 12)


def test_outliers__are_appended_with_four_times_the_covariance() -> None:
    values, target = drawn("trunk", 100, 4, outliers=20_000, seed=1)
    first, labels = drawn("trunk", 100, 4, seed=1)
    assert np.array_equal(values[:100], first)
    assert np.array_equal(target[:100], labels)
    centred = values[100:] - (2 * target[100:] - 1)[:, None] / np.sqrt(np.arange(1, 5))
    assert_mean(centred, 0)
    assert_mean(centred[:, :, None] * centred[:, None, :], 4 * np.eye(4))


# The same arguments, the same table


@pytest.mark.parametrize("kind", KINDS)
def test_table__does_not_depend_on_row_groups(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dims = {"orthant": 13, "shapes": 2}.get(kind, 100)
    rows = {2: 140_000, 13: 140_000, 100: 12_000}[dims]  # blocks of 65,536 and 10,485 rows
    options: dict[str, Any] = {"rows": rows, "dims": dims, "seed": 1, "affine": kind != "orthant"}
    whole = bigforest.simulate(kind, **options)
    assert isinstance(whole, pl.DataFrame)
    sizes = {1: -(-rows // min(1 << 16, (1 << 20) // dims)), 1 << 40: 1}
    for size, groups in list(sizes.items())[: 2 if kind == "trunk" else 1]:
        monkeypatch.setattr(table_file, "GROUP_BYTES", size)
        out = tmp_path / f"{size}.parquet"
        assert bigforest.simulate(kind, out=out, **options).collect().equals(whole)  # type: ignore[union-attr, call-overload]
        assert pq.ParquetFile(out).num_row_groups == groups


@pytest.mark.parametrize("kind", KINDS)
def test_table__begins_with_the_rows_of_a_smaller_one(kind: str) -> None:
    dims = KINDS[kind]
    more = {"outliers": 7} if kind != "shapes" else {"truth": True}
    small = bigforest.simulate(kind, rows=100, dims=dims, seed=3, **more)  # type: ignore[arg-type]
    large = bigforest.simulate(kind, rows=300, dims=dims, seed=3, **more)  # type: ignore[arg-type]
    assert isinstance(small, pl.DataFrame)
    assert isinstance(large, pl.DataFrame)
    assert np.allclose(large[:100].to_numpy(), small[:100].to_numpy(), rtol=1e-12)
    assert np.allclose(large[300:].to_numpy(), small[100:].to_numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_table__depends_on_seed_and_sample(kind: str) -> None:
    tables = [
        drawn(kind, 200, KINDS[kind], seed=seed, sample=sample)[0] for seed, sample in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert np.array_equal(tables[0], tables[3])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not np.isin(tables[a], tables[b]).any()


def test_sample__is_of_the_same_distribution() -> None:
    family = Multimodal(2, 9)
    for sample in (0, 1):
        values, target = drawn("multimodal", 20_000, 2, seed=9, sample=sample)
        for label in range(4):
            assert_mean(values[target == label], family.means[2 * label : 2 * label + 2].mean(axis=0))


def test_rows__are_not_repeated() -> None:
    values, target = drawn("trunk", 70_000, 2, outliers=10)
    deviations = values - (2 * target - 1)[:, None] / np.sqrt([1, 2])
    deviations[-10:] /= 2
    assert len(np.unique(deviations.round(12))) > 0.99 * values.size
    assert not np.isin(deviations[-10:].round(12), deviations[:-10].round(12)).any()


# Files and options


def test_file__says_what_it_is_and_is_trained_on(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    scan = bigforest.simulate("trunk", rows=500, dims=3, outliers=2, seed=8, out=out)
    assert scan.collect_schema() == {**{f"x{d}": pl.Float64() for d in range(3)}, "target": pl.UInt8()}
    mark = json.loads(pq.read_schema(out).metadata[b"bigforest"])
    assert (mark["version"], mark["kind"]) == (1, "simulation")
    assert mark["config"] == {
        "kind": "trunk",
        "rows": 500,
        "dims": 3,
        "rotate": False,
        "scale": False,
        "outliers": 2,
        "noise": 0.0,
        "sample": 0,
        "seed": 8,
    }
    forest = bigforest.train(out, trees=20)
    assert forest.oob.error < 0.25
    assert forest.spec.rows == 502


def test_file__is_overwritten_only_when_it_is_ours(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    for _ in range(2):
        bigforest.simulate("trunk", rows=5, dims=2, out=out, overwrite=True)
    with pytest.raises(OutputExistsError, match="already exists"):
        bigforest.simulate("trunk", rows=5, dims=2, out=out)
    pl.DataFrame({"a": [1]}).write_parquet(out)
    with pytest.raises(OutputExistsError, match="not a bigforest simulation file"):
        bigforest.simulate("trunk", rows=5, dims=2, out=out, overwrite=True)


def test_target__has_the_narrowest_type() -> None:
    for dims, dtype in ((8, pl.UInt8()), (9, pl.UInt16()), (15, pl.UInt16())):
        table = bigforest.simulate("orthant", rows=2000, dims=dims)
        assert isinstance(table, pl.DataFrame)
        assert table.schema["target"] == dtype
        assert table["target"].max() > 2**dims * 0.98  # type: ignore[operator]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("trunks", {"dims": 2}, "kind must be one of trunk, parity, .*not 'trunks'"),
        ("trunk", {}, "simulating trunk needs its number of columns"),
        ("trunk", {"dims": 0}, "dims of trunk must be a whole number from 1"),
        ("trunk", {"dims": 2.0}, "dims of trunk must be a whole number"),
        ("trunk", {"dims": 2, "rows": 0}, "rows of trunk must be a whole number from 1"),
        ("trunk", {"dims": 2, "rows": True}, "rows of trunk must be"),
        ("trunk", {"dims": 2, "seed": -1}, "seed of trunk must be"),
        ("trunk", {"dims": 2, "sample": 2**63}, "sample of trunk must be"),
        ("trunk", {"dims": 2, "outliers": -1}, "outliers of trunk must be"),
        ("trunk", {"dims": 2, "noise": 0.1}, "noise is for shapes"),
        ("shapes", {"noise": 0.6}, "noise must be a share"),
        ("shapes", {"noise": math.nan}, "noise must be a share"),
        ("shapes", {"dims": 1}, "dims of shapes must be a whole number from 2"),
        ("shapes", {"outliers": 1}, "shapes has no class means"),
        ("orthant", {"dims": 16}, "at most 15 dims"),
        ("trunk", {"dims": 5000, "rotate": True}, "at most 4096 dims can be rotated"),
        ("trunk", {"dims": 5000, "affine": True}, "at most 4096 dims can be rotated"),
        ("multimodal", {"dims": 2000}, "multimodal has at most 1024 dims"),
    ],
    ids=str,
)
def test_options__wrong_ones_are_named(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BigForestError, match=message):
        bigforest.simulate(kind, **{"rows": 10, **options})


def test_options__may_be_numpy_numbers() -> None:
    table = bigforest.simulate("trunk", rows=np.int64(5), dims=np.int32(2), seed=np.uint8(1))  # type: ignore[arg-type]
    assert bigforest.simulate("trunk", rows=5, dims=2, seed=1).equals(table)  # type: ignore[union-attr, arg-type]
    arrays: dict[str, Any] = {
        "rows": np.array(5),
        "dims": np.array(2),
        "noise": np.array(0.25),
        "truth": np.array(True),
    }
    plain = {name: value.item() for name, value in arrays.items()}
    assert bigforest.simulate("shapes", **arrays).equals(bigforest.simulate("shapes", **plain))
