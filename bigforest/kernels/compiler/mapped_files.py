"""Files that are mapped for reading and may be truncated meanwhile, or lie on a failing disk.

Reading a lost page raises the signal SIGBUS, which would end the process without a message. Here a handler, compiled
by LLVM because no Python may run in it, maps zeros from the lost page to the end of the map, and notes that. The loop
that reads continues, and `was_lost` says whether it read zeros. Other causes of the signal go to the previous handler.

Only on Linux. Elsewhere, and where another library takes the signal over later, the process ends.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
import weakref
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numpy.typing import NDArray

# Maps at a time; the first entry is not used. Further maps are not guarded.
_PLACES = 1 << 14
_BEGIN, _END, _LOST = range(3)
# int64 [places, 3]: first address, address after the last, and whether zeros were put there.
_maps = np.zeros((_PLACES, 3), np.int64)
_free = list(range(_PLACES - 1, 0, -1))
_lock = threading.Lock()
# Bytes of struct sigaction, at most in any C library of Linux, and offsets in struct siginfo.
_ACTION_BYTES = 256
_FLAGS_PLACE = 136
_ADDRESS_PLACE = 16
_SA_SIGINFO = 4
_SA_ONSTACK = 0x08000000
_MAP_FIXED = 0x10
_LONG, _INT = ir.IntType(64), ir.IntType(32)


class GuardedMap:
    """An array of a mapped file, as long as this object or the array lives."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        """array: not yet used by anyone else."""
        self.array: NDArray[Any] = np.asarray(array)
        self._place = _enter(self.array.ctypes.data, array.nbytes)
        if self._place:
            weakref.finalize(array._mmap, _leave, self._place)  # type: ignore[attr-defined]

    def was_lost(self) -> bool:
        """Whether a part was read that could not be read."""
        return bool(_maps[self._place, _LOST])


def _enter(begin: int, size: int) -> int:
    """The place of a map in the table; 0 if it is not guarded."""
    with _lock:
        if not _installed() or not _free:
            return 0
        place = _free.pop()
        _maps[place] = begin, begin + size, 0
    return place


def _leave(place: int) -> None:
    # The lock may be held by this thread, which the garbage collector interrupts: both are single steps.
    _maps[place] = 0
    _free.append(place)


_kept: list[Any] = []


def _installed() -> bool:
    """Whether the handler is installed, which is tried once."""
    if not _kept:
        _kept.append(_install() if sys.platform == "linux" and sys.maxsize > 2**32 else None)
    return _kept[0] is not None


def _install() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    previous = ctypes.create_string_buffer(_ACTION_BYTES)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(_handler(library, ctypes.addressof(previous))),
        binding.Target.from_default_triple().create_target_machine(jit=True),
    )
    engine.finalize_object()
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    ctypes.c_void_p.from_buffer(action).value = engine.get_function_address("bigforest_bus_error")
    ctypes.c_int.from_buffer(action, _FLAGS_PLACE).value = _SA_SIGINFO | _SA_ONSTACK
    # The handler may run as soon as it is set, and needs the one before to be known.
    if library.sigaction(signal.SIGBUS, None, previous) or library.sigaction(signal.SIGBUS, action, None):
        return None
    return engine, previous


def _handler(library: Any, previous: int) -> str:
    """The handler in the language of LLVM: calls of the system, and nothing that may wait."""

    def address_of(name: str, result: ir.Type, *arguments: ir.Type) -> Any:
        place = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        return builder.inttoptr(ir.Constant(_LONG, place), ir.FunctionType(result, arguments).as_pointer())

    def at(place: Any) -> Any:
        return builder.inttoptr(place, _LONG.as_pointer())

    module = ir.Module("bigforest_bus_error")
    module.triple = binding.get_process_triple()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), (_INT, _LONG, _LONG)), "bigforest_bus_error")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    look, found, following, filled, other = (function.append_basic_block() for _ in range(5))
    fault = builder.load(at(builder.add(function.args[1], ir.Constant(_LONG, _ADDRESS_PLACE))))
    first = ir.Constant(_LONG, _maps.ctypes.data)
    builder.branch(look)

    builder.position_at_end(look)
    entry = builder.phi(_LONG)
    begin, end = (builder.load(at(builder.add(entry, ir.Constant(_LONG, 8 * part)))) for part in (_BEGIN, _END))
    inside = builder.and_(builder.icmp_unsigned("<=", begin, fault), builder.icmp_unsigned("<", fault, end))
    builder.cbranch(inside, found, following)

    builder.position_at_end(following)
    later = builder.add(entry, ir.Constant(_LONG, _maps.strides[0]))
    entry.add_incoming(first, function.entry_basic_block)
    entry.add_incoming(later, following)
    builder.cbranch(builder.icmp_unsigned("<", later, ir.Constant(_LONG, first.constant + _maps.nbytes)), look, other)

    builder.position_at_end(found)
    page = builder.and_(fault, ir.Constant(_LONG, -mmap.PAGESIZE))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    zeros = (mmap.PROT_READ, flags, -1)
    numbers = [ir.Constant(_INT, number) for number in zeros]
    sizes = page, builder.sub(end, page)
    kinds = (_LONG, _LONG, _INT, _INT, _INT, _LONG)
    got = builder.call(address_of("mmap", _LONG, *kinds), [*sizes, *numbers, ir.Constant(_LONG, 0)])
    builder.cbranch(builder.icmp_unsigned("==", got, page), filled, other)

    builder.position_at_end(filled)
    builder.store(ir.Constant(_LONG, 1), at(builder.add(entry, ir.Constant(_LONG, 8 * _LOST))))
    builder.ret_void()

    builder.position_at_end(other)  # the signal comes again, to the handler before
    call = address_of("sigaction", _INT, _INT, _LONG, _LONG)
    builder.call(call, [function.args[0], ir.Constant(_LONG, previous), ir.Constant(_LONG, 0)])
    builder.ret_void()
    return str(module)
