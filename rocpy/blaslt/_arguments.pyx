# SPDX-License-Identifier: MIT
"""The operands of a call: parsed, checked against each other, and described as plan keys and as problems."""

from libc.stdint cimport int64_t

from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip
from rocpy._operand cimport Operand
from rocpy.blaslt._launch cimport PlanKey
from rocpy.blaslt.weight cimport Weight

from rocpy.blaslt.epilogues import EPILOGUES, find_epilogue
from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.dtypes import lookup as _dtype
from rocpy.errors import InvalidOperandError, InvalidProblemError

cdef dict _EPILOGUE_INDEX = {}
cdef dict _DTYPE_CODES = {}
EPILOGUE_NAMES = list(EPILOGUES)
cdef tuple _DEVICE_NAMES = ("?", "CPU memory", "a CUDA device", "pinned CUDA memory", "an OpenCL device", "?", "?", "a Vulkan device",
                            "a Metal device", "?", "ROCm device", "pinned ROCm memory")


cdef int epilogue_index(object epilogue) except -1:
    """Return the place of an epilogue's row; names are resolved and refused by find_epilogue once."""
    if epilogue is None:
        return 0
    cdef object index = _EPILOGUE_INDEX.get(epilogue) if isinstance(epilogue, str) else None
    if index is None:
        index = EPILOGUE_NAMES.index(find_epilogue(epilogue).name)
        _EPILOGUE_INDEX[epilogue] = index
    return index


cdef int dtype_code(object dtype) except -2:
    """Return the hipDataType of a dtype given in any spelling, -1 for None."""
    if dtype is None:
        return -1
    cdef object code
    try:
        code = _DTYPE_CODES.get(dtype)
    except TypeError:  # not hashable: no dtype
        code = None
    if code is None:
        code = _dtype(dtype).hip
        _DTYPE_CODES[dtype] = code
    return code


cdef double real(object value, str name) except? -1.0:
    """Return a host scalar as a double."""
    if type(value) is float:
        return <double>value
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidOperandError(
            f"{name}: {value!r} ({type(value).__name__}); it must be a real number on the host"
        ) from None


cdef void describe(PlanKey *key, const Operands *operands) noexcept nogil:
    """Add what decides a plan: which operands there are, then type, shape and strides of each."""
    cdef const Operand *all[6]
    cdef int64_t present = 0
    cdef int i, axis
    all[0], all[1], all[2], all[3], all[4], all[5] = (&operands.a, &operands.b, &operands.c, &operands.bias, &operands.aux, &operands.out)
    for i in range(6):
        if all[i].ndim >= 0:
            present |= <int64_t>1 << i
    key.add(present)
    for i in range(6):
        if all[i].ndim < 0:
            continue
        key.add((<int64_t>all[i].type << 8) | all[i].ndim)
        for axis in range(all[i].ndim):
            key.add(all[i].shape[axis])
            key.add(all[i].strides[axis])


cdef object info(const Operand *operand, bint packed=False):
    """Return the description of an operand that a Problem takes; None for an absent one."""
    if operand.ndim < 0:
        return None
    cdef int axis
    return OperandInfo(
        tuple([operand.shape[axis] for axis in range(operand.ndim)]),
        tuple([operand.strides[axis] for axis in range(operand.ndim)]),
        array_type_of_hip(operand.type).name.decode(),
        packed,
    )


cdef object problem_of(Operands *operands, str epilogue, object dtype, object compute, object clamp):
    """Return the validated Problem of parsed operands."""
    return Problem.make(
        info(&operands.a),
        info(&operands.b, operands.packed),
        info(&operands.c),
        bias=info(&operands.bias),
        aux=info(&operands.aux),
        out=info(&operands.out),
        epilogue=epilogue,
        dtype=None if dtype is None else _dtype(dtype).name,
        compute=compute,
        clamp=clamp,
    )


cdef object sole_aux(object aux):
    """Return the matrix of an aux given as the dict that a forward epilogue returned, or as itself."""
    if type(aux) is not dict:
        return aux
    found = [value for key, value in aux.items() if isinstance(key, str) and key.endswith("_aux")]
    if len(found) != 1:
        raise InvalidProblemError(
            f"aux: a dict with keys {list(aux)}; it must have one that ends in _aux, as the dict of an _aux epilogue has"
        )
    return found[0]


