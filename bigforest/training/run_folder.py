"""A run, and the folder of an unfinished run, from which the run can be resumed.

The forest `X` is made in the folder `X.unfinished` next to it:

    lock          empty file, locked by the process of the run
    state.json    a `RunState` and its checksum; replaced as a whole
    forest/       the growing forest; only complete files have their final names
    work/         table.store (the complete presorted table) and temporary/
    replaced/     the previous `X`, between the two renames of `RunFolder.finish`

With `scratch`, the content of work/ is in a folder `bigforest-run-X-MARK` of scratch. MARK is 16 random hexadecimal
digits, so that a run removes only its own files.

A run begins when forest/ is made, after state.json, and ends when forest/ is renamed to `X`. A folder without forest/
has nothing to resume: the process was killed while it made or removed the folder.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigforest.encode.arguments import ColumnArguments
from bigforest.errors import (
    BigForestError,
    BusyError,
    ClusterError,
    DiskFullError,
    FormatError,
    Note,
    OutputExistsError,
    StorageError,
    api,
    call,
)
from bigforest.forest.forest_files import FOREST
from bigforest.forest.leaf_votes import FOLDER as LEAVES
from bigforest.forest.run_file import Origin, Stop
from bigforest.options.train_config import TrainConfig
from bigforest.source.files import separated, separator_of
from bigforest.storage.atomic import (
    check_output,
    is_temporary,
    is_there,
    naming_refusal,
    no_room,
    remove,
    replace_output,
    sync,
    sync_names,
)
from bigforest.storage.locks import Lock, is_lease, take_lock
from bigforest.storage.paths import (
    UNFINISHED,
    absolute_path,
    as_path,
    is_remote,
    remove_half_made,
)
from bigforest.storage.regular_files import is_own_folder
from bigforest.storage.state_file import StateFormat
from bigforest.store.store import Store
from bigforest.version import __version__

STATE_FORMAT = StateFormat("bigforest-run", 4, f"start again with {api('overwrite')}, or remove its folder")
_LOCK = "lock"
_STATE = "state.json"
_REPLACED = "replaced"
_STORE = "table.store"
_TEMPORARY = "temporary"
_WORK_PREFIX = "bigforest-run-"


def versions() -> dict[str, str]:
    """Return the software versions on which a forest depends, in addition to data, configuration and seed."""
    return {"bigforest": __version__, "numpy": ".".join(np.__version__.split(".")[:2])}


@dataclass(frozen=True, slots=True)
class Run:
    """A forest to train: the table, and everything else that determines the forest.

    data         the table: a path or glob, a Store, or a table in memory. state.json stores its `location`.
    target       target column; None for the first of the usual names.
    exclude      columns to leave out.
    config       the configuration. `resolve` and `choose_options` complete it.
    fingerprint  `Store.fingerprint` of the table; None before the table is encoded. If it is set, `config` is complete.
    """

    data: Any
    target: str | None
    exclude: tuple[str, ...]
    config: TrainConfig
    fingerprint: str | None = None

    @classmethod
    def of(cls, arguments: ColumnArguments) -> Run:
        """Return the run of the arguments of `bigforest.train`. Raises ConfigError."""
        data, target, exclude, options = arguments
        return cls(data, target, exclude, TrainConfig.of(**options))

    @property
    def location(self) -> str | None:
        """Absolute path, or glob, of the table or store; None for a table in memory or a copy of standard input."""
        if isinstance(self.data, Store):
            return str(absolute_path(self.data.path))
        if not isinstance(self.data, str | Path):
            return None
        path = absolute_path(self.data)
        return None if is_temporary(path) else str(path)

    def origin(self, stop: Stop | None = None) -> Origin:
        """Return the record of the training table in the finished forest."""
        assert self.fingerprint is not None
        return Origin(self.location, self.exclude, self.fingerprint, stop=stop)

    def to_json(self) -> dict[str, Any]:
        """Return the run as the entry `run` of state.json. Inverse: `from_json`."""
        return {
            "data": self.location,
            "separator": separator_of(self.data),
            "target": self.target,
            "exclude": list(self.exclude),
            "config": asdict(self.config),
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Run:
        """Return the run of the entry `run` of state.json.

        Raises ValueError, TypeError, LookupError or ConfigError for a damaged entry.
        """
        config = TrainConfig.from_json(json.dumps(raw["config"]))
        raw, separator = {**raw}, raw.get("separator")
        raw.pop("separator", None)
        raw["data"] = separated(raw["data"], separator)
        run = cls(**{**raw, "config": config, "exclude": tuple(raw["exclude"])})
        texts = [text for text in (run.data, separator, run.target, run.fingerprint, *run.exclude) if text is not None]
        if not all(is_text(text) for text in texts):
            raise ValueError("an entry is of another type")
        return run


def is_text(value: Any) -> bool:
    """Return True for a text that may be part of a path: it has no zero byte."""
    return isinstance(value, str) and "\0" not in value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run and how far it has come: state.json.

    run          the run. Its `config` and `fingerprint` are completed when the options are chosen.
    scratches    absolute paths of the scratch folders that the run has used, the present one last.
    mark         random digits at the end of the names of the run's folders in scratch folders.
    replaces     the forest may replace an existing one.
    extends      number of trees that are taken from an existing forest; 0 for a new forest.
    trees        number of trees after which the out-of-bag error converged (stop_oob); None while unknown.
    versions     see `versions`.
    """

    run: Run
    scratches: tuple[str, ...]
    mark: str
    replaces: bool
    extends: int = 0
    trees: int | None = None
    versions: dict[str, str] = field(default_factory=versions)

    def write(self, path: Path) -> None:
        entries = {name: getattr(self, name) for name in self.__slots__ if name != "run"}
        STATE_FORMAT.write(path, {"run": self.run.to_json(), **entries})

    @classmethod
    def read(cls, path: Path) -> RunState:
        """Read state.json. Raises FormatError if the file is missing, damaged or of another version."""
        return STATE_FORMAT.read(path, cls._of)

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> RunState:
        state = cls(**{**raw, "run": Run.from_json(raw["run"]), "scratches": tuple(raw["scratches"])})
        texts = [*state.scratches, *state.versions, *state.versions.values()]
        numbers = [state.extends, *([] if state.trees is None else [state.trees])]
        if not (
            all(map(is_text, texts))
            and re.fullmatch("[0-9a-f]{16}", state.mark)  # a part of paths
            and all(type(number) is int and number >= 0 for number in numbers)
            and isinstance(state.replaces, bool)
        ):
            raise ValueError("an entry is of another type")
        return state


