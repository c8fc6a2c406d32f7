"""Compile kernels from parts. A part is a function that only kernels and other parts call.

Numba compiles each function completely: it links and optimises the function, and emits machine code with wrappers for
calls from Python and C. A kernel contains a copy of every function that it calls, so a function deep in a kernel is
optimised once for each function above it. Numba also inlines functions before it optimises, to remove reference counts,
which kernels do not have.

Here a part gets no wrappers and no machine code. The parts of a kernel are linked and optimised once, in the kernel, in
LLVM's order: callees, then callers. Trees of two classes grow as fast as in Numba's usual way
(benchmarks/profile.md).

This uses internals of Numba. The lowest version that pyproject.toml allows and the newest are both tested (.ci/run).
With a version that is not in TESTED, Numba compiles functions in its usual way, which takes about half as much time
again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ClassVar, NamedTuple, NoReturn

import numba
from numba import _dynfunc, types
from numba.core import codegen, compiler, compiler_machinery, event, registry, sigutils, typed_passes, untyped_passes
from numba.core.analysis import dead_branch_prune
from numba.core.compiler_lock import global_compiler_lock
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa

from bigforest.kernels.compiler.lower import Lowering

TESTED = ((0, 68),)


def is_tested() -> bool:
    """Return True if the internals of this version of Numba were tested."""
    return numba.version_info.short in TESTED


class _Part(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a part, which is only linked into kernels, never run by itself."""

    def finalize(self) -> None:
        """See CodeLibrary."""
        self._raise_if_finalized()
        self._finalized = True


