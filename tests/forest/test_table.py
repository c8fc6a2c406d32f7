"""The forest as a table: what is written is what is read, and nothing unsound is believed."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigforest
from bigforest.errors import ConfigError, FormatError, OutputExistsError
from bigforest.execution.executor import Executor
from bigforest.forest import decreases, files, parts
from bigforest.forest.files import METADATA_KEY, VERSION, Header
from bigforest.forest.format import FILES, KINDS, NODE_KINDS, NODES, TREES, FileFormat
from bigforest.forest.nodes import TreeArrays, join_trees, write_part
from bigforest.forest.parts import check_parts, part_paths, read_span
from bigforest.kernels.common.layout import LEAF, OBLIQUE
from bigforest.kernels.predict.flat_tree import MORE, TERMS
from bigforest.kernels.predict.pack import SOUND, WRONG_COUNTS, WRONG_SUMS, check_nodes
from bigforest.options.train_config import TrainConfig
from bigforest.predict import groups
from bigforest.predict.forest import read_forest
from bigforest.predict.packed_trees import PackedTrees, pack
from bigforest.store.levels import Levels
from tests.forests import forest_of, random_tree, spec_of, write_forest
from tests.naive.predict import adds_up, is_preorder

SPEC = spec_of(3, ("no", "unsure", "yes"), "String")


def trees(count: int = 4, splits: int = 6) -> list[TreeArrays]:
    random = np.random.default_rng(5)
    return [random_tree(random, 3, 3, splits, [0.5, -1.0, np.inf, 2.0]) for _ in range(count)]


def write(directory: Path) -> None:
    write_forest(directory, trees(), SPEC, [3])


@pytest.mark.parametrize("group", [None, 5, 1])
def test_write_part__reads_back_the_same(group: int | None, tmp_path: Path) -> None:
    write(tmp_path)
    if group is not None:  # trees that span row groups
        for path in part_paths(tmp_path):
            _rewrite(path, lambda table: table, group)
    header, spans = check_parts(tmp_path)
    found = [list(read_span(span, header)) for span in spans]
    assert [pieces[0].tree for pieces in found] == [0, 3]
    assert all(len(pieces) > 1 for pieces in found) == (group is not None)
    for pieces, grown in zip(found, (trees()[:3], trees()[3:]), strict=True):
        expected = join_trees(grown)
        together = join_trees(pieces)
        inner = expected.feature >= 0
        np.testing.assert_array_equal(together.feature, expected.feature)
        np.testing.assert_array_equal(together.counts, expected.counts)
        np.testing.assert_array_equal(together.right[inner], expected.right[inner])
        np.testing.assert_array_equal(together.threshold[inner], expected.threshold[inner])
        np.testing.assert_array_equal(together.starts, expected.starts)


@given(st.data())
def test_load__equals_the_trees_at_once(data: st.DataObject) -> None:
    """Any cut into parts, row groups, pieces and groups gives the same packed nodes."""
    with tempfile.TemporaryDirectory() as folder:
        _check_load(data, Path(folder))


def _check_load(data: st.DataObject, folder: Path) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    splits = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    weights = data.draw(st.sampled_from([(), (1.0, -0.5)]))
    grown = [random_tree(random, 3, 3, count, [0.5, -1.0, np.inf, 2.0], weights) for count in splits]
    starts = sorted(data.draw(st.sets(st.integers(1, len(grown)), max_size=3)) - {len(grown)})
    write_forest(folder, grown, SPEC, starts)
    rows = data.draw(st.integers(1, 30))
    for path in part_paths(folder):
        _rewrite(path, lambda table: table, rows)
    stock = groups.survey(folder, 2)
    assert stock.nodes.tolist() == [tree.feature.size for tree in grown]
    several = [(tree.counts > 0).sum(axis=1) > 1 for tree in grown]
    assert stock.impure_leaves.tolist() == [
        int((own & (tree.feature == LEAF)).sum()) for own, tree in zip(several, grown, strict=True)
    ]
    assert stock.list_entries.tolist() == [0 if tree.terms is None else tree.terms.feature.size for tree in grown]
    begin = data.draw(st.integers(0, len(grown) - 1))
    end = data.draw(st.integers(begin + 1, len(grown)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PIECE_BYTES", data.draw(st.sampled_from([1, 300, 1 << 20])))
        found = stock.load(range(begin, end), data.draw(st.sampled_from([1, 2])))
    expected = pack([[tree] for tree in grown[begin:end]], SPEC)
    assert found.used.tolist() == stock.used.tolist()
    assert found.roots.tolist() == expected.roots.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.layout.links[::2].tolist() == expected.layout.links[::2].tolist()
    low = np.uint64(2**32 - 1)
    assert (found.layout.links[1::2] & low).tolist() == (expected.layout.links[1::2] & low).tolist()
    _check_columns(found, join_trees(grown[begin:end]))
    assert found.nodes == sum(tree.feature.size for tree in grown[begin:end])


def _check_columns(found: PackedTrees, trees: TreeArrays) -> None:
    """What the nodes look at is that of the trees, joined."""
    column = (found.layout.links[1::2] >> found.layout.shift).astype(np.int64)
    axis, oblique = trees.feature >= 0, trees.feature == OBLIQUE
    assert found.used[column[axis]].tolist() == trees.feature[axis].tolist()
    assert (found.directions is None) == (trees.terms is None)
    if found.directions is not None and trees.terms is not None:
        blocks = -(-np.diff(trees.terms.start)[oblique] // TERMS)
        assert column[oblique].tolist() == (2 * found.used.size + np.cumsum(blocks) - blocks).tolist()
        goes_on = [0] * (2 * found.used.size) + [int(more > 0) for size in blocks for more in range(size - 1, -1, -1)]
        weight, at = found.directions.weight[1::2], found.directions.at[::2]
        assert (at[TERMS - 1 :: TERMS] >= MORE).tolist() == goes_on
        at = at & ~MORE
        assert (at[weight == 0] == found.used.size).all()
        assert weight[weight != 0].tolist() == [*[1.0] * found.used.size, *trees.terms.weight.tolist()]
        places = at[weight != 0].astype(int)
        assert places[: found.used.size].tolist() == list(range(found.used.size))
        assert found.used[places[found.used.size :]].tolist() == trees.terms.feature.tolist()


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
            None if leaf else bool(tree.default_left[node]),
            None,
            None,
            None if leaf else float(tree.gain[node]),
            int(tree.counts[node].sum()),
            tree.counts[node].tolist(),
            None,
        )
        for number, tree in enumerate(trees())
        for node, leaf in enumerate(tree.feature < 0)
    ]
    assert found.rows() == rows
    assert found.columns == NODES.names


def test_write_part__encodings_are_those_that_older_readers_know(tmp_path: Path) -> None:
    write(tmp_path)
    group = pq.read_metadata(TREES.part(tmp_path, 0)).row_group(0)
    for chunk in (group.column(number) for number in range(group.num_columns)):
        by_type = {"DOUBLE": {"BYTE_STREAM_SPLIT"}, "BYTE_ARRAY": {"RLE_DICTIONARY"}, "BOOLEAN": set()}
        integers = {"DELTA_BINARY_PACKED"}  # planes of integers came later
        assert set(chunk.encodings) - {"RLE", "PLAIN"} == by_type.get(chunk.physical_type, integers)


def test_write_part__leaves_only_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        write_part(tmp_path, 0, trees(1), Header(SPEC, TrainConfig(trees=1), Levels.none(SPEC)))
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


def test_importance__is_added_up_in_the_order_of_trees_whatever_task_ends_first(tmp_path: Path) -> None:
    class Backwards(Executor):
        def run(self, function: Any, arguments: Any, on_result: Any, shared: Any = (), **_: Any) -> None:
            for index in reversed(range(len(arguments))):
                on_result(index, function(*shared, *arguments[index]))

    write_forest(tmp_path, trees(), SPEC, [1, 2, 3])
    header = read_forest(tmp_path).files.header
    found = decreases.importance(tmp_path, header, Backwards(1))
    assert found.tolist() == decreases.importance(tmp_path, header).tolist()


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


def _put(name: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Set one cell."""
    return lambda table: _set(table, name, lambda values: values.__setitem__(row, value))


