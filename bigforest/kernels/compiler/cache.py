"""Cache of compiled kernels between processes: a file for each kernel and signature, which is right or not read.

A file's name and checksum are of its key: sources, versions, settings, processor and signature. So a file that is
damaged, of another kernel, of other sources or of another machine is never loaded and only costs a compilation. Files
are written next to their place and renamed. A process that finds a kernel missing locks it, so that others wait for its
file. A file has the machine code, and of LLVM's only the names in it: reading the rest would take most of the time of
loading, and nothing is linked to a kernel.

A wheel may contain kernels in `shipped`, for levels of processors (levels.py). They are read like those of the cache,
for the best level of the processor, and never written.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba.core import caching, compiler, config, entrypoints, registry, serialize, types
from numba.misc.appdirs import AppDirs

from bigforest.kernels.compiler.levels import levels_of_host

try:
    import fcntl
except ImportError:  # not POSIX: processes that start together compile side by side
    fcntl = None  # type: ignore[assignment]

SOURCES = Path(__file__).resolve().parents[1]
SHIPPED = SOURCES / "shipped"
# A module or a folder of kernels named in an import. A match in a comment does no harm.
_NAMES = re.compile(rb"\bbigforest\.kernels\.(\w+(?:\.\w+)*)")
# Settings of Numba that change machine code, besides those of the processor, which are in the key anyway.
_SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "BOUNDSCHECK", "DEBUGINFO_DEFAULT"),
    *("LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "ENABLE_AVX"),
)
# Files of kernels and notes that this process has read or written.
used: set[Path] = set()
# Seconds to wait for another process that compiles the same kernel, and between two checks.
PATIENCE = 300.0
_BETWEEN_LOOKS = 0.05
_CHECKSUM = hashlib.sha256().digest_size


@cache
def stamp_of(source: Path, root: Path = SOURCES) -> str:
    """Return a stamp of all that decides machine code besides a kernel's signature and the processor; `root` has the
    kernels.

    A kernel is stamped with its own file and all files that it imports, directly or not: an edit recompiles what it
    may change and nothing else. Numba's own cache checks the kernel's file and Numba's version only.
    """
    found, waiting = {source}, [source]
    while waiting:
        new = _imports(waiting.pop(), root) - found
        found |= new
        waiting.extend(new)
    return digest_of(found)


def digest_of(files: Iterable[Path]) -> str:
    """Return a digest of the files, and of all else that decides machine code."""
    named = sorted(f"{path.parent.name}/{path.name} {_digest(_content(path))}" for path in files)
    return hashlib.sha256(repr((_surroundings(), named)).encode()).hexdigest()


@cache
def _digest(content: bytes) -> str:
    """Return the digest of a file's content, which is part of the stamps of many kernels."""
    return hashlib.sha256(content).hexdigest()


@cache
def _content(path: Path) -> bytes:
    """Return a file as this process first read it. If an update changes it later, the imported functions are still the
    old ones, and their machine code must not be stored as that of the new file."""
    return path.read_bytes()


@cache
def _imports(source: Path, root: Path) -> set[Path]:
    """Return the files below `root` that a file names, or all files of a folder that it names."""
    found = set()
    for name in set(_NAMES.findall(_content(source))):
        place = root.joinpath(*name.decode().split("."))
        file = place.with_suffix(".py")
        found |= {file} if file.is_file() else set(place.rglob("*.py"))
    return found


def _surroundings() -> tuple[Any, ...]:
    versions = (sys.version, numba.__version__, llvmlite.__version__, llvmlite.binding.llvm_version_info)
    settings = {name: repr(getattr(config, name, None)) for name in _SETTINGS}
    return *versions, np.__version__, sorted(settings.items())


