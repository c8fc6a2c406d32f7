"""Files from elsewhere: what they name is not followed, what is no regular file is not read, and errors name them."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigforest
from bigforest.errors import DataError, FormatError
from bigforest.events import Event, StageAdvanced
from bigforest.store.format import Manifest, is_store
from tests.fuzz import damage
from tests.fuzz.corpus import _forged_pages


def rows() -> pl.DataFrame:
    draw = np.random.default_rng(7)
    columns = {f"x{index}": draw.normal(size=300) for index in range(3)}
    return pl.DataFrame(columns).with_columns(y=(pl.col("x0") > pl.col("x1")).cast(pl.Int8))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with table.parquet, its store s.store and the forest f, not to be touched."""
    folder = tmp_path_factory.mktemp("original")
    rows().write_parquet(folder / "table.parquet")
    bigforest.encode_store(rows(), folder / "s.store")
    bigforest.train(folder / "s.store", out=folder / "f", trees=3)
    return folder


@pytest.fixture
def forest(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original / "f", tmp_path / "f")
    damage.unlist(tmp_path / "f")
    return tmp_path / "f"


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original / "s.store", tmp_path / "s.store"))


def interrupted(original: Path, out: Path, **options: Any) -> Path:
    """The folder of a run that was interrupted after a tree."""

    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow" and event.done >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigforest.train(original / "table.parquet", out=out, trees=8, listener=interrupt, **options)
    return out.with_name(out.name + ".unfinished")


def rewrite_state(folder: Path, **changes: Any) -> None:
    """Change entries of the state of a run; its checksum is right."""
    raw = {**json.loads((folder / "state.json").read_text()), **changes}
    del raw["crc32"]
    crc = zlib.crc32(json.dumps(raw, sort_keys=True).encode())
    (folder / "state.json").write_text(json.dumps({**raw, "crc32": crc}))


@pytest.fixture
def valued(tmp_path: Path) -> Path:
    """A folder of somebody's, with the names that a run gives to its own."""
    for name in ("temporary", "table.store"):
        (tmp_path / "valued" / name).mkdir(parents=True)
        (tmp_path / "valued" / name / "thesis").write_text("all of it")
    return tmp_path / "valued"


def untouched(folder: Path) -> bool:
    return all((folder / name / "thesis").exists() for name in ("temporary", "table.store"))


@pytest.mark.parametrize("mark", ["", "0" * 16, "/../valued", "0" * 15 + "/"])
def test_state__names_no_folder_of_others(original: Path, tmp_path: Path, valued: Path, mark: str) -> None:
    (tmp_path / "bigforest-run-f-").mkdir()
    folder = interrupted(original, tmp_path / "f")
    rewrite_state(folder, scratches=[str(tmp_path), str(valued)], mark=mark)
    if mark.isdecimal():
        bigforest.train(resume=tmp_path / "f")
    else:
        with pytest.raises(FormatError, match="damaged"):
            bigforest.train(resume=tmp_path / "f")
        bigforest.train(original / "table.parquet", out=tmp_path / "f", trees=2, overwrite=True)
    assert untouched(valued)
    assert len(list(valued.iterdir())) == 2


@pytest.mark.parametrize("name", ["work", "forest"])
def test_state__a_link_is_not_followed(original: Path, tmp_path: Path, valued: Path, name: str) -> None:
    folder = interrupted(original, tmp_path / "f")
    (valued / ".bashrc").write_text("")
    shutil.rmtree(folder / name)
    (folder / name).symlink_to(valued)
    with pytest.raises(FormatError, match="not made by a run"):
        bigforest.train(resume=tmp_path / "f")
    bigforest.train(original / "table.parquet", out=tmp_path / "f", trees=2, overwrite=True)
    assert untouched(valued)
    assert (valued / ".bashrc").exists()
    assert not folder.exists()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