def _put_at(name: str, kind: str, value: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    """Change the cell of the first node of `kind`."""

    def damage(table: pa.Table) -> pa.Table:
        row = table["kind"].to_pylist().index(kind)
        return _set(table, name, lambda values: values.__setitem__(row, value(values[row])))

    return damage


def _category_of_number(table: pa.Table) -> pa.Table:
    """Say that a node on a number is on a category."""
    table = _put_at("levels", "axis", lambda _: ["a"])(_put_at("threshold", "axis", lambda _: None)(table))
    return _put_at("kind", "axis", lambda _: "category")(table)


DAMAGE: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no nodes": (lambda table: table.slice(0, 0), "no nodes"),
    "unknown kind": (_put("kind", 0, "fern"), "kind other than leaf or axis or category or oblique"),
    "left null": (
        _put_at("left", "axis", lambda _: None),
        "left must be null except in axis and category and oblique nodes",
    ),
    "left in leaf": (_put_at("left", "leaf", lambda _: 1), "left must be null"),
    "right null": (_put_at("right", "axis", lambda _: None), "right must be null"),
    "right in leaf": (_put_at("right", "leaf", lambda _: 1), "right must be null"),
    "feature null": (_put_at("feature", "axis", lambda _: None), "feature must be null"),
    "threshold null": (_put_at("threshold", "axis", lambda _: None), "threshold must be null"),
    "default null": (
        _put_at("default_left", "axis", lambda _: None),
        "default_left must be null except in axis and category nodes",
    ),
    "default in leaf": (_put_at("default_left", "leaf", lambda _: True), "default_left must be null"),
    "levels": (_put_at("levels", "axis", lambda _: ["a"]), "levels must be null except in category nodes"),
    "no category": (_category_of_number, "another kind than the feature"),
    "value": (_put("value", 0, 1.0), "value must be null where classes are predicted"),
    "counts null": (_put("counts", 0, None), "a node has no counts"),
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
    "another first tree": (lambda table: table.slice(13), "begins with tree 1, not 0"),
}


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table], rows: int | None = None) -> None:
    """Write a changed table, in row groups of `rows` rows, as a file without a checksum."""
    table = pq.read_table(path)
    metadata = pq.read_schema(path).metadata
    pq.write_table(change(table).replace_schema_metadata(metadata), path, row_group_size=rows)