class RunFolder:
    """Folder of an unfinished run, locked by this process. A `with` block unlocks the folder at its end.

    out     output as the user wrote it.
    path    output with links followed.
    folder  `path`.unfinished.
    fresh   the run began in this process.
    """

    def __init__(self, out: Path, lock: Lock, state: RunState, *, fresh: bool) -> None:
        self.out = out
        self.path = out.resolve()
        self.folder = _unfinished_path(out)
        self.state = state
        self.fresh = fresh
        self._lock = lock

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def forest(self) -> Path:
        return self.folder / "forest"

    @property
    def works(self) -> list[Path]:
        """Folders for the store and temporary files, the one in use last."""
        name = f"{_WORK_PREFIX}{self.path.name}-{self.state.mark}"
        return [self.folder / "work", *(as_path(scratch) / name for scratch in self.state.scratches)]

    @property
    def work(self) -> Path:
        """The one of `works` that is in use."""
        return self.works[-1]

    @property
    def store(self) -> Path:
        """Path of the store in the folder that contains it. If no folder does, its path in the folder in use."""
        stores = [work / _STORE for work in self.works]
        return next((store for store in stores if store.exists()), stores[-1])

    @property
    def temporary(self) -> Path:
        """Folder for temporary files, emptied whenever a run begins or continues."""
        return self.work / _TEMPORARY

    def save(self, **changes: Any) -> None:
        """Replace entries of the state, in memory and, unless the folder is temporary, on disk."""
        self.state = replace(self.state, **changes)
        if not is_temporary(self.folder):  # no process can resume a run in a temporary folder
            self.state.write(self.folder / _STATE)
            sync(self.folder)

    def clean(self) -> None:
        """Remove half-written and temporary files of a killed process, and create the temporary folder.

        Raises FormatError for folders that a run did not make.
        """
        if not is_own_folder(self.forest):
            raise FormatError(f"{self.forest} was not made by a run; remove {self.folder}")
        remove_half_made(self.forest)
        for work in self.works:
            if is_there(work) and not is_own_folder(work):
                raise FormatError(f"{work} was not made by a run; remove {self.folder} and train again")
            remove(work / _TEMPORARY)
        self.temporary.mkdir(parents=True, exist_ok=True)

    def use_scratch(self, scratch: Path) -> None:
        """Put further temporary files into a folder in `scratch`. An existing store stays where it is."""
        if self.work.parent != scratch.resolve():
            self.save(scratches=(*self.state.scratches, str(scratch.resolve())))
            self.clean()

    def finish(self) -> None:
        """Rename the complete forest and remove everything else. Raises BusyError and OutputExistsError."""
        if not self._lock.held():
            raise BusyError(_busy(self.out))
        if not self.state.replaces and is_there(self.path):
            raise OutputExistsError(f"{self.out} was created by another process during the run; move it away")
        sync_names(self.forest)
        replace_output(self.forest, self.path, self.folder / _REPLACED)
        if not is_remote(self.path):
            # Lost workers may have written files before the rename. Later they cannot: the old path is gone.
            remove_leftovers(self.path)
        self.discard()

    def discard(self) -> None:
        """Remove the folder, and the folders of the run in scratch folders."""
        remove(self.forest)  # from here on there is nothing to resume
        for work in filter(is_own_folder, self.works[1:]):
            remove(work)
        _remove_rest(self.folder)


