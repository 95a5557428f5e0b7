# SPDX-License-Identifier: MIT
"""The operands of a call: parsed, checked against each other, and described as plan keys and as problems."""

from libc.stdint cimport int32_t, int64_t

from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip, kDLCPU, kDLROCMHost
from rocpy._memory_record cimport MemoryRecord, record_of
from rocpy._operand cimport Operand
from rocpy._producers.torch_tensors cimport dispatch_reason
from rocpy.blaslt.engine.launch cimport CachedCall, Completion, MatmulFactors, PlanKey, ScaleSettings, refuse_capture
from rocpy.blaslt.model.packed cimport Packed, parse_packed
from rocpy.blaslt.engine._scales cimport Scales, check_arguments_apart
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.runtime.handles.call_stream cimport await_call_stream, device_type_of

from rocpy.blaslt.model.epilogues import EPILOGUES, find_epilogue, stored_aux
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.refusals import cast_refused, conversion_refused, copy_refused, readable_form
from rocpy.blaslt.model.product_types import check_cast
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.settings import ARRAYS, check_whole_factors, complex_number, real_number
from rocpy.blaslt.model.shapes import matrix_layout
from rocpy.dtypes import lookup as _dtype
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

cdef dict _EPILOGUE_INDEX = {}
cdef dict _DTYPE_CODES = {}
EPILOGUE_NAMES = list(EPILOGUES)
cdef dict _SCALE_KINDS = {"": 0, "scalar": 1, "vector": 2, "block32": 3}
cdef str _READABLE = "pass an array that can be read as it is: aligned, in native byte order, resolved"
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


cdef int check_number(object value, str name) except -1:
    """Refuse a tensor as a host scalar where torch records or transforms what is done with it; an array's number is ready afterwards."""
    cdef object reason = None
    if hasattr(type(value), "__dlpack_device__"):
        await_call_stream(device_type_of(value))
    if hasattr(type(value), "requires_grad"):
        reason = dispatch_reason(value)
    if reason is not None:
        raise UnsupportedError(
            f"{name}: a tensor, and {reason}; {name} is a host number, through which no gradient flows: pass "
            f"float({name}.detach()), "
            "or multiply by the tensor")
    return 0


