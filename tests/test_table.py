"""The forest as a table: what is written is what is read, and nothing unsound is believed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest.config import TrainConfig
from bigforest.errors import ConfigError, FormatError, OutputExistsError
from bigforest.forest.files import METADATA_KEY, VERSION
from bigforest.forest.forest import read_forest
from bigforest.forest.parts import check_count, check_parts, part_paths, read_parts
from bigforest.forest.table import NODES, TreeArrays, part_path, write_part
from bigforest.kernels.packing import SOUND, check_trees, narrow_nodes
from bigforest.kernels.route import Layout
from tests.forests import forest_of, random_tree, spec_of, write_forest
from tests.naive.predict import is_preorder, round_down

SPEC = spec_of(3, ("no", "unsure", "yes"), "String")


def trees(count: int = 4, splits: int = 6) -> list[TreeArrays]:
    random = np.random.default_rng(5)
    return [random_tree(random, 3, 3, splits, [0.5, -1.0, np.inf, 2.0]) for _ in range(count)]


def write(directory: Path) -> None:
    write_forest(directory, trees(), SPEC, [3])


def nodes(directory: Path) -> list[Any]:
    paths = part_paths(directory)
    header = check_parts(paths)
    parts = read_parts(paths, header, 0, 2)
    check_count(directory, sum(part.starts.size - 1 for part in parts), header)
    return parts


def test_write_part__reads_back_the_same(tmp_path: Path) -> None:
    write(tmp_path)
    parts = nodes(tmp_path)
    assert [part.first_tree for part in parts] == [0, 3]
    together = [
        TreeArrays(*(np.concatenate(arrays) for arrays in zip(*(tree[:-1] for tree in group), strict=True)))
        for group in (trees()[:3], trees()[3:])
    ]
    for part, expected in zip(parts, together, strict=True):
        inner = expected.feature >= 0
        np.testing.assert_array_equal(part.feature, expected.feature)
        np.testing.assert_array_equal(part.counts, expected.counts)
        np.testing.assert_array_equal(part.right[inner], expected.right[inner])
        np.testing.assert_array_equal(part.threshold[inner], expected.threshold[inner])


def test_write_part__rows_are_the_nodes(tmp_path: Path) -> None:
    write(tmp_path)
    found = read_forest(tmp_path).nodes.collect()
    rows = [
        (
            number,
            node,
            None if leaf else node + 1,
            None if leaf else int(tree.right[node]),
            int(tree.depth[node]),
            "leaf" if leaf else "axis",
            None if leaf else f"x{tree.feature[node]}",
            None if leaf else float(tree.threshold[node]),
            None,
            None if leaf else float(tree.gain[node]),
            int(tree.counts[node].sum()),
            tree.counts[node].tolist(),
        )
        for number, tree in enumerate(trees())
        for node, leaf in enumerate(tree.feature < 0)
    ]
    assert found.rows() == rows
    assert found.columns == NODES.names


def test_write_part__leaves_only_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        write_part(tmp_path, 0, trees(1), SPEC, TrainConfig(trees=1))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_forest__describes_itself(tmp_path: Path) -> None:
    forest = forest_of(tmp_path, trees(), SPEC)
    assert forest.trees == 4
    assert forest.classes == list(SPEC.target.classes)
    assert forest.spec == SPEC
    assert forest.config == TrainConfig(trees=4, bootstrap=False)
    assert "4 trees" in repr(forest) and "'y'" in repr(forest)
    assert forest.run["stage"].to_list() == ["grow"]
    assert TrainConfig.from_json(forest.run["config"][0]) == forest.config


def test_forest__importance_is_the_share_of_weighted_gain(tmp_path: Path) -> None:
    forest = forest_of(tmp_path, trees(), SPEC)
    gained = [0.0] * 3
    for tree in trees():
        for node, feature in enumerate(tree.feature):
            if feature >= 0:
                gained[feature] += tree.gain[node] * float(tree.weight[node])
    assert forest.features["name"].to_list() == ["x0", "x1", "x2"]
    np.testing.assert_allclose(forest.features["importance"], np.array(gained) / sum(gained), rtol=1e-12)


def test_forest__importance_without_splits_is_zero(tmp_path: Path) -> None:
    assert forest_of(tmp_path, trees(splits=0), SPEC).features["importance"].to_list() == [0.0, 0.0, 0.0]


def test_forest__oob_needs_bootstrap(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without bootstrap"):
        _ = forest_of(tmp_path, trees(), SPEC).oob


def test_forest__write_copies_and_refuses_to_overwrite(tmp_path: Path) -> None:
    forest = forest_of(tmp_path / "a", trees(), SPEC)
    forest.write(tmp_path / "b")
    copied = {path.relative_to(tmp_path / "b"): path.read_bytes() for path in (tmp_path / "b").rglob("*.parquet")}
    assert copied == {
        path.relative_to(tmp_path / "a"): path.read_bytes() for path in (tmp_path / "a").rglob("*.parquet")
    }
    with pytest.raises(OutputExistsError):
        forest.write(tmp_path / "b")
    forest.write(tmp_path / "b", overwrite=True)


# Damage: each change of the table of a part must be refused, with these words.


def _set(table: pa.Table, name: str, change: Callable[[list[Any]], None]) -> pa.Table:
    values = table[name].to_pylist()
    change(values)
    field = NODES.field(name)
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    array = pa.array(values, kind)
    if pa.types.is_dictionary(field.type):
        array = array.dictionary_encode().cast(field.type)
    return table.set_column(table.schema.get_field_index(name), field, array)


def _first(values: list[Any], wanted: Callable[[Any], bool]) -> int:
    return next(i for i, value in enumerate(values) if wanted(value))


def _put(name: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Set one cell."""
    return lambda table: _set(table, name, lambda values: values.__setitem__(row, value))


