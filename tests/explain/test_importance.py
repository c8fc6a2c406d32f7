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
from bigforest.errors import BigForestError, ConfigError, DataError, OutputExistsError
from bigforest.explain.explain import SECTIONS
from bigforest.explain.importance import error_over_trees
from bigforest.forest.decreases import decrease_shares
from bigforest.predict.inbag import bags_of
from tests.explain.made import Case, mixed_case, oblique_case, trees_of
from tests.naive.explain import oob_decrease, permuted_change
from tests.thorough import examples

GROUPS = {"numbers": ["x0", "x3"], "others": ["c1", "x0"]}
EXAMPLES = 12


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


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(["error", "log_loss"]))
def test_permutation__of_classes(seed: int, rows: int, loss: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_permutation(mixed_case(Path(folder), rows, seed), loss, seed, GROUPS)


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_permutation__of_numbers(seed: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_permutation(mixed_case(Path(folder), rows, seed, regression=True), "mse", seed, GROUPS)


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_permutation__of_projections(seed: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_permutation(oblique_case(Path(folder), rows, seed), "error", seed, {"two": ["x0", "x2"]})


def grown_case(rows: int = 300, **options: Any) -> Case:
    """A grown forest with missing values, a category, and rows without a target."""
    random = np.random.default_rng(rows)
    a, b = random.normal(size=rows), random.integers(0, 6, rows)
    numbers = np.round(a + (b > 2) + random.normal(size=rows) * 0.2, 2)
    if options.get("impurity") == "poisson":
        numbers = np.exp(numbers)
    frame = pl.DataFrame(
        {
            "a": a,
            "b": pl.Series([None if value == 5 else int(value) for value in b]),
            "word": pl.Series(random.choice(["x", "y", None], rows).tolist(), dtype=pl.String),
            "noise": random.normal(size=rows),
        }
    )
    regression = options.get("task") == "regression"
    labels = pl.Series(numbers if regression else np.where(numbers > 0.5, "high", "low"))
    frame = frame.with_columns(y=pl.when(pl.Series(random.random(rows) < 0.05)).then(None).otherwise(labels))
    forest = bf.train(frame, "y", trees=6, threads=1, **{"shrink": "off", "refine": "off"} | options)
    classes = forest.classes
    truth = [own if own is None or regression else classes.index(own) for own in frame["y"].to_list()]
    words = {2: [None, "x", "y"]}
    return Case(forest, trees_of(forest), frame, frame.drop("y").rows(), truth, words)


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
    case = grown_case(**options)
    table = case.forest.inbag()
    assert table["row"].to_list() == case.kept
    bags = [table[str(tree)].to_list() for tree in range(6)]
    check_permutation(case, loss_by(options), 3, {"both": ["a", "b"]}, bags)
    check_unbiased(case, bags)


def loss_by(options: dict[str, Any]) -> str:
    """The loss by which a forest of these options is evaluated."""
    if "impurity" in options:
        return "poisson_deviance"
    return "mse" if options.get("task") else "error"


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


@settings(max_examples=examples(EXAMPLES))
@given(st.integers(0, 10_000), st.integers(1, 30), st.sampled_from(["classes", "numbers", "oblique"]))
def test_unbiased__is_label_times_contribution(seed: int, rows: int, kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        check_unbiased(
            oblique_case(place, rows, seed) if kind == "oblique" else mixed_case(place, rows, seed, kind == "numbers")
        )


@pytest.mark.parametrize("options", [{}, {"task": "regression", "min_leaf": 1}], ids=["classes", "numbers"])
def test_unbiased__of_the_rows_of_the_bag_is_the_decrease_of_impurity(options: dict[str, Any]) -> None:
    case = grown_case(bootstrap=False, mtry="all", **options)
    found = case.forest.explain(case.frame, parts=["importance", "unbiased"], new_rows=True)
    own = found["unbiased"]["importance"].to_numpy()
    np.testing.assert_allclose(own / own.sum(), found["importance"]["decrease"].to_numpy(), rtol=1e-6)
    assert found["importance"]["decrease"].to_list() == case.forest.feature_importances.tolist()


def test_importance__is_that_of_scikit_learn() -> None:
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(1)
    matrix = random.normal(size=(400, 4))
    labels = (matrix[:, 0] + 0.5 * matrix[:, 1] + 0.3 * random.normal(size=400) > 0).astype(int)
    forest = bf.train((matrix, labels), trees=1, family="tree", max_depth=4)
    peer = DecisionTreeClassifier(max_depth=4, random_state=0).fit(matrix, labels)
    found = forest.explain(parts="importance")["importance"]["importance"].to_numpy()
    np.testing.assert_allclose(found, peer.feature_importances_, rtol=1e-9)


def test_permutation__agrees_with_scikit_learn() -> None:
    """One tree on rows it has not seen: the same quantity, permuted in other orders."""
    from sklearn.inspection import permutation_importance

    from bigforest.sklearn import BigForestClassifier

    random = np.random.default_rng(2)
    matrix = random.normal(size=(3000, 4))
    labels = (matrix[:, 0] + 0.5 * matrix[:, 1] + 0.3 * random.normal(size=3000) > 0).astype(int)
    model = BigForestClassifier(n_estimators=1, bootstrap=False).fit(matrix[:1000], labels[:1000])
    peer = permutation_importance(model, matrix[1000:], labels[1000:], n_repeats=20, random_state=0)
    rows = (matrix[1000:], labels[1000:])
    seeds = [
        model.forest_.explain(rows, parts="permutation", new_rows=True, seed=seed)["permutation"][
            "importance"
        ].to_numpy()
        for seed in range(20)
    ]
    spread = np.sqrt(peer.importances_std**2 + np.std(seeds, axis=0) ** 2) / np.sqrt(20) + 1e-9
    assert (np.abs(np.mean(seeds, axis=0) - peer.importances_mean) < 5 * spread).all()


@pytest.mark.parametrize("resources", [{"threads": 2}, {"threads": 2, "memory": "400MB"}])
def test_explain__is_the_same_with_any_resources(resources: dict[str, Any]) -> None:
    case = grown_case(500)
    options: dict[str, Any] = {"parts": SECTIONS, "sample": 60, "grid": 4}
    first = case.forest.explain(case.frame, threads=1, **options)
    again = case.forest.explain(case.frame, **resources, **options)
    assert first.tables == again.tables
    assert all(first[name].equals(again[name], null_equal=True) for name in first.tables)


@pytest.mark.parametrize("part", ["permutation", "importance", "trees"])
def test_explain__names_the_smallest_budget(part: str) -> None:
    case = grown_case(200)
    with pytest.raises(ConfigError, match=rf"the stage {part} needs at least \d+MB") as error:
        case.forest.explain(case.frame, parts=part, memory="10MB")
    needed = str(error.value).split("at least ")[1].split(" ")[0]
    assert part in case.forest.explain(case.frame, parts=part, memory=needed).tables


def test_explain__leaves_no_empty_folder(tmp_path: Path) -> None:
    case = grown_case(200)
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with pytest.raises(ConfigError):
            case.forest.explain(case.frame, tmp_path / name, parts="permutation", memory="10MB")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_explain__keeps_what_is_finished(tmp_path: Path) -> None:
    case = grown_case(200)
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
    case = grown_case(200)
    with pytest.raises((ConfigError, DataError), match=message):
        case.forest.explain(change(case.frame), **{"parts": "permutation", **options})
    assert issubclass(ConfigError, BigForestError)


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


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (pl.lit("5"), "the forest predicts the number 'y', which is String in the table; convert it"),
        (pl.lit(None), "no row of the table has a 'y'"),
        (pl.lit(1e200), "a value of 'y' is infinite, or of a size above"),
    ],
    ids=["text", "nothing", "large"],
)
def test_explain__refuses_targets_that_are_no_numbers(target: pl.Expr, message: str) -> None:
    case = grown_case(200, task="regression")
    with pytest.raises(DataError, match=message):
        case.forest.explain(case.frame.with_columns(y=target), parts="permutation", new_rows=True)


def test_explain__writes_nothing_where_a_part_refuses_the_rows(tmp_path: Path) -> None:
    case = grown_case(200)
    with pytest.raises(DataError, match="in training there were"):
        case.forest.explain(case.frame.head(100), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{}, {"task": "regression", "impurity": "poisson"}], ids=["classes", "poisson"])
def test_explain__weights_of_rows(options: dict[str, Any]) -> None:
    case = grown_case(250, **options)
    random = np.random.default_rng(0)
    frame = case.frame.with_columns(w=pl.Series(random.choice([0.0, 0.25, 1.0, 3.0], 250)))
    forest = bf.train(frame, "y", trees=4, weight="w", threads=1, shrink="off", refine="off", **options)
    trees = trees_of(forest)
    bags = bags_of(forest.files, range(4), None)
    kept, weights = bags["row"].to_list(), frame["w"].to_list()
    assert all(weights[row] > 0 for row in kept)
    with pytest.raises(DataError, match="lacks the weights 'w'"):
        forest.explain(case.frame, parts="permutation")
    found = forest.explain(frame, parts=["permutation", "unbiased"], seed=5)
    for number, tree in enumerate(trees):
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
    case = grown_case(250)
    odd = pl.int_range(pl.len()) % 10 == 0
    frame = case.frame.with_columns(w=pl.when(odd).then(0.0).otherwise(1.0))
    forest = bf.train(frame, "y", trees=4, weight="w", threads=1, shrink="off")
    other = frame.with_columns(y=pl.when(odd).then(pl.lit("never")).otherwise("y"))
    assert bf.train(other, "y", trees=4, weight="w", threads=1, shrink="off").classes == forest.classes
    parts = ["permutation", "contributions"]
    found, expected = (forest.explain(table, parts=parts, threads=1) for table in (other, frame))
    for part in parts:
        assert found[part].equals(expected[part])


def test_permutation_classes__add_up_to_all() -> None:
    case = grown_case(300)
    found = case.forest.explain(case.frame, parts="permutation", new_rows=True)
    by_class = found["permutation-classes"]
    rows = [sum(own == k for own in case.truth) for k in range(2)]
    for name, whole in found["permutation"].select("feature", "importance").rows():
        own = by_class.filter(feature=name)["importance"].to_list()
        assert sum(a * b for a, b in zip(own, rows, strict=True)) / sum(rows) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("value", [np.inf, -1e200])
def test_explain__refuses_numbers_whose_squares_are_not_finite(value: float) -> None:
    matrix = np.random.default_rng(0).normal(size=(60, 2))
    frame = pl.DataFrame(matrix, schema=["a", "b"]).with_columns(y="a")
    forest = bf.train(frame, "y", trees=2)
    other = frame.with_columns(y=pl.when(pl.int_range(60) == 3).then(value).otherwise("y"))
    with pytest.raises(DataError, match="a value of 'y' is infinite, or of a size above 1e"):
        forest.explain(other, parts="permutation", new_rows=True)


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


@pytest.mark.parametrize(
    "options",
    [
        {"parts": ["permutation", "filling"], "new_rows": True},
        {"parts": ["permutation", "proximities"], "new_rows": True},
        {"parts": ["permutation", "local"], "rows": [3]},
        {"parts": ["unbiased", "proximities"], "rows": [3]},
        {"parts": ["strength", "interactions"], "rows": [60]},
        {"parts": ["contributions", "local"], "rows": [-1]},
    ],
)
def test_explain__writes_nothing_before_it_refuses(tmp_path: Path, options: dict[str, Any]) -> None:
    frame = pl.DataFrame({"x": np.arange(60) % 7, "y": [None if row == 3 else "uv"[row % 2] for row in range(60)]})
    forest = bf.train(frame, "y", trees=5)

    with pytest.raises(ConfigError):
        forest.explain(frame, tmp_path / "why", **options)

    assert list(tmp_path.iterdir()) == []