@cache
def folders() -> tuple[Path, ...]:
    """Return the folders of kernels: NUMBA_CACHE_DIR alone if it is usable; the first is written to.

    The folder next to the package is read even if it is not writable. It is not in the package: pip removes a package
    without the files added to it, and Python would import what is left in place of an editable installation.
    """
    own = f"bigforest-{hashlib.sha256(repr(_surroundings()).encode()).hexdigest()[:16]}"
    if config.CACHE_DIR and _is_writable(given := Path(config.CACHE_DIR) / own):
        return (given,)
    beside = SOURCES.parents[1] / "__pycache__" / own
    users = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir) / own
    return (beside, users) if _is_writable(beside) or not _is_writable(users) else (users, beside)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class KernelCache(caching._Cache):  # type: ignore[misc]
    """The files of a function's kernels; Numba calls it before and after compiling."""

    def __init__(self, function: Callable[..., Any]) -> None:
        source = Path(function.__code__.co_filename)
        own = ""
        if source.is_file() and not source.is_relative_to(SOURCES):  # a kernel of the tests, say
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
            own = hashlib.sha256(serialize.dumps((function.__code__.co_firstlineno, closure))).hexdigest()
        stamp = stamp_of(source, SOURCES) if source.is_file() else repr(_surroundings())
        self._key = (stamp, own, function.__module__, function.__qualname__)
        self._name = f"{source.stem}.{function.__name__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """See _Cache."""
        return str(folders()[0])

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the machine code for the signature, or None.

        Numba's own cache first registers all that it can compile, a fifth of the time of a short run, and a dispatcher
        the extensions of Numba that are installed: only compiling needs these.
        """
        found = None if _of_process(signature) else self._found(signature, target_context)
        if found is None:
            entrypoints.init_all()
        return found

    def _found(self, signature: Any, target_context: Any) -> Any:
        for path, key in self._places(signature, target_context.codegen()):
            with contextlib.suppress(Exception):  # any fault of a file only costs a compilation
                content = path.read_bytes()
                if content[:_CHECKSUM] != _checksum(key, content[_CHECKSUM:]):
                    continue
                parts = pickle.loads(content[_CHECKSUM:])
                found = compiler.CompileResult._rebuild(target_context, *parts)
                if tuple(found.signature.args) == tuple(signature):
                    found.library._get_module_for_linking = _refuse
                    used.add(path)
                    return found
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep the machine code, if the disk can be written."""
        if compiled.library.has_dynamic_globals or _of_process(signature):  # addresses of this process
            return
        place, key = next(self._places(signature, compiled.codegen))
        temporary = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
        with contextlib.suppress(Exception):  # a full disk only costs other processes a compilation
            content = _content_of(compiled)
            try:
                temporary.write_bytes(_checksum(key, content) + content)
                temporary.replace(place)
                used.add(place)
            finally:
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def turn(self, signature: Any, target_context: Any, patience: float = PATIENCE) -> Iterator[None]:
        """Wait while another process compiles for the signature, at most `patience` seconds.

        Other processes wait for this one until the block ends. Where files cannot be locked, no process waits.
        """
        if _of_process(signature):
            yield
            return
        places = [path for path, _ in self._places(signature, target_context.codegen())]
        lock = None
        if not any(place.exists() for place in places):
            lock = locked(places[0].with_suffix(".lock"), places[0].exists, patience)
        try:
            yield
        finally:
            if lock is not None:
                with contextlib.suppress(OSError):
                    Path(lock.name).unlink(missing_ok=True)
                    if fcntl is not None:
                        fcntl.flock(lock, fcntl.LOCK_UN)  # a forked process may have the file open, too
                lock.close()

    def _places(self, signature: Any, codegen: Any) -> Iterator[tuple[Path, str]]:
        """Files that may have the kernel, and the key of each; what is compiled is written to the first."""
        for folder, machine in _machines(codegen.magic_tuple()):
            parts = (self._key, signature, *map(_fields, signature), machine)
            key = hashlib.sha256(repr(parts).encode()).hexdigest()
            yield folder / f"{self._name}-{key[:24]}.nbc", key

    def enable(self) -> None:
        """See _Cache."""

    def disable(self) -> None:
        """See _Cache."""

    def flush(self) -> None:
        """See _Cache."""


def _content_of(compiled: Any) -> bytes:
    """Return the content of a file for a compiled kernel, with the names alone of what LLVM has compiled."""
    module = compiled.library._final_module
    lines = [f'target triple = "{module.triple}"', f'target datalayout = "{module.data_layout}"']
    lines += [f'define void @"{one.name}"() {{ ret void }}' for one in module.functions if not one.is_declaration]
    lines += [f'@"{one.name}" = global i64 0' for one in module.global_variables if not one.is_declaration]
    compiled.library._shared_module = llvmlite.binding.parse_assembly("\n".join(lines))
    # The annotation is a listing of the code, with places of sources on this machine.
    return bytes(serialize.dumps(compiled._replace(type_annotation="")._reduce()))


def _refuse() -> NoReturn:
    raise AssertionError("a kernel was read without the code that another function could call: call it from Python")


def _of_process(signature: Any) -> bool:
    """Return whether a kernel is handed a compiled function, such as a criterion from outside: its type is an
    address."""
    return any(isinstance(argument, types.Dispatcher) for argument in signature)


def _fields(given: Any) -> Any:
    """Return the names of the fields of a named tuple and of those in it, which its type does not show."""
    return getattr(given, "fields", ()), [_fields(one) for one in getattr(given, "types", ())]


def _machines(own: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Folders that may have kernels for the processor `own`, and what those in them were compiled for."""
    for folder in folders():
        yield folder, own
    for level in levels_of_host():
        yield SHIPPED, (own[0], level, "")


def is_noted(kind: str) -> bool:
    """Return whether the kernels of this kind, a name that the caller chooses, have been compiled for this machine."""
    if config.DISABLE_JIT:
        return True
    found = next(filter(Path.exists, _notes(kind)), None)
    if found is not None:
        used.add(found)
    return found is not None


def note(kind: str) -> None:
    """Note that the kernels of this kind have been compiled, if the disk can be written."""
    if config.DISABLE_JIT:
        return
    found = next(filter(Path.exists, _notes(kind)), None)
    with contextlib.suppress(OSError):
        if found is None:
            found = next(_notes(kind))
            found.touch()
        used.add(found)


def _notes(kind: str) -> Iterator[Path]:
    for folder, machine in _machines(registry.cpu_target.target_context.codegen().magic_tuple()):
        yield folder / f"{kind}-{hashlib.sha256(repr((_all_sources(), machine)).encode()).hexdigest()[:24]}.done"


@cache
def _all_sources() -> str:
    return digest_of(SOURCES.rglob("*.py"))


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def locked(path: Path, ready: Callable[[], bool], patience: float) -> IO[bytes] | None:
    """Return the file `path`, locked; None when `ready`, when patience has ended, or where files cannot be locked."""
    try:
        file = path.open("ab")
    except OSError:
        return None
    deadline = time.monotonic() + patience
    while not ready() and time.monotonic() < deadline:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            time.sleep(_BETWEEN_LOOKS)
        except OSError:
            break
    file.close()
    return None
