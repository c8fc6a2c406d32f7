"""Files of arrays: what is written is read, block by block, and damage is found wherever it is."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bigforest.errors import FormatError
from bigforest.storage.array_file import (
    ArrayFile,
    MatrixFile,
    map_file,
    mapped_array,
    read_arrays,
    write_arrays,
    writing_arrays,
)

TYPES = {"number": "<f8", "code": "<u2", "flag": "<u1"}
DAMAGED = "is damaged; remove it and resume the run"


@st.composite
def blocks(draw: st.DrawFn) -> list[list[NDArray[Any]]]:
    """Arrays of up to five blocks; rows of `code` are matrices, of no cells in some files."""
    tail = draw(st.sampled_from([(0,), (2,), (3, 2)]))
    random = np.random.default_rng(draw(st.integers(0, 9)))

    def one() -> list[NDArray[Any]]:
        sizes = draw(st.tuples(*[st.integers(0, 7)] * 3))
        shapes = [(sizes[0],), (sizes[1], *tail), (sizes[2],)]
        return [random.integers(0, 200, shape).astype(kind) for shape, kind in zip(shapes, TYPES.values(), strict=True)]

    return [one() for _ in range(draw(st.integers(0, 5)))]


def written(path: Path, given_blocks: list[list[NDArray[Any]]]) -> ArrayFile:
    with writing_arrays(path, TYPES, {"first": 7, "low": -3}) as add:
        for arrays in given_blocks:
            add(*arrays)
    return ArrayFile.of(path, TYPES)


@given(blocks(), st.randoms())
def test_array_file__gives_back_its_blocks_in_any_order(given_blocks: list[list[NDArray[Any]]], random: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder, "a"), given_blocks)
        assert file.about == {"first": 7, "low": -3}
        assert file.blocks == len(given_blocks)
        assert file.rows("code").tolist() == [len(arrays[1]) for arrays in given_blocks]
        order = list(range(len(given_blocks)))
        random.shuffle(order)
        with file.reading() as opened:
            for number in order:
                for found, expected in zip(file.block(opened, number), given_blocks[number], strict=True):
                    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
                    np.testing.assert_array_equal(found, expected)


def _cut(content: bytearray) -> bytearray:
    return content[:-3]


def _longer(content: bytearray) -> bytearray:
    return content + b"\0" * 8


@pytest.mark.parametrize("change", [_cut, _longer, lambda _: bytearray(), lambda content: content[8:]])
def test_array_file__of_another_length_is_damaged(change: Callable[[bytearray], bytearray], tmp_path: Path) -> None:
    written(tmp_path / "a", [[np.arange(9), np.arange(4), np.arange(3)]])
    (tmp_path / "a").write_bytes(change(bytearray((tmp_path / "a").read_bytes())))
    with pytest.raises(FormatError, match=DAMAGED):
        read_arrays(tmp_path / "a", TYPES)


def test_array_file__every_byte_counts(tmp_path: Path) -> None:
    written(tmp_path / "a", [[np.arange(2), np.arange(3), np.arange(1)]])
    content = (tmp_path / "a").read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "a").write_bytes(changed)
        with pytest.raises(FormatError, match=DAMAGED):
            read_arrays(tmp_path / "a", TYPES)


@pytest.mark.parametrize("types", [{"number": "<f8"}, {**TYPES, "more": "<u1"}, {**TYPES, "code": "<u4"}])
def test_array_file__of_other_arrays_is_damaged(types: dict[str, str], tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", TYPES, np.arange(2), np.arange(3), np.arange(1))
    with pytest.raises(FormatError, match=DAMAGED):
        read_arrays(tmp_path / "a", types)


@pytest.mark.parametrize(
    "change",
    [
        {"about": [1]},
        {"about": {"first": float("inf")}},
        {"arrays": [["code", "<u2", [2]], ["number", "<f8", []], ["flag", "|u1", []]]},
        {"arrays": [["number", "<f8", []], ["code", "<u2", [0, 1 << 70]], ["flag", "|u1", []]]},
        {"arrays": [["number", "<f8", []], ["code", "<u2", [-2]], ["flag", "|u1", []]]},
    ],
)
def test_array_file__with_a_head_that_makes_no_sense_is_damaged(change: dict[str, Any], tmp_path: Path) -> None:
    """Although its checksum is right."""
    write_arrays(tmp_path / "a", TYPES, np.arange(0), np.empty((0, 2)), np.arange(0))
    content = (tmp_path / "a").read_bytes()
    end = np.frombuffer(content[-32:], "<u8").copy()
    index, length = content[-32 - 5 * 8 : -32], int(end[1])
    assert read_arrays(tmp_path / "a", TYPES)[1].shape == (0, 2)
    head = json.dumps(json.loads(content[:length]) | change).encode()
    end[1] = len(head)
    end[3] = zlib.crc32(end[:3].tobytes(), zlib.crc32(head + index))
    (tmp_path / "a").write_bytes(head + index + end.tobytes())
    with pytest.raises(FormatError, match=DAMAGED):
        read_arrays(tmp_path / "a", TYPES)


def test_writing_arrays__leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), writing_arrays(tmp_path / "a", TYPES) as add:
        add(np.arange(2), np.arange(3), np.arange(1))
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with writing_arrays(tmp_path / "b", TYPES) as add:
        for _ in range(2):
            add(np.arange(2), np.arange(3), np.arange(1))
    with pytest.raises(FormatError, match=DAMAGED):  # of two blocks
        read_arrays(tmp_path / "b", TYPES)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC, errno.EIO])
def test_mapping__an_error_of_the_system_names_the_file_or_its_folder(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "a.bin"
    file.write_bytes(bytes(8))
    matrix = MatrixFile(file, 1, 1, "<u8")
    monkeypatch.setattr(np, "memmap", fail)
    monkeypatch.setattr(os, "truncate", fail)
    calls: list[tuple[Path, Callable[[], Any]]] = [
        (tmp_path, lambda: mapped_array(tmp_path, 1, "<u8")),
        (file, lambda: map_file(file, "<u8")),
        (file, matrix.mapped),
        (file, matrix.make),
    ]
    for path, call in calls:
        with pytest.raises(OSError) as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (number, str(path))
        assert caught.value.__notes__
