"""Where images come from: IDX files, folders, tables and arrays, whole and damaged."""

from __future__ import annotations

import builtins
import errno
import gzip
import io
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

import bigforest
from bigforest.errors import ConfigError, DataError
from bigforest.events import Event, Notice
from bigforest.images import imageset
from tests.unreadable import refuse_listing

Grey = NDArray[np.uint8]


def made(count: int = 6, rows: int = 5, columns: int = 4, seed: int = 0) -> Grey:
    return np.random.default_rng(seed).integers(0, 256, (count, rows, columns)).astype(np.uint8)


def idx(values: Grey, *, shape: tuple[int, ...] | None = None, kind: int = 8) -> bytes:
    """The bytes of an IDX file whose header says `shape`."""
    shape = shape if shape is not None else values.shape
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values.tobytes()


def read(source: Any, tmp_path: Path, **options: Any) -> tuple[pl.DataFrame, bigforest.ImageFeatures, list[str]]:
    """The table of features, the result, and the notices."""
    events: list[Event] = []
    out = tmp_path / "out.parquet"
    done = bigforest.images_to_features(source, out, overwrite=True, listener=events.append, **options)
    return pl.read_parquet(out), done, [event.message for event in events if isinstance(event, Notice)]


def pixels(table: pl.DataFrame, *drop: str) -> Grey:
    return table.drop("target", *drop, strict=False).to_numpy()


def encoded(image: Grey, kind: str = "PNG", **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, kind, **options)
    return content.getvalue()


# IDX files


@pytest.mark.parametrize(
    ("images", "labels", "found"),
    [
        ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", True),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", True),
        ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", True),
        ("train-images.idx3-ubyte", "train-labels.idx1-ubyte.gz", True),
        ("digits-images", "other-labels", False),
        ("digits.idx", "digits.idx.labels", False),
    ],
)
def test_idx__finds_its_labels_by_name(tmp_path: Path, images: str, labels: str, found: bool) -> None:
    data = made()
    for name, content in ((images, idx(data)), (labels, idx(np.arange(6, dtype=np.uint8)))):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    table, done, notices = read(tmp_path / images, tmp_path)
    assert np.array_equal(pixels(table), data.reshape(6, -1))
    assert done.labelled == found
    if found:
        assert table["target"].to_list() == list(range(6))
    else:
        assert any("no labels" in notice for notice in notices)


def test_idx__labels_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(idx(made()))
    (tmp_path / "b").write_bytes(idx(np.full(6, 3, np.uint8)))
    assert read(tmp_path / "a", tmp_path, labels=tmp_path / "b")[0]["target"].to_list() == [3] * 6