@pytest.mark.parametrize("name", DAMAGE)
def test_read_parts__refuses(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    change, words = DAMAGE[name]
    path = TREES.part(tmp_path, 0)
    _rewrite(path, change)
    with pytest.raises(FormatError, match=words) as error:
        read_forest(tmp_path).check()
    assert str(path) in str(error.value)


def test_read_parts__accepts_the_rewritten_undamaged(tmp_path: Path) -> None:
    write(tmp_path)
    _rewrite(TREES.part(tmp_path, 0), lambda table: _set(table, "feature", lambda values: None))
    read_forest(tmp_path).check()


@given(st.data())
def test_check_nodes__accepts_what_a_walk_accepts(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    number = st.integers(0, size)
    leaf = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    tree = random_tree(np.random.default_rng(size), 2, 2, size // 2, [0.0])
    left = np.where(tree.feature < 0, 0, np.arange(1, tree.feature.size + 1))
    columns = [list(map(int, column[:size])) for column in (left, tree.right, tree.depth)]
    if data.draw(st.booleans()):
        leaf = [feature < 0 for feature in tree.feature[:size].tolist()]
    size = len(leaf) if len(columns[0]) >= len(leaf) else len(columns[0])
    leaf, columns = leaf[:size], [column[:size] for column in columns]
    for _ in range(data.draw(st.integers(0, 2))):
        columns[data.draw(st.integers(0, 2))][data.draw(st.integers(0, size - 1))] = data.draw(number)
    left, right, depth = (np.array(column, np.uint32) for column in columns)
    counts = tree.counts[:size].copy()
    if data.draw(st.booleans()):
        counts[data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 1))] += 1
    weight, waiting = counts.sum(axis=1, dtype=np.uint64), np.empty((size, 2), np.uint32)
    rest = np.empty((size + 1, 3), np.uint64)
    state = np.array([-1, 0, 0, 0, 1, 0])
    tree, node = np.zeros(size, np.uint32), np.arange(size, dtype=np.uint32)
    edges = [0, *sorted(data.draw(st.sets(st.integers(0, size), max_size=3))), size]
    found = SOUND
    for begin, end in pairwise(edges):  # it goes on where it stopped
        if found == SOUND:
            here = (array[begin:end] for array in (tree, node, np.array(leaf), left, right, depth, weight, counts))
            found = check_nodes(state, *here, waiting, rest)
    sound = is_preorder(leaf, *columns) and adds_up(leaf, *columns[:2], counts.tolist())
    assert (found == SOUND and state[4] == 1) == sound


@pytest.mark.parametrize(
    ("weights", "counts", "expected"),
    [
        ([5, 2, 3], [[], [], []], SOUND),
        ([5, 2, 2], [[], [], []], WRONG_SUMS),  # numbers have no counts that would tell
        ([5, 2, 4], [[], [], []], WRONG_SUMS),
        ([5], [[2**63, 2**63 + 5]], WRONG_COUNTS),  # 5 modulo 2**64
    ],
)
def test_check_nodes__weights(weights: list[int], counts: list[list[int]], expected: int) -> None:
    size, width = len(weights), len(counts[0])
    leaf = np.arange(size) > 0 if size > 1 else np.ones(1, np.bool_)
    left, right, depth = (np.array(column[:size], np.uint32) for column in ([1, 0, 0], [2, 0, 0], [0, 1, 1]))
    nodes = np.zeros(size, np.uint32), np.arange(size, dtype=np.uint32), leaf, left, right, depth
    statistics = np.array(weights, np.uint64), np.array(counts, np.uint64).reshape(size, width)
    waiting, rest = np.empty((size, 2), np.uint32), np.empty((size + 1, 1 + width), np.uint64)
    assert check_nodes(np.array([-1, 0, 0, 0, 1, 0]), *nodes, *statistics, waiting, rest) == expected


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
    path = TREES.part(tmp_path, 0)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=re.escape(str(path))):
        read_forest(tmp_path).check()