def _put_at(name: str, kind: str, value: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    """Change the cell of the first node of `kind`."""

    def damage(table: pa.Table) -> pa.Table:
        row = table["kind"].to_pylist().index(kind)
        return _set(table, name, lambda values: values.__setitem__(row, value(values[row])))

    return damage


DAMAGE: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no nodes": (lambda table: table.slice(0, 0), "no nodes"),
    "unknown kind": (_put("kind", 0, "category"), "kind other than leaf or axis or oblique"),
    "left null": (_put_at("left", "axis", lambda _: None), "left must be null in leaves and nowhere else"),
    "left in leaf": (_put_at("left", "leaf", lambda _: 1), "left must be null"),
    "right null": (_put_at("right", "axis", lambda _: None), "right must be null"),
    "right in leaf": (_put_at("right", "leaf", lambda _: 1), "right must be null"),
    "feature null": (_put_at("feature", "axis", lambda _: None), "feature must be null"),
    "threshold null": (_put_at("threshold", "axis", lambda _: None), "threshold must be null"),
    "gain null": (_put_at("gain", "axis", lambda _: None), "gain must be null"),
    "threshold nan": (_put_at("threshold", "axis", lambda _: float("nan")), "threshold is not a number"),
    "gain nan": (_put_at("gain", "axis", lambda _: float("nan")), "gain is not a number"),
    "terms": (_put("terms", 0, [{"feature": "x0", "weight": 1.0}]), "terms must be null"),
    "unknown feature": (_put_at("feature", "axis", lambda _: "x9"), "feature that the dataspec does not have"),
    "left elsewhere": (_put_at("left", "axis", lambda left: left + 1), "left child"),
    "right out of range": (_put_at("right", "axis", lambda _: 10_000), "right child"),
    "right to itself": (_put_at("right", "axis", lambda _: 0), "right child"),
    "depth": (_put_at("depth", "leaf", lambda depth: depth + 1), "depth"),
    "depth of a root": (_put("depth", 0, 1), "depth"),
    "node numbers": (_put("node", 1, 2), "nodes are not numbered"),
    "tree numbers": (
        lambda table: _set(table, "tree", lambda t: t.__setitem__(slice(13, 26), [7] * 13)),
        "consecutive",
    ),
    "last node lost": (lambda table: table.slice(0, table.num_rows - 1), "ends too early"),
    "two trees in one": (
        lambda table: _set(
            _set(table, "tree", lambda t: t.__setitem__(slice(13, 26), [0] * 13)),
            "node",
            lambda n: n.__setitem__(slice(0, 26), list(range(26))),
        ).slice(0, 26),
        "too early or too late",
    ),
    "weight": (_put_at("weight", "leaf", lambda weight: weight + 1), "add up"),
    "no rows": (
        lambda table: _put_at("weight", "leaf", lambda _: 0)(_put_at("counts", "leaf", lambda _: [0, 0, 0])(table)),
        "all 0",
    ),
    "few counts": (_put("counts", 0, [1, 1]), "one number for each of the 3 classes"),
    "another first tree": (lambda table: table.slice(13), "tree 0 is missing"),
}


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(path)
    metadata = pq.read_schema(path).metadata
    pq.write_table(change(table).replace_schema_metadata(metadata), path)