DAMAGED: list[tuple[Callable[[], bytes], str]] = [
    (lambda: b"", "not an IDX file of images"),
    (lambda: b"\x89PNG\r\n\x1a\n" + bytes(40), "not an IDX file of images"),
    (lambda: idx(made(), kind=13), "values of IDX type 0x0d"),
    (lambda: idx(made()[0, 0]), "these are labels"),
    (lambda: idx(made()[0]), "images have 3 dimensions, not 2"),
    (lambda: idx(made())[:10], "ends within its header"),
    (lambda: idx(made())[:-1], "do not fit the 120 values its header declares"),
    (lambda: idx(made()) + b"x", "do not fit the 120 values"),
    (lambda: idx(made(), shape=(0, 5, 4)), "has no images"),
    (lambda: idx(made(), shape=(6, 0, 4)), "do not fit"),
    (lambda: gzip.compress(idx(made(0, 5, 4), shape=(6, 0, 4))), "it has no pixels"),
    (lambda: gzip.compress(idx(made()))[:-20], "cut off|damaged"),
    (lambda: gzip.compress(idx(made())[:-1]), "ends before the 6 images"),
    (lambda: gzip.compress(idx(made()) + b"x"), "continues after the 6 images"),
    (lambda: gzip.compress(idx(made()))[:30] + bytes(50), "damaged|cut off"),
    (lambda: b"\x1f\x8b" + bytes(50), "damaged"),
    (lambda: idx(made(), shape=(2**32 - 1, 2**32 - 1, 2**32 - 1)), "do not fit"),
    (lambda: gzip.compress(idx(made(), shape=(2**32 - 1, 28, 28))), "do not fit"),
    (lambda: gzip.compress(idx(made(1, 1 << 8, 1 << 8), shape=(1, 1 << 14, 1 << 13))), "do not fit"),
    (lambda: gzip.compress(idx(made(1, 1, 1), shape=(1, 1, (1 << 26) + 1)) + bytes(1 << 20)), "do not fit|claims"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_idx__damage_is_named(tmp_path: Path, content: Callable[[], bytes], message: str) -> None:
    place = tmp_path / "x-images"
    place.write_bytes(content())
    with pytest.raises(DataError, match=message) as error:
        read(place, tmp_path)
    assert "x-images" in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [place]


def test_idx__labels_must_fit(tmp_path: Path) -> None:
    (tmp_path / "x-images").write_bytes(idx(made()))
    (tmp_path / "x-labels").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(DataError, match=r"has 5 labels and .* 6 images"):
        read(tmp_path / "x-images", tmp_path)


def test_idx__a_bomb_allocates_nothing(tmp_path: Path) -> None:
    # 16 MB of zeros in a few kilobytes, and a header that promises 6.7 GB.
    (tmp_path / "x").write_bytes(gzip.compress(idx(made(1, 1, 1), shape=(100, 1 << 13, 1 << 13)) + bytes(1 << 24)))
    tracemalloc.start()
    with pytest.raises(DataError, match="do not fit"):
        read(tmp_path / "x", tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


# Folders


def write_folder(place: Path, images: Grey, labels: list[str], suffix: str = ".png") -> None:
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        (place / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / label / f"{number:03}{suffix}")


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".PNG"])
def test_folder__has_a_folder_per_class(tmp_path: Path, suffix: str) -> None:
    data = made(7)
    place = tmp_path / "images"
    write_folder(place, data, ["b", "a", "a", "b", "c", "a", "c"], suffix)
    (place / "notes.txt").write_text("not an image")
    (place / ".hidden").mkdir()
    (place / ".hidden" / "x.png").write_bytes(b"")
    (place / "a" / ".y.png").write_bytes(b"")
    table, done, notices = read(place, tmp_path, names=True)
    order = [1, 2, 5, 0, 3, 4, 6]
    assert np.array_equal(pixels(table, "image"), data[order].reshape(7, -1))
    assert table["target"].to_list() == list("aaabbcc")
    assert table["image"].to_list() == [f"{c}/{n:03}{suffix}" for c, n in zip("aaabbcc", order, strict=True)]
    assert (table.columns[0], table.columns[-1], done.skipped, notices) == ("image", "target", 0, [])


def test_folder__jpeg_is_close(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(16), np.arange(16)).astype(np.uint8)[None] * 8
    write_folder(tmp_path / "images", smooth, ["a"], ".jpg")
    table, _, _ = read(tmp_path / "images", tmp_path)
    assert np.abs(pixels(table).astype(int) - smooth.reshape(1, -1)).max() < 8


def test_folder__without_classes_has_no_target(tmp_path: Path) -> None:
    data = made(3)
    write_folder(tmp_path, data, ["images"] * 3)
    table, done, _ = read(tmp_path / "images", tmp_path)
    assert np.array_equal(pixels(table), data.reshape(3, -1))
    assert not done.labelled
    write_folder(tmp_path / "images", data, ["a"] * 3)
    with pytest.raises(DataError, match="both directly in it"):
        read(tmp_path / "images", tmp_path)


def test_folder__goes_below_the_classes(tmp_path: Path) -> None:
    data = made(2)
    write_folder(tmp_path / "images", data, ["a/z", "a"])
    assert read(tmp_path / "images", tmp_path)[0]["target"].to_list() == ["a", "a"]


def test_folder__a_class_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in "ab":
        (tmp_path / "images" / label).mkdir(parents=True)
        (tmp_path / "images" / label / "0.png").write_bytes(encoded(made()[0]))
    refuse_listing(tmp_path / "images/b", monkeypatch)
    with pytest.raises(PermissionError, match=r"Permission denied: .*b"):
        read(tmp_path / "images", tmp_path)


def test_folder__without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match="has no images"):
        read(tmp_path / "images", tmp_path)