cdef double real(object value, str name) except? -1.0:
    """Return a host scalar as a double."""
    if type(value) is float:
        return <double>value
    check_number(value, name)
    try:
        return real_number(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidOperandError(
            f"{name}: got {value!r} ({type(value).__name__}), expected a real number on the host"
        ) from None


cdef int read_factor(object value, str name, int32_t element, double *number, double *imaginary) except -1:
    if element in (4, 5):  # HIP_C_32F, HIP_C_64F
        check_number(value, name)
        try:
            whole = complex_number(value)
        except (TypeError, ValueError, OverflowError):
            raise InvalidOperandError(
                f"{name}: got {value!r} ({type(value).__name__}), expected a number on the host"
            ) from None
        number[0], imaginary[0] = whole.real, whole.imag
        return 0
    number[0] = real(value, name)
    return 0


cdef int read_factors(MatmulFactors *factors, object alpha, object beta, object c, int32_t element) except -1:
    """Read alpha and beta, complex ones for complex operands; beta is 1 by default where there is a c."""
    if type(alpha) is float and beta is None:
        factors.alpha = <double>alpha
        factors.beta = 1.0 if c is not None else 0.0
        return 0
    read_factor(alpha, "alpha", element, &factors.alpha, &factors.alpha_imaginary)
    if beta is None:
        factors.beta = 1.0 if c is not None else 0.0
        return 0
    read_factor(beta, "beta", element, &factors.beta, &factors.beta_imaginary)
    if c is None and (factors.beta != 0.0 or factors.beta_imaginary != 0.0):
        raise InvalidProblemError(f"beta = {beta} scales c, and there is no c; pass c= or omit beta")
    return 0


cdef int reset_factors(MatmulFactors *factors, object alpha, object beta, object c, int32_t element) except -1:
    """Read a new alpha or beta or both; what is None stays."""
    cdef MatmulFactors fresh
    if alpha is not None:
        read_factors(&fresh, alpha, None, c, element)
        factors.alpha, factors.alpha_imaginary = fresh.alpha, fresh.alpha_imaginary
    if beta is not None:
        read_factors(&fresh, 1.0, beta, c, element)
        factors.beta, factors.beta_imaginary = fresh.beta, fresh.beta_imaginary
    return 0


cdef Operand *operand_named(Operands *operands, str name) noexcept:
    if name == "a":
        return &operands.a
    if name == "b":
        return &operands.b
    if name == "c":
        return &operands.c
    return &operands.bias if name == "bias" else &operands.aux


cdef int check_whole(const MatmulFactors *factors) except -1:
    """An integer product is scaled by int32 numbers."""
    cdef double value
    for value in (factors.alpha, factors.beta):
        if not -2147483648.0 <= value <= 2147483647.0 or value != <double><int64_t>value:
            check_whole_factors(factors.alpha, factors.beta)
    return 0


cdef void describe_scales(PlanKey *key, Scales scales):
    """Add kinds and batch axes of the scales to a key."""
    cdef ScaleSettings settings
    settings.a, settings.b = _SCALE_KINDS[scales.problem.get("scale_a", "")], _SCALE_KINDS[scales.problem.get("scale_b", "")]
    settings.c, settings.d, settings.amax = "scale_c" in scales.problem, "scale_d" in scales.problem, scales.amax
    key.add_scales(settings)
    for name in ("scale_a_batch", "scale_b_batch"):
        batch = scales.problem.get(name, ())
        key.add(<int64_t>len(batch))
        for extent in batch:
            key.add(extent)


cdef void describe(PlanKey *key, const Operands *operands) noexcept nogil:
    """Add the operands that there are to a key."""
    cdef const Operand *all[6]
    cdef int i
    all[0], all[1], all[2], all[3], all[4], all[5] = (&operands.a, &operands.b, &operands.c, &operands.bias, &operands.aux, &operands.out)
    for i in range(6):
        if all[i].ndim >= 0:
            key.add_operand(i, all[i][0])


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


cdef object problem_of(const Operands *operands, str epilogue, object dtype, object compute, object clamp, Scales scales=None):
    """Return the validated Problem of parsed operands."""
    cdef dict more = {} if scales is None else scales.problem
    if operands.a.conjugated or operands.b.conjugated:
        more = {**more, "conj_a": bool(operands.a.conjugated), "conj_b": bool(operands.b.conjugated)}
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
        **more,
    )


cdef object sole_aux(object aux):
    """Return the matrix of an aux given as the dict that a forward epilogue returned, or as itself."""
    return stored_aux(aux) if type(aux) is dict else aux


cdef inline object parse_right(object b, Operands *operands):
    cdef WeightSnapshot weight
    operands.packed = False
    if not isinstance(b, WeightOperand):
        return parse_factor(b, "b", &operands.b)
    weight = <WeightSnapshot>(<WeightOperand>b).read()
    operands.b = weight.operand
    operands.packed = weight.packed
    return weight


cdef tuple parse_read(Operands *operands, object a, object b, object c):
    """Parse what a product reads, to compare an out with it; returns what must be kept alive meanwhile."""
    operands.c.ndim = operands.bias.ndim = operands.aux.ndim = operands.out.ndim = -1
    owner_a, owner_b = parse_factor(a, "a", &operands.a), parse_right(b, operands)
    return owner_a, owner_b, None if c is None else _operand.parse(c, "c", &operands.c)


cdef tuple parse_all(Operands *operands, object a, object b, object c, object bias, object aux, object out):
    """Parse every operand; returns what must be kept alive beside the operands themselves, if anything. What is read of a Weight owns its
    memory."""
    operands.c.ndim = operands.bias.ndim = operands.aux.ndim = operands.out.ndim = -1
    cdef object owner_a = parse_factor(a, "a", &operands.a)
    cdef object owner_b = parse_right(b, operands), owner_c = None, owner_bias = None, owner_aux = None, owner_out = None
    check_same_device(&operands.a, &operands.b, "b")
    if c is not None:
        owner_c = parse_one(c, "c", &operands.c, &operands.a)
    if bias is not None:
        owner_bias = parse_one(bias, "bias", &operands.bias, &operands.a)
    if aux is not None:
        owner_aux = parse_one(aux, "aux", &operands.aux, &operands.a)
    if out is not None:
        owner_out = parse_one(out, "out", &operands.out, &operands.a)
        check_out(operands, &operands.out)
    if owner_a is a and owner_b is b and owner_c is c and owner_bias is bias and owner_aux is aux and owner_out is out:
        return None
    return (owner_a, owner_b, owner_c, owner_bias, owner_aux, owner_out)


