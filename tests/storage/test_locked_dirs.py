"""Folders of a living process: left alone while it lives, removed by the next one when it does not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigforest.storage.atomic import OutputKind, TemporaryFolder, staged
from bigforest.storage.locks import create_locked_dir, remove_stale_dirs, take_lock
from bigforest.storage.paths import ObjectCache

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no locks that end with a process")


def killed(code: str, *arguments: str | Path) -> None:
    """Run Python code in a process that kills itself."""
    kill = "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    found = subprocess.run([sys.executable, "-c", code + kill, *map(str, arguments)], cwd=ROOT, check=False)
    assert found.returncode == -signal.SIGKILL


HOLD = """
import sys
from pathlib import Path
from bigforest.storage.locks import create_locked_dir
held = create_locked_dir(Path(sys.argv[1]), ".x.")
(held.path / "deep").mkdir()
(held.path / "deep" / "file").write_text("half")
"""


def test_remove_stale_dirs__what_a_killed_process_held(tmp_path: Path) -> None:
    killed(HOLD, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    remove_stale_dirs(tmp_path, ".y.")
    assert len(list(tmp_path.iterdir())) == 1
    remove_stale_dirs(tmp_path, ".x.")
    assert not list(tmp_path.iterdir())


def test_remove_stale_dirs__leaves_what_a_living_process_holds(tmp_path: Path) -> None:
    own = create_locked_dir(tmp_path, ".x.")
    code = HOLD + "print(held.path, flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        path = Path(other.stdout.readline().strip())
        remove_stale_dirs(tmp_path, ".x.")
        assert (path / "deep" / "file").read_text() == "half"
        assert own.path.is_dir()
        other.kill()
    remove_stale_dirs(tmp_path, ".x.")
    assert list(tmp_path.iterdir()) == [own.path]


def test_remove_stale_dirs__leaves_what_is_not_certainly_ours(tmp_path: Path) -> None:
    """Other hosts' folders, links, files, and folders that only begin alike."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lock").touch()
    (outside / "precious").write_text("kept")
    place = tmp_path / "place"
    place.mkdir()
    own = create_locked_dir(place, ".x.")
    start = own.path.name[: -len("12345678")]
    (place / f"{start}aaaaaaaa").symlink_to(outside)
    (place / f"{start}bbbbbbbb").write_text("a file")
    (place / f"{start}cccccccc.forest").mkdir()
    (place / f".x.{'0' * 8}-dddddddd").mkdir()
    (place / f"{start}eeeeeeee").mkdir()  # no lock, and not empty
    (place / f"{start}eeeeeeee" / "file").touch()
    (place / f"{start}ffffffff").mkdir()  # the lock leads elsewhere
    (place / f"{start}ffffffff" / "lock").symlink_to(outside / "lock")
    before = sorted(place.rglob("*"))
    remove_stale_dirs(place, ".x.")
    assert sorted(place.rglob("*")) == before
    assert (outside / "precious").read_text() == "kept"


def test_remove_stale_dirs__does_not_follow_links_inside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("kept")
    place = tmp_path / "place"
    place.mkdir()
    killed(HOLD + "(held.path / 'link').symlink_to(sys.argv[2])", place, tmp_path / "outside")
    remove_stale_dirs(place, ".x.")
    assert not list(place.iterdir())
    assert (tmp_path / "outside" / "precious").read_text() == "kept"