@pytest.mark.parametrize("chunk", [1, 2, 1 << 13])
def test_folder__damaged_images_are_named_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(imageset, "MAX_CHUNK", chunk)
    data = made(5)
    write_folder(tmp_path / "images", data, ["a", "a", "b", "b", "b"])
    whole = (tmp_path / "images/a/001.png").read_bytes()
    (tmp_path / "images/a/001.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "images/b/002.png").write_bytes(b"nonsense")
    table, done, notices = read(tmp_path / "images", tmp_path)
    assert np.array_equal(pixels(table), data[[0, 3, 4]].reshape(3, -1))
    assert table["target"].to_list() == ["a", "b", "b"]
    assert done.skipped == 2
    assert [name for name, _ in done.damaged] == ["a/001.png", "b/002.png"]
    assert [name in notice for name, notice in zip(["a/001.png", "b/002.png"], notices, strict=True)] == [True, True]
    with pytest.raises(DataError, match=r"a/001.png is damaged: .* skipped \(on_corrupt\)"):
        read(tmp_path / "images", tmp_path, on_corrupt="refuse")


def test_folder__links_to_nothing_are_damaged_images(tmp_path: Path) -> None:
    data = made(2)
    write_folder(tmp_path / "images", data, ["a", "b"])
    (tmp_path / "images/a/900.png").symlink_to(tmp_path / "nowhere")
    table, done, _ = read(tmp_path / "images", tmp_path)
    assert np.array_equal(pixels(table), data.reshape(2, -1))
    assert done.damaged == [("a/900.png", "it is a link to a file that does not exist, a pipe or a device")]


def test_folder__many_damaged_are_counted(tmp_path: Path) -> None:
    write_folder(tmp_path / "images", made(30), ["a"] * 30)
    for file in sorted((tmp_path / "images/a").iterdir())[1:]:
        file.write_bytes(b"")
    _, done, notices = read(tmp_path / "images", tmp_path)
    assert (done.rows, done.skipped, len(done.damaged), len(notices)) == (1, 29, 29, 21)
    assert "9 more damaged images" in notices[-1]


def test_folder__nothing_sound_is_an_error(tmp_path: Path) -> None:
    write_folder(tmp_path / "images", made(2), ["a"] * 2)
    for file in (tmp_path / "images/a").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DataError, match="none of the 2 images"):
        read(tmp_path / "images", tmp_path)


def test_folder__images_of_several_sizes_need_one(tmp_path: Path) -> None:
    write_folder(tmp_path / "images", made(2, 4, 4), ["a", "a"])
    write_folder(tmp_path / "images", made(1, 9, 7), ["b"])
    with pytest.raises(DataError, match=r"b/000.png has 9 x 7 pixels and the first one 4 x 4; choose a size"):
        read(tmp_path / "images", tmp_path)
    table, done, notices = read(tmp_path / "images", tmp_path, size="6x6")
    assert (table.height, done.shrunk, done.features) == (3, 1, 36)
    assert any("1 image was larger than 6 x 6 and scaled down" in notice for notice in notices)


# Encoded images


def test_decode__kinds_of_pixels() -> None:
    colour = np.random.default_rng(1).integers(0, 256, (3, 5, 3)).astype(np.uint8)
    grey = imageset.decode_image(encoded(colour))
    assert np.array_equal(grey, imageset.grey_levels(colour[None])[0][0])
    assert np.array_equal(grey[0, 0], (colour[0, 0] @ [19595, 38470, 7471] + 0x8000) >> 16)
    alpha = np.dstack([colour, np.zeros((3, 5), np.uint8)])
    assert np.array_equal(imageset.decode_image(encoded(alpha)), grey)
    binary = Image.fromarray(grey > 100)
    content = io.BytesIO()
    binary.save(content, "PNG")
    assert np.array_equal(imageset.decode_image(content.getvalue()), (grey > 100) * 255)
    deep = np.array([[0, 255, 256, 65535]], np.uint16)
    for kind in ("PNG", "TIFF"):
        assert imageset.decode_image(encoded(deep, kind)).tolist() == [[0, 0, 1, 255]]  # type: ignore[arg-type]


def test_decode__turns_by_exif() -> None:
    image = np.arange(0, 120, 10, dtype=np.uint8).reshape(3, 4)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    assert np.array_equal(imageset.decode_image(encoded(image, exif=exif)), np.rot90(image, -1))


def test_decode__other_formats_and_depths_are_damage() -> None:
    with pytest.raises(imageset.DamagedImage, match="cannot be decoded"):
        imageset.decode_image(encoded(made(1)[0], "GIF"))
    with pytest.raises(imageset.DamagedImage, match="32 bits"):
        imageset.decode_image(encoded(np.ones((2, 2), np.float32), "TIFF"))  # type: ignore[arg-type]


