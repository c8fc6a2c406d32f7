"""What a forest says of itself beside predictions: leaves, bags, importances, single trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import bigforest as bf
from bigforest.errors import ConfigError, DataError, FormatError
from bigforest.kernels.predict.flat_tree import TILE
from bigforest.predict.forest import Forest
from tests.forests import forest_of, random_tree, spec_of
from tests.naive.predict import find_leaf

FEATURES = 3
THRESHOLDS = [0.0, 0.5, -1.5, 2.0, 1e-3]


def table(rows: int = 60, seed: int = 0) -> pl.DataFrame:
    """Two classes, weights of which some are 0, groups, and targets of which some are missing."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "a": random.normal(size=rows),
            "b": random.integers(0, 9, rows),
            "word": random.choice(["x", "y", "z"], rows),
            "target": random.choice(["no", "yes", None], rows, p=[0.6, 0.3, 0.1]),
            "patient": random.choice(["p", "q", "r", "s", "t"], rows),
        }
    )


def seen_by(forest: Forest, rows: int, bags: pl.DataFrame) -> tuple[list[int], list[int]]:
    """Trees that did not see each training row, by the bags and by the out-of-bag report."""
    report = forest.oob.rows.select("row", "trees").collect()
    assert bags["row"].to_list() == report["row"].to_list()
    return (bags.drop("row").to_numpy() == 0).sum(axis=1).tolist(), report["trees"].to_list()


@pytest.mark.parametrize("weights", [(), (1.0, -0.5, 2.0)], ids=["axis", "oblique"])
@pytest.mark.parametrize("rows", [1, 2 * TILE + 3])
def test_apply__is_the_leaf_that_a_row_walks_to(tmp_path: Path, weights: tuple[float, ...], rows: int) -> None:
    random = np.random.default_rng(3)
    trees = [random_tree(random, FEATURES, 3, splits, THRESHOLDS, weights) for splits in (0, 1, 4, 9)]
    forest = forest_of(tmp_path / "forest", trees, spec_of(FEATURES, (5, 7, 9)))
    matrix = random.choice([*THRESHOLDS, -9.0, 1.0, 9.0], (rows, FEATURES))
    if not weights:
        matrix[random.random(matrix.shape) < 0.1] = np.nan
    expected = [[find_leaf(tree, row) for tree in trees] for row in matrix.tolist()]
    found = forest.apply(matrix)
    assert found.dtype == np.uint32 and found.tolist() == expected
    frame = pl.DataFrame(matrix, schema=["x0", "x1", "x2"])
    for same in (frame, frame.lazy(), frame.to_pandas(), frame.to_arrow()):
        assert forest.apply(same, threads=2).tolist() == expected
    if not weights:
        masked = np.ma.masked_array(np.nan_to_num(matrix), mask=np.isnan(matrix))
        assert forest.apply(masked).tolist() == expected
    assert forest.apply(matrix, trees=[3, 1, 3]).tolist() == [[row[3], row[1], row[3]] for row in expected]
    assert forest[-1].apply(matrix).tolist() == [row[3] for row in expected]


def test_apply__of_categories_and_numbers_to_predict() -> None:
    frame = table(200).with_columns(y=pl.col("b") + pl.col("a")).drop("target", "patient")
    forest = bf.train(frame, "y", trees=3, min_leaf=1, task="regression", bootstrap=False)
    leaves = forest.apply(frame)
    nodes = forest.nodes.select("tree", "node", "value", "left").collect()
    values = []
    for tree in range(3):
        own = nodes.filter(pl.col("tree") == tree)
        assert own["left"].gather(leaves[:, tree]).null_count() == 200
        values.append(own["value"].gather(leaves[:, tree]).to_numpy())
    np.testing.assert_allclose(np.mean(values, axis=0), forest.predict(frame)["prediction"].to_numpy())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sample_fraction": 0.3, "replace": False},
        {"sampling": "stratified"},
        {"sampling": "balanced"},
        {"group": "patient"},
        {"bootstrap": False},
    ],
    ids=str,
)
def test_inbag__is_what_the_trees_were_grown_on(options: dict[str, Any]) -> None:
    frame = table().drop_nulls("target")
    forest = bf.train(frame, trees=5, seed=2, **options)
    bags = forest.inbag(group=frame["patient"] if "group" in options else None)
    assert bags.columns == ["row", "0", "1", "2", "3", "4"] and bags.height == frame.height
    # The bag rows of a root are those of the bag, and of its leaves those that end there.
    leaves = forest.apply(frame)
    for tree in range(5):
        weight = forest[tree].nodes["weight"].to_numpy()
        of_leaf = np.bincount(leaves[:, tree], bags[str(tree)].to_numpy(), weight.size)
        leaf = forest[tree].nodes["left"].is_null().to_numpy()
        assert np.array_equal(of_leaf[leaf], weight[leaf])
    if options.get("bootstrap", True):
        ours, report = seen_by(forest, frame.height, bags)
        assert ours == report
    own = forest.inbag([3], frame["patient"].to_numpy() if "group" in options else None)
    assert own.equals(bags.select("row", "3"))