cdef bint reads_copy(MemoryRecord record, const Operand *operand) noexcept:
    return operand.copied if record is None else record.is_elsewhere(operand.data)


cdef int check_copies(tuple arrays, const Operands *operands, Scales scales, Completion completion, object options) except -1:
    cdef const Operand *each[5]
    cdef str name
    cdef int i
    each[0], each[1], each[2], each[3], each[4] = &operands.a, &operands.b, &operands.c, &operands.bias, &operands.aux
    for i in range(5):
        if each[i].ndim < 0 or isinstance(arrays[i], WeightOperand):
            continue
        if not each[i].copied and completion != Completion.CAPTURE:
            continue
        name = ARRAYS[i]
        if completion == Completion.CAPTURE and reads_copy(record_of(arrays[i], name), each[i]):
            refuse_capture(completion, f"a copy of {name} is read", form_of_copied(name, scales))
        if each[i].copied and resolve_options(options).copies == "error":
            raise conversion_refused(name, info(each[i]).text)
    if scales is not None and scales.copied is not None:
        refuse_capture(completion, f"a copy of {scales.copied} is read", scales.form)
    return 0


cdef str form_of_copied(str name, Scales scales):
    """Return what to pass so that an operand or a scale is read where it lies."""
    if scales is not None and name == scales.copied:
        return scales.form
    if scales is not None and name in ("a", "b") and scales.problem.get("scale_a") == "block32":
        return readable_form(name, blocks=True)
    return _READABLE


cdef inline object parse_factor(object array, str name, Operand *operand):
    if type(array) is Packed:
        return parse_packed(<Packed>array, name, operand)
    return _operand.parse_lazy(array, name, operand)


cdef bint must_be_staged(object a, tuple others) except? -1:
    """Whether operands lie in CPU memory, on a platform whose device has its own: a does, or another one beside pinned memory."""
    cdef Operand seen
    parse_factor(a, "a", &seen)
    if seen.device_type != kDLROCMHost:
        return seen.device_type == kDLCPU
    for other in others:
        if other is not None and not isinstance(other, WeightOperand):
            parse_factor(other, "operand", &seen)
            if seen.device_type == kDLCPU:
                return True
    return False


cdef dict staged_infos(tuple arrays, ScaleArguments scales, object options, bint of_weight):
    """Return what a Problem needs of operands that will be copied to the device, by name. Their places and shared memory are checked here.

    `arrays` are named by ARRAYS; `of_weight`: b is of a Weight, and may be on the device already.
    """
    cdef Operands operands
    cdef Operand *each[6]
    cdef WeightSnapshot weight = None
    cdef int i
    cdef object b = arrays[1], out = arrays[5]
    each[0], each[1], each[2] = &operands.a, &operands.b, &operands.c
    each[3], each[4], each[5] = &operands.bias, &operands.aux, &operands.out
    if isinstance(b, WeightOperand):
        weight = <WeightSnapshot>(<WeightOperand>b).read()
    operands.packed = weight is not None
    for i, (name, array) in enumerate(zip(ARRAYS, arrays)):
        each[i].ndim = -1
        if i == 1 and operands.packed:
            operands.b = weight.operand
        elif array is not None or i < 2:
            if i < 2:
                parse_factor(array, name, each[i])
            elif i < 5:
                _operand.parse(array, name, each[i])
            else:
                _operand.parse_output(array, name, each[i])
            if not _operand.is_in_host_memory(each[i]) and not (i == 1 and of_weight):
                raise InvalidOperandError(
                    f"{name} is on {device_name(each[i].device_type, each[i].device_id)} and a on "
                    f"{device_name(operands.a.device_type, operands.a.device_id)}; move one, so that all operands are "
                    "on one device"
                )
    check_copies(arrays[:5], &operands, None, Completion.WAIT, options)
    if out is not None:
        check_out(&operands, &operands.out)
        if scales is not None:
            check_arguments_apart(scales, &operands.out)
    return {name: info(each[i], i == 1 and operands.packed and weight.packed) for i, name in enumerate(ARRAYS)}