def test_decode__any_damage_is_damage() -> None:
    draw = np.random.default_rng(2)
    refused = 0
    for kind in ("PNG", "JPEG", "TIFF"):
        whole = np.frombuffer(encoded(made(1, 16, 16)[0], kind), np.uint8)
        for _ in range(150):
            broken = whole[: draw.integers(1, len(whole) + 1)].copy()
            places = draw.integers(0, len(broken), 4)
            broken[places] = draw.integers(0, 256, 4)
            try:
                assert imageset.decode_image(broken.tobytes()).dtype == np.uint8
            except imageset.DamagedImage:
                refused += 1
    assert refused > 200


def test_decode__a_bomb_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = encoded(np.zeros((300, 300), np.uint8))
    monkeypatch.setattr(imageset, "MAX_PIXELS", 300 * 300 - 1)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(imageset.DamagedImage, match="claims to have 300 x 300 pixels"):
        imageset.decode_image(bomb)


def test_pillow__missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "images", made(1), ["a"])
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"pip install 'bigforest\[images\]'"):
        read(tmp_path / "images", tmp_path)


# Tables


def test_table__of_encoded_images(tmp_path: Path) -> None:
    data = made(4)
    files = [encoded(image) for image in data]
    frame = pl.DataFrame({"picture": [*files[:2], None, b"junk", *files[2:]], "label": list("xyzxyz")})
    frame.write_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", frame):
        table, done, notices = read(source, tmp_path, names=True)
        assert np.array_equal(pixels(table, "image"), data.reshape(4, -1))
        assert table["target"].to_list() == list("xyyz")
        assert table["image"].to_list() == ["0", "1", "4", "5"]
        assert [name for name, _ in done.damaged] == ["2", "3"]
        assert len(notices) == 2


def test_table__of_hugging_face(tmp_path: Path) -> None:
    data = made(3)
    images = [{"bytes": encoded(image), "path": None} for image in data]
    schema = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())])
    pq.write_table(pa.Table.from_pydict({"image": images, "label": [4, 5, 6]}, schema), tmp_path / "t.parquet")
    table, _, _ = read(tmp_path / "t.parquet", tmp_path)
    assert np.array_equal(pixels(table), data.reshape(3, -1))
    assert table["target"].to_list() == [4, 5, 6]