@pytest.mark.parametrize("name", ["trees/part-0000003.parquet", "features.parquet", "oob/rows.parquet"])
def test_files__a_flipped_byte_is_refused_or_without_effect(name: str, tmp_path: Path) -> None:
    home = tmp_path / "f"
    frame = pl.DataFrame({"x0": np.arange(60.0) % 7, "x1": np.arange(60.0) % 11, "y": ["no", "yes", "unsure"] * 20})
    bigforest.train(frame, "y", out=home, trees=4, threads=1) if name.startswith("oob") else write(home)
    path = home / name
    content = path.read_bytes()
    columns, kind = pq.read_schema(path).remove_metadata(), files.file_kind(path)
    assert kind is not None
    header, _ = files.read_header(path, kind)
    file_format = FileFormat(name, kind, columns)
    expected = files.read_table(path, file_format, header)
    random = np.random.default_rng(1)
    passed = 0
    for place in {*random.integers(0, len(content), 300).tolist(), *range(len(content) - 60, len(content))}:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            found = files.read_table(path, file_format, header)
        except FormatError as error:
            assert str(path) in str(error)
        else:
            assert found.equals(expected)
            passed += 1
    assert passed < 30  # those that make the entry of the checksum another entry
    assert files.CHECKSUM_KEY in content


def test_forest__a_flipped_byte_in_its_rows(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x0": np.arange(60.0) % 7, "y": ["no", "yes"] * 30})
    bigforest.train(frame, "y", out=tmp_path / "f", trees=2, threads=1)
    path = tmp_path / "f" / "oob" / "rows.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    with pytest.raises(FormatError, match="checksum differs"):
        read_forest(tmp_path / "f").oob.rows.collect()


@pytest.mark.parametrize("last", [True, False])
def test_read_parts__missing_part(last: bool, tmp_path: Path) -> None:
    write(tmp_path)
    TREES.part(tmp_path, 3 if last else 0).unlink()
    with pytest.raises(FormatError, match="ends with tree 2, not 3" if last else "tree 0 is missing"):
        read_forest(tmp_path).check()


def test_read_parts__tree_twice(tmp_path: Path) -> None:
    write(tmp_path)
    write_part(tmp_path, 2, trees()[2:], Header(SPEC, TrainConfig(trees=4, bootstrap=False), Levels.none(SPEC)))
    TREES.part(tmp_path, 3).unlink()
    with pytest.raises(FormatError, match="ends with tree 2, not 1"):
        read_forest(tmp_path).check()


@pytest.mark.parametrize("what", ["config", "spec"])
def test_read_forest__parts_of_two_forests(what: str, tmp_path: Path) -> None:
    write(tmp_path)
    if what == "config":
        write_forest(tmp_path / "other", trees(), SPEC, [3], seed=1)
    else:
        write_forest(tmp_path / "other", trees(), spec_of(3, ("a", "b", "c"), "String"), [3])
    shutil.copy(TREES.part(tmp_path / "other", 3), TREES.part(tmp_path, 3))
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
        ({"kind": "oob-rows"}, "kind 'oob-rows' instead of 'features'"),
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
@pytest.mark.usefixtures("no_collection")
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
    _rewrite(TREES.part(tmp_path, 3), change)
    with pytest.raises(FormatError, match=words):
        read_forest(tmp_path)


@pytest.mark.parametrize("dtype", ["Nonsense", "DataFrame", "Int8"])
def test_read_forest__target_type_that_classes_do_not_fit(dtype: str, tmp_path: Path) -> None:
    write_forest(tmp_path, trees(), spec_of(3, ("a", "b", "c"), dtype))
    with pytest.raises(FormatError, match="type"):
        read_forest(tmp_path)


def test_schema__columns_of_some_kinds_of_node_may_be_null() -> None:
    assert all(NODES.field(name).nullable and set(kinds) <= set(KINDS) for name, kinds in NODE_KINDS.items())


def test_run_file__describes_its_stages() -> None:
    digits = Path(__file__).parents[2] / "examples" / "data" / "digits.parquet"
    forest = bigforest.train(digits, "target", trees=4, task="classification").shrink(1.0).sharpen(2.0)
    described = re.findall("`([a-z]+)`", FILES["run.parquet"][0].meaning)
    assert {"choose", "refine", "shrink", "sharpen"} < set(forest.files.stages) <= set(described)
