"""Functions that are compiled into kernels and never run on their own: without wrappers and machine code.

Numba links, optimises and emits machine code for every function it meets, with wrappers to call it from Python and from
C, although a kernel carries a copy of all that it calls. Parts stop before machine code. They are optimised all the
same: kernels of parts that are not, or less, are slower (benchmarks/profile.md).

These are internals of Numba, so it is done with versions only on which it has been tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numba
from numba import _dynfunc
from numba.core import codegen, compiler, compiler_machinery, registry, typed_passes

TESTED = ((0, 68),)


def is_tested() -> bool:
    """Whether this Numba is one of those whose internals are known."""
    return numba.version_info.short in TESTED


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a part, only ever linked into that of others."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc]
    _name = "bigforest_part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Make the part's code; what stands for it in calls is a function that must not be run."""
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        state.library.finalize()
        name = lowered.fndesc.qualname.split(".")[-1]
        row_nodes = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "part of kernels", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(row_nodes, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=row_nodes)
        return True


class PartCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """The pipeline of parts: Numba's own up to machine code."""

    def define_pipelines(self) -> list[Any]:
        """See CompilerBase."""
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state, "bigforest part")
        passes.passes = [
            (_Lowering if step is typed_passes.NativeLowering else step, about) for step, about in passes.passes
        ]
        passes.finalize()
        return [passes]


class PartDispatcher(registry.CPUDispatcher):  # type: ignore[misc]
    """A part, which kernels and other parts call."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=options, pipeline_class=PartCompiler)

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        """Refuse: there is nothing that Python could call."""
        raise TypeError(
            f"{self.py_func.__module__}.{self.py_func.__name__} is compiled into kernels only; call it from a kernel, "
            "or with NUMBA_DISABLE_JIT=1"
        )