SHAPES = {
    "flat": (pl.Array(pl.UInt8, 16), (4, 4)),
    "flat list": (pl.List(pl.UInt8), (4, 4)),
    "rows": (pl.Array(pl.UInt8, (2, 8)), (2, 8)),
    "wide numbers": (pl.Array(pl.Int32, (8, 2)), (8, 2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_table__of_arrays(tmp_path: Path, name: str) -> None:
    dtype, shape = SHAPES[name]
    data = made(6, *shape)
    cells: list[Any] = data.tolist() if len(getattr(dtype, "shape", (0,))) > 1 else data.reshape(6, -1).tolist()
    frame = pl.DataFrame({"pixels": pl.Series([*cells[:3], None, *cells[3:]], dtype=dtype), "y": list("aabbcdd")})
    frame = frame.with_columns(pl.col("y").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        table, done, _ = read(source, tmp_path)
        assert np.array_equal(pixels(table), data.reshape(6, -1))
        assert table["target"].cast(pl.String).to_list() == list("aabcdd")
        assert (done.damaged, done.size) == ([("3", "it is missing (null)")], shape)


def test_table__of_colours_and_booleans(tmp_path: Path) -> None:
    colour = np.random.default_rng(3).integers(0, 256, (2, 3, 4, 3)).astype(np.uint8)
    frame = pl.DataFrame({"rgb": colour}, schema={"rgb": pl.Array(pl.UInt8, (3, 4, 3))})
    expected = [[int(pixel @ [19595, 38470, 7471] + 0x8000) >> 16 for pixel in image.reshape(-1, 3)] for image in
                colour.astype(int)]  # fmt: skip
    assert pixels(read(frame, tmp_path)[0]).tolist() == expected
    bits = pl.DataFrame({"bits": [[True, False, False, True]]}, schema={"bits": pl.Array(pl.Boolean, 4)})
    assert pixels(read(bits, tmp_path)[0]).tolist() == [[255, 0, 0, 255]]


def test_table__odd_pixels_are_damage(tmp_path: Path) -> None:
    cells = [[0, 1, 2, 255], [0, None, 2, 3], [0, 1, 2, 256], [0, 1, 2, -1], [9, 9, 9, 9]]
    frame = pl.DataFrame({"image": pl.Series(cells, dtype=pl.Array(pl.Int16, 4)), "y": [1, 2, 3, 4, 5]})
    table, done, _ = read(frame, tmp_path)
    assert pixels(table, "y").tolist() == [cells[0], cells[4]]
    assert table["target"].to_list() == [1, 5]
    assert [name for name, _ in done.damaged] == ["1", "2", "3"]


def test_table__lists_of_other_lengths_are_damage(tmp_path: Path) -> None:
    frame = pl.DataFrame({"image": [[1, 2, 3, 4], [1, 2], [5, 6, 7, 8]]}, schema={"image": pl.List(pl.UInt8)})
    table, done, _ = read(frame, tmp_path)
    assert pixels(table).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert done.damaged == [("1", "it has not 4 pixels like the first")]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ({"a": [1, 2]}, {}, "has no column of images"),
        ({"a": [b"x"], "b": [b"y"]}, {}, "several columns that may be images"),
        ({"a": [b"x"], "b": [1]}, {"column": "b"}, "column 'b' has type Int64"),
        ({"a": [b"x"]}, {"column": "c"}, "no column 'c'"),
        ({"a": [b"x"]}, {"target": "c"}, "no column 'c'"),
        ({"a": [b"x"]}, {"labels": "c"}, "labels does not apply to a table"),
        ({"a": [b"x"]}, {"target": "a"}, "cannot be both"),
        ({"a": [[1, 2, 3]]}, {}, "3 pixels in a row, which is not a square number"),
        ({"a": pl.Series([None], dtype=pl.List(pl.UInt8))}, {}, "every image of 'a' is missing"),
        ({"a": pl.Series([[[[1, 2]]]], dtype=pl.Array(pl.UInt8, (1, 1, 2)))}, {}, "images of shape"),
        ({"a": pl.Series([[1.0]], dtype=pl.Array(pl.Float32, 1))}, {}, "has no column of images"),
    ],
    ids=str,
)
def test_table__wrong_columns_are_named(tmp_path: Path, frame: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(bigforest.BigForestError, match=message):
        read(pl.DataFrame(frame), tmp_path, **options)


def test_path__missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "nothing", tmp_path)


# Arrays


def test_array__with_and_without_labels(tmp_path: Path) -> None:
    data = made(5)
    table, _, _ = read((data, np.array(list("abcab"))), tmp_path)
    assert table["target"].to_list() == list("abcab")
    assert np.array_equal(pixels(read(data.astype(np.float64), tmp_path)[0]), data.reshape(5, -1))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((3, 4)), "must be numbers of shape"),
        (np.zeros((3, 4, 4), dtype="U1"), "must be numbers of shape"),
        (np.zeros((0, 4, 4)), "is empty"),
        (np.zeros((3, 0, 4)), "it has no pixels"),
        (np.zeros((3, 4, 4, 2)), "it must be"),
        ((np.zeros((3, 4, 4)), np.zeros(2)), "3 images need"),
        (np.full((3, 4, 4), np.nan), "none of the 3 images"),
    ],
    ids=str,
)
def test_array__wrong_ones_are_named(tmp_path: Path, source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(source, tmp_path)


# Errors of the system


@pytest.mark.parametrize(("name", "packed"), [("a/1.png", False), ("images.idx3", False), ("images.idx3", True)])
def test_error_of_the_system__names_the_file_and_does_not_call_it_damaged(
    name: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images = tmp_path / "in" / name, made()
    path.parent.mkdir(parents=True)
    content = encoded(images[0]) if name.endswith("png") else idx(images)
    content = gzip.compress(content) if packed else content
    path.write_bytes(content)
    opened = builtins.open

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() or name.endswith("png"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(size)

        def readinto(self, _: Any) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def broken(file: Any, *arguments: Any, **options: Any) -> Any:
        return Broken(content) if str(file) == str(path) else opened(file, *arguments, **options)

    monkeypatch.setattr(Path, "open", broken)
    monkeypatch.setattr(builtins, "open", broken)
    with pytest.raises(OSError, match=rf"Input/output error.*{path.name}") as caught:
        read(tmp_path / "in" if name.endswith("png") else path, tmp_path, on_corrupt="skip")
    assert caught.value.__notes__ == ["check its disk, and try again"]


def test_folder__of_images_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.png", "a/more/2.png", "b/1.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(encoded(made()[0]))
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == "more":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="more"):
        read(tmp_path / "in", tmp_path)
