# SPDX-License-Identifier: MIT
"""Arrays of the caller's for the results of an epilogue of the user's: as many as there are, each checked as the out of any product."""

from libcpp.vector cimport vector

from rocpy cimport _operand
from rocpy._operand cimport Operand
from rocpy.blaslt.engine._scales cimport check_arguments_apart
from rocpy.blaslt.engine.launch cimport Operands
from rocpy.blaslt.operands._arguments cimport check_out, check_result, check_same_device, dtype_code, parse_read
from rocpy.blaslt.operands._cpu_arrays cimport stages_arrays
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments

from rocpy.blaslt.custom.launch import as_bytes
from rocpy.errors import InvalidOperandError


cdef tuple check_outs(object out, object bound, object a, object b, object c, dict inputs, ScaleArguments scales, object options):
    cdef tuple types = <tuple>bound.out_types
    cdef Py_ssize_t count = len(types), i
    if out is None:
        return (None,) * count
    cdef tuple outs = outs_of(out, bound, count)
    cdef vector[Operand] parsed
    cdef Operands operands
    cdef tuple _owners = parse_read(&operands, a, b, c)
    cdef list out_owners = []
    parsed.resize(count)
    for i in range(count):
        if outs[i] is None:
            parsed[i].ndim = -1
            continue
        name = name_of(bound, i)
        out_owners.append(_operand.parse_output(outs[i], name, &parsed[i]))
        if not (stages_arrays() and _operand.is_in_host_memory(&parsed[i]) and _operand.is_in_host_memory(&operands.a)):
            check_same_device(&operands.a, &parsed[i], name)
        check_result(&parsed[i], <tuple>bound.result_shape, dtype_code(types[i]), options, name)
        check_out(&operands, &parsed[i], name)
        if scales is not None:
            check_arguments_apart(scales, &parsed[i])
    check_apart(parsed)
    for name, _ in <tuple>bound.inputs:
        check_input(name, inputs[name], bound, parsed)
    return outs


cdef tuple outs_of(object out, object bound, Py_ssize_t count):
    """Return an array or None for each result; refuses others than there are results."""
    expression = bound.resolved.expression
    if expression.single:
        if isinstance(out, (tuple, list)):
            raise InvalidOperandError(
                f"out: got a {type(out).__name__}, and epilogue {expression.name!r} has one result; pass the array itself"
            )
        return (out,)
    if not isinstance(out, (tuple, list)) or len(out) != count:
        raise InvalidOperandError(f"out: epilogue {expression.name!r} has {count} results; pass a tuple of {count} arrays")
    return tuple(out)


cdef str name_of(object bound, Py_ssize_t position):
    return "out" if bound.resolved.expression.single else f"out[{position}]"


cdef int check_apart(const vector[Operand] &outs) except -1:
    """Refuse two results in memory of both."""
    cdef size_t i, j
    for i in range(outs.size()):
        for j in range(i):
            if outs[i].ndim >= 0 and outs[j].ndim >= 0 and _operand.share_memory(&outs[i], &outs[j]):
                raise InvalidOperandError(f"out: results {j} and {i} share memory; pass two arrays")
    return 0


cdef int check_input(str name, object value, object bound, const vector[Operand] &outs) except -1:
    """Refuse an out that overlaps an input of the function; it may be the input, as it may be c."""
    cdef Operand seen
    cdef object _owner = value
    cdef size_t i
    if not _operand.parse_plainly(value, &seen):
        _owner = _operand.parse(as_bytes(value), name, &seen)
    for i in range(outs.size()):
        if outs[i].ndim >= 0 and _operand.share_memory(&outs[i], &seen) and not is_same(&outs[i], &seen):
            raise InvalidOperandError(
                f"{name_of(bound, i)} shares memory with epilogue_inputs[{name!r}], and is not that array; pass the input itself or "
                "another array"
            )
    return 0


cdef bint is_same(const Operand *one, const Operand *other) noexcept:
    """Whether two arrays are the same elements in the same order."""
    cdef int axis
    if one.data != other.data or one.type != other.type or one.ndim != other.ndim:
        return False
    for axis in range(one.ndim):
        if one.shape[axis] != other.shape[axis] or one.strides[axis] != other.strides[axis]:
            return False
    return True
