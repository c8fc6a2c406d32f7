"""The only Numba flags, and a compile cache that notices edits in any kernel module.

Numba's own cache stamps a compiled function with the source file it stands in, so an edited helper in another
module would leave its callers running the old code. Here every kernel carries one stamp of all kernel sources.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import caching

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_STAMP = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


class _FolderOfThisSource:
    """A folder for each state of the sources: what another version left behind is not even opened."""

    def get_source_stamp(self) -> str:
        return _STAMP

    def get_cache_path(self) -> str:
        return str(Path(super().get_cache_path()) / f"bigforest-{_STAMP[:16]}")  # type: ignore[misc]


class _ProvidedFolder(_FolderOfThisSource, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder of NUMBA_CACHE_DIR, where the user set it."""


class _BesideSources(_FolderOfThisSource, caching.InTreeCacheLocator):  # type: ignore[misc]
    """__pycache__ of the package, where it can be written."""


class _UserFolder(_FolderOfThisSource, caching.UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache folder."""


class _KernelCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_ProvidedFolder, _BesideSources, _UserFolder)


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    # A damaged cache, or a full or read-only disk, costs a compilation and no more.

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            with contextlib.suppress(Exception):
                self.flush()  # start an empty index, or the damage would stay for good
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(Exception):
            super().save_overload(sig, data)


# Kernels allocate nothing: callers hand them their arrays. So Numba need not count references, which costs more than
# the work itself where arrays are passed to a function for every small node.
_FLAGS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}


def kernel(function: Kernel) -> Kernel:
    """Compile a function that Python calls; cached on disk where any folder can be written."""
    compiled = numba.njit(**_FLAGS)(function)
    if compiled is not function:  # NUMBA_DISABLE_JIT=1 leaves plain Python
        with contextlib.suppress(RuntimeError):  # no folder can be written: compile in every process
            compiled._cache = _KernelCache(function)
    return compiled  # type: ignore[no-any-return]


def helper(function: Kernel) -> Kernel:
    """Compile a part of a kernel."""
    return numba.njit(**_FLAGS)(function)  # type: ignore[no-any-return]


def inlined(function: Kernel) -> Kernel:
    """Compile a part of a kernel into each of its callers: for the small and for the very frequent."""
    return numba.njit(forceinline=True, **_FLAGS)(function)  # type: ignore[no-any-return]
