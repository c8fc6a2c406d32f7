"""Standard input, output and error that are closed, full or end early, and Ctrl-C before a command has begun."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

import bigforest
from bigforest.storage.atomic import TemporaryFolder
from cli.start import start
from tests.commands import Run, contents, exit_code, folder, run
from tests.streams import Streams

__all__ = ["folder", "run"]  # fixtures


class Interrupted(ModuleType):
    """A module during whose import Ctrl-C comes."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_start__ctrl_c_while_commands_are_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cli.app", Interrupted("cli.app"))
    with pytest.raises(SystemExit) as end:
        start()
    assert end.value.code == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")


def test_start__in_a_folder_that_was_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr("sys.argv", ["bigforest", "oob", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        start()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: the current folder cannot be found (No such file or directory);")


@pytest.mark.parametrize("closed", ["stdout", "stderr", "stdin"])
def test_main__without_a_stream(folder: Path, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    assert exit_code(monkeypatch, "train", "things.parquet", "--trees", "2", **{closed: None}) == 0
    assert Path("things.forest").is_dir()


def test_stdin__closed(folder: Path, run: Run, streams: Streams) -> None:
    streams(stdin=None)
    assert run("train", "-").code == 2
    assert "standard input is closed; give a file" in run.err


WRONG_INPUT = {
    b"": "the file is empty; check that it was written to the end",
    gzip.compress(b"x,y\n"): "the file is compressed; unpack it, or give it as a file with a name such as table.csv.gz",
}


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("content", WRONG_INPUT, ids=["empty", "compressed"])
def test_stdin__what_is_wrong_with_it(folder: Path, run: Run, streams: Streams, json: bool, content: bytes) -> None:
    before = contents(folder)
    streams(stdin=io.TextIOWrapper(io.BytesIO(content)))
    run("train", "-", *(["--json"] if json else []))
    assert (run.code, run.err) == (2, f"error: standard input: {WRONG_INPUT[content]}\n")
    assert contents(folder) == before


@pytest.mark.parametrize("json", [False, True])
def test_stdin__on_a_full_disk(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, streams: Streams, json: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    streams(stdin=io.TextIOWrapper(io.BytesIO(b"a,target\n")))
    monkeypatch.setattr(shutil, "copyfileobj", full)
    before = contents(folder)
    run("train", "-", *(["--json"] if json else []))
    assert run.code == 2
    assert run.err.startswith("error: no space left on the disk of ")
    assert (run.err.count("\n"), run.out.count("\n")) == (1, int(json))
    assert contents(folder) == before


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks that end with their process")
def test_stdin__copy_of_a_killed_process_is_removed_by_the_next(folder: Path) -> None:
    place = folder / "temporary"
    place.mkdir()
    command = [sys.executable, "-m", "bigforest", "train", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, cwd=folder, env={**os.environ, "TMPDIR": str(place)}
    ) as first:
        assert first.stdin is not None
        first.stdin.write(b"a,target\n")
        first.stdin.flush()
        while not list(place.glob("*/stdin.csv")):
            assert first.poll() is None
            time.sleep(0.01)
        first.kill()
    with TemporaryFolder(place):
        assert len(list(place.iterdir())) == 1


def test_stdin__ctrl_c_while_it_is_read(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, streams: Streams
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    streams(stdin=io.TextIOWrapper(io.BytesIO(b"a,target\n")))
    monkeypatch.setattr(shutil, "copyfileobj", interrupt)
    before = contents(folder)
    assert (run("train", "-").code, run.err) == (130, "error: interrupted\n")
    assert contents(folder) == before


def test_stdout__of_another_encoding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"☃": list(range(20)), "é": [0] * 20, "y": ["a", "b"] * 10}
    bigforest.train(table, "y", trees=2, out=folder / "f.forest")
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, "latin-1"))
    monkeypatch.setattr("sys.argv", ["bigforest", "explain", str(folder / "f.forest"), "--importance"])
    with pytest.raises(SystemExit) as end:
        start()
    sys.stdout.flush()
    assert end.value.code in (0, None) and "\\u2603" in raw.getvalue().decode("latin-1")


def test_stdout__takes_no_folder(folder: Path, run: Run) -> None:
    before = contents(folder)
    for words in ("train things.parquet", "encode things.parquet", "simulate shapes --rows 5"):
        assert run(*words.split(), "--out", "-").code == 2
        assert "only predictions go to standard output; name a file or a folder" in run.err
        assert contents(folder) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "train --help", "plan things.parquet --json", "plan things.parquet"])
def test_stdout__full(folder: Path, words: str, unbuffered: str) -> None:
    command = [sys.executable, "-m", "bigforest", *words.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, check=False
        )
    assert (ended.returncode, ended.stderr) == (2, "error: No space left on device: standard output\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_stderr__full_does_not_change_the_exit_code_of_a_process(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "bigforest", "oob", "--nothing"]
        assert subprocess.run(command, stderr=full, cwd=folder, check=False).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("oob missing.forest", 2),  # an error
        ("oob --nothing", 2),  # the usage
        ("validate things.forest things.parquet --out curve.parquet --json", 0),  # a notice
        ("validate things.forest things.parquet --out curve.parquet", 0),
    ],
)
def test_stderr__full_does_not_change_the_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, grown: Path, words: str, code: int
) -> None:
    shutil.copytree(grown, "things.forest")
    with Path("/dev/full").open("w") as full:
        assert exit_code(monkeypatch, *words.split(), stderr=full) == code
    assert (folder / "curve.parquet").exists() == (code == 0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of address space")
@pytest.mark.parametrize("limit", [1_500_000, 100_000])  # with the second, not even numpy can be imported
def test_limited_address_space__is_an_error_before_libraries_abort(folder: Path, limit: int) -> None:
    program = f'{sys.executable} -c "from bigforest_cli.start import start; start()"'
    command = f"ulimit -v {limit} && exec {program} train things.parquet"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=folder, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(
        r"error: the address space of processes is limited to [\d.]+ GB \(ulimit -v\).*\n", ended.stderr
    )


def test_predictions__to_a_closed_stdout(folder: Path, run: Run, grown: Path, streams: Streams) -> None:
    streams(stdout=None)
    assert run("predict", grown, "things.parquet", "--out", "-").code == 2
    assert "standard output is closed; give a file" in run.err