def test_remove_stale_dirs__never_takes_the_folder_of_a_process_that_is_just_making_it(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from bigforest.storage.locks import create_locked_dir, remove_stale_dirs
for _ in range(300):
    remove_stale_dirs(Path(sys.argv[1]), ".x.")
    held = create_locked_dir(Path(sys.argv[1]), ".x.")
    (held.path / "file").touch()
    assert held.lock.held()
    held.remove()
"""
    several = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT) for _ in range(3)]
    assert [process.wait() for process in several] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "lock", "file"])
def test_remove__goes_on_after_a_look_that_fails(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held, failed, look = create_locked_dir(tmp_path, ".x."), [], os.stat
    (held.path / "file").touch()

    def stat(path: Any, **options: Any) -> os.stat_result:
        if path == held.path / name and not failed:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    held.remove()
    assert failed
    assert not list(tmp_path.iterdir())


def test_temporary_folder__removes_those_of_killed_processes(tmp_path: Path) -> None:
    killed(
        "import sys; from pathlib import Path; from bigforest.storage.atomic import TemporaryFolder\n"
        "kept = TemporaryFolder(Path(sys.argv[1])); (kept.path / 'big').write_text('x')",
        tmp_path,
    )
    assert len(list(tmp_path.glob("bigforest-*/big"))) == 1
    with TemporaryFolder(tmp_path) as here:
        assert list(tmp_path.iterdir()) == [here]
        with TemporaryFolder(tmp_path) as second:
            assert sorted(tmp_path.iterdir()) == sorted([here, second])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_folders__stay_when_a_forked_process_ends(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; from pathlib import Path; from bigforest.storage.atomic import TemporaryFolder\n"
            "from bigforest.storage.paths import ObjectCache\n"
            "kept = TemporaryFolder(Path(sys.argv[1])); copies = ObjectCache()\n"
            "if os.fork() == 0: sys.exit()\n"
            "os.wait(); print(kept.path.exists(), copies.folder.exists())",
            tmp_path,
        ],
        cwd=ROOT,
        env=os.environ | {"BIGFOREST_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == "True True\n"
    assert not list(tmp_path.iterdir())


def test_copies__of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGFOREST_CACHE", str(tmp_path))
    killed("from bigforest.storage.paths import ObjectCache\nc = ObjectCache(); (c.folder / 'file-1').write_text('x')")
    assert len(list(tmp_path.glob("bigforest-copies-*/file-1"))) == 1
    living = ObjectCache()
    ObjectCache()
    assert living.folder.exists()
    assert not list(tmp_path.glob("bigforest-copies-*/file-1"))


def note(path: Path) -> bool:
    return path.is_file()


@pytest.mark.parametrize("name", ["out", "replaced", "new", "lock"])
def test_staged__any_name_may_be_replaced(tmp_path: Path, name: str) -> None:
    for text in ("old", "new"):
        with staged(tmp_path / name, OutputKind("note", note), overwrite=True) as place:
            place.write_text(text)
    assert (tmp_path / name).read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == [name]


STAGED = """
import os, sys
from pathlib import Path
from bigforest.storage.atomic import OutputKind, staged
renames = 0
def rename(*paths, original=os.rename):
    global renames
    renames += 1
    if renames == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    original(*paths)
os.rename = rename
with staged(Path(sys.argv[1]), OutputKind("note", Path.is_file), overwrite=True) as place:
    place.write_text("new")
"""


@pytest.mark.parametrize(("rename", "text"), [(1, "old"), (2, "old"), (3, "new")])
def test_staged__killed_while_it_replaces(tmp_path: Path, rename: int, text: str) -> None:
    """What was there is put back where there was a moment of nothing, and nothing else is left, by the next run."""
    out = tmp_path / "out"
    out.write_text("old")
    killed(STAGED + "\nos.kill(os.getpid(), 9)", out, rename)
    with pytest.raises(Exception, match="already exists"), staged(out, OutputKind("note", note), overwrite=False):
        pass
    assert out.read_text() == text
    assert list(tmp_path.iterdir()) == [out]


def test_take_lock__names_the_file_on_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="locks") as caught:
        take_lock(tmp_path / "lock")
    assert caught.value.filename == str(tmp_path / "lock")
    assert caught.value.__notes__ == ["choose a folder on a disk that has locks (flock)"]
    with TemporaryFolder(tmp_path) as folder:  # without a lock
        assert folder.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
