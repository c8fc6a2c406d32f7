"""Cache of compiled kernels between processes: a file for each kernel and signature. A wrong file is never loaded.

The name and the checksum of a file depend on its key: sources, versions, settings, processor and signature. So a file
that is damaged, of another kernel, of other sources or of another machine only costs a compilation. Files are written
under a temporary name and renamed. A process that finds a kernel missing locks it, so that other processes wait for its
file. A file has the machine code, and only the names of the LLVM code: a loaded kernel is never linked into another
function, and reading the LLVM code would take most of the time of loading.

A wheel may contain kernels in `shipped`, for levels of processors (`LEVELS`). They are read if the cache has no valid
file, the best level of the processor first, and never written.
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

try:
    import fcntl
except ImportError:  # not POSIX: processes that start together compile side by side
    fcntl = None  # type: ignore[assignment]

SOURCES = Path(__file__).resolve().parents[1]
SHIPPED = SOURCES / "shipped"
# A module or a folder of kernels named in an import. A match in a comment does no harm.
_NAMES = re.compile(rb"\bbigforest\.kernels\.(\w+(?:\.\w+)*)")
# Settings of Numba that change machine code. Those of the processor are in the key of a file anyway.
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
    """Return a stamp of everything that determines machine code except the signature and the processor.

    The stamp covers the file of the kernel and all files that it imports from `root`, the folder of the kernels,
    directly or not. So an edit recompiles only the kernels that it may change. Numba's cache checks only the kernel's
    file and Numba's version.
    """
    files, waiting = {source}, [source]
    while waiting:
        new = _imports(waiting.pop(), root) - files
        files |= new
        waiting.extend(new)
    return digest_of(files)


def digest_of(files: Iterable[Path]) -> str:
    """Return a digest of the files, of versions and of settings."""
    named = sorted(f"{path.parent.name}/{path.name} {_digest(_content(path))}" for path in files)
    return hashlib.sha256(repr((_surroundings(), named)).encode()).hexdigest()


@cache
def _digest(content: bytes) -> str:
    """Return the digest of a file's content, which is part of the stamps of many kernels."""
    return hashlib.sha256(content).hexdigest()


@cache
def _content(path: Path) -> bytes:
    """Return the content of a file as this process first read it. If an update changes the file later, the imported
    functions are still the old ones, and their machine code must not be stored under the new content."""
    return path.read_bytes()


@cache
def _imports(source: Path, root: Path) -> set[Path]:
    """Return the files below `root` that a file names, or all files of a folder that it names."""
    files = set()
    for name in set(_NAMES.findall(_content(source))):
        path = root.joinpath(*name.decode().split("."))
        file = path.with_suffix(".py")
        files |= {file} if file.is_file() else set(path.rglob("*.py"))
    return files


def _surroundings() -> tuple[Any, ...]:
    versions = (sys.version, numba.__version__, llvmlite.__version__, llvmlite.binding.llvm_version_info)
    settings = {name: repr(getattr(config, name, None)) for name in _SETTINGS}
    return *versions, np.__version__, sorted(settings.items())


