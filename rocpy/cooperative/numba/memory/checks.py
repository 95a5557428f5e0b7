# SPDX-License-Identifier: MIT
"""What numpy checks of arrays before it computes and Numba does not: shapes, indices, and memory that operands share.

Numba loops over the first of the outputs that a call names, whatever the shapes of the others are.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core import utils as numba_utils
from numba.np import arrayobj
from numba.np.ufunc.dufunc import DUFunc

from rocpy.cooperative.numba.llvm_types import BYTES, I1, I64, VOID
from rocpy.cooperative.numba.runtime import on_device

_ASSIGNMENTS = {
    each: name for name, each in numba_utils.INPLACE_BINOPS_TO_OPERATORS.items() if each is not operator.imatmul
}
_ITEMS = (operator.getitem, operator.setitem)
# Functions of numpy's, no ufuncs, that take an output: its position, and whether each element is computed of those of
# the same index alone.
_WITH_OUTPUT = {np.outer: (2, False), np.dot: (2, False), np.clip: (3, True), np.round: (2, True), np.around: (2, True)}


def _delete(x: Any, indices: Any) -> None:
    size = np.asarray(x).size
    for index in np.asarray(indices).flat:
        if not -size <= index < size:
            raise IndexError("an index of np.delete is out of bounds")


def _take_along_axis(x: Any, indices: Any, axis: Any) -> None:
    size = x.size if axis is None else x.shape[axis]
    for index in indices.flat:
        if not -size <= index < size:
            raise IndexError("an index of np.take_along_axis is out of bounds")


def _outer(x: Any, y: Any, out: Any) -> None:
    if out.shape[0] != np.asarray(x).size or out.shape[1] != np.asarray(y).size:
        raise ValueError("non-broadcastable output operand: the output of np.outer has another shape")


def _bincount(x: Any) -> None:
    if x.size and x[0] < 0:  # Numba checks the others
        raise ValueError("bincount(): first argument must be non-negative")


def _array_split(_x: Any, sections: Any) -> None:
    if sections < 1:
        raise ValueError("number sections must be larger than 0")


def _percentile(x: Any) -> None:
    if np.asarray(x).size == 0:
        raise IndexError("percentiles and quantiles of an empty array")


# What is checked of the first arguments of functions of numpy's, and the argument that it is about: of which types.
_ARRAYS = (types.Array, types.Sequence)
_CHECKS: dict[Any, tuple[Callable[..., None], int, tuple[type, ...]]] = {
    np.delete: (_delete, 1, _ARRAYS),
    np.take_along_axis: (_take_along_axis, 1, _ARRAYS),
    np.outer: (_outer, 2, _ARRAYS),
    np.bincount: (_bincount, 0, (types.Array,)),
    np.array_split: (_array_split, 1, (types.Integer,)),
    np.percentile: (_percentile, 0, _ARRAYS),
    np.quantile: (_percentile, 0, _ARRAYS),
}


_UNCHECKED = (None, 0, ())


@dataclass(frozen=True)
class _Roles:
    """Which arguments of a call are read, and which arrays are written to, by position.

    Attributes
    ----------
    inputs, outputs
        Positions.
    name
        Of the call, for errors.
    elementwise
        Whether each element is computed of those of the same index alone.
    broadcasts
        Whether inputs are broadcast to the outputs.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str
    elementwise: bool = True
    broadcasts: bool = True

    def of(self, position: int) -> str:
        """Return what an error calls an input."""
        return f"the right operand of {self.name}" if "=" in self.name else f"argument {position} of {self.name}"


def _roles_in(function: Any, kinds: tuple[Any, ...]) -> _Roles | None:
    """Return the roles of the arguments of a call that writes to arrays that it is passed; None for any other call."""
    name = f"np.{getattr(function, '__name__', '')}"
    if isinstance(function, (np.ufunc, DUFunc)):
        count = function.nin
        name = name if isinstance(function, np.ufunc) else name.removeprefix("np.")
        return _Roles(tuple(range(count)), tuple(range(count, len(kinds))), name) if len(kinds) > count else None
    if not _is_hashable(function):
        return None
    if function in _ASSIGNMENTS and isinstance(kinds[0], types.Array):
        return _Roles((1,), (0,), _ASSIGNMENTS[function])
    output, elementwise = _WITH_OUTPUT.get(function, (len(kinds), True))
    if output < len(kinds) and isinstance(kinds[output], types.Array):
        return _Roles(tuple(range(output)), (output,), name, elementwise, broadcasts=False)
    return None


def _is_mask(kind: Any) -> bool:
    return isinstance(kind, types.Array) and kind.dtype == types.boolean


def has_mask(index: Any) -> bool:
    """Return whether the type of an index is, or has in it, an array of booleans."""
    return any(map(_is_mask, index)) if isinstance(index, types.BaseTuple) else _is_mask(index)


