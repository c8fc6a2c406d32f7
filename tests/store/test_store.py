"""A store is read as it was written, or refused: kernels index by its codes without looking."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigforest import encode_store, train
from bigforest.errors import FormatError
from bigforest.events import Event, StageAdvanced, StageFinished, silent
from bigforest.execution.resources import Resources
from bigforest.grow.forest import ForestJob, grow_trees
from bigforest.grow.memory import GrowPlan
from bigforest.grow.out_of_core.context import MemoryLimits
from bigforest.grow.row_codes import checked_rows
from bigforest.options.train_config import TrainConfig
from bigforest.source.open import open_source
from bigforest.store.blocks import BlockReader
from bigforest.store.format import BLOCK_ROWS, VERSION, is_store
from bigforest.store.store import Store
from bigforest.training.run import grow_forest
from tests.encoded import encode

ROWS = BLOCK_ROWS * 3 // 2
PASSES = GrowPlan(1, MemoryLimits(rows=5_000, collects=1 << 16, cells=1 << 14, room=1 << 18), 2, 0)


def make(folder: Path, **options: Any) -> Path:
    """A store of two blocks with columns of every width and every file there can be."""
    rows = np.arange(ROWS)
    frame = pl.DataFrame(
        {
            "small": rows % 7,
            "wide": rows * 0.5,
            "middle": rows % 1000,
            "flag": rows % 2 == 0,
            "also wide": -rows.astype(np.float32),
            "y": pl.Series(["a", "b", "c"] * ROWS)[:ROWS],
        }
    ).with_columns(y=pl.when(pl.col("small") < 6).then("y"))
    source, config = open_source(frame, scratch=folder), TrainConfig(**options)
    return encode(source, "y", folder / "t.store", config=config, resources=Resources(threads=1), listener=silent).path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, not to be touched."""
    return make(tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def binned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with max_bins, not to be touched."""
    return make(tmp_path_factory.mktemp("binned"), max_bins=300)


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """A store to damage."""
    return Path(shutil.copytree(original, tmp_path / "t.store"))


def test_open__arrays_are_plain_and_read_only(original: Path) -> None:
    store = Store.open(original)
    assert store.row_numbers is not None
    for array in (
        *store.codes,
        store.target,
        store.row_numbers,
        store.low(1),
        store.high(1),
        store.feature_codes(1),
    ):
        assert type(array) is np.ndarray
        assert not array.flags.writeable
        assert array.flags.c_contiguous
    assert [array.dtype for array in store.codes] == [np.uint8, np.uint16, np.uint32, np.uint32]
    assert [array.shape for array in store.codes] == [
        (2, store.rows),
        (1, store.rows),
        (2, store.rows),
        (5, 2),
    ]
    assert store.codes.place.tolist() == [[1, 0], [4, 0], [2, 0], [1, 1], [4, 1]]
    assert (store.target.dtype, store.row_numbers.dtype) == (np.uint16, np.uint64)
    assert (store.rows, store.max_bins) == (store.spec.rows, "exact")


def test_open__empty_matrices(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1, 2], "y": [0, 1]})
    resources = Resources(threads=1)
    written = encode(open_source(frame, scratch=tmp_path), None, tmp_path / "a", resources=resources, listener=silent)
    store = Store.open(written.path)
    assert store.codes.u16.shape == store.codes.u32.shape == (0, 2)
    assert not store.codes.u32.flags.writeable
    assert store.row_numbers is None
    assert sorted(file.name for file in store.path.iterdir()) == [
        "checksums.bin",
        "codes-u8.bin",
        "low.bin",
        "manifest.json",
        "target.bin",
    ]


def test_values__any_stretch_of_rows(original: Path) -> None:
    store = Store.open(original)
    assert store.row_numbers is not None
    rows = store.row_numbers.astype(np.float64)
    expected = np.column_stack([rows % 7, rows * 0.5, rows % 1000, rows % 2 == 0, -rows])
    for start, stop in ((0, store.rows), (0, 1), (2047, 2050), (65_000, 66_000), (5, 5), (10, 3), (7, 10**9)):
        values = store.values(start, stop)
        assert values.flags.c_contiguous
        assert values.flags.writeable
        assert (values == expected[start:stop]).all()
        assert values.shape[1] == 5


def test_high__only_with_max_bins(original: Path, binned: Path) -> None:
    exact, ranges = Store.open(original), Store.open(binned)
    assert not (original / "high.bin").exists()
    assert (exact.high(1) == exact.low(1)).all()
    assert ranges.max_bins == 300
    assert ranges.codes.u32.shape == (0, ranges.rows)
    assert (ranges.low(1) < ranges.high(1)).all()
    assert (ranges.low(1)[1:] > ranges.high(1)[:-1]).all()
    assert [feature.codes for feature in ranges.spec.features] == [6, 300, 300, 2, 300]


FILES = [
    "codes-u8.bin",
    "codes-u16.bin",
    "codes-u32.bin",
    "low.bin",
    "target.bin",
    "row_numbers.bin",
    "checksums.bin",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_open__flipped_byte_is_found(name: str, place: float, copy: Path) -> None:
    raw = np.memmap(copy / name, np.uint8, "r+")
    raw[int(place * (len(raw) - 1))] ^= 1
    raw.flush()
    message = name
    if name in ("codes-u8.bin", "target.bin"):
        message = f"{name}.*, block {0 if place == 0.0 else 1 if place == 1.0 else '.'}"
    with pytest.raises(FormatError, match=message):
        Store.open(copy)


def test_open__flipped_byte_in_high_is_found(binned: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(binned, tmp_path / "t.store"))
    with (copied / "high.bin").open("r+b") as file:
        file.write(b"\x01")
    with pytest.raises(FormatError, match=r"high\.bin: the checksum"):
        Store.open(copied)


@pytest.mark.parametrize("name", FILES)
def test_open__missing_or_cut_file(name: str, copy: Path) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-1])
    with pytest.raises(FormatError, match=f"{name} has {len(content) - 1} bytes; {len(content)} bytes were written"):
        Store.open(copy)
    (copy / name).unlink()
    with pytest.raises(FormatError, match=f"{name} is missing"):
        Store.open(copy, verify=False)


def forge(path: Path, name: str, dtype: str, change: Callable[[np.ndarray], None]) -> None:
    """Change a file of a store and set all checksums as if it had been written so."""
    array = np.fromfile(path / name, dtype)
    change(array)
    array.tofile(path / name)
    manifest = json.loads((path / "manifest.json").read_text())
    if name == "codes-u8.bin":
        checksums = np.fromfile(path / "checksums.bin", np.uint32).reshape(6, -1)
        rows = manifest["dataspec"]["rows"]
        checksums[0] = [zlib.crc32(array[i : min(i + BLOCK_ROWS, rows)].data) for i in range(0, rows, BLOCK_ROWS)]
        checksums.tofile(path / "checksums.bin")
        name, array = "checksums.bin", checksums
    manifest["crc32"][name] = zlib.crc32(array.data)
    (path / "manifest.json").write_text(json.dumps(manifest))


def put(index: int, value: float) -> Callable[[np.ndarray], None]:
    """Sets one entry."""

    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


FORGED = {
    "code": ("codes-u8.bin", "u1", put(3, 6), "feature 'small', block 0: a value is out of range"),
    "order": ("low.bin", "f8", put(1, 0.0), "a dictionary is not ascending"),
    "nan first": ("low.bin", "f8", put(0, np.nan), "a dictionary is not ascending"),
    "nan last": ("low.bin", "f8", put(-1, np.nan), "a dictionary is not ascending"),
    "row order": ("row_numbers.bin", "u8", put(5, 4), "the row numbers are not ascending"),
    "row range": ("row_numbers.bin", "u8", put(-1, 10**9), "the row numbers are not ascending"),
}


@pytest.mark.parametrize("case", FORGED)
def test_open__forged_content_is_refused(case: str, copy: Path) -> None:
    name, dtype, change, message = FORGED[case]
    forge(copy, name, dtype, change)
    with pytest.raises(FormatError, match=message):
        Store.open(copy)


def test_open__forging_nothing_is_accepted(copy: Path) -> None:
    forge(copy, "codes-u8.bin", "u1", lambda array: None)
    Store.open(copy)


def test_open__newer_version(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "version": VERSION + 1, "new": "things"}))
    with pytest.raises(FormatError, match=f"version {VERSION + 1}; upgrade bigforest"):
        Store.open(copy)
    assert is_store(copy)


@pytest.mark.parametrize("largest", [2, 4])
def test_open__size_of_the_largest_group_that_is_not_true(largest: int, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(6), "g": ["a", "a", "a", "b", "b", "c"], "y": [0, 1] * 3})
    encode_store(frame, tmp_path / "t.store", target="y", group="g")
    path = tmp_path / "t.store" / "manifest.json"
    assert path.read_text().count('"largest": 3') == 1
    path.write_text(path.read_text().replace('"largest": 3', f'"largest": {largest}'))
    with pytest.raises(FormatError, match=rf"the largest group is not of {largest} rows"):
        Store.open(tmp_path / "t.store")


def test_open__older_version(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "version": 1}))
    with pytest.raises(FormatError, match="version 1, of an older bigforest; encode the table again"):
        Store.open(copy)
    assert is_store(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"format": "other"}', "[" * 100_000, "\x00"])
@pytest.mark.usefixtures("no_collection")
def test_open__not_a_manifest(content: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a store"):
        Store.open(tmp_path)
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(FormatError, match=r"manifest\.json|not a store"):
        Store.open(tmp_path)
    assert not is_store(tmp_path)


def test_is_store__manifest_on_a_broken_disk(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def broken(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("manifest.json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", broken)
    with pytest.raises(OSError, match=r"Input/output error: .*manifest\.json"):
        train(copy, trees=1)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all entries of a JSON value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [path, *(place for key, entry in entries for place in places(entry, (*path, key)))]


ODD = [None, True, -1, 0, 1, 3, 2**40, 10**400, 1.5, float("inf"), "", "a", "exact", [], {}, [1, 2], {"a": 1}]


@given(data=st.data())
def test_open__any_entry_changed_is_refused_or_harmless(data: st.DataObject, original: Path) -> None:
    manifest = json.loads((original / "manifest.json").read_text())
    place = data.draw(st.sampled_from(places(manifest)[1:]))
    value = data.draw(st.sampled_from(ODD))
    holder = manifest
    for key in place[:-1]:
        holder = holder[key]
    if value == "" and isinstance(holder, dict):
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    folder = original.parent / "forged"
    folder.mkdir(exist_ok=True)
    for file in original.iterdir():
        (folder / file.name).unlink(missing_ok=True)
        if file.name != "manifest.json":
            (folder / file.name).symlink_to(file)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    try:
        store = Store.open(folder, verify=False)
    except FormatError:
        return
    # What is left to choose are names, types, labels, checksums, how many rows were dropped, and whether code 0 is
    # missing, which the dictionaries tell when they are read.
    text = place[-1] in ("name", "dtype", "dropped", "missing") or place[-2:-1] == ("classes",) or place[0] == "crc32"
    assert text or manifest == json.loads((original / "manifest.json").read_text())
    assert store.codes.u8.shape == (2, store.rows)


def test_check_unchanged__says_which_file(copy: Path) -> None:
    store = Store.open(copy)
    store.check_unchanged()
    with (copy / "target.bin").open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(FormatError, match=r"target.bin was changed while it was read"):
        store.check_unchanged()


class Meddler:
    """A listener that writes to a file of a store when some trees are grown."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file, self._content = file, content

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == "grow":
            with self._file.open("r+b") as file:
                file.write(self._content)


@pytest.mark.parametrize("way", [None, PASSES])
def test_grow_forest__a_store_that_is_overwritten_meanwhile(copy: Path, tmp_path: Path, way: GrowPlan | None) -> None:
    """What was grown on other codes than those checked is kept nowhere."""
    config = TrainConfig(trees=8, max_depth=3).for_task("classification")
    meddler = Meddler(copy / "codes-u8.bin", bytes(5000))
    with pytest.raises(FormatError, match="was changed while it was read"):
        grow_forest(ForestJob(Store.open(copy), config, tmp_path, Resources(threads=1), meddler), plan=way)
    assert len(list((tmp_path / "trees").iterdir())) < 4


def test_train__a_store_that_is_overwritten_while_it_ends(copy: Path, tmp_path: Path) -> None:
    def meddle(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "oob":
            Meddler(copy / "codes-u8.bin", b"0")(StageAdvanced("grow", 1))

    with pytest.raises(FormatError, match="was changed while it was read"):
        train(copy, out=tmp_path / "f", trees=2, threads=1, max_depth=3, listener=meddle)
    assert not (tmp_path / "f").exists()


def test_kernels__never_see_codes_that_are_out_of_range(copy: Path, tmp_path: Path) -> None:
    """Of a store that was changed after it was checked, in the moment after another look at its files."""
    config = TrainConfig(trees=1, max_depth=2).for_task("classification")
    for name, message in (("target.bin", "a class is out of range"), ("codes-u8.bin", "a code is out of range")):
        store = Store.open(copy)
        before = (copy / name).read_bytes()
        (copy / name).write_bytes(bytes([255]) * len(before))
        changed = replace(store, _files=None)
        with pytest.raises(FormatError, match=message):
            list(grow_trees(changed, config, range(1)))
        (tmp_path / name).mkdir()
        with pytest.raises(FormatError, match=message):
            grow_forest(ForestJob(changed, config, tmp_path / name, Resources(threads=1), silent), plan=PASSES)
        (copy / name).write_bytes(before)


def test_checked_rows__refuses_a_damaged_code(copy: Path) -> None:
    store = Store.open(copy)
    with (copy / "codes-u8.bin").open("r+b") as file:
        file.write(bytes([255]))
    with pytest.raises(FormatError, match="a code is out of range"):
        checked_rows(replace(store, _files=None))


def test_blocks__codes_out_of_range_are_refused(copy: Path) -> None:
    (copy / "codes-u8.bin").write_bytes(bytes([255]) * (copy / "codes-u8.bin").stat().st_size)
    store = Store.open(copy, verify=False)
    reader = BlockReader(copy, store.spec, store.place, again=False)
    with reader, pytest.raises(FormatError, match=r"codes-u8.bin, block 0: a code is out of range"):
        reader.read(0, range(len(store.spec.features)))
