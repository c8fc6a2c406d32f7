"""Bytes that flip, disks that are full, two runs for one output: nothing is lost, nothing wrong. Runs that are killed
are in tests/failing_calls/.

"Equal" is equality of all files of a forest byte by byte, but for run.parquet, which holds timings.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import bigforest
from bigforest.events import Event, StageAdvanced
from tests.thorough import cases
from tests.training.test_run import files

TREES = 12


def frame(rows: int = 700) -> pl.DataFrame:
    draw = np.random.default_rng(5)
    columns = {f"x{index}": draw.normal(size=rows) for index in range(4)}
    return pl.DataFrame(columns).with_columns(y=(pl.col("x0") + pl.col("x1") > draw.normal(size=rows)).cast(pl.Int8))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with table.parquet and the forests of 12 and of 5 trees that undisturbed runs make of it."""
    folder = tmp_path_factory.mktemp("original")
    frame().write_parquet(folder / "table.parquet")
    bigforest.train(folder / "table.parquet", out=folder / "12.forest", trees=TREES)
    bigforest.train(folder / "table.parquet", out=folder / "5.forest", trees=5)
    return folder


def start(original: Path, out: Path, **options: Any) -> dict[str, Any]:
    return {"data": str(original / "table.parquet"), "out": str(out), "trees": TREES, "threads": 2, **options}


def assert_equal(original: Path, out: Path) -> None:
    """The forest is there, equal, and alone in its folder."""
    assert files(out) == files(original / "12.forest")
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def answers(*orders: dict[str, Any]) -> list[str]:
    """Train at the same time; return the error of each in words, "" where there was none."""

    def answer(order: dict[str, Any]) -> str:
        try:
            bigforest.train(**order)
        except bigforest.BigForestError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    with ThreadPoolExecutor(len(orders)) as pool:
        return sorted(pool.map(answer, orders))


def test_two_runs__into_one_output(original: Path, tmp_path: Path) -> None:
    for attempt in range(2):
        out = tmp_path / str(attempt) / "f"
        out.parent.mkdir()
        first, second = answers(*[start(original, out)] * 2)
        assert first == ""
        assert second.startswith(("BusyError: another run is writing", "OutputExistsError"))
        assert_equal(original, out)


def test_two_runs__of_which_one_resumes(original: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    interrupted(original, out)
    found = answers({"resume": out}, {"resume": out}, start(original, out, overwrite=True))
    assert found[0] == ""
    assert all(error == "" or error.startswith(("BusyError", "OutputExists")) for error in found)
    assert_equal(original, out)


def interrupted(original: Path, out: Path, stage: str = "grow", **options: Any) -> Path:
    """The folder of a run that was interrupted after some trees, or in another stage."""

    def interrupt(event: Event) -> None:
        if isinstance(event, StageAdvanced) and event.stage == stage and event.done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bigforest.train(**start(original, out, **options), listener=interrupt)
    return out.with_name(out.name + ".unfinished")


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


REPORTED = {
    "work/table.store/codes-u16.bin": "block 0: the checksum differs",
    "work/table.store/low.bin": "checksum differs",
    "work/table.store/target.bin": "checksum differs",
    "work/table.store/checksums.bin": "checksum",
    "work/table.store/manifest.json": "manifest|not a store|not the store",
    "state.json": "state.json is damaged",
    "forest/trees/part-0000000.parquet": r"part-0000000\.parquet",
}


def test_flipped_byte__is_reported(original: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    folder = interrupted(original, out)
    for file, message in REPORTED.items():
        path = folder / file
        content = path.read_bytes()
        for position in np.random.default_rng(1).integers(0, len(content) - 1, 12):
            flip(path, int(position))
            with pytest.raises(bigforest.BigForestError, match=message):
                bigforest.train(resume=out)
            assert folder.exists()
            path.write_bytes(content)
    bigforest.train(resume=out)
    assert files(out) == files(original / "12.forest")


def test_flipped_byte__the_way_out_of_a_damaged_part_and_store(original: Path, tmp_path: Path) -> None:
    out = tmp_path / "f"
    folder = interrupted(original, out)
    flip(folder / "forest/trees/part-0000003.parquet", 200)
    flip(folder / "work/table.store/low.bin", 9)
    with pytest.raises(bigforest.FormatError, match="remove the folder"):
        bigforest.train(resume=out)
    shutil.rmtree(folder / "work/table.store")
    with pytest.raises(bigforest.FormatError, match="remove this file"):
        bigforest.train(resume=out)
    (folder / "forest/trees/part-0000003.parquet").unlink()
    bigforest.train(resume=out)
    assert files(out) == files(original / "12.forest")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of `size` in memory, mounted at `folder`."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("full", ["scratch", "out"])
@pytest.mark.parametrize("size", cases(["24k", "36k"], quick=1))
def test_full_disk__names_the_folder_and_can_go_on(original: Path, tmp_path: Path, full: str, size: str) -> None:
    with small_disk(tmp_path / "small", size) as small:
        other = tmp_path / "other"
        other.mkdir()
        out, scratch = (small / "f", other) if full == "out" else (other / "f", small)
        with pytest.raises(bigforest.DiskFullError, match=str(small)) as caught:
            bigforest.train(**start(original, out, scratch=str(scratch)))
        assert str(caught.value).endswith("free some space")
        assert caught.value.__notes__ == [f"continue with train(resume='{out}')"]
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        bigforest.train(resume=out)
        assert files(out) == files(original / "12.forest")
        assert not list(scratch.iterdir()) or full == "out"