@cache
def folders() -> tuple[Path, ...]:
    """Return the folders of cached kernels. New kernels go to the first. With NUMBA_CACHE_DIR, if it is writable, there
    is only one.

    The folder next to the package is read even if it is not writable. It is outside the package because pip leaves
    added files behind when it removes a package, and Python would import this remnant instead of an editable
    installation.
    """
    name = f"bigforest-{hashlib.sha256(repr(_surroundings()).encode()).hexdigest()[:16]}"
    if config.CACHE_DIR and _is_writable(chosen := Path(config.CACHE_DIR) / name):
        return (chosen,)
    beside = SOURCES.parents[1] / "__pycache__" / name
    users = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir) / name
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
        closure_digest = ""
        if source.is_file() and not source.is_relative_to(SOURCES):  # for example a kernel of the tests
            closure = [cell.cell_contents for cell in function.__closure__ or ()]
            closure_digest = hashlib.sha256(serialize.dumps((function.__code__.co_firstlineno, closure))).hexdigest()
        stamp = stamp_of(source, SOURCES) if source.is_file() else repr(_surroundings())
        self._key = (stamp, closure_digest, function.__module__, function.__qualname__)
        self._name = f"{source.stem}.{function.__name__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """See _Cache."""
        return str(folders()[0])

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the machine code for the signature, or None.

        Numba would first register its extensions and everything that it can compile, a fifth of the time of a short
        run. Only compiling needs them.
        """
        compiled = None if _of_process(signature) else self._load(signature, target_context)
        if compiled is None:
            entrypoints.init_all()
        return compiled

    def _load(self, signature: Any, target_context: Any) -> Any:
        for path, key in self._paths(signature, target_context.codegen()):
            with contextlib.suppress(Exception):  # any fault of a file only costs a compilation
                content = path.read_bytes()
                if content[:_CHECKSUM] != _checksum(key, content[_CHECKSUM:]):
                    continue
                parts = pickle.loads(content[_CHECKSUM:])
                compiled = compiler.CompileResult._rebuild(target_context, *parts)
                if tuple(compiled.signature.args) == tuple(signature):
                    compiled.library._get_module_for_linking = _refuse
                    used.add(path)
                    return compiled
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write the machine code to a file, if the disk can be written."""
        if compiled.library.has_dynamic_globals or _of_process(signature):  # addresses of this process
            return
        path, key = next(self._paths(signature, compiled.codegen))
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with contextlib.suppress(Exception):  # a full disk only costs other processes a compilation
            content = _content_of(compiled)
            try:
                temporary.write_bytes(_checksum(key, content) + content)
                temporary.replace(path)
                used.add(path)
            finally:
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def compile_lock(self, signature: Any, target_context: Any, patience: float = PATIENCE) -> Iterator[None]:
        """Wait while another process compiles for the signature, at most `patience` seconds.

        Other processes wait for this one until the block ends. Where files cannot be locked, no process waits.
        """
        if _of_process(signature):
            yield
            return
        paths = [path for path, _ in self._paths(signature, target_context.codegen())]
        lock = None
        if not any(other.exists() for other in paths):
            lock = wait_for_lock(paths[0].with_suffix(".lock"), paths[0].exists, patience)
        try:
            yield
        finally:
            if lock is not None:
                with contextlib.suppress(OSError):
                    Path(lock.name).unlink(missing_ok=True)
                    if fcntl is not None:
                        fcntl.flock(lock, fcntl.LOCK_UN)  # a forked process may have the file open, too
                lock.close()

    def _paths(self, signature: Any, codegen: Any) -> Iterator[tuple[Path, str]]:
        """Yield files that may have the kernel, and the key of each. A compiled kernel is written to the first."""
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
    """Return the content of a file for a compiled kernel, with the names of its LLVM code instead of the code."""
    module = compiled.library._final_module
    lines = [f'target triple = "{module.triple}"', f'target datalayout = "{module.data_layout}"']
    lines += [
        f'define void @"{symbol.name}"() {{ ret void }}' for symbol in module.functions if not symbol.is_declaration
    ]
    lines += [f'@"{symbol.name}" = global i64 0' for symbol in module.global_variables if not symbol.is_declaration]
    compiled.library._shared_module = llvmlite.binding.parse_assembly("\n".join(lines))
    # The annotation is a listing of the code, with paths of this machine.
    return bytes(serialize.dumps(compiled._replace(type_annotation="")._reduce()))


def _refuse() -> NoReturn:
    raise AssertionError("a kernel of the cache has no LLVM code to link into another function: call it from Python")


def _of_process(signature: Any) -> bool:
    """Return True if an argument is a compiled function, such as a registered criterion: its type is an address."""
    return any(isinstance(argument, types.Dispatcher) for argument in signature)


def _fields(kind: Any) -> Any:
    """Return the names of the fields of a named tuple, and of named tuples in it, which the text of a type lacks."""
    return getattr(kind, "fields", ()), [_fields(item) for item in getattr(kind, "types", ())]


def _machines(processor: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield folders that may have kernels for `processor`, each with the machine that its kernels were compiled for."""
    for folder in folders():
        yield folder, processor
    for level in levels_of_host():
        yield SHIPPED, (processor[0], level, "")


def is_noted(kind: str) -> bool:
    """Return True if the kernels of this kind, a name chosen by the caller, have been compiled for this machine, or if
    nothing is compiled (NUMBA_DISABLE_JIT)."""
    if config.DISABLE_JIT:
        return True
    path = next(filter(Path.exists, _notes(kind)), None)
    if path is not None:
        used.add(path)
    return path is not None


def note(kind: str) -> None:
    """Note that the kernels of this kind have been compiled, if the disk can be written."""
    if config.DISABLE_JIT:
        return
    path = next(filter(Path.exists, _notes(kind)), None)
    with contextlib.suppress(OSError):
        if path is None:
            path = next(_notes(kind))
            path.touch()
        used.add(path)


def _notes(kind: str) -> Iterator[Path]:
    for folder, machine in _machines(registry.cpu_target.target_context.codegen().magic_tuple()):
        yield folder / f"{kind}-{hashlib.sha256(repr((_all_sources(), machine)).encode()).hexdigest()[:24]}.done"


@cache
def _all_sources() -> str:
    return digest_of(SOURCES.rglob("*.py"))


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def wait_for_lock(path: Path, ready: Callable[[], bool], patience: float) -> IO[bytes] | None:
    """Wait for the lock of the file `path`, and return the file.

    Return None once `ready()` is true, after `patience` seconds, or if the disk has no locks. Without `fcntl`, return
    the file unlocked.
    """
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


_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3")
# Features of each level, as LLVM names them; the best first. Source: System V ABI, AMD64 Architecture Processor
# Supplement, section on micro-architecture levels.
LEVELS = {
    "x86-64-v4": (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
    "x86-64-v3": _V3,
}


@cache
def levels_of_host() -> tuple[str, ...]:
    """Return the levels of this processor, the best first; empty if it reaches none."""
    try:
        has = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this processor
        return ()
    return tuple(level for level, features in LEVELS.items() if all(has.get(feature) for feature in features))
