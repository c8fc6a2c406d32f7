"""The only Numba flags, and the decorators: `kernel` for functions that Python calls; `helper`, `inlined` and
`compiled_as` for parts of kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from numba.core import config, registry, sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import overload

from bigforest.kernels.compiler.cache import KernelCache
from bigforest.kernels.compiler.gc_pause import gc_paused
from bigforest.kernels.compiler.parts import KernelCompiler, PartCompiler, PartDispatcher, is_tested

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels allocate nothing: callers pass all arrays. So Numba need not count references, which would cost more than the
# work itself where arrays are passed to a function for every small node. If forceinline were not set, a function would
# inherit it from the function that it is first compiled for.
_FLAGS = {
    "nopython": True,
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "_nrt": False,
    "forceinline": False,
}


class _Kernel(registry.CPUDispatcher):  # type: ignore[misc]
    """A function that Python calls; its machine code is kept on the disk."""

    def __init__(self, function: Callable[..., Any]) -> None:
        pipeline = {"pipeline_class": KernelCompiler} if is_tested() else {}
        super().__init__(function, targetoptions={**_FLAGS, "no_cfunc_wrapper": True}, **pipeline)
        self._cache = KernelCache(function)

    def _compilation_chain_init_hook(self) -> None:
        """See Dispatcher; KernelCache does this before compiling."""

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, or load the machine code of another process."""
        # Every thread takes Numba's lock, which compiling takes again, before the lock of the cached file, so that no
        # two threads wait for each other.
        with global_compiler_lock:
            arguments, _ = sigutils.normalize_signature(sig)
            if tuple(arguments) in self.overloads:
                return super().compile(sig)
            with self._cache.compile_lock(sig, self.targetctx), gc_paused():
                return super().compile(sig)


def kernel(function: Function) -> Function:
    """Compile a function that Python calls; cached on disk where any folder can be written."""
    return function if config.DISABLE_JIT else _Kernel(function)


def helper(function: Function) -> Function:
    """Compile a part of a kernel, once for all of its callers: for long or rarely called functions."""
    return part(function, _FLAGS)


def inlined(function: Function) -> Function:
    """Compile a part of a kernel into each of its callers: for small or very frequently called functions."""
    return part(function, {**_FLAGS, "forceinline": True})


def part(function: Function, options: dict[str, Any], lean: bool = is_tested()) -> Function:
    """Compile a part of a kernel; lean: False to compile it as Numba compiles any function."""
    if config.DISABLE_JIT:
        return function
    return PartDispatcher(function, options) if lean else registry.CPUDispatcher(function, targetoptions=options)


# Options of compiled replacements of plain-Python functions.
_PART = {**_FLAGS, "forceinline": True, **({"pipeline_class": PartCompiler} if is_tested() else {})}
compiled_as = partial(overload, jit_options=_PART)