def remove_leftovers(forest: Path) -> None:
    """Remove files of lost workers, or of tasks that ran twice, from a forest."""
    remove_half_made(forest)
    remove(forest / LEAVES)


def begin(out: Path, run: Run, *, scratch: Path | None, overwrite: bool, extends: int = 0) -> RunFolder:
    """Begin a run for the output `out`.

    scratch    folder for the store and temporary files; None to put them into the folder of the run.
    overwrite  replace a forest or an unfinished run at `out`.
    extends    number of trees that are taken from the forest at `out`.

    Raises OutputExistsError if something exists at `out`, unless it is a forest or an unfinished run and `overwrite` is
    True; BusyError if another process works on `out`; ConfigError, FormatError and DiskFullError.
    """
    check_output(out, FOREST, overwrite=overwrite)
    old = _lock_folder(out)
    if old is not None:
        with contextlib.closing(old):
            _remove_earlier_run(out, old, overwrite=overwrite)
    folder = _unfinished_path(out)
    with naming_refusal(out.parent):
        try:
            folder.mkdir()
        except FileExistsError as error:  # by another process, just now
            raise BusyError(_busy(out)) from error
    lock = _lock_folder(out)
    if lock is None:
        raise BusyError(_busy(out))
    scratches = () if scratch is None else (str(scratch.resolve()),)
    mark = secrets.token_hex(8)
    state = RunState(run=run, scratches=scratches, mark=mark, replaces=overwrite, extends=extends)
    begun = RunFolder(out, lock, state, fresh=True)
    try:
        begun.save()
        begun.forest.mkdir()  # from here on the run can be resumed
        sync(folder)
        begun.clean()
    except BaseException as error:
        begun.discard()
        lock.close()
        if (full := no_room(error, folder.parent, begun.work.parent)) is not None:
            raise DiskFullError(f"{full} and start again") from error
        raise
    return begun


def reopen(out: Path) -> RunFolder | None:
    """Open the unfinished run for the output `out`. Return None if there is none.

    Raises BusyError, FormatError, and OutputExistsError if the folder has entries that no run makes.
    """
    lock = _lock_folder(out)
    if lock is None:
        return None
    try:
        if not is_unfinished(out):
            _remove_earlier_run(out, lock, overwrite=True)
            lock.close()
            return None
        run = RunFolder(out, lock, RunState.read(_unfinished_path(out) / _STATE), fresh=False)
        run.clean()
        return run
    except BaseException:
        lock.close()
        raise