cdef tuple parse_all(Operands *operands, object a, object b, object c, object bias, object aux, object out):
    """Parse every operand; returns what must be kept alive beside the operands themselves, if anything. A Weight brings its own memory."""
    cdef Weight weight
    operands.packed = False
    operands.c.ndim = operands.bias.ndim = operands.aux.ndim = operands.out.ndim = -1
    cdef object kept_a = _operand.parse(a, "a", &operands.a)
    cdef object kept_b, kept_c = None, kept_bias = None, kept_aux = None, kept_out = None
    if type(b) is Weight:
        weight = <Weight>b
        weight.current()
        operands.b = weight.operand
        operands.packed = weight.packed
        kept_b = weight
    else:
        kept_b = _operand.parse(b, "b", &operands.b)
    same_place(&operands.a, &operands.b, "b")
    if c is not None:
        kept_c = parse_one(c, "c", &operands.c, &operands.a)
    if bias is not None:
        kept_bias = parse_one(bias, "bias", &operands.bias, &operands.a)
    if aux is not None:
        kept_aux = parse_one(aux, "aux", &operands.aux, &operands.a)
    if out is not None:
        kept_out = parse_one(out, "out", &operands.out, &operands.a)
        check_out(operands, &operands.out)
    if kept_a is a and kept_b is b and kept_c is c and kept_bias is bias and kept_aux is aux and kept_out is out:
        return None
    return (kept_a, kept_b, kept_c, kept_bias, kept_aux, kept_out)


cdef object parse_one(object array, str name, Operand *operand, const Operand *a):
    """Parse an operand that must lie where a lies; returns what must be kept alive."""
    cdef object kept = _operand.parse(array, name, operand) if name != "out" else _operand.parse_output(array, name, operand)
    same_place(a, operand, name)
    return kept


cdef int same_place(const Operand *a, const Operand *other, str name) except -1:
    if a.device_type != other.device_type or a.device_id != other.device_id:
        raise InvalidOperandError(
            f"{name} is on {device_name(other.device_type, other.device_id)} and a on "
            f"{device_name(a.device_type, a.device_id)}; move one, so that all operands are on one device"
        )
    return 0


cdef void span(const Operand *operand, size_t *low, size_t *high) noexcept nogil:
    """The addresses that an operand's elements lie in; strides may be negative."""
    cdef size_t size = <size_t>1 << array_type_of_hip(operand.type).shift
    cdef int axis
    low[0] = high[0] = <size_t>operand.data
    for axis in range(operand.ndim):
        if operand.shape[axis] == 0:
            high[0] = low[0]
            return
        if operand.strides[axis] > 0:
            high[0] += <size_t>(operand.strides[axis] * (operand.shape[axis] - 1)) * size
        else:
            low[0] -= <size_t>(-operand.strides[axis] * (operand.shape[axis] - 1)) * size
    high[0] += size


cdef int check_out(Operands *operands, const Operand *out) except -1:
    cdef size_t low = 0, high = 0, other_low = 0, other_high = 0
    cdef const Operand *others[4]
    cdef int i
    cdef bint same
    others[0], others[1], others[2], others[3] = &operands.a, &operands.b, &operands.aux, &operands.bias
    span(out, &low, &high)
    for i in range(4):
        if others[i].ndim < 0 or (i == 1 and operands.packed):
            continue
        span(others[i], &other_low, &other_high)
        if other_low < high and low < other_high:
            name = ("a", "b", "aux", "bias")[i]
            raise InvalidOperandError(f"out shares memory with {name}, which is read while out is written; pass another array")
    if operands.c.ndim >= 0:
        span(&operands.c, &other_low, &other_high)
        if other_low < high and low < other_high:
            same = operands.c.data == out.data and operands.c.ndim == out.ndim
            for i in range(operands.c.ndim):
                same = same and operands.c.shape[i] == out.shape[i] and operands.c.strides[i] == out.strides[i]
            if not same:
                raise InvalidOperandError("out overlaps c without being c; pass c itself or another array")
    return 0


cdef str device_name(int device_type, int device_id):
    cdef str name = _DEVICE_NAMES[device_type] if 0 < device_type < len(_DEVICE_NAMES) else f"device type {device_type}"
    return name if device_type == 1 else f"{name} {device_id}"