def may_fail(function: Any) -> bool:
    """Return whether calls of a function may raise an exception of numpy's that needs a source line."""
    return isinstance(function, (np.ufunc, DUFunc)) or (
        _is_hashable(function) and (function in _CHECKS or function in _WITH_OUTPUT)
    )


def _is_hashable(function: Any) -> bool:
    return callable(function) and function.__hash__ is not None


def checked(context: Any, function: Any, signature: Any, code: Any) -> Any:
    """Return the code of a call after the checks that numpy makes; the code itself where Numba makes them.

    Parameters
    ----------
    context
        Numba's, of the kernel.
    function
        What is called.
    signature
        Its types.
    code
        Function of a builder and arguments.
    """
    kinds = signature.args
    masks = any(function is each for each in _ITEMS) and isinstance(kinds[0], types.Array) and has_mask(kinds[1])
    check, about, wanted = _CHECKS.get(function, _UNCHECKED) if _is_hashable(function) else _UNCHECKED
    if check is not None and not (about < len(kinds) and isinstance(kinds[about], wanted)):
        check = None
    roles = _roles_in(function, kinds)
    if not masks and check is None and roles is None:
        return code

    def with_checks(builder: Any, values: Any, loc: Any = None) -> Any:
        if masks:
            _check_masks(context, builder, kinds, values)
        if check is not None:
            count = len(inspect.signature(check).parameters)
            context.compile_internal(builder, check, types.none(*kinds[:count]), values[:count])
        return code(builder, values) if roles is None else _apart(context, builder, roles, kinds, values, code)

    return with_checks


def _fail_if(context: Any, builder: Any, wrong: Any, error: type[Exception], text: str) -> None:
    with cgutils.if_unlikely(builder, wrong):
        context.call_conv.return_user_exc(builder, error, (text,))


def _check_masks(context: Any, builder: Any, kinds: Any, values: Any) -> None:
    """Check that arrays of booleans are as long as the axes that they select from."""
    array = arrayobj.make_array(kinds[0])(context, builder, values[0])
    shape = cgutils.unpack_tuple(builder, array.shape, kinds[0].ndim)
    indices, parts = [kinds[1]], [values[1]]
    if isinstance(kinds[1], types.BaseTuple):
        indices = list(kinds[1])
        parts = cgutils.unpack_tuple(builder, values[1], len(indices))
    axis, rest = 0, kinds[0].ndim - sum(not isinstance(each, (types.NoneType, types.EllipsisType)) for each in indices)
    for kind, value in zip(indices, parts, strict=True):
        if _is_mask(kind):
            length = cgutils.unpack_tuple(builder, arrayobj.make_array(kind)(context, builder, value).shape)[0]
            wrong = builder.icmp_signed("!=", length, shape[axis])
            text = f"boolean index did not match indexed array along axis {axis}: their sizes differ"
            _fail_if(context, builder, wrong, IndexError, text)
        axis += rest if isinstance(kind, types.EllipsisType) else not isinstance(kind, types.NoneType)


def _apart(context: Any, builder: Any, roles: _Roles, kinds: Any, values: Any, code: Any) -> Any:
    """Call a function that writes to its arguments, with copies of what it reads and would overwrite before that."""
    arrays = {}
    for position in (*roles.inputs, *roles.outputs):
        kind, value = kinds[position], values[position]
        if isinstance(kind, types.Optional):
            kind, value = kind.type, context.cast(builder, value, kind, kind.type)
        if isinstance(kind, types.Array):
            arrays[position] = _Operand(context, builder, kind, value)
    if roles.broadcasts:
        _check_shapes(context, builder, roles, arrays)
    if on_device(builder):  # where nothing allocates memory
        return code(builder, values)
    values, copies = list(values), {}
    for position in roles.inputs:
        if position in arrays and isinstance(kinds[position], types.Array):
            copies[position] = arrays[position].copy_if_overwritten(
                [arrays[each] for each in roles.outputs], elementwise=roles.elementwise
            )
            values[position] = arrays[position].value
    result = code(builder, tuple(values))
    for memory in copies.values():
        _free(builder, memory)
    return result


def _check_shapes(context: Any, builder: Any, roles: _Roles, arrays: dict[int, _Operand]) -> None:
    target = arrays[roles.outputs[0]]
    for position, each in arrays.items():
        if each is target:
            continue
        output, dimensions = position in roles.outputs, len(each.shape) - len(target.shape)
        wrong = I1(dimensions > 0 or (output and dimensions < 0))
        for own, wanted in zip(reversed(each.shape), reversed(target.shape), strict=False):
            differs = builder.icmp_signed("!=", own, wanted)
            if not output:
                differs = builder.and_(differs, builder.icmp_signed("!=", own, own.type(1)))
            wrong = builder.or_(wrong, differs)
        if output:
            text = f"non-broadcastable output operand: the outputs of {roles.name} differ in shape"
        else:
            text = (
                f"operands could not be broadcast together: the shape of {roles.of(position)} does not broadcast to "
                "that of the array that is written to"
            )
        _fail_if(context, builder, wrong, ValueError, text)