cdef object parse_one(object array, str name, Operand *operand, const Operand *a):
    """Parse an operand that must lie where a lies; returns what must be kept alive."""
    cdef object owner = _operand.parse(array, name, operand) if name != "out" else _operand.parse_output(array, name, operand)
    check_same_device(a, operand, name)
    return owner


cdef int check_same_device(const Operand *a, const Operand *other, str name) except -1:
    if a.device_type != other.device_type or a.device_id != other.device_id:
        raise InvalidOperandError(
            f"{name} is on {device_name(other.device_type, other.device_id)} and a on "
            f"{device_name(a.device_type, a.device_id)}; move one, so that all operands are on one device"
        )
    return 0


cdef int check_out(const Operands *operands, const Operand *out, str name="out") except -1:
    """Refuse an out that has elements of an operand which is read while out is written; c itself may be out."""
    cdef const Operand *others[4]
    cdef const Operand *c = &operands.c
    cdef int i
    cdef bint same
    others[0], others[1], others[2], others[3] = &operands.a, &operands.b, &operands.aux, &operands.bias
    for i in range(4):
        if others[i].ndim < 0 or (i == 1 and operands.packed):
            continue
        if _operand.share_memory(out, others[i]):
            read = ("a", "b", "aux", "bias")[i]
            raise InvalidOperandError(
                f"{name} shares memory with {read}, which is read while {name} is written; pass another array"
            )
    if c.ndim >= 0 and _operand.share_memory(out, c):
        same = c.data == out.data and c.ndim == out.ndim
        for i in range(c.ndim):
            same = same and c.shape[i] == out.shape[i] and c.strides[i] == out.strides[i]
        if not same:
            raise InvalidOperandError(f"{name} overlaps c without being c; pass c itself or another array")
    return 0


cdef bint check_result(const Operand *out, tuple shape, int32_t element, object options, str name="out") except? -1:
    """Refuse an out of another shape than the result, of a type that the result is not cast to, or that the options forbid to copy to.
    True: it is dense and of the result's type, so that the result may be written straight into it."""
    cdef int64_t step = 1
    cdef int axis
    cdef bint dense = True, same = out.ndim == <int>len(shape)
    for axis in range(out.ndim - 1, -1, -1):
        if not same or out.shape[axis] != shape[axis]:
            same = False
            break
        dense = dense and (out.strides[axis] == step or out.shape[axis] == 1)
        step *= out.shape[axis]
    if not same:
        raise InvalidProblemError(
            f"{name}: shape {info(out).shape}, but the result has shape {shape}; pass {name}= of that shape"
        )
    if out.type != element:
        actual, dtype = array_type_of_hip(out.type).name.decode(), array_type_of_hip(element).name.decode()
        check_cast(dtype, actual, name=name)
        if resolve_options(options).copies == "error":
            raise cast_refused(actual, dtype, name)
        return False
    if not dense and out.ndim > 1 and resolve_options(options).copies == "error":
        layout = info(out)
        if matrix_layout(layout.shape[-2:], layout.strides[-2:]) is None:
            raise copy_refused(name, layout.text, readable_form("out"))
    return dense


cdef bint read_out(const CachedCall *call, const Operands *operands, object out, object prototype, object problem, object options, Operand *target) except? -1:
    """Parse out. True: it is dense and of the result's type, so that the product may be written straight into it."""
    if prototype is None:
        parse_one(out, "out", target, &operands.a)
        check_out(operands, target)
    else:  # the operands are copies on the device, so that out cannot share memory with them
        _operand.parse_output(out, "out", target)
    return check_result(target, <tuple>problem.result_shape, call.result_type, options) and prototype is None and not call.transposed


cdef str device_name(int device_type, int device_id):
    cdef str name = _DEVICE_NAMES[device_type] if 0 < device_type < len(_DEVICE_NAMES) else f"device type {device_type}"
    if device_type == 1:  # jax numbers devices that all are the CPU
        return f"{name} of device {device_id}" if device_id else name
    return f"{name} {device_id}"