@pytest.mark.parametrize("name", DAMAGE)
def test_read_parts__refuses(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    change, words = DAMAGE[name]
    path = part_path(tmp_path, 0)
    _rewrite(path, change)
    with pytest.raises(FormatError, match=words) as error:
        read_forest(tmp_path).check()
    assert str(path) in str(error.value)


def test_read_parts__accepts_the_rewritten_undamaged(tmp_path: Path) -> None:
    write(tmp_path)
    _rewrite(part_path(tmp_path, 0), lambda table: _set(table, "feature", lambda values: None))
    read_forest(tmp_path).check()


@given(st.data())
def test_check_trees__accepts_what_a_walk_accepts(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    number = st.integers(0, size)
    leaf = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    tree = random_tree(np.random.default_rng(size), 2, 2, size // 2, [0.0])
    columns = [list(map(int, column[:size])) for column in (tree.left, tree.right, tree.depth)]
    if data.draw(st.booleans()):
        leaf = [feature < 0 for feature in tree.feature[:size].tolist()]
    size = len(leaf) if len(columns[0]) >= len(leaf) else len(columns[0])
    leaf, columns = leaf[:size], [column[:size] for column in columns]
    for _ in range(data.draw(st.integers(0, 2))):
        columns[data.draw(st.integers(0, 2))][data.draw(st.integers(0, size - 1))] = data.draw(number)
    left, right, depth = (np.array(column, np.uint32) for column in columns)
    ones = np.ones((size, 2), np.uint32)
    weight, waiting = np.full(size, 2, np.uint64), np.empty(size, np.int64)
    found = check_trees(np.array([0, size]), np.array(leaf), left, right, depth, weight, ones, waiting)
    assert (found == SOUND) == is_preorder(leaf, *columns)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_narrow_nodes__round_thresholds_down(values: list[float]) -> None:
    links = np.zeros(2 * len(values), np.uint64)
    wide = Layout(links.view(np.float64), links, np.uint64(32), np.uint64(2**32 - 1))
    wide.thresholds[::2] = values
    words = np.zeros(links.size, np.uint32)
    narrow = Layout(words.view(np.float32), words, np.uint64(31), np.uint64(2**22 - 1))
    assert narrow_nodes(wide, narrow)
    assert narrow.thresholds[::2].tolist() == [float(round_down(value)) for value in values]


# Whole files and whole forests.


def test_read_forest__not_a_forest(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such folder"):
        read_forest(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="is not a forest"):
        read_forest(tmp_path)


@pytest.mark.parametrize("name", ["features.parquet", "run.parquet"])
def test_read_forest__missing_piece(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FormatError, match=f"{name} is missing"):
        read_forest(tmp_path)


@pytest.mark.parametrize("name", ["trees/part-0000003.parquet", "features.parquet", "run.parquet"])
def test_read_forest__damaged_parquet(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(b"PAR1 but no more")
    with pytest.raises(FormatError, match="not a readable Parquet file") as error:
        read_forest(tmp_path)
    assert name in str(error.value)


def test_read_parts__damaged_pages(tmp_path: Path) -> None:
    write(tmp_path)
    path = part_path(tmp_path, 0)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=re.escape(str(path))):
        read_forest(tmp_path).check()


@pytest.mark.parametrize("last", [True, False])
def test_read_parts__missing_part(last: bool, tmp_path: Path) -> None:
    write(tmp_path)
    part_path(tmp_path, 3 if last else 0).unlink()
    with pytest.raises(FormatError, match="3 trees and 4 were asked for" if last else "tree 0 is missing"):
        read_forest(tmp_path).check()


def test_read_parts__tree_twice(tmp_path: Path) -> None:
    write(tmp_path)
    write_part(tmp_path, 2, trees()[2:], SPEC, TrainConfig(trees=4, bootstrap=False))
    part_path(tmp_path, 3).unlink()
    with pytest.raises(FormatError, match="tree 2 is there more than once"):
        read_forest(tmp_path).check()


@pytest.mark.parametrize("what", ["config", "spec"])
def test_read_forest__parts_of_two_forests(what: str, tmp_path: Path) -> None:
    write(tmp_path)
    if what == "config":
        write_forest(tmp_path / "other", trees(), SPEC, [3], seed=1)
    else:
        write_forest(tmp_path / "other", trees(), spec_of(3, ("a", "b", "c"), "String"), [3])
    shutil.copy(part_path(tmp_path / "other", 3), part_path(tmp_path, 3))
    with pytest.raises(FormatError, match="belongs to another forest"):
        read_forest(tmp_path)


def _change_header(path: Path, **entries: Any) -> None:
    table = pq.read_table(path)
    header = json.loads(pq.read_schema(path).metadata[METADATA_KEY]) | entries
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(header)}), path)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"version": VERSION + 1}, "upgrade bigforest"),
        ({"version": "1"}, "never existed"),
        ({"version": 0}, "never existed"),
        ({"kind": "oob-rows"}, "kind 'oob-rows' where 'features' belongs"),
        ({"spec": {}}, "dataspec"),
        ({"config": {}}, "configuration"),
    ],
)
def test_read_forest__header(entries: dict[str, Any], words: str, tmp_path: Path) -> None:
    write(tmp_path)
    _change_header(tmp_path / "features.parquet", **entries)
    with pytest.raises(FormatError, match=words):
        read_forest(tmp_path)


