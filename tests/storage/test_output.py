"""Outputs appear whole or not at all, and overwriting replaces nothing that is not ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bigforest.errors import ConfigError, OutputExistsError
from bigforest.storage.atomic import OutputKind, TemporaryFolder, set_aside, staged, sync, sync_all, sync_names
from bigforest.storage.paths import copy_folder, files_in, write_atomically
from tests.unreadable import refuse_listing


def _write(out: Path, text: str, *, overwrite: bool = False) -> None:
    with staged(out, OutputKind("note", _is_note), overwrite=overwrite) as place:
        place.mkdir()
        (place / "note").write_text(text)


def _is_note(path: Path) -> bool:
    return (path / "note").is_file()


def test_staged__renames_when_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged(out, OutputKind("note", _is_note), overwrite=False) as place:
        place.write_text("whole")
        assert not out.exists()
    assert out.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_staged__leaves_nothing_when_the_block_fails(tmp_path: Path, error: type[BaseException]) -> None:
    with (
        pytest.raises(error),
        staged(tmp_path / "out", OutputKind("note", _is_note), overwrite=False) as place,
    ):
        place.mkdir()
        (place / "half").touch()
        raise error
    assert not list(tmp_path.iterdir())


def test_staged__keeps_the_old_output_when_the_block_fails(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _write(out, "old")
    with pytest.raises(ValueError), staged(out, OutputKind("note", _is_note), overwrite=True) as place:
        place.mkdir()
        raise ValueError
    assert (out / "note").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_staged__moves_the_old_output_back(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    _write(out, "old")
    _refuse_renaming(monkeypatch, out, error, times=1)
    with pytest.raises(BaseException) as caught:
        _write(out, "new", overwrite=True)
    assert type(caught.value) in (ConfigError, KeyboardInterrupt)
    assert (out / "note").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_staged__old_output_that_cannot_be_moved_back_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    _write(out, "old")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full") as caught:
        _refuse_renaming(patch, out, OSError(errno.ENOSPC, "full"), times=3)
        _write(out, "new", overwrite=True)
    [hidden] = tmp_path.iterdir()
    assert caught.value.__notes__ == [f"the old output is in {hidden / 'replaced'}; move it back"]
    assert (hidden / "replaced" / "note").read_text() == "old"
    with pytest.raises(OutputExistsError, match="already exists"):
        _write(out, "new")
    assert (out / "note").read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def _refuse_renaming(patch: pytest.MonkeyPatch, target: Path, error: BaseException, times: int) -> None:
    """Let the first renamings to `target` fail."""
    errors, rename = [error] * times, Path.rename

    def refuse(path: Path, to: Path) -> Path:
        if to == target and errors:
            raise errors.pop()
        return rename(path, to)

    patch.setattr(Path, "rename", refuse)


def test_staged__existing_output_is_refused_before_the_block(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _write(out, "old")
    with pytest.raises(OutputExistsError, match="already exists"):
        _write(out, "new")
    assert (out / "note").read_text() == "old"


def test_staged__overwrite_replaces_ours(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _write(out, "old")
    _write(out, "new", overwrite=True)
    assert (out / "note").read_text() == "new"
    assert list(tmp_path.iterdir()) == [out]


def test_staged__overwrite_refuses_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis").write_text("years of work")
    with pytest.raises(OutputExistsError, match="not a bigforest note"):
        _write(out, "new", overwrite=True)
    assert (out / "thesis").read_text() == "years of work"


def test_staged__output_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        pytest.raises(OutputExistsError, match="during the run"),
        staged(out, OutputKind("note", _is_note), overwrite=False) as place,
    ):
        place.write_text("ours")
        out.write_text("theirs")
    assert out.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [out]


def test_staged__missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere of the output out does not exist"):
        _write(tmp_path / "nowhere" / "out", "new")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.csv", "the name of another kind of file than a bigforest note; drop .csv"),
        ("out.parquet.gz", "the name of another kind of file than a bigforest note; drop .gz"),
        ("out.txt", "the name of another kind of file than a bigforest note; drop .txt"),
        ("out.Arrow", "drop .Arrow"),
        ("x" * 300, "cannot name a file: .*more than 255 bytes"),
        ("circle", "circle"),
        ("dangling", "the folder .*nowhere of the output dangling does not exist"),
    ],
)
def test_staged__names_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "out")
    with pytest.raises(ConfigError, match=message):
        _write(tmp_path / name, "new", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["circle", "dangling"]


def test_staged__overwrite_is_yes_or_no(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="overwrite must be True or False, not 'no'"):
        _write(tmp_path / "out", "new", overwrite="no")  # type: ignore[arg-type]


def test_staged__link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    _write(tmp_path / "real" / "out", "old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "out")
    _write(link, "new", overwrite=True)
    assert link.is_symlink()
    assert (tmp_path / "real" / "out" / "note").read_text() == "new"


def test_set_aside__folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "nothing" / "out"
    with pytest.raises(ConfigError, match=f"^cannot write to {out.parent}: No such file"), set_aside(out):
        pass


def test_sync__waits_for_the_disk_where_something_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: waited.append(os.fstat(handle).st_ino))
    (tmp_path / "kept" / "inner").mkdir(parents=True)
    (tmp_path / "kept" / "file").touch()
    sync(tmp_path / "kept" / "file")
    sync_names(tmp_path / "kept")
    assert waited == [(tmp_path / name).stat().st_ino for name in ("kept/file", "kept", "kept/inner")]
    with TemporaryFolder(tmp_path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").touch()
        sync(folder / "inner" / "file")
        sync_names(folder)
    assert len(waited) == 3
    folder.mkdir()  # another one of that name is none of this process's
    sync(folder)
    assert len(waited) == 4


def test_write_atomically__makes_no_folder_of_a_run_that_has_ended(tmp_path: Path) -> None:
    """As a worker does that was taken for dead and still works."""
    with pytest.raises(FileNotFoundError), write_atomically(tmp_path / "f.unfinished/forest/trees/part") as file:
        file.touch()
    assert not list(tmp_path.iterdir())
    with write_atomically(tmp_path / "trees" / "part") as file:
        file.touch()
    assert [path.name for path in (tmp_path / "trees").iterdir()] == ["part"]


def test_folder_that_cannot_be_listed__is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `glob` and `rglob` leave it out without a word."""
    inner = tmp_path / "forest" / "trees"
    inner.mkdir(parents=True)
    (inner / "part-0.parquet").touch()
    refuse_listing(inner, monkeypatch)
    calls: list[Callable[[], object]] = [
        lambda: files_in(inner, "part-*.parquet"),
        lambda: files_in(tmp_path / "forest", "**/*.parquet"),
        lambda: copy_folder(tmp_path / "forest", tmp_path / "copy"),
        lambda: sync_all(tmp_path / "forest"),
    ]
    for call in calls:
        with pytest.raises(PermissionError, match="trees"):
            call()
    assert files_in(tmp_path / "no folder", "*") == []


def test_files_in__circle_of_links_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").symlink_to(tmp_path / "part-0.parquet")
    (tmp_path / "part-1.parquet").touch()
    assert files_in(tmp_path, "part-*.parquet") == [tmp_path / "part-1.parquet"]
