"""Write a function as LLVM code as Numba does, without code that LLVM would only remove again.

Numba keeps every variable that several blocks use on the stack, and clears it after its last use. It copies the record
of an array to the stack for each access to a cell or to its size. Only reference counts and debuggers need this code,
and kernels have neither. Kernels pass records of many arrays, so it would be a large part of the code that LLVM reads.

Numba writes about 110 lines for a loop over a range, half of them for a step of 0, and counts the numbers left. Here
the loop compares the number with the end of the range, which LLVM optimises better.

A field of a record is taken from the value that was put in, so a record that a function only passes on needs no code.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from llvmlite.ir import IRBuilder
from llvmlite.ir.instructions import InsertValue
from numba import types
from numba.core import analysis, cgutils, ir, lowering

# Attributes of arrays, and the fields of their records.
_FIELDS = {"size": "nitems", "shape": "shape", "itemsize": "itemsize"}


class _Builder(IRBuilder):  # type: ignore[misc]
    """A writer that takes a field of a record from the value that was put in. Most records are only passed on."""

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """See IRBuilder."""
        path = list(idx) if isinstance(idx, (tuple, list)) else [idx]
        while path and isinstance(agg, InsertValue):
            put = list(agg.indices)
            if path[: len(put)] == put:
                agg, path = agg.value, path[len(put) :]
            elif put[: len(path)] == path:  # only a part of the field was put in here
                break
            else:
                agg = agg.aggregate
        return super().extract_value(agg, path, name) if path else agg


class Lowering(lowering.Lower):  # type: ignore[misc]
    """Numba's writer of LLVM code, for functions without reference counts."""

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that need no place on the stack: they are assigned once, before every use."""
        self._blk_local_varmap: dict[str, Any] = {}
        assigned = {
            offset: [found.target.name for found in block.find_insts(ir.Assign)]
            for offset, block in self.blocks.items()
        }
        times = Counter(name for names in assigned.values() for name in names)
        block_of = {name: offset for offset, names in assigned.items() for name in names if times[name] == 1}
        earlier = analysis.compute_cfg_from_blocks(self.blocks).dominators()
        for offset, names in analysis.compute_use_defs(self.blocks).usemap.items():
            for name in names:  # used here, assigned in another block; blocks are written in the order of their offsets
                if name in block_of and not (block_of[name] in earlier[offset] and block_of[name] < offset):
                    del block_of[name]
        self._singly_assigned_vars = set(block_of)

    def setup_function(self, fndesc: Any) -> None:
        """See Lower."""
        super().setup_function(fndesc)
        self.builder = _Builder(self.entry_block)

    def post_lower(self) -> None:
        """Drop records that no instruction reads. See Lower."""
        super().post_lower()
        used: Counter[int] = Counter()
        for block in self.function.blocks:
            for instruction in block.instructions:
                used.update(map(id, instruction.operands))
                used.update(id(value) for value, _ in getattr(instruction, "incomings", ()))
        for block in reversed(self.function.blocks):
            kept = []
            for instruction in reversed(block.instructions):
                if isinstance(instruction, InsertValue) and not used[id(instruction)]:
                    used.subtract(map(id, instruction.operands))
                else:
                    kept.append(instruction)
            block.instructions[:] = reversed(kept)

    def lower_inst(self, inst: Any) -> None:
        """See Lower."""
        if isinstance(inst, ir.Assign):
            self.storevar(self.lower_assign(self.typeof(inst.target.name), inst), inst.target.name)
        else:
            super().lower_inst(inst)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """See Lower."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """See Lower."""
        return cgutils.alloca_once(self.builder, lltype, name=name)

    def lower_call(self, resty: Any, expr: Any) -> Any:
        """See Lower. Only ranges are written here."""
        if not isinstance(resty, types.RangeType):
            return super().lower_call(resty, expr)
        given = [
            self.context.cast(self.builder, self.loadvar(part.name), self.typeof(part.name), resty.dtype)
            for part in expr.args
        ]
        zero, one = (self.context.get_constant(resty.dtype, number) for number in (0, 1))
        return self._record(resty, {1: [zero, *given, one], 2: [*given, one], 3: given}[len(given)])

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """See Lower. A loop over a range has one variable, the next number, and no check for a step of 0."""
        if expr.op not in {"getiter", "iternext", "pair_first", "pair_second", "getattr"}:
            return super().lower_expr(resty, expr)
        kind, value, builder = self.typeof(expr.value.name), self.loadvar(expr.value.name), self.builder
        if expr.op == "getattr" and isinstance(kind, types.Array) and expr.attr in _FIELDS:
            position = self.context.data_model_manager[kind].get_field_position(_FIELDS[expr.attr])
            found_kind = types.UniTuple(types.intp, kind.ndim) if expr.attr == "shape" else types.intp
            return self.context.cast(builder, builder.extract_value(value, position), found_kind, resty)
        if expr.op == "getiter" and isinstance(kind, types.RangeType):
            start, stop, step = (builder.extract_value(value, part) for part in range(3))
            next_number = cgutils.alloca_once(builder, start.type)
            builder.store(start, next_number)
            return self._record(resty, [next_number, stop, step])
        if expr.op == "iternext" and isinstance(kind, types.RangeIteratorType):
            next_number, stop, step = (builder.extract_value(value, part) for part in range(3))
            number = builder.load(next_number)
            builder.store(builder.add(number, step), next_number)
            if kind.yield_type.signed:
                up, down = (builder.icmp_signed(sign, number, stop) for sign in "<>")
                more = builder.select(builder.icmp_signed(">", step, step.type(0)), up, down)
            else:
                more = builder.icmp_unsigned("<", number, stop)
            return self._record(resty, [number, more])
        if expr.op in {"pair_first", "pair_second"}:
            return builder.extract_value(value, int(expr.op == "pair_second"))
        return super().lower_expr(resty, expr)

    def _record(self, kind: Any, values: list[Any]) -> Any:
        record = self.context.get_constant_undef(kind)
        for part, value in enumerate(values):
            record = self.builder.insert_value(record, value, part)
        return record

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """See Lower."""
        address = self._address(value, index)
        if address is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        kind = self.typeof(value.name).dtype
        return self.context.cast(self.builder, self.context.unpack_value(self.builder, kind, address), kind, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """See Lower."""
        address = self._address(target_var, index_var)
        if address is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind = self.typeof(target_var.name).dtype
        value = self.context.cast(self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), kind)
        return self.context.pack_value(self.builder, kind, value, address)

    def _address(self, array: Any, index: Any) -> Any:
        """Return the address of a cell; None unless the array is contiguous and each index an unsigned integer."""
        kind, index_kind = self.typeof(array.name), self.typeof(index.name)
        is_tuple = isinstance(index_kind, types.BaseTuple)
        kinds = tuple(index_kind) if is_tuple else (index_kind,)
        if not isinstance(kind, types.Array) or kind.layout != "C" or not kind.aligned:
            return None
        if len(kinds) != kind.ndim or not all(isinstance(axis, types.Integer) and not axis.signed for axis in kinds):
            return None
        builder, fields = self.builder, self.context.data_model_manager[kind]
        record, at = self.loadvar(array.name), self.loadvar(index.name)
        steps = [builder.extract_value(at, axis) for axis in range(kind.ndim)] if is_tuple else [at]
        cell = None
        for axis, step in enumerate(steps):
            step = self.context.cast(builder, step, kinds[axis], types.intp)
            if cell is not None:
                length = builder.extract_value(record, [fields.get_field_position("shape"), axis])
                step = builder.add(builder.mul(cell, length), step)
            cell = step
        return builder.gep(builder.extract_value(record, fields.get_field_position("data")), [cell])
