"""Write a function as LLVM code as Numba does, without code that LLVM would only remove again.

For reference counts and debuggers, which kernels do not have, Numba keeps every variable that several blocks use on the
stack, clears it after its last use, and copies the record of an array there for each access to a cell. Kernels pass
records of many arrays, so this was a large part of what LLVM had to read.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from numba import types
from numba.core import analysis, cgutils, ir, lowering


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
