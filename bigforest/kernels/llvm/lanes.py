"""Functions written in LLVM. Each has a twin in plain Python, which documents it and is its oracle.

The compiler does not vectorise these loops, so the functions emit vectors explicitly. LLVM cuts them to the width of
the processor's registers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature
from numba.extending import lower_builtin, type_callable

LANES = 16

NUMBER = ir.IntType(32)
VECTOR = ir.VectorType(NUMBER, LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
ZEROS = ir.Constant(VECTOR, [0] * LANES)


def emits(plain: Callable[..., Any], returns: Any = types.void, **numbers: Any) -> Callable[..., Any]:
    """Compile calls of `plain` as the code that the decorated function emits; without a compiler `plain` runs.

    returns  type of the result
    numbers  types of the arguments that are numbers, by name; int64 if not listed. All other arguments are arrays

    The emitter is called with Lanes and the numbers, in order, and returns the result, if there is one.
    """
    order = inspect.signature(plain)

    def declare(emit: Callable[..., Any]) -> Callable[..., Any]:
        @type_callable(plain)
        def typer(context: Any) -> Any:
            def typed(*arguments: Any) -> Any:
                return signature(
                    returns,
                    *(
                        kind if isinstance(kind, types.Array) else numbers.get(name, types.int64)
                        for name, kind in zip(order.parameters, arguments, strict=True)
                    ),
                )

            typed.pysig = order  # type: ignore[attr-defined]
            return typed

        @lower_builtin(plain, types.VarArg(types.Any))
        def lower(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            arguments = list(zip(order.parameters, sig.args, values, strict=True))
            arrays = {
                name: context.make_array(kind)(context, builder, value=value)
                for name, kind, value in arguments
                if isinstance(kind, types.Array)
            }
            result = emit(Lanes(builder, arrays), *(value for name, _, value in arguments if name not in arrays))
            return context.get_dummy_value() if result is None else result

        return emit

    return declare


class Lanes:
    """Emitter of code on arrays, a block of LANES numbers at a time.

    builder  emits the code
    arrays   Numba's array structures, by name
    """

    def __init__(self, builder: Any, arrays: dict[str, Any]) -> None:
        self.builder = builder
        self.arrays = arrays
        self._data = {name: array.data for name, array in arrays.items()}

    def splat(self, scalar: Any, lanes: int = LANES) -> Any:
        """Emit a number in all lanes: a 32-bit integer, the lower half of a 64-bit integer, or a float."""
        if scalar.type not in (NUMBER, ir.FloatType(), ir.DoubleType()):
            scalar = self.builder.trunc(scalar, NUMBER)
        empty = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(NUMBER, 0))
        return self.builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(NUMBER, lanes), [0] * lanes))

    def size(self, name: str) -> Any:
        """Emit the size of an array."""
        return self.builder.extract_value(self.arrays[name].shape, 0)

    def pointer(self, name: str, index: Any) -> Any:
        """Emit a pointer to an entry of an array."""
        return self.builder.gep(self._data[name], [index])

    def load(self, name: str, base: Any) -> Any:
        """Emit the block of an array from `base` on."""
        address = self.pointer(name, base)
        kind = ir.VectorType(address.type.pointee, LANES)
        return self.builder.load(self.builder.bitcast(address, kind.as_pointer()), align=4)

    def store(self, vector: Any, name: str, base: Any) -> None:
        """Write the block of an array from `base` on."""
        address = self.pointer(name, base)
        self.builder.store(vector, self.builder.bitcast(address, vector.type.as_pointer()), align=4)

    def spread(self, name: str, index: Any) -> Any:
        """Emit one entry of an array in all lanes."""
        return self.splat(self.builder.load(self.pointer(name, index)))

    def running(self, vector: Any) -> Any:
        """Emit the running sums of the lanes: each lane plus all lanes before it."""
        step = 1
        while step < LANES:
            moved = ir.Constant(VECTOR, [LANES + lane - step if lane >= step else 0 for lane in range(LANES)])
            vector = self.builder.add(vector, self.builder.shuffle_vector(ZEROS, vector, moved))
            step *= 2
        return vector

    def last(self, vector: Any) -> Any:
        """Emit the last lane in all lanes."""
        return self.builder.shuffle_vector(vector, vector, ir.Constant(VECTOR, [LANES - 1] * LANES))

    def where(self, condition: Any, vector: Any) -> Any:
        """Emit the vector in lanes where the condition holds, elsewhere 0."""
        return self.builder.select(condition, vector, ZEROS)

    @contextmanager
    def blocks(self, rows: Any) -> Iterator[Any]:
        """Emit a loop over the blocks of `rows` rows. Yield the first row of a block."""
        first, step = ir.Constant(rows.type, 0), ir.Constant(rows.type, LANES)
        with cgutils.for_range_slice(self.builder, first, rows, step, inc=True) as (base, _):
            yield base

    def sum(self, rows: Any, term: Callable[[Any], Any]) -> Any:
        """Emit the sum over all rows of the vector that `term` emits for the number of a row."""
        total = cgutils.alloca_once(self.builder, VECTOR)
        self.builder.store(ZEROS, total)
        with cgutils.for_range(self.builder, rows) as loop:
            self.builder.store(self.builder.add(self.builder.load(total), term(loop.index)), total)
        return self.builder.load(total)

    def real(self, vector: Any, kind: Any = FLOATS) -> Any:
        """Emit signed integers as floats: FLOATS or DOUBLES."""
        return self.builder.sitofp(vector, kind)

    def inside(self, base: Any, rows: Any) -> Any:
        """Emit a mask of the lanes of the block at `base` that are below `rows`."""
        return self.builder.icmp_signed("<", self.row_numbers(base), self.splat(rows))

    def row_numbers(self, base: Any) -> Any:
        """Emit the numbers of the rows of the block at `base`."""
        return self.builder.add(self.splat(base), ir.Constant(VECTOR, list(range(LANES))))

    def masked(self, score: Any, allowed: Any) -> Any:
        """Emit the scores, none negative, in allowed lanes, elsewhere -1."""
        return self.builder.select(allowed, score, ir.Constant(score.type, [-1.0] * LANES))

    def highest(self, vector: Any) -> Any:
        """Emit the highest lane, as float64, of scores that are -1 or not negative.

        The bits of such floats, read as signed integers, are in the order of their values.
        """
        number = NUMBER if vector.type == FLOATS else ir.IntType(64)
        numbers = ir.VectorType(number, LANES)
        most = ir.FunctionType(number, [numbers])
        name = f"llvm.vector.reduce.smax.v{LANES}i{number.width}"
        reduce = cgutils.get_or_insert_function(self.builder.module, most, name)
        bits = self.builder.call(reduce, [self.builder.bitcast(vector, numbers)])
        if vector.type == FLOATS:
            return self.builder.fpext(self.builder.bitcast(bits, ir.FloatType()), ir.DoubleType())
        return self.builder.bitcast(bits, ir.DoubleType())

    def larger(self, score: Any, other: Any) -> Any:
        """Emit the larger of the scores in each lane."""
        return self.builder.select(self.builder.fcmp_ordered(">", score, other), score, other)