@pytest.mark.parametrize("name", ["oob/confusion.parquet", "run.parquet", "oob/rows.parquet"])
@pytest.mark.parametrize("put", [link("/dev/zero"), link("/etc/passwd"), link("/no/where"), pipe, Path.mkdir])
def test_write__copies_checked_files_only(forest: Path, tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    found = bigforest.read_forest(forest)
    assert found.has_oob
    found = bigforest.read_forest(forest)
    (forest / name).unlink()
    put(forest / name)
    with pytest.raises(FormatError, match=Path(name).name):
        found.write(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_write__looks_at_what_it_copies(forest: Path, tmp_path: Path) -> None:
    found = bigforest.read_forest(forest)
    content = bytearray((forest / "oob/curve.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (forest / "oob/curve.parquet").write_bytes(content)
    with pytest.raises(FormatError, match="checksum differs"):
        found.write(tmp_path / "copy")


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("put", [link("/dev/zero"), pipe, Path.mkdir, sparse])
def test_manifest__is_a_regular_file_of_some_size(store: Path, put: Callable[[Path], None]) -> None:
    (store / "manifest.json").unlink()
    put(store / "manifest.json")
    assert not is_store(store)
    with pytest.raises(FormatError):
        Manifest.read(store)


def test_forest__a_run_that_is_a_pipe(forest: Path) -> None:
    (forest / "run.parquet").unlink()
    os.mkfifo(forest / "run.parquet")
    with pytest.raises(FormatError, match=r"run\.parquet"):
        bigforest.read_forest(forest)
    with pytest.raises(bigforest.OutputExistsError, match="not a bigforest forest"):
        bigforest.train(rows(), out=forest, trees=1, overwrite=True)


@pytest.mark.parametrize("name", ["../table.parquet", "oob/../../table.parquet", "/etc/hostname"])
def test_forest__a_run_that_lists_files_elsewhere(name: str, forest: Path) -> None:
    damage.list_files(forest, {name: "00000000"})
    with pytest.raises(FormatError, match="which is not in its folder"):
        bigforest.read_forest(forest)


def test_nodes__pages_that_claim_any_size(forest: Path) -> None:
    """Polars ends the process where it cannot have so much memory."""
    part = next(forest.glob("trees/*"))
    _forged_pages(part, 0)
    found = bigforest.read_forest(forest)
    with pytest.raises(FormatError, match=part.name):
        found.nodes.collect()


def test_nodes__of_a_query_are_those_of_the_files(original: Path) -> None:
    forest = bigforest.read_forest(original / "f")
    nodes, expected = (
        forest.nodes,
        pl.concat(pl.read_parquet(path) for path in sorted((original / "f/trees").glob("*"))),
    )
    assert nodes.collect_schema() == expected.schema
    assert nodes.collect().equals(expected)
    assert nodes.collect(engine="streaming").equals(expected)
    assert nodes.select(pl.len()).collect().item() == expected.height
    leaf = pl.col("left").is_null() & (pl.col("tree") == 1)
    assert nodes.filter(leaf).select("node", "weight").collect().equals(expected.filter(leaf).select("node", "weight"))
    for start, length in ((0, 3), (expected.height - 5, 9), (2, 0)):
        assert nodes.slice(start, length).collect().equals(expected.slice(start, length))
    assert forest.oob.rows.collect().equals(pl.read_parquet(original / "f/oob/rows.parquet"))


def reordered(table: pa.Table) -> pa.Table:
    return table.select(table.column_names[::-1])


def test_calibrate__columns_of_a_part_in_another_order(forest: Path, original: Path, tmp_path: Path) -> None:
    expected = bigforest.calibrate_forest(original / "f", rows(), tmp_path / "expected").nodes.collect()
    for part in forest.glob("trees/*"):
        damage.write(reordered(pq.read_table(part)), part)
    assert bigforest.calibrate_forest(forest, rows(), tmp_path / "found").nodes.collect().equals(expected)


@pytest.mark.parametrize(
    ("file", "look"),
    [
        ("run.parquet", lambda forest: forest.has_oob),
        ("oob/curve.parquet", lambda forest: forest.oob),
        ("oob/metrics.parquet", lambda forest: forest.oob),
        ("features.parquet", lambda forest: forest.features),
    ],
)
def test_forest__a_file_without_rows(forest: Path, file: str, look: Callable[[bigforest.Forest], object]) -> None:
    damage.write(pq.read_table(forest / file).slice(0, 0), forest / file)
    with pytest.raises(FormatError, match=Path(file).name):
        look(bigforest.read_forest(forest))


@pytest.mark.parametrize(("column", "value"), [("name", "other"), ("codes", 7), ("importance", -1.0), ("feature", 9)])
def test_features__are_those_of_the_dataspec(forest: Path, column: str, value: object) -> None:
    table = pq.read_table(forest / "features.parquet")
    cells = table[column].to_pylist()
    field = table.schema.field(column)
    damaged = table.set_column(table.column_names.index(column), field, pa.array([value, *cells[1:]], field.type))
    damage.write(damaged, forest / "features.parquet")
    with pytest.raises(FormatError, match="not match the features of the dataspec"):
        _ = bigforest.read_forest(forest).features


@pytest.mark.parametrize("name", ["part-x", "part-" + "9" * 30, "part-00000000"])
def test_parts__have_numbers(forest: Path, name: str) -> None:
    shutil.copyfile(forest / "trees/part-0000000.parquet", forest / f"trees/{name}.parquet")
    with pytest.raises(FormatError, match="not named as a part"):
        bigforest.read_forest(forest)


def test_targets__parts_have_numbers(tmp_path: Path) -> None:
    forest = bigforest.train(rows(), "x0", task="regression", trees=2, keep_targets=True, out=tmp_path / "f")
    shutil.copyfile(next((tmp_path / "f/targets").glob("part-*")), tmp_path / "f/targets/part-x.parquet")
    with pytest.raises(FormatError, match=r"part-x\.parquet"):
        forest.write(tmp_path / "copy")


@pytest.mark.parametrize(
    ("target", "message"),
    [({"classes": list(range(65_535))}, "65,535 classes of 300 rows"), ({"step": 2.0**1000}, "too large")],
)
def test_store__a_target_that_no_table_has(tmp_path: Path, target: dict[str, Any], message: str) -> None:
    path = bigforest.encode_store(
        rows(),
        tmp_path / "s",
        target="y" if "classes" in target else "x0",
        task="classification" if "classes" in target else "regression",
    ).path
    raw = json.loads((path / "manifest.json").read_text())
    raw["dataspec"]["target"].update(target)
    (path / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(FormatError, match=message):
        bigforest.train(path, trees=1)


@pytest.mark.parametrize(("name", "value"), [("slot", 0.0), ("slot", False), ("width", 4.0)])
def test_store__numbers_of_a_feature_are_whole(store: Path, name: str, value: object) -> None:
    raw = json.loads((store / "manifest.json").read_text())
    assert raw["dataspec"]["features"][0][name] == value or name == "width"
    raw["dataspec"]["features"][0][name] = float(raw["dataspec"]["features"][0][name]) if name == "width" else value
    (store / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(FormatError, match="contradicts itself"):
        Manifest.read(store)


@pytest.mark.parametrize(
    ("step", "message"),
    [(2.0**-1000, "numbers.bin: the targets are not those described"), (2.0**1000, "too large to be learned")],
)
def test_store__of_a_step_that_its_numbers_do_not_have(tmp_path: Path, step: float, message: str) -> None:
    path = bigforest.encode_store(rows(), tmp_path / "s", target="x0", task="regression").path
    raw = json.loads((path / "manifest.json").read_text())
    raw["dataspec"]["target"]["step"] = step
    (path / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(FormatError, match=message):
        bigforest.train(path, trees=2)


ODD = {
    "zone": lambda count: pa.nulls(count, pa.timestamp("us", "No/Where")),
    "digits": lambda count: pa.array([10**60] * count, pa.decimal256(70, 2)),
    "empty": lambda count: pa.nulls(count, pa.list_(pa.int32(), 0)),
    "interval": lambda count: pa.array([pa.MonthDayNano([1, 0, 0])] * count),  # of months
    "union": lambda count: pa.UnionArray.from_sparse(pa.nulls(count, pa.int8()).fill_null(0), [pa.array(range(count))]),
    "zero\0byte": lambda count: pa.array(["a"] * count),
    "not text": lambda count: pa.array([b"\xff\xfe"] * count).view(pa.string()),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("form", ["parquet", "arrow", "stream", "memory"])
def test_table__a_column_at_which_polars_panics(tmp_path: Path, name: str, form: str, capfd: Any) -> None:
    table = rows().to_arrow(compat_level=pl.CompatLevel.oldest()).append_column(name, ODD[name](300))
    path = tmp_path / f"t.{'parquet' if form == 'parquet' else 'arrow'}"
    if form == "parquet":
        if name in ("interval", "union"):
            pytest.skip("Parquet has none that Arrow writes")
        pq.write_table(table, path)
    elif form != "memory":
        with (pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(DataError) as caught:
        bigforest.train(table if form == "memory" else path, "y", trees=1)
    assert repr(name) in str(caught.value)
    assert (path.name if form != "memory" else "the Arrow table") in str(caught.value)
    assert "panicked" not in capfd.readouterr().err


def test_table__integers_of_128_bits_are_read(tmp_path: Path) -> None:
    frame = rows().with_columns(wide=pl.int_range(pl.len()).cast(pl.Int128))
    frame.write_parquet(tmp_path / "t.parquet")
    assert bigforest.train(tmp_path / "t.parquet", "y", trees=1).spec.features[3].dtype == "Int128"


@pytest.mark.parametrize("name", ["../elsewhere", "trees/../../elsewhere", str(Path.home() / "elsewhere")])
def test_state__writes_no_file_outside_the_forest(name: str) -> None:
    with pytest.raises(FormatError, match=r"a forest has no file .*elsewhere"):
        bigforest.Forest.__new__(bigforest.Forest).__setstate__({name: b""})
