"""From images to features: each step against its oracle, and what lands in the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import bigforest
from bigforest.errors import BigForestError, ConfigError, DataError, OutputExistsError
from bigforest.events import Event, Notice
from bigforest.forest import tables as table_file
from bigforest.images import convert
from bigforest.images.features import feature_names, feature_values, fit, shrink_image
from tests.naive import images as naive

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "data" / "mnist-images-idx3-ubyte.gz"

# Mostly paper, some faint and some full ink, so that boxes, thresholds and runs of pairs all matter.
GREY = st.sampled_from([0, 0, 0, 1, 127, 128, 200, 255])


@st.composite
def stacks(draw: st.DrawFn, least: int = 1, most: int = 12) -> NDArray[np.uint8]:
    """Images [images, rows, columns] of one shape."""
    count, rows, columns = draw(st.integers(1, 4)), draw(st.integers(least, most)), draw(st.integers(least, most))
    cells = draw(st.lists(GREY, min_size=count * rows * columns, max_size=count * rows * columns))
    return np.array(cells, dtype=np.uint8).reshape(count, rows, columns)


@given(stacks(), st.integers(1, 10), st.integers(1, 10), st.booleans(), st.sampled_from([1, 128, 255]))
def test_fit__agrees_with_the_oracle(images: NDArray[np.uint8], rows: int, columns: int, crop: bool, ink: int) -> None:
    found, _ = fit(images, (rows, columns), crop=crop, ink=ink)
    assert found.tolist() == [naive.fitted(image, rows, columns, crop, ink) for image in images.tolist()]


@given(stacks(most=9), st.integers(1, 9), st.integers(1, 9))
def test_fit__counts_what_was_scaled_down(images: NDArray[np.uint8], rows: int, columns: int) -> None:
    larger = images.shape[1] > rows or images.shape[2] > columns
    assert fit(images, (rows, columns), crop=False, ink=1)[1] == larger * len(images)


def test_shrink__more_rows_than_a_strip() -> None:
    image = np.random.default_rng(0).integers(0, 256, (600, 7)).astype(np.uint8)
    assert shrink_image(image, (40, 40)).tolist() == naive.shrunk(image.tolist(), 40, 40)


def test_shrink__full_white_stays_white() -> None:
    assert (shrink_image(np.full((97, 61), 255, np.uint8), (20, 20)) == 255).all()


@given(stacks(least=6), st.sampled_from(["pixels", "neighbours"]), st.sampled_from(["paper", "full"]))
def test_features__agree_with_the_oracle(images: NDArray[np.uint8], kind: str, stride: str) -> None:
    names = feature_names(images.shape[1:], kind, stride)  # type: ignore[arg-type]
    values = feature_values(images, kind, stride, 128)
    assert values.dtype == np.bool_
    for number, image in enumerate(images.tolist()):
        expected = naive.features(image, kind, stride, 128)
        assert names == list(expected)
        assert values[:, number].tolist() == list(expected.values())


@pytest.mark.parametrize(
    ("stride", "counts"), [("paper", [400, 162, 162, 64, 64]), ("full", [400, 306, 306, 225, 225])]
)
def test_features__of_twenty_by_twenty_are_those_of_the_paper(stride: str, counts: list[int]) -> None:
    names = feature_names((20, 20), "neighbours", stride)
    assert [sum(name[0] == letter for name in names) for letter in "phvns"] == counts
    assert len(set(names)) == sum(counts)


def digits() -> NDArray[np.uint8]:
    """The images of the sample."""
    return np.frombuffer(gzip.decompress(DIGITS.read_bytes())[16:], np.uint8).reshape(100, 28, 28)


def labels() -> NDArray[np.uint8]:
    """The labels of the sample."""
    packed = DIGITS.with_name(DIGITS.name.replace("images-idx3", "labels-idx1")).read_bytes()
    return np.frombuffer(gzip.decompress(packed)[8:], np.uint8)


@pytest.mark.parametrize("features", ["pixels", "neighbours"])
def test_digits__agree_with_the_oracle(tmp_path: Path, features: str) -> None:
    out = tmp_path / "f.parquet"
    done = bigforest.images_to_features(DIGITS, out, features=features, size="20x20", crop=True, threshold=128)
    table = pl.read_parquet(out)
    expected = [
        naive.features(naive.fitted(image, 20, 20, True, 128), features, "paper", 128) for image in digits().tolist()
    ]
    assert table.drop("target").to_dicts() == expected
    assert table["target"].to_list() == labels().tolist()
    assert set(table.drop("target").dtypes) == {pl.Boolean()}
    assert table.columns[-1] == "target"
    count = {"pixels": 400, "neighbours": 852}[features]
    assert (done.rows, done.features, done.size, done.labelled) == (100, count, (20, 20), True)
    assert (done.shrunk, done.skipped, done.damaged) == (0, 0, [])


def test_pixels__are_grey_without_a_threshold(tmp_path: Path) -> None:
    bigforest.images_to_features(DIGITS, tmp_path / "f.parquet")
    table = pl.read_parquet(tmp_path / "f.parquet").drop("target")
    assert set(table.dtypes) == {pl.UInt8()}
    assert np.array_equal(table.to_numpy(), digits().reshape(100, -1))
    assert table.columns[:2] == ["p_0_0", "p_0_1"]
    assert table.columns[28] == "p_1_0"


def test_neighbours__have_a_threshold_of_128(tmp_path: Path) -> None:
    tables = []
    for number, threshold in enumerate((None, 128)):
        out = tmp_path / f"{number}.parquet"
        bigforest.images_to_features(DIGITS, out, features="neighbours", threshold=threshold)
        tables.append(pl.read_parquet(out))
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize(("options", "ink"), [({}, 1), ({"threshold": 99}, 99), ({"threshold": 99, "ink": 7}, 7)])
def test_ink__is_the_threshold_unless_given(tmp_path: Path, options: dict[str, int], ink: int) -> None:
    bigforest.images_to_features(digits(), tmp_path / "f.parquet", size=(20, 20), crop=True, **options)
    found = pl.read_parquet(tmp_path / "f.parquet").to_numpy().reshape(-1, 20, 20)
    boxes = np.array([naive.fitted(image, 20, 20, True, ink) for image in digits().tolist()])
    assert np.array_equal(found, boxes >= options["threshold"] if options else boxes)


def test_invert__is_dark_on_light(tmp_path: Path) -> None:
    for name, images, invert in (("a", digits(), False), ("b", 255 - digits(), True)):
        bigforest.images_to_features((images, labels()), tmp_path / name, size=(20, 20), crop=True, invert=invert)
    assert pl.read_parquet(tmp_path / "a").equals(pl.read_parquet(tmp_path / "b"))


@pytest.mark.parametrize(("cells", "group"), [(3000, 9000), (1 << 22, 1 << 25)])
def test_file__does_not_depend_on_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cells: int, group: int
) -> None:
    monkeypatch.setattr(convert, "CHUNK_CELLS", cells)
    monkeypatch.setattr(table_file, "GROUP_BYTES", group)
    bigforest.images_to_features(DIGITS, tmp_path / "f.parquet", names=True)
    table = pl.read_parquet(tmp_path / "f.parquet")
    assert np.array_equal(table.drop("image", "target").to_numpy(), digits().reshape(100, -1))
    assert table["target"].to_list() == labels().tolist()
    assert table["image"].to_list() == [str(number) for number in range(100)]
    groups = pq.ParquetFile(tmp_path / "f.parquet").num_row_groups
    assert groups == {9000: 9, 1 << 25: 1}[group]


def test_file__says_what_it_is_and_is_trained_on(tmp_path: Path) -> None:
    out = tmp_path / "f.parquet"
    bigforest.images_to_features(DIGITS, out, size="20x20", crop=True, threshold=128)
    mark = json.loads(pq.read_schema(out).metadata[b"bigforest"])
    assert (mark["version"], mark["kind"]) == (1, "image-features")
    assert mark["config"] == {
        "features": "pixels",
        "size": [20, 20],
        "crop": True,
        "ink": 128,
        "invert": False,
        "threshold": 128,
        "stride": "paper",
    }
    forest = bigforest.train(out, trees=5)
    assert len(forest.spec.features) == 400
    assert forest.spec.target.classes == tuple(range(10))


def test_file__is_overwritten_only_when_it_is_ours(tmp_path: Path) -> None:
    out = tmp_path / "f.parquet"
    for _ in range(2):
        bigforest.images_to_features(DIGITS, out, overwrite=True)
    with pytest.raises(OutputExistsError, match="already exists"):
        bigforest.images_to_features(DIGITS, out)
    pl.DataFrame({"a": [1]}).write_parquet(out)
    with pytest.raises(OutputExistsError, match="not a bigforest image features file"):
        bigforest.images_to_features(DIGITS, out, overwrite=True)


def test_file__is_not_there_when_reading_fails(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        bigforest.images_to_features(np.full((3, 4, 4), 0.5), tmp_path / "f.parquet")
    assert not list(tmp_path.iterdir())


def test_without_labels__there_is_no_target(tmp_path: Path) -> None:
    events: list[Event] = []
    done = bigforest.images_to_features(digits(), tmp_path / "f.parquet", listener=events.append)
    assert not done.labelled
    assert "target" not in pl.read_parquet(tmp_path / "f.parquet").columns
    assert any(isinstance(event, Notice) and "no labels" in event.message for event in events)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"features": "edges"}, ConfigError, "features must be one of pixels, neighbours"),
        ({"stride": "half"}, ConfigError, "stride must be one of paper, full"),
        ({"threshold": 0}, ConfigError, "threshold must be a grey value from 1 to 255"),
        ({"threshold": 256}, ConfigError, "threshold must be a grey value"),
        ({"ink": True}, ConfigError, "ink must be a grey value"),
        ({"size": "20"}, ConfigError, "size must be rows x columns"),
        ({"size": "0x20"}, ConfigError, "size must be rows x columns"),
        ({"size": (20, 20, 3)}, ConfigError, "size must be rows x columns"),
        ({"size": "300x300"}, ConfigError, "more than the 65,536 features"),
        ({"size": "200x200", "features": "neighbours"}, ConfigError, "more than the 65,536 features"),
        ({"size": "5x9", "features": "neighbours"}, ConfigError, "at least 6 x 6 pixels"),
        ({"on_corrupt": "mend"}, ConfigError, "on_corrupt must be one of skip, refuse"),
        ({"column": "image"}, ConfigError, "column does not apply to an IDX file"),
    ],
    ids=str,
)
def test_options__wrong_ones_are_named(
    tmp_path: Path, options: dict[str, Any], error: type[BigForestError], message: str
) -> None:
    with pytest.raises(error, match=message):
        bigforest.images_to_features(DIGITS, tmp_path / "f.parquet", **options)
    assert not list(tmp_path.iterdir())
