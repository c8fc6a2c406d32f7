"""Vectors in LLVM, whose width follows the processor: helpers of pairwise.py and kernels/scan/multi_class_edges.py.

The compiler does not vectorise loops over arrays that might overlap, so these loops emit vectors explicitly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

LANES = 16

NUMBER = ir.IntType(32)
VECTOR = ir.VectorType(NUMBER, LANES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
ZEROS = ir.Constant(VECTOR, [0] * LANES)


class Lanes:
    """Emits the code of an intrinsic on arrays of 32-bit numbers, a block of LANES at a time.

    builder  emits the code
    arrays   pointers to their data, by name
    """

    def __init__(self, context: Any, builder: Any, arrays: dict[str, tuple[Any, Any]]) -> None:
        self.builder = builder
        self.arrays = {
            name: context.make_array(kind)(context, builder, value=value).data for name, (kind, value) in arrays.items()
        }

    def splat(self, scalar: Any) -> Any:
        """A 32-bit number, the lower half of a longer one, or a float in all lanes."""
        if scalar.type not in (NUMBER, ir.FloatType(), ir.DoubleType()):
            scalar = self.builder.trunc(scalar, NUMBER)
        empty = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(NUMBER, 0))
        return self.builder.shuffle_vector(first, first, ZEROS)

    def load(self, name: str, base: Any) -> Any:
        """The block of an array from `base` on."""
        array = self.arrays[name]
        kind = ir.VectorType(array.type.pointee, LANES)
        place = self.builder.bitcast(self.builder.gep(array, [base]), kind.as_pointer())
        return self.builder.load(place, align=4)

    def store(self, vector: Any, name: str, base: Any) -> None:
        """Write the block of an array from `base` on."""
        place = self.builder.gep(self.arrays[name], [base])
        self.builder.store(vector, self.builder.bitcast(place, vector.type.as_pointer()), align=4)

    def spread(self, name: str, index: Any) -> Any:
        """One entry of an array in all lanes."""
        return self.splat(self.builder.load(self.builder.gep(self.arrays[name], [index])))

    def running(self, vector: Any) -> Any:
        """The sums of the lanes up to each."""
        step = 1
        while step < LANES:
            moved = ir.Constant(VECTOR, [LANES + lane - step if lane >= step else 0 for lane in range(LANES)])
            vector = self.builder.add(vector, self.builder.shuffle_vector(ZEROS, vector, moved))
            step *= 2
        return vector

    def last(self, vector: Any) -> Any:
        """The last lane in all lanes."""
        return self.builder.shuffle_vector(vector, vector, ir.Constant(VECTOR, [LANES - 1] * LANES))

    def where(self, condition: Any, vector: Any) -> Any:
        """The vector in lanes of the condition, elsewhere 0."""
        return self.builder.select(condition, vector, ZEROS)

    @contextmanager
    def blocks(self, rows: Any) -> Iterator[Any]:
        """A loop over the places where a block of `rows` rows begins."""
        first, step = ir.Constant(rows.type, 0), ir.Constant(rows.type, LANES)
        with cgutils.for_range_slice(self.builder, first, rows, step, inc=True) as (base, _):
            yield base

    def sum(self, rows: Any, term: Callable[[Any], Any]) -> Any:
        """The sum over all rows of the vector that `term` emits for a block."""
        total = cgutils.alloca_once(self.builder, VECTOR)
        self.builder.store(ZEROS, total)
        with cgutils.for_range(self.builder, rows) as loop:
            self.builder.store(self.builder.add(self.builder.load(total), term(loop.index)), total)
        return self.builder.load(total)

    def real(self, vector: Any, kind: Any = FLOATS) -> Any:
        """Signed numbers as float32, or as DOUBLES."""
        return self.builder.sitofp(vector, kind)

    def inside(self, base: Any, rows: Any) -> Any:
        """Which lanes of the block at `base` belong to the rows."""
        return self.builder.icmp_signed("<", self.places(base), self.splat(rows))

    def places(self, base: Any) -> Any:
        """The numbers of the rows of the block at `base`."""
        return self.builder.add(self.splat(base), ir.Constant(VECTOR, list(range(LANES))))

    def masked(self, score: Any, allowed: Any) -> Any:
        """The scores, none negative, where they are allowed, elsewhere -1."""
        return self.builder.select(allowed, score, ir.Constant(score.type, [-1.0] * LANES))

    def highest(self, vector: Any) -> Any:
        """The highest lane of scores, none of which is negative but -1, as float64.

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

    def larger(self, one: Any, two: Any) -> Any:
        """The larger of the scores in each lane."""
        return self.builder.select(self.builder.fcmp_ordered(">", one, two), one, two)