def test_read_forest__parquet_of_someone_else(tmp_path: Path) -> None:
    write(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "run.parquet")
    with pytest.raises(FormatError, match="no bigforest metadata"):
        read_forest(tmp_path)


@pytest.mark.parametrize("metadata", ["[" * 100_000, "no JSON", "[1]", "{}"])
def test_read_forest__header_of_no_sense(metadata: str, tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "features.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({METADATA_KEY: metadata}), path)
    with pytest.raises(FormatError, match="no bigforest metadata"):
        read_forest(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop_columns(["gain"]), "no column 'gain'"),
        (lambda table: table.append_column("more", table["tree"]), "columns that do not belong"),
        (lambda table: table.set_column(0, "tree", table["tree"].cast(pa.int64())), "'tree' is int64"),
    ],
)
def test_read_forest__columns(change: Callable[[pa.Table], pa.Table], words: str, tmp_path: Path) -> None:
    write(tmp_path)
    _rewrite(part_path(tmp_path, 3), change)
    with pytest.raises(FormatError, match=words):
        read_forest(tmp_path)


@pytest.mark.parametrize("dtype", ["Nonsense", "DataFrame", "Int8"])
def test_read_forest__target_type_that_classes_do_not_fit(dtype: str, tmp_path: Path) -> None:
    write_forest(tmp_path, trees(), spec_of(3, ("a", "b", "c"), dtype))
    with pytest.raises(FormatError, match="type"):
        read_forest(tmp_path)