def is_unfinished(out: Path) -> bool:
    """Return True if the output `out` has an unfinished run that can be resumed."""
    return (_unfinished_path(out) / "forest").is_dir()


def output_of(path: str | Path) -> Path:
    """Return the output of a run from the path of the output or of its unfinished folder."""
    path = as_path(path)
    return path.with_name(path.name.removesuffix(UNFINISHED)) if path.name != UNFINISHED else path


# Errors of bigforest whose cause may pass, so that the run can be resumed.
PASSING = (DiskFullError, ClusterError, StorageError)


@contextlib.contextmanager
def advising(advice: str, *folders: Path) -> Iterator[None]:
    """Add advice on continuing to errors that may not occur again. It replaces earlier advice.

    These errors are full disks, failures of a cluster or an object store, and exceptions of other libraries.

    folders  folders to which the block writes. An error of a full disk becomes a DiskFullError that names one of them.
    """
    try:
        yield
    except BaseException as error:
        advised = error
        if not isinstance(error, DiskFullError) and (full := no_room(error, *folders)) is not None:
            advised = DiskFullError(full)
        if isinstance(advised, PASSING) or not isinstance(advised, BigForestError):
            kept = [note for note in getattr(advised, "__notes__", []) if not isinstance(note, Note)]
            advised.__notes__ = [*kept, Note(advice)]
        if advised is error:
            raise
        raise advised from error


def resume_advice(out: Path) -> str:
    """Return the advice to resume an unfinished run, for messages."""
    return f"continue with {call('train', 'resume', str(out))}"


def _remove_earlier_run(out: Path, lock: Lock, *, overwrite: bool) -> None:
    """Remove the locked folder of an earlier run.

    Raises OutputExistsError for a run that can be resumed, unless `overwrite` is True, and for a folder with entries
    that no run makes.
    """
    folder = _unfinished_path(out)
    strange = sorted(entry.name for entry in folder.iterdir() if not _is_ours(entry))
    if strange:
        raise OutputExistsError(f"{folder} holds {strange[0]}, which is not of an unfinished run; move it away")
    if is_unfinished(out) and not overwrite:
        raise OutputExistsError(
            f"{folder} is an unfinished run: {resume_advice(out)}, or start again with {api('overwrite')}, which "
            "discards it"
        )
    aside, path = folder / _REPLACED, out.resolve()
    if aside.exists() and not is_there(path):  # killed between the two renames of `replace_output`
        aside.rename(path)
    try:
        RunFolder(out, lock, RunState.read(folder / _STATE), fresh=False).discard()
    except FormatError:  # without the state, the paths of temporary files are unknown
        _remove_rest(folder)


def _is_ours(entry: Path) -> bool:
    """Return True if the entry has a name that a run uses in its folder."""
    names = {_LOCK, _STATE, _REPLACED, "forest", "work"}
    return entry.name in names or entry.name.startswith(f".{_STATE}.") or is_lease(entry)


def _lock_folder(out: Path) -> Lock | None:
    """Lock the folder of a run. Return None if there is no folder. Raises BusyError and OutputExistsError."""
    folder = _unfinished_path(out)
    while folder.is_dir():
        try:
            if not (folder / _LOCK).exists() and any(folder.iterdir()):
                raise OutputExistsError(f"{folder} is not an unfinished run of bigforest; move it away")
            lock = take_lock(folder / _LOCK)
        except FileNotFoundError:  # another process removed the folder
            continue
        if lock is None:
            raise BusyError(_busy(out))
        if lock.held():
            return lock
        lock.close()
    return None


def _unfinished_path(out: Path) -> Path:
    """Return the path of the folder of a run, next to its output, with links of the output followed."""
    path = out.resolve()
    return path.parent / (path.name + UNFINISHED)


def _busy(out: Path) -> str:
    return f"another run is writing {out}; wait for it to end, or choose another output"


def _remove_rest(folder: Path) -> None:
    """Remove the folder of a run. Its state and its lock are removed last."""
    last = ["", _STATE, _LOCK]
    for entry in sorted(folder.iterdir(), key=lambda entry: last.index(entry.name) if entry.name in last else 0):
        remove(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    with contextlib.suppress(OSError):  # another process may look for a run here
        folder.rmdir()