def test_inbag__numbers_rows_as_the_table_does() -> None:
    frame = table()
    forest = bf.train(frame, trees=4, group="patient")
    bags = forest.inbag(group=frame["patient"].to_list())
    assert bags["row"].to_list() == frame.with_row_index().filter(pl.col("target").is_not_null())["index"].to_list()
    ours, report = seen_by(forest, frame.height, bags)
    assert ours == report
    with pytest.raises(ConfigError, match="not kept with the forest; give that column"):
        forest.inbag()
    with pytest.raises(DataError, match="the training table had 60"):
        forest.inbag(group=frame["patient"].head(9))
    with pytest.raises(DataError, match="name the 5 groups"):
        forest.inbag(group=["one"] * 60)
    with pytest.raises(DataError, match=r"^group differs from the groups of training"):
        forest.inbag(group=frame["patient"].reverse())
    with pytest.raises(DataError, match=r"^group differs from the groups of training"):
        forest.inbag([1], group=frame["patient"].reverse())
    with pytest.raises(ConfigError, match="drop group"):
        bf.train(frame, trees=2).inbag(group=frame["patient"])
    with pytest.raises(ConfigError, match=r"the table has \d+ rows? left out"):
        bf.train(frame, trees=2, bootstrap=False).inbag()


def test_inbag__of_groups_with_spaces_around_them() -> None:
    """Spaces do not distinguish groups, and do not change their order."""
    words = [[" b", "a", "c "][row % 3] for row in range(60)]
    frame = pl.DataFrame({"x": np.arange(60) % 13, "target": ["p", "q"] * 30, "place": words})
    plain = frame.with_columns(pl.col("place").str.strip_chars())
    for kind in (pl.String, pl.Categorical):
        forest = bf.train(frame.with_columns(pl.col("place").cast(kind)), trees=9, group="place")
        bags = forest.inbag(group=frame["place"].cast(kind))
        assert seen_by(forest, frame.height, bags)[0] == seen_by(forest, frame.height, bags)[1]
        assert bags.equals(forest.inbag(group=plain["place"]))
        explained = [forest.explain(one, parts="permutation")["permutation"] for one in (frame, plain)]
        assert explained[0].equals(explained[1])


def test_inbag__of_a_merged_forest(tmp_path: Path) -> None:
    frame = table().drop_nulls("target")
    first = bf.train(frame, trees=2, seed=1)
    second = bf.train(frame, trees=3, seed=9)
    merged = bf.merge([first, second], tmp_path / "both.forest").inbag()
    both = pl.concat(
        [first.inbag(), second.inbag().drop("row").rename({"0": "2", "1": "3", "2": "4"})], how="horizontal"
    )
    assert merged.equals(both)


def test_inbag__by_class_needs_the_report(tmp_path: Path) -> None:
    frame = table().drop_nulls("target")
    forests = [bf.train(frame, trees=2, seed=seed, sampling="balanced") for seed in (1, 2)]
    with pytest.raises(ConfigError, match="merged"):
        bf.merge(forests, tmp_path / "both.forest").inbag()


def test_trees__answer_by_themselves() -> None:
    frame = table(300).drop_nulls("target")
    forest = bf.train(frame, trees=6)
    assert len(forest) == 6
    shares = [forest[number].predict_proba(frame).to_numpy() for number in range(6)]
    np.testing.assert_allclose(np.mean(shares, axis=0), forest.predict_proba(frame).to_numpy())
    some = np.mean([shares[1], shares[4]], axis=0)
    np.testing.assert_allclose(forest.predict_proba(frame, trees=[4, 1]).to_numpy(), some)
    np.testing.assert_allclose(forest.predict_proba(frame.lazy(), trees=[4, 1]).collect().to_numpy(), some)
    assert forest.predict(frame, trees=range(6)).equals(forest.predict(frame))
    labels = np.array(["no", "yes"])[shares[5].argmax(axis=1)]
    assert forest[5].predict(frame.to_pandas())["prediction"].tolist() == labels.tolist()