class _Whole(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel, with all parts."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add code as CodeLibrary does, but do not optimise the wrapper, which reads the arguments of a call. It is a
        fifth of the code of a kernel that grows trees; without optimising it, a call takes 0.06 us longer."""
        for function in ir_module.functions:
            if function.name.startswith("_ZN7cpython"):
                function.attributes.add("noinline")  # required by optnone
                function.attributes.add("optnone")
        super().add_ir_module(ir_module)

    def finalize(self) -> None:
        """See CodeLibrary."""
        self._linking_libraries = _callers_first(self)[1:]
        super().finalize()

    def _verify_declare_only_symbols(self) -> None:
        for function in self._final_module.functions:
            if function.is_declaration and function.name.startswith("_ZN"):
                raise AssertionError(f"{self.name} calls {function.name}, which is not linked")

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage.name == "linkonce_odr":
                function.linkage = "internal"  # so that LLVM removes arguments that a part does not use
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


def _callers_first(library: Any) -> list[Any]:
    """Return the library and all libraries linked into it, directly or indirectly, callers before callees.

    LLVM drops a function that no linked code calls yet.
    """
    seen: dict[Any, None] = {}
    ended: list[Any] = []
    waiting = [(library, False)]
    while waiting:
        current, has_ended = waiting.pop()
        if has_ended:
            ended.append(current)
        elif current not in seen:
            seen[current] = None
            waiting.append((current, True))
            waiting.extend((other, False) for other in current._linking_libraries)
    return ended[::-1]


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _LoweringPart(typed_passes.NativeLowering):  # type: ignore[misc]
    _name = "bigforest_part_lowering"
    lowering_class = Lowering

    def run_pass(self, state: Any) -> bool:
        """Make the code of the part. Calls refer to a stand-in function, which must not be run."""
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        if not state.flags.forceinline:
            # LLVM would inline a function that is called once. The time to optimise a function grows faster than its
            # length.
            function = state.library._final_module.get_function(lowered.fndesc.llvm_func_name)
            function.add_function_attribute("noinline")
        state.library.finalize()
        name = lowered.fndesc.qualname.split(".")[-1]
        stand_in = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "part of kernels", 0, lowered.env, (state.library,)
        )
        # For tests: a function that calls parts, and that Numba compiles in its usual way, links only these libraries.
        state.targetctx.insert_user_function(stand_in, lowered.fndesc, _callers_first(state.library))
        state["cr"] = lowered._replace(cfunc=stand_in)
        return True


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _LoweringKernel(typed_passes.NativeLowering):  # type: ignore[misc]
    _name = "bigforest_kernel_lowering"
    lowering_class = Lowering

    def run_pass(self, state: Any) -> bool:
        """Make the code of the kernel, which KernelCache writes to the disk."""
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        _Typing.signatures.clear()
        return bool(super().run_pass(state))


class _Typing:
    """A typing context with a cache. Parts have many equal calls, such as additions of numbers."""

    # Signature by function and types of arguments, while one kernel is compiled.
    signatures: ClassVar[dict[tuple[Any, tuple[Any, ...]], Any]] = {}

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, arguments: Any, named: Any) -> Any:
        """See BaseContext."""
        key = function, tuple(arguments)
        if named or key not in self.signatures:
            signature = self._context.resolve_function_type(function, arguments, named)
            if named or signature is None or not signature.return_type.is_precise():
                return signature
            self.signatures[key] = signature
        return self.signatures[key]


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(typed_passes.NopythonTypeInference):  # type: ignore[misc]
    _name = "bigforest_type_inference"

    def run_pass(self, state: Any) -> bool:
        """Infer types as Numba does, with the cache of `_Typing`."""
        context = state.typingctx
        state.typingctx = _Typing(context)
        try:
            return bool(super().run_pass(state))
        finally:
            state.typingctx = context


class _NotNone(NamedTuple):
    """The type of an argument that is not None, in the form in which Numba's pruning recognises literals."""

    literal_type: Any


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _Prune(untyped_passes.DeadBranchPrune):  # type: ignore[misc]
    _name = "bigforest_prune"

    def run_pass(self, state: Any) -> bool:
        """Remove branches for None if an argument is not None, and branches for other values if it is None.

        Numba does only the second.
        """
        none = types.NoneType, types.Omitted
        dead_branch_prune(state.func_ir, [kind if isinstance(kind, none) else _NotNone(kind) for kind in state.args])
        return True


@compiler_machinery.register_pass(mutates_CFG=False, analysis_only=False)
class _Single(untyped_passes.ReconstructSSA):  # type: ignore[misc]
    _name = "bigforest_single_assignment"

    def run_pass(self, state: Any) -> bool:
        """Give each assignment a variable of its own, as Numba does, without the lifetimes of variables."""
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@compiler_machinery.register_pass(mutates_CFG=False, analysis_only=False)
class _StripPhis(typed_passes.PreLowerStripPhis):  # type: ignore[misc]
    _name = "bigforest_strip_phis"

    def run_pass(self, state: Any) -> bool:
        """Replace phis by assignments, as Numba does, without the lifetimes of variables."""
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        return True


class _Passes(compiler_machinery.PassManager):  # type: ignore[misc]
    """The passes of Numba that kernels need.

    Numba has about as many others, for closures, generators, context managers and array expressions, and analyses the
    code again after each pass.
    """

    _STEPS = (
        *(untyped_passes.TranslateByteCode, untyped_passes.FixupArgs),
        *(untyped_passes.RewriteSemanticConstants, _Prune, untyped_passes.GenericRewrites),
        *(_Single, _Prune),
        *(_Inference, _StripPhis),
    )

    def __init__(self, lowering: type[typed_passes.NativeLowering]) -> None:
        super().__init__(lowering._name)
        for step in (*self._STEPS, lowering, typed_passes.NoPythonBackend):
            self.add_pass(step, step._name)
        self.finalize()

    def _runPass(self, index: int, step: Any, state: Any) -> None:
        step.analysis = self._analysis
        step.run_initialization(state)
        step.run_pass(state)
        step.run_finalizer(state)


class _Compiler(compiler.CompilerBase):  # type: ignore[misc]
    lowering: type[typed_passes.NativeLowering]

    def define_pipelines(self) -> list[Any]:
        """See CompilerBase."""
        self.state.type_annotation = ""  # Numba would list the code with types, which nobody reads
        return [_Passes(self.lowering)]


class KernelCompiler(_Compiler):
    """The pipeline of kernels, which links and optimises in its own way."""

    lowering = _LoweringKernel


class PartCompiler(_Compiler):
    """The pipeline of parts, which ends with LLVM code."""

    lowering = _LoweringPart


class PartDispatcher(registry.CPUDispatcher):  # type: ignore[misc]
    """A part, which kernels and other parts call.

    It becomes a dispatcher when a caller is compiled. Most processes find all kernels in the cache and need no
    dispatcher.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options = options

    @property
    def _numba_type_(self) -> Any:
        self.targetoptions  # noqa: B018 (makes it a dispatcher)
        return super()._numba_type_

    def __getattr__(self, name: str) -> Any:
        with global_compiler_lock:
            if "_options" in self.__dict__:
                super().__init__(self.py_func, targetoptions=self._options, pipeline_class=PartCompiler)
                self.__dict__.pop("_options", None)
            return object.__getattribute__(self, name)

    def compile(self, sig: Any) -> Any:
        """Compile for a signature, without a cache and timers."""
        with global_compiler_lock:
            arguments, result = sigutils.normalize_signature(sig)
            compiled = self.overloads.get(tuple(arguments))
            if compiled is None:
                with event.trigger_event("numba:compile", data={"dispatcher": self}):
                    compiled = self._compiler.compile(arguments, result)
                self.add_overload(compiled)
            return compiled.entry_point

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        """Raise TypeError: Python cannot call a part."""
        raise TypeError(
            f"{self.py_func.__module__}.{self.py_func.__name__} is compiled into kernels only; call it from a kernel, "
            "or with NUMBA_DISABLE_JIT=1"
        )
