"""Importance of features, against the definition row by row, and against scikit-learn."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigforest as bf
from bigforest.errors import ConfigError, DataError, OutputExistsError
from bigforest.explain.explain import SECTIONS
from bigforest.explain.importance import error_over_trees
from bigforest.forest.decreases import decrease_shares
from tests.explain.made import PLAIN, Case, bags_of, case_of, grown_case, loss_by, trees_of
from tests.naive.explain import oob_decrease, permuted_change
from tests.thorough import examples

GROUPS = {"numbers": ["x0", "x3"], "others": ["c1", "x0"]}


def check_permutation(case: Case, loss: str, seed: int, groups: dict[str, list[str]], bags: Any = None) -> None:
    """Assert that the tables are those of the definition."""
    options = {"new_rows": True} if bags is None else {}
    found = case.forest.explain(
        case.frame, parts="permutation", loss=loss, seed=seed, groups=groups, threads=1, **options
    )
    names = case.forest.spec.feature_names
    sets = [(name, place, [place]) for place, name in enumerate(names)]
    sets += [
        (name, len(names) + i, [names.index(own) for own in given]) for i, (name, given) in enumerate(groups.items())
    ]
    weight = case.forest.spec.weight
    rows_of = [
        case.kept if bags is None else [row for row, own in zip(case.kept, bag, strict=True) if own == 0]
        for bag in (bags or [[]] * len(case.trees))
    ]
    assert weight is None
    expected = []
    for number, (tree, kept) in enumerate(zip(case.trees, rows_of, strict=True)):
        rows, truth = [case.rows[row] for row in kept], [case.truth[row] for row in kept]
        expected.append(
            [
                permuted_change(tree, rows, truth, [1.0] * len(rows), places, (seed, number, stream), loss, case.names)
                / len(rows)
                if rows
                else np.nan
                for _, stream, places in sets
            ]
        )
    table = np.array(expected)
    trees = found["permutation-trees"]
    assert trees["feature"].to_list() == [name for name, _, _ in sets] * len(case.trees)
    np.testing.assert_allclose(trees["importance"].to_numpy().reshape(table.shape), table, rtol=1e-12, atol=1e-12)
    heard = table[~np.isnan(table).any(axis=1)]
    means = found["permutation"]
    assert means["trees"].to_list() == [len(heard)] * len(sets)
    np.testing.assert_allclose(means["importance"].to_numpy(), heard.mean(axis=0), rtol=1e-12, atol=1e-12)
    error = heard.std(axis=0, ddof=1) / np.sqrt(len(heard)) if len(heard) > 1 else np.full(len(sets), np.nan)
    np.testing.assert_allclose(means["standard_error"].to_numpy(), error, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(100))
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(["error", "log_loss", "mse", "oblique"]))
def test_importance_of_rows__is_that_of_the_definition(seed: int, rows: int, loss: str) -> None:
    kind = {"mse": "numbers", "oblique": "oblique"}.get(loss, "classes")
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(kind, Path(folder), rows, seed)
        if kind == "oblique":
            check_permutation(case, "error", seed, {"two": ["x0", "x2"]})
        else:
            check_permutation(case, loss, seed, GROUPS)
        check_unbiased(case)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": "balanced"},
        {"sample_fraction": 0.5, "replace": False},
        {"task": "regression"},
        {"task": "regression", "impurity": "poisson"},
    ],
    ids=["uniform", "balanced", "half", "numbers", "poisson"],
)
def test_permutation__looks_at_rows_out_of_bag_only(options: dict[str, Any]) -> None:
    case = grown_case(100, **options)
    bags = bags_of(case)
    check_permutation(case, loss_by(options), 3, {"both": ["a", "b"]}, bags)
    check_unbiased(case, bags)


@pytest.mark.parametrize("role", ["target", "weight", "group"])
def test_permutation__of_a_table_with_a_column_without_a_name(role: str) -> None:
    frame = pl.DataFrame({"x": np.arange(40) % 7, "target": np.arange(40) % 7 > 3, "weight": [1, 2] * 20})
    frame = frame.with_columns(group=pl.int_range(40) // 2)
    nameless = frame.rename({role: ""})
    columns = {name: name for name in ("target", "weight", "group")}
    made = [
        bf.train(data, **roles, trees=4).explain(data, parts="permutation")["permutation"]
        for data, roles in ((frame, columns), (nameless, columns | {role: ""}))
    ]
    assert made[0].equals(made[1])


def test_permutation__of_the_deviance() -> None:
    case = grown_case(task="regression", impurity="poisson")
    found = case.forest.explain(case.frame, parts="permutation")["permutation"]
    other = case.forest.explain(case.frame, parts="permutation", loss="poisson_deviance")["permutation"]
    assert found.equals(other, null_equal=True)
    negative = case.frame.with_columns(y=-pl.col("y"))
    with pytest.raises(DataError, match=r"'y' has the value -\d.* none is below 0; set the loss to mse"):
        case.forest.explain(negative, parts="permutation", new_rows=True)
    case.forest.explain(negative, parts="permutation", new_rows=True, loss="mse")
    plain = grown_case(task="regression").forest
    with pytest.raises(ConfigError, match="'poisson_deviance' does not fit the target 'y'"):
        plain.explain(case.frame, parts="permutation", loss="poisson_deviance")


def check_unbiased(case: Case, bags: Any = None) -> None:
    """Assert that the unbiased importance is that of the definition."""
    found = case.forest.explain(case.frame, parts=["unbiased"], new_rows=bags is None, threads=1)
    expected = []
    for number, tree in enumerate(case.trees):
        kept = [row for at, row in enumerate(case.kept) if bags is None or bags[number][at] == 0]
        rows, truth = [case.rows[row] for row in kept], [case.truth[row] for row in kept]
        expected.append(oob_decrease(tree, rows, truth, [1.0] * len(rows), case.features, case.names))
    table = found["unbiased-trees"]["importance"].to_numpy().reshape(len(case.trees), -1)
    np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["unbiased"]["importance"].to_numpy(), np.mean(expected, axis=0), atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"task": "regression", "min_leaf": 1}], ids=["classes", "numbers"])
def test_unbiased__of_the_rows_of_the_bag_is_the_decrease_of_impurity(options: dict[str, Any]) -> None:
    case = grown_case(bootstrap=False, mtry="all", **options)
    found = case.forest.explain(case.frame, parts=["importance", "unbiased"], new_rows=True)
    own = found["unbiased"]["importance"].to_numpy()
    np.testing.assert_allclose(own / own.sum(), found["importance"]["decrease"].to_numpy(), rtol=1e-6)
    assert found["importance"]["decrease"].to_list() == case.forest.feature_importances.tolist()


def test_permutation__agrees_with_scikit_learn() -> None:
    """One tree on rows it has not seen: the same quantity, permuted in other orders."""
    from sklearn.inspection import permutation_importance

    from bigforest.sklearn import BigForestClassifier

    random = np.random.default_rng(2)
    matrix = random.normal(size=(1500, 4))
    labels = (matrix[:, 0] + 0.5 * matrix[:, 1] + 0.3 * random.normal(size=1500) > 0).astype(int)
    model = BigForestClassifier(n_estimators=1, bootstrap=False).fit(matrix[:500], labels[:500])
    peer = permutation_importance(model, matrix[500:], labels[500:], n_repeats=10, random_state=0)
    rows = (matrix[500:], labels[500:])
    seeds = [
        model.forest_.explain(rows, parts="permutation", new_rows=True, seed=seed)["permutation"][
            "importance"
        ].to_numpy()
        for seed in range(10)
    ]
    spread = np.sqrt(peer.importances_std**2 + np.std(seeds, axis=0) ** 2) / np.sqrt(10) + 1e-9
    assert (np.abs(np.mean(seeds, axis=0) - peer.importances_mean) < 5 * spread).all()


def test_explain__is_the_same_with_any_resources() -> None:
    case = grown_case()
    options: dict[str, Any] = {"parts": SECTIONS, "sample": 60, "grid": 4}
    first = case.forest.explain(case.frame, threads=1, **options)
    for resources in ({"threads": 2}, {"threads": 2, "memory": "400MB"}):
        again = case.forest.explain(case.frame, **resources, **options)
        assert first.tables == again.tables
        assert all(first[name].equals(again[name], null_equal=True) for name in first.tables)


def test_explain__keeps_what_is_finished(tmp_path: Path) -> None:
    case = grown_case()
    case.frame.write_parquet(tmp_path / "rows.parquet")
    case.forest.write(tmp_path / "forest")
    forest, data, out = bf.read_forest(tmp_path / "forest"), tmp_path / "rows.parquet", tmp_path / "out"
    first = forest.explain(data, out, parts=["importance", "permutation"])
    stamps = {file: file.stat().st_mtime_ns for file in out.iterdir()}
    (out / "permutation.parquet").unlink()
    (half := out / ".permutation.parquet.0123456789abcdef.tmp").touch()  # as one that was killed leaves it
    (other_half := out / ".permutation.parquet.tmp").touch()
    again = bf.explain_forest(tmp_path / "forest", data, out, parts=["permutation", "importance"])
    assert again.tables == first.tables
    assert other_half.exists() and not half.exists()
    kept = [file for file in stamps if file.stat().st_mtime_ns == stamps[file]]
    assert sorted(file.stem for file in kept) == ["importance", "importance-trees"]
    with pytest.raises(OutputExistsError, match="overwrite"):
        forest.explain(data, out, parts="permutation", seed=1)
    other = forest.explain(data, out, parts="permutation", seed=1, overwrite=True)
    assert not other["permutation"].equals(bf.explain_forest(forest, data, parts="permutation")["permutation"])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda frame: frame.drop("y"), {}, "lacks the target 'y'"),
        (lambda frame: frame.head(100), {}, "the table has .* in training there were"),
        (lambda frame: frame.reverse(), {}, "are not those of training"),
        (lambda frame: frame.with_columns(a=-pl.col("a")), {}, "the values of some features are not those of training"),
        (lambda frame: frame.drop("a"), {}, "lacks feature 'a'"),
        (lambda frame: frame.with_columns(y=pl.lit("other")), {}, "labels in 'y' that the forest does not know"),
        (lambda frame: frame, {"loss": "mse"}, "does not fit the target"),
        (lambda frame: frame, {"loss": "auc"}, "loss must be one of"),
        (lambda frame: frame, {"groups": {"g": ["a", "z"]}}, "'z' is not a feature"),
        (lambda frame: frame, {"groups": {"b": ["a", "word"]}}, "no feature's, not 'b'"),
        (lambda frame: frame, {"groups": {1: ["a", "b"]}}, "names that are text and no feature's, not 1"),
        (lambda frame: frame, {"parts": "nonsense"}, "parts must be some of"),
        (lambda frame: frame, {"sample": True}, "sample must be a number of rows from 1 on, not True"),
        (lambda frame: None, {"parts": "permutation"}, "set data"),
    ],
)
def test_explain__refuses(change: Any, options: dict[str, Any], message: str) -> None:
    case = grown_case()
    with pytest.raises((ConfigError, DataError), match=message):
        case.forest.explain(change(case.frame), **{"parts": "permutation", **options})


def test_explain__names_rows_of_the_table() -> None:
    frame = pl.DataFrame({"x": np.arange(30.0), "y": [None, None, *np.arange(28.0)]})
    forest = bf.train(frame, "y", trees=3, task="regression")
    with pytest.raises(DataError, match="the values of 'y' in rows 2 to 29 are not those of training"):
        forest.explain(frame.with_columns(pl.col("y").reverse().shift(2)), parts="permutation")


@pytest.mark.parametrize("scale", [1.0, 0.37], ids=["narrow", "wide"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_explain__compares_weights_and_groups_with_those_of_training(task: str, scale: float) -> None:
    rows = np.arange(90)
    frame = pl.DataFrame({"x": rows * 37 % 89, "z": rows % 5, "y": rows * rows % 7 % 2, "g": rows // 4 * 5 % 23})
    frame = frame.with_columns(w=pl.Series(np.sqrt(rows % 3 + 1.0) * scale if scale < 1 else rows % 3 + 1.0))
    for role, same, other, named in (
        ("weight", pl.col("w").cast(pl.Float32), pl.col("w").reverse(), "features or weights"),
        ("group", pl.col("g").cast(pl.String), (pl.col("g") + 1) % 23, "features or groups"),
    ):
        plain = frame.drop("g" if role == "weight" else "w")
        forest = bf.train(plain, "y", task=task, trees=4, threads=1, **{role: role[0]})
        expected = forest.explain(plain, parts="permutation")["permutation"]
        found = forest.explain(plain.with_columns(same), parts="permutation")["permutation"]
        np.testing.assert_allclose(found["importance"], expected["importance"], rtol=1e-5, atol=1e-12)
        with pytest.raises(DataError, match=f"the values of some {named} are not those of training"):
            forest.explain(plain.with_columns(other), parts="permutation")
        with pytest.raises(DataError, match=f"the table lacks the {role}s '{role[0]}' of the rows; add the column"):
            forest.explain(plain.drop(role[0]), parts="permutation")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (pl.lit("5"), "the forest predicts the number 'y', which is String in the table; convert it"),
        (pl.lit(None), "no row of the table has a 'y'"),
        (
            pl.when(pl.int_range(200) == 3).then(np.inf).otherwise("y"),
            "a value of 'y' is infinite, or of a size above 1e",
        ),
        (
            pl.when(pl.int_range(200) == 3).then(-1e200).otherwise("y"),
            "a value of 'y' is infinite, or of a size above 1e",
        ),
    ],
    ids=["text", "nothing", "infinite", "large"],
)
def test_explain__refuses_targets_that_are_no_numbers(target: pl.Expr, message: str) -> None:
    case = grown_case(task="regression")
    with pytest.raises(DataError, match=message):
        case.forest.explain(case.frame.with_columns(y=target), parts="permutation", new_rows=True)


@pytest.mark.parametrize("options", [{}, {"task": "regression", "impurity": "poisson"}], ids=["classes", "poisson"])
def test_explain__weights_of_rows(options: dict[str, Any]) -> None:
    case = grown_case(100, **options)
    weights = np.random.default_rng(0).choice([0.0, 0.25, 1.0, 3.0], 100).tolist()
    frame = case.frame.with_columns(w=pl.Series(weights))
    forest = bf.train(frame, "y", trees=4, weight="w", threads=1, **PLAIN, **options)
    bags = forest.inbag()
    kept = bags["row"].to_list()
    assert all(weights[row] > 0 for row in kept)
    with pytest.raises(DataError, match="lacks the weights 'w'"):
        forest.explain(case.frame, parts="permutation")
    found = forest.explain(frame, parts=["permutation", "unbiased"], seed=5)
    for number, tree in enumerate(trees_of(forest)):
        own = [row for row, count in zip(kept, bags[str(number)].to_list(), strict=True) if count == 0]
        rows, truth = [case.rows[row] for row in own], [case.truth[row] for row in own]
        weight = [weights[row] for row in own]
        for place, name in enumerate(["a", "b", "word", "noise"]):
            draws, loss = (5, number, place), loss_by(options)
            expected = permuted_change(tree, rows, truth, weight, [place], draws, loss, case.names)
            line = found["permutation-trees"].filter(tree=number, feature=name)["importance"].item()
            assert line == pytest.approx(expected / sum(weight), abs=1e-12)
        expected_all = oob_decrease(tree, rows, truth, weight, 4, case.names)
        line = found["unbiased-trees"].filter(tree=number)["importance"].to_numpy()
        np.testing.assert_allclose(line, expected_all, atol=1e-12)


def test_explain__classes_of_weightless_rows_alone() -> None:
    odd = pl.int_range(pl.len()) % 10 == 0
    frame = grown_case().frame.with_columns(w=pl.when(odd).then(0.0).otherwise(1.0))
    forest = bf.train(frame, "y", trees=4, weight="w", threads=1, **PLAIN)
    other = frame.with_columns(y=pl.when(odd).then(pl.lit("never")).otherwise("y"))
    assert bf.train(other, "y", trees=1, weight="w", threads=1, **PLAIN).classes == forest.classes
    parts = ["permutation", "contributions"]
    found, expected = (forest.explain(table, parts=parts, threads=1) for table in (other, frame))
    for part in parts:
        assert found[part].equals(expected[part])


def test_permutation_classes__add_up_to_all() -> None:
    case = grown_case()
    found = case.forest.explain(case.frame, parts="permutation", new_rows=True)
    by_class = found["permutation-classes"]
    rows = [sum(own == k for own in case.truth) for k in range(2)]
    for name, whole in found["permutation"].select("feature", "importance").rows():
        own = by_class.filter(feature=name)["importance"].to_list()
        assert sum(a * b for a, b in zip(own, rows, strict=True)) / sum(rows) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("refine", ["off", 1])
def test_explain__numbers_that_are_not_defined_are_null(refine: Any) -> None:
    """They are last in a table that is sorted, not first as nan would be."""
    draw = np.random.default_rng(0)
    frame = pl.DataFrame({"x": draw.normal(size=90), "constant": [1.0] * 90}).with_columns(y=pl.col("x") > 0)
    one, forest = (bf.train(frame, "y", trees=trees, refine=refine, shrink="off") for trees in (1, 4))
    assert one.explain(parts="importance")["importance"]["standard_error"].to_list() == [None, None]
    found = forest.explain(frame, parts=["unbiased", "permutation"])
    assert found["permutation"]["scaled"].is_null().to_list() == [False, True]
    for name in found.tables:
        assert not any(column.is_nan().any() for column in found[name].select(pl.col(pl.Float64)))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_error_over_trees__of_numbers_of_any_size(size: float) -> None:
    values = np.array([[1.0, 0.0, -2.0], [2.0, 0.0, 5.0], [6.0, 0.0, 1.0]])
    usual = values.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(error_over_trees(values * size), usual * size, rtol=1e-12)


def test_decrease_shares__of_decreases_that_are_rounded_below_0() -> None:
    decrease = np.array([[1.0, 3.0, -1e-17], [0.0, 0.0, -5.0], [1e-310, 0.0, 3e-310]])
    wanted = [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.25, 0.0, 0.75]]
    np.testing.assert_allclose(decrease_shares(decrease), wanted, rtol=1e-9)


def test_features__of_a_forest_with_a_decrease_that_is_rounded_below_0() -> None:
    """A share below 0 was written, and the forest called damaged when it was read."""
    table = {"x": [n % 7 for n in range(11)], "f": [1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 0], "y": list("cdcadddabcd")}
    forest = bf.train(table, "y", family="tree", trees=1, impurity="error")
    assert forest.nodes.filter(feature="f").select((pl.col("gain") * pl.col("weight")).sum()).collect().item() < 0
    assert forest.features["importance"].to_list() == [1.0, 0.0]
    assert forest.explain(parts=["importance"])["importance"]["decrease"].to_list() == [1.0, 0.0]


def test_features__of_splits_that_decrease_nothing() -> None:
    """Both sides of every split have the majority of the node: the share of errors stays, but for its last bits."""
    draw = np.random.default_rng(2)
    columns = {f"x{number}": draw.normal(size=200) for number in range(4)}
    table = pl.DataFrame(columns).with_columns(y=pl.Series(np.where(draw.random(200) < 0.2, "b", "a")))
    forest = bf.train(table, "y", impurity="error", trees=20, max_depth=1, min_leaf=20, seed=2, refine="off")
    nodes = forest.nodes.select("gain", pl.col("counts").list.arg_max().alias("majority")).collect()
    assert nodes["majority"].unique().to_list() == [0] and nodes["gain"].max() > 0.0  # type: ignore[operator]
    assert forest.feature_importances.tolist() == [0.0] * 4
    assert forest.explain(parts="importance")["importance"]["importance"].to_list() == [0.0] * 4


def test_explain__writes_nothing_before_it_refuses(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": np.arange(60) % 7, "y": [None if row == 3 else "uv"[row % 2] for row in range(60)]})
    forest = bf.train(frame, "y", trees=5)
    (tmp_path / "mine").mkdir()
    for rows, options in (
        (frame, {"parts": ["importance", "permutation"], "memory": "10MB"}),
        (frame.head(30), {}),
        (frame, {"parts": ["permutation", "filling"], "new_rows": True}),
        (frame, {"parts": ["permutation", "proximities"], "new_rows": True}),
        (frame, {"parts": ["permutation", "local"], "rows": [3]}),
        (frame, {"parts": ["unbiased", "proximities"], "rows": [3]}),
        (frame, {"parts": ["strength", "interactions"], "rows": [60]}),
        (frame, {"parts": ["contributions", "local"], "rows": [-1]}),
    ):
        for name in ("new", "mine"):
            with pytest.raises((ConfigError, DataError)):
                forest.explain(rows, tmp_path / name, **options)
            assert [path.name for path in tmp_path.rglob("*")] == ["mine"], options