def test_tree__says_what_it_is() -> None:
    frame = table(300).drop_nulls("target")
    forest = bf.train(frame, trees=3)
    tree = forest[-1]
    assert tree.number == 2
    assert tree.nodes.equals(forest.nodes.filter(pl.col("tree") == 2).collect())
    assert len(tree) == tree.nodes.height and tree.leaves == (len(tree) + 1) // 2
    assert tree.depth == tree.nodes["depth"].max()
    assert repr(tree) == f"Tree(2, {len(tree)} nodes, {tree.leaves} leaves, depth {tree.depth})"
    stump = bf.train(frame.select("target", frame.columns[0]).head(1), trees=1, bootstrap=False)
    assert repr(stump).startswith("Forest(1 tree, 1 feature, 1 class, ") and repr(stump).endswith("1 row)")
    assert repr(stump[0]) == "Tree(0, 1 node, 1 leaf, depth 0)"
    for number in (3, -4):
        with pytest.raises(IndexError, match="trees 0 to 2"):
            forest[number]
    with pytest.raises(TypeError, match="give the number of one, not slice"):
        forest[:2]  # type: ignore[index]


def _parents(nodes: pl.DataFrame) -> list[int]:
    """The parent of each node but the root."""
    sides = pl.concat([nodes.select("node", child=side).drop_nulls() for side in ("left", "right")])
    return sides.sort("child")["node"].to_list()


def test_tree_nodes__of_the_part_that_has_the_tree(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    trees = [random_tree(random, FEATURES, 3, splits, THRESHOLDS, ()) for splits in (3, 0, 2, 5, 1)]
    forest = forest_of(tmp_path / "forest", trees, spec_of(FEATURES, (5, 7, 9)))
    assert len(forest.part_files) == 2  # trees 0 and 1, 2 to 4
    nodes = forest.nodes.collect()
    own = [nodes.filter(pl.col("tree") == number) for number in range(5)]
    assert [tree.parents[1:].tolist() for tree in forest.files.each_tree()] == [_parents(tree) for tree in own]
    forest.part_files[0].unlink()
    for number in (2, 3, 4):
        assert forest[number].nodes.equals(own[number])
        assert forest.files.tree_arrays(number).weight.tolist() == own[number]["weight"].to_list()


def test_parts__that_were_exchanged_since_are_refused(tmp_path: Path) -> None:
    forests = []
    for name, classes in (("one", (5, 7, 9)), ("other", (5, 7, 8))):
        random = np.random.default_rng(4)
        trees = [random_tree(random, FEATURES, 3, splits, THRESHOLDS, ()) for splits in (3, 0, 2)]
        forests.append(bf.read_forest(forest_of(tmp_path / name, trees, spec_of(FEATURES, classes)).directory))
    one, other = forests
    one.part_files[0].write_bytes(other.part_files[0].read_bytes())
    with pytest.raises(FormatError, match="belongs to another forest"):
        one.predict(pl.DataFrame({f"x{place}": [0.0] for place in range(FEATURES)}))


def test_trees__that_are_not_there_are_refused() -> None:
    forest = bf.train(table(), trees=3)
    wrong: list[Any] = [[], [3], [-1], ["a"], 1, [0.5], [True, False, True]]
    for trees in wrong:
        with pytest.raises(ConfigError, match="trees must be numbers"):
            forest.predict(table(), trees=trees)


def test_trees__go_with_neither_a_budget_nor_quantiles() -> None:
    frame = table().with_columns(pl.col("a").alias("target"))
    forest = bf.train(frame.drop("patient"), trees=2, keep_targets=True)
    with pytest.raises(ConfigError, match="drop trees or quantiles"):
        forest.predict(frame, trees=[0], quantiles=[0.5])
    with pytest.raises(ConfigError, match="drop memory or trees"):
        forest.predict(frame, trees=[0], memory="4GB")


def test_importances__are_those_of_the_table_of_features() -> None:
    forest = bf.train(table(), trees=3)
    assert forest.feature_importances.tolist() == forest.features["importance"].to_list()
    assert forest.feature_importances.sum() == pytest.approx(1.0)


def test_errors_about_options_and_data__are_value_errors() -> None:
    with pytest.raises(ValueError, match="trees must be"):
        bf.train(table(), trees=0)
    with pytest.raises(ValueError, match="must have two dimensions"):
        bf.train((np.zeros(3), np.zeros(3)))
    forest = bf.train(table(), trees=2, exclude=["patient"])
    odd = pd.DataFrame({"a": [0.0], "b": [1], "word": ["new"]}).to_numpy(dtype=object)
    with pytest.raises(DataError) as caught:
        forest.predict(odd, unseen="error")
    assert str(caught.value).startswith("rows 0 to 0: 'word' has levels that did not occur in training")
    for ask in (forest.predict, forest.predict_proba, forest.apply, forest.to_matrix):
        with pytest.raises(DataError, match="it needs two dimensions"):
            ask(np.array(1.0))
    odd[0, 0] = "zero"
    with pytest.raises(DataError, match="the feature 'a' of the array cannot be read"):
        forest.predict(odd)
    odd[0, 0] = pd.NA
    missing = odd.copy()
    missing[0, 0] = None
    assert np.array_equal(forest.predict(odd), forest.predict(missing))


WIDE: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda cells: cells,
    "list of rows": lambda cells: cells.tolist(),
    "sparse": csr_matrix,
    "pair": lambda cells: (cells, cells[:, 0] > 0.0),
}