class _Operand:
    """An array that an operation reads or writes to."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._context, self._builder, self._kind = context, builder, kind
        self._array = arrayobj.make_array(kind)(context, builder, value)
        self.shape = cgutils.unpack_tuple(builder, self._array.shape, kind.ndim)
        self._strides = cgutils.unpack_tuple(builder, self._array.strides, kind.ndim)
        self._data = self._array.data

    @property
    def value(self) -> Any:
        """The array as Numba passes it on."""
        return self._array._getvalue()

    def copy_if_overwritten(self, targets: list[_Operand], *, elementwise: bool) -> Any:
        """Copy the array if it shares memory with one that is written to; return where the copy's address is."""
        builder, context = self._builder, self._context
        memory = cgutils.alloca_once_value(builder, ir.Constant(BYTES, None))
        shared = I1(0)
        for each in targets:
            overlaps = arrayobj.extents_may_overlap(context, builder, *self._extents(), *each._extents())
            # Each element is read before the one in the same memory is written, if that has the same index.
            harmless = self._is_same(each) if elementwise else I1(0)
            shared = builder.or_(shared, builder.and_(overlaps, builder.not_(harmless)))
        with cgutils.if_unlikely(builder, shared):
            self._copy(memory)
        return memory

    def _extents(self) -> Any:
        return arrayobj.get_array_memory_extents(
            self._context, self._builder, self._kind, self._array, self.shape, self._strides, self._data
        )

    def _is_same(self, other: _Operand) -> Any:
        """Return whether two arrays have the same memory for each index."""
        builder = self._builder
        sizes = [each._context.get_abi_sizeof(each._context.get_data_type(each._kind.dtype)) for each in (self, other)]
        if sizes[0] != sizes[1] or len(self.shape) != len(other.shape):
            return I1(0)
        addresses = [builder.ptrtoint(each._data, I64) for each in (self, other)]
        same = builder.icmp_unsigned("==", *addresses)
        for extent, stride, wanted, step in zip(self.shape, self._strides, other.shape, other._strides, strict=True):
            steps = builder.or_(
                builder.icmp_signed("==", stride, step), builder.icmp_signed("<=", extent, extent.type(1))
            )
            same = builder.and_(same, builder.and_(builder.icmp_signed("==", extent, wanted), steps))
        return same

    def _copy(self, memory: Any) -> None:
        builder, context, kind = self._builder, self._context, self._kind
        size = builder.mul(self._array.itemsize, self._array.nitems)
        allocate = cgutils.get_or_insert_function(builder.module, ir.FunctionType(BYTES, [I64]), "malloc")
        pointer = builder.call(allocate, [builder.add(size, I64(1))])  # none is not a failure
        failed = cgutils.is_null(builder, pointer)
        _fail_if(context, builder, failed, MemoryError, "no memory for a copy of an operand that is also written to")
        _tell(builder, "rocpy_kernel_allocated", pointer, _free_function(builder))
        builder.store(pointer, memory)
        step, strides = self._array.itemsize, list(self._strides)
        axes = range(kind.ndim)
        for axis in axes if kind.layout == "F" else reversed(axes):
            strides[axis], step = step, builder.mul(step, self.shape[axis])
        data = builder.bitcast(pointer, self._data.type)
        with cgutils.loop_nest(builder, self.shape, I64) as indices:
            ends = [
                cgutils.get_item_pointer2(context, builder, *each, layout, list(indices))
                for each, layout in (
                    ((self._data, self.shape, self._strides), kind.layout),
                    ((data, self.shape, strides), "A"),
                )
            ]
            item = arrayobj.load_item(context, builder, kind, ends[0])
            arrayobj.store_item(context, builder, kind, item, ends[1])
        self._array.data = data
        self._array.strides = cgutils.pack_array(builder, strides, I64)


def _free_function(builder: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(VOID, [BYTES]), "free")


def _free(builder: Any, memory: Any) -> None:
    """Free a copy, if there is one."""
    pointer = builder.load(memory)
    with cgutils.if_unlikely(builder, cgutils.is_not_null(builder, pointer)):
        _tell(builder, "rocpy_kernel_freed", pointer)
        builder.call(_free_function(builder), [pointer])


def _tell(builder: Any, name: str, *arguments: Any) -> None:
    """Tell the runtime of memory, which it frees when the thread does not come to that."""
    kind = ir.FunctionType(VOID, [each.type for each in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