@pytest.mark.parametrize("kind", WIDE)
def test_arrays_with_further_columns__are_refused_by_all_functions(tmp_path: Path, kind: str) -> None:
    """Columns of an array have no names, so the features may be among the further columns."""
    cells = np.random.default_rng(0).normal(size=(60, 4))
    forest = bf.train((cells[:, :3], cells[:, 0] > 0.0), trees=2, refine="off")
    wide, exact = WIDE[kind](cells), WIDE[kind](cells[:, :3])
    match = "1 column that the forest was not trained on, by number x3"
    with pytest.raises(DataError, match=match):
        bf.predict_file(forest, wide, tmp_path / "out.parquet")
    with pytest.raises(DataError, match=match):
        forest.explain(wide, parts="dependence")
    assert bf.predict_file(forest, exact, tmp_path / "out.parquet").rows == 60
    if kind == "pair":
        with pytest.raises(DataError, match=match):
            bf.validate_forest(forest, wide)
        assert bf.validate_forest(forest, exact).height == 2


def test_arrays_with_the_columns_of_training__are_read() -> None:
    """The target may be a column of the array, and excluded columns are known while the forest is trained."""
    cells = np.random.default_rng(0).normal(size=(60, 4))
    cells[:, 2] = cells[:, 0] > 0.0
    options: dict[str, Any] = {"target": "x2", "task": "classification", "trees": 2, "refine": "off"}
    forest = bf.train(cells, **options, exclude=["x1"], validate=cells)
    assert forest.has_validation
    assert bf.validate_forest(bf.train(cells, **options), cells).height == 2
    named = pl.DataFrame(cells, schema=["x0", "x1", "x2", "x3"])
    assert bf.validate_forest(forest, named).height == 2
    with pytest.raises(DataError, match="not trained on, by number x1"):
        bf.validate_forest(forest, cells)


@pytest.mark.parametrize("kind", ["array", "masked", "list of rows", "objects", "sparse"])
def test_arrays_with_a_column_for_each_feature__have_the_order_of_training(tmp_path: Path, kind: str) -> None:
    """As in `Forest.predict`, even if the names of the features are numbers in another order."""
    frame = table().drop_nulls().select(pl.col("a").alias("x1"), pl.col("b").alias("x0"), "target")
    if kind == "objects":
        frame = frame.with_columns(pl.col("x0").replace_strict(dict(enumerate("klmnopqrs"))))
    forest = bf.train(frame, "target", trees=3, refine="off")
    cells = frame.drop("target").to_numpy()
    array = {
        "masked": np.ma.masked_array(cells, cells == cells[0, 0]),
        "list of rows": cells.tolist(),
        "sparse": cells if kind == "objects" else csr_matrix(cells),
    }.get(kind, cells)
    bf.predict_file(forest, array, tmp_path / "out.parquet")
    predicted = pl.read_parquet(tmp_path / "out.parquet")["prediction"].to_list()
    assert predicted == forest.predict(array).tolist()
    if kind != "masked":
        assert predicted == forest.predict(frame)["prediction"].to_list()
    pair = (array, frame["target"])
    assert bf.validate_forest(forest, pair).height == 3
    if kind != "masked":
        explained = [forest.explain(data, parts="permutation")["permutation"] for data in (pair, frame)]
        assert explained[0].equals(explained[1])
