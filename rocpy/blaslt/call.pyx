# SPDX-License-Identifier: MIT
# distutils: language = c++
"""The function form: parse the operands, find the plan, launch. A call whose plan is kept does nothing else."""

from libc.string cimport memcpy

from rocpy cimport _core
from rocpy cimport _operand
from rocpy.blaslt.weight cimport Weight
from rocpy.runtime.stream cimport hold

from rocpy.blaslt import lowering as _lowering
from rocpy.blaslt import matmul as _policy
from rocpy.blaslt import options as _options
from rocpy.blaslt.epilogues import EPILOGUES, find_epilogue
from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.dtypes import dtype as _dtype
from rocpy.dtypes import dtype_of_hip as _dtype_of_hip
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError, UnsupportedError

cdef extern from "table.hpp" namespace "rocpy" nogil:
    struct Table:
        int (*hipGetDevice)(int *device)
        int (*hipStreamQuery)(hipStream_t stream)
        int (*hipStreamSynchronize)(hipStream_t stream)
        int (*hipMemsetAsync)(void *dst, int value, size_t bytes, hipStream_t stream)
    Table table

cdef extern from *:
    """
    static inline rocpy::Status hip_status(int code, const char *function) { return {rocpy::Library::hip, code, function}; }
    """
    Status hip_status(int code, const char *function) nogil

# Products under this many floating-point operations are launched with the GIL held: giving it up and back costs more than they take.
cdef double _SYNCHRONOUS_FLOPS = 2e5
cdef int _CPU = 1  # kDLCPU
cdef int _CPU_PINNED = 3  # kDLROCMHost is 11
cdef int _HIP_NOT_READY = 600

cdef dict _EPILOGUE_INDEX = {}
cdef list _EPILOGUE_NAMES = list(EPILOGUES)
cdef dict _DTYPE_CODES = {}


cdef inline int epilogue_index(object epilogue) except -1:
    """Return the place of an epilogue's row; names are resolved and refused by find_epilogue once."""
    if epilogue is None:
        return 0
    cdef object index = _EPILOGUE_INDEX.get(epilogue) if isinstance(epilogue, str) else None
    if index is None:
        index = _EPILOGUE_NAMES.index(find_epilogue(epilogue).name)
        _EPILOGUE_INDEX[epilogue] = index
    return index


cdef inline int dtype_code(object dtype) except -2:
    """Return the hipDataType of a dtype given in any spelling, -1 for None."""
    if dtype is None:
        return -1
    cdef object code = _DTYPE_CODES.get(dtype)
    if code is None:
        code = _dtype(dtype).hip
        _DTYPE_CODES[dtype] = code
    return code


cdef inline double real(object value, str name) except? -1.0:
    """Return a host scalar as a double."""
    if type(value) is float:
        return <double>value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidOperandError(
            f"{name}: {value!r} ({type(value).__name__}); it must be a real number on the host"
        ) from None


cdef inline void describe(PlanKey *key, const Operand *operand) noexcept nogil:
    cdef int axis
    if operand.ndim < 0:
        key.add(-1)
        return
    key.add((<int64_t>operand.type << 8) | operand.ndim)
    for axis in range(operand.ndim):
        key.add(operand.shape[axis])
        key.add(operand.strides[axis])


cdef object info(const Operand *operand, bint packed=False):
    """Return the description of an operand that a Problem takes; None for an absent one."""
    if operand.ndim < 0:
        return None
    cdef int axis
    return OperandInfo(
        tuple([operand.shape[axis] for axis in range(operand.ndim)]),
        tuple([operand.strides[axis] for axis in range(operand.ndim)]),
        _dtype_of_hip(operand.type).name,
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


cdef int fill_layout(LayoutSpec *spec, object layout, int32_t type) except -1:
    spec.type = type
    spec.order = 0
    spec.rows = layout.rows
    spec.columns = layout.columns
    spec.ld = layout.ld
    spec.batch_stride = layout.batch_stride
    return 0


cdef int fill_shape(int32_t *ndim, int64_t *extents, tuple shape) except -1:
    cdef int axis
    ndim[0] = <int32_t>len(shape)
    for axis in range(len(shape)):
        extents[axis] = shape[axis]
    return 0


cdef shared_ptr[CachedCall] build(object problem, object options, StreamContext *context, bint packed, int requested) except *:
    """Plan a problem. The cases with nothing to launch, and those where operands must be copied first, are calls of their own kind."""
    cdef shared_ptr[CachedCall] result
    cdef CachedCall *call = new CachedCall()
    result.reset(call)
    cdef object row = problem.row
    cdef int32_t d_type = _dtype(problem.dtype).hip
    cdef int32_t in_type = _dtype(problem.a.dtype).hip
    call.result_type = d_type
    fill_shape(&call.result_ndim, call.result_shape, problem.result_shape)
    if row.aux == "store":
        call.extra_is_aux = True
        fill_shape(&call.extra_ndim, call.extra_shape, problem.result_shape)
    elif row.gradient:
        fill_shape(&call.extra_ndim, call.extra_shape, problem.gradient_shape)
    if problem.m == 0 or problem.n == 0 or problem.batch == 0:
        return result

    cdef object lowered = _lowering.lower(problem)
    cdef str name
    if lowered.copies:
        for name in lowered.copies:
            call.copies |= 1 << _policy.COPY_BITS[name]
        return result

    cdef MatmulSpec spec
    spec = MatmulSpec()
    cdef object axis
    cdef int i, j
    cdef int32_t left, right
    spec.compute = lowered.compute
    spec.scale_type = lowered.scale_type
    spec.op_a = lowered.op_a
    spec.op_b = lowered.op_b
    fill_layout(&spec.a, lowered.a, in_type)
    fill_layout(&spec.b, lowered.b, in_type)
    fill_layout(&spec.c, lowered.c, d_type)
    fill_layout(&spec.d, lowered.d, d_type)
    if packed:
        spec.a.order = _policy.ORDER_PACKED
    spec.batch_count = lowered.batch_count
    spec.epilogue = lowered.epilogue
    spec.uses_bias = row.bias or bool(row.gradient)
    spec.bias_type = _dtype(problem.bias.dtype).hip if problem.bias is not None else d_type
    spec.bias_batch_stride = lowered.bias_batch_stride
    spec.uses_aux = row.aux != "none"
    spec.aux_type = d_type
    spec.aux_ld = lowered.aux_ld
    spec.aux_batch_stride = lowered.aux_batch_stride
    if row.clamp:
        spec.has_activation_arguments = True
        spec.activation_low, spec.activation_high = problem.clamp
    # The operands' places in the library's order; sizes in bytes for the loop over batch axes.
    cdef dict places = {
        "a": <int>operand_b if lowered.swapped else <int>operand_a,
        "b": <int>operand_a if lowered.swapped else <int>operand_b,
        "c": <int>operand_c, "d": <int>operand_d, "bias": <int>operand_bias, "aux": <int>operand_aux,
    }
    cdef dict sizes = {
        "a": in_type, "b": in_type, "c": d_type, "d": d_type, "bias": spec.bias_type, "aux": d_type,
    }
    spec.outer_ndim = <int32_t>len(lowered.outer_shape)
    for j in range(spec.outer_ndim):
        spec.outer_shape[j] = lowered.outer_shape[j]
    for name, strides in lowered.outer_strides.items():
        i = places[name]
        for j in range(spec.outer_ndim):
            spec.outer_stride_bytes[i][j] = strides[j] * (_dtype_of_hip(sizes[name]).bits // 8)

    cdef size_t limit = options.max_workspace_bytes
    cdef Status status
    with nogil:
        status = MatmulPlan.create(spec, context, limit, requested, &call.plan)
    _core.check(status)
    if call.plan.algorithms().empty():
        raise UnsupportedError(_policy.nothing_found(problem, options))
    call.swapped = lowered.swapped
    call.synchronous = call.plan.flops() <= _SYNCHRONOUS_FLOPS
    return result


cdef inline void set_up(Operand *out, const Operand *like, int32_t type, int32_t ndim, const int64_t *shape) noexcept nogil:
    out.type = type
    out.device_type = like.device_type
    out.device_id = like.device_id
    out.ndim = ndim
    memcpy(out.shape, shape, <size_t>ndim * sizeof(int64_t))


cdef object execute(CachedCall *call, Operands *operands, object owner, object out, tuple held, double alpha, double beta, size_t algorithm,
                    int device, hipStream_t c_stream, bint wait):
    """Allocate what is to be returned, launch, and keep or wait for what the stream still uses. `owner` is the user's a."""
    cdef Operand d, extra
    cdef object result = out, extra_result = None
    cdef MatmulPointers pointers
    cdef StreamContext *context = NULL
    cdef Status status
    cdef int code
    if out is None:
        set_up(&d, &operands.a, call.result_type, call.result_ndim, call.result_shape)
        result = _operand.allocate(owner, operands.a.provider, &d)
        pointers.d = d.data
    else:
        pointers.d = operands.out.data
    pointers.bias = operands.bias.data if operands.bias.ndim >= 0 else NULL
    pointers.aux = operands.aux.data if operands.aux.ndim >= 0 else NULL
    if call.extra_ndim >= 0:
        set_up(&extra, &operands.a, call.result_type, call.extra_ndim, call.extra_shape)
        extra_result = _operand.allocate(owner, operands.a.provider, &extra)
        if call.extra_is_aux:
            pointers.aux = extra.data
        else:
            pointers.bias = extra.data
    if call.plan == NULL:
        # No elements in the result, but perhaps in a bias gradient: a sum of nothing.
        if call.extra_ndim >= 0:
            clear(&extra, c_stream)
        return result if extra_result is None else (result, extra_result)
    if call.swapped:
        pointers.a = operands.b.data
        pointers.b = operands.a.data
    else:
        pointers.a = operands.a.data
        pointers.b = operands.b.data
    pointers.c = operands.c.data if operands.c.ndim >= 0 else NULL

    if call.synchronous:
        status = borrow_context(device, c_stream, &context)
        if status.ok():
            status = call.plan.launch(context, pointers, alpha, beta, algorithm)
            release_context(context)
    else:
        with nogil:
            status = borrow_context(device, c_stream, &context)
            if status.ok():
                status = call.plan.launch(context, pointers, alpha, beta, algorithm)
                release_context(context)
    _core.check(status)
    if wait:
        if table.hipStreamQuery(c_stream) == _HIP_NOT_READY:
            with nogil:
                code = table.hipStreamSynchronize(c_stream)
            _core.check(hip_status(code, b"hipStreamSynchronize"))
    elif operands.a.device_type == _CPU:
        # CPU memory is freed at once, not in stream order.
        hold(c_stream, device, (held, result, extra_result))
    return result if extra_result is None else (result, extra_result)


cdef int clear(Operand *operand, hipStream_t c_stream) except -1:
    cdef size_t bytes = _dtype_of_hip(operand.type).bits // 8
    cdef int axis
    for axis in range(operand.ndim):
        bytes *= <size_t>operand.shape[axis]
    if bytes:
        _core.check(hip_status(table.hipMemsetAsync(operand.data, 0, bytes, c_stream), b"hipMemsetAsync"))
        _core.check(hip_status(table.hipStreamSynchronize(c_stream), b"hipStreamSynchronize"))
    return 0


cdef int place_of(const Operand *like, object stream, int *device, hipStream_t *out) except -1:
    """Resolve device and stream of a call. Returns 1 when the call must be done on return: CPU arrays and no stream given."""
    _operand.stream_of(stream, like, out)
    if like.device_type == _CPU:
        _core.check(hip_status(table.hipGetDevice(device), b"hipGetDevice"))
        return stream is None
    device[0] = like.device_id
    return 0


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
    """Parse every operand; returns what must be kept alive. A Weight in place of b brings its memory, and its bias if none is given."""
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
        kept_c = _operand.parse(c, "c", &operands.c)
        same_place(&operands.a, &operands.c, "c")
    if bias is not None:
        kept_bias = _operand.parse(bias, "bias", &operands.bias)
        same_place(&operands.a, &operands.bias, "bias")
    if aux is not None:
        kept_aux = _operand.parse(aux, "aux", &operands.aux)
        same_place(&operands.a, &operands.aux, "aux")
    if out is not None:
        kept_out = _operand.parse(out, "out", &operands.out)
        same_place(&operands.a, &operands.out, "out")
        check_out(operands)
    return (kept_a, kept_b, kept_c, kept_bias, kept_aux, kept_out)


cdef inline int same_place(const Operand *a, const Operand *other, str name) except -1:
    if a.device_type != other.device_type or a.device_id != other.device_id:
        raise InvalidOperandError(
            f"{name} is on {_policy.device_name(other.device_type, other.device_id)} and a on "
            f"{_policy.device_name(a.device_type, a.device_id)}; move one, so that all operands are on one device"
        )
    return 0


cdef void span(const Operand *operand, size_t *low, size_t *high) noexcept nogil:
    """The addresses that an operand's elements lie in; strides may be negative."""
    cdef size_t size = size_of(operand.type)
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


cdef inline size_t size_of(int32_t type) noexcept nogil:
    # hipDataType numbers of the types a product takes: 32F, 64F, 16F, 16BF.
    return 8 if type == 1 else 4 if type == 0 else 2


cdef int check_out(Operands *operands) except -1:
    cdef size_t low, high, other_low, other_high
    cdef const Operand *others[4]
    cdef int i
    cdef bint same
    if operands.out.read_only:
        raise InvalidOperandError("out is read-only; pass a writable array")
    others[0], others[1], others[2], others[3] = &operands.a, &operands.b, &operands.aux, &operands.bias
    span(&operands.out, &low, &high)
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
            same = operands.c.data == operands.out.data and operands.c.ndim == operands.out.ndim
            for i in range(operands.c.ndim):
                same = same and operands.c.shape[i] == operands.out.shape[i] and operands.c.strides[i] == operands.out.strides[i]
            if not same:
                raise InvalidOperandError("out overlaps c without being c; pass c itself or another array")
    return 0


cdef object product(object a, object b, object c, object alpha, object beta, object epilogue, object bias, object aux, object clamp,
                    object dtype, object compute, object out, object options, object stream):
    """One product from start to end. Calls itself at most once, with the operands that had to be copied."""
    cdef Operands operands
    cdef PlanKey key
    cdef shared_ptr[CachedCall] call
    cdef int index, device = 0
    cdef hipStream_t c_stream = NULL
    cdef double c_alpha, c_beta, low, high
    cdef int64_t word
    cdef StreamContext *context = NULL
    cdef object row = None, resolved = None
    _core.ensure()
    index = epilogue_index(epilogue)
    if aux is not None:
        aux = sole_aux(aux)
    if bias is None and type(b) is Weight and _TAKES_BIAS[index]:
        bias = (<Weight>b).bias
    cdef tuple held = parse_all(&operands, a, b, c, bias, aux, out)
    if _policy.staged and operands.a.device_type == _CPU:
        return _policy.staged_product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, stream)
    c_alpha = real(alpha, "alpha")
    if beta is None:
        c_beta = 1.0 if c is not None else 0.0
    else:
        c_beta = real(beta, "beta")
        if c is None and c_beta != 0.0:
            raise InvalidProblemError(f"beta = {c_beta} scales c, and there is no c; pass c= or leave beta away")
    wait = place_of(&operands.a, stream, &device, &c_stream)

    # The key: everything that decides a plan.
    key.size = 0
    word = index | (<int64_t>(dtype_code(dtype) & 0xffff) << 8)
    if compute is not None:
        word |= <int64_t>(1 + _policy.compute_code(compute)) << 24
    if operands.packed:
        word |= <int64_t>1 << 28
    key.add(word)
    key.add(device)
    if clamp is not None:
        clamp = _policy.clamp_bounds(clamp)
        low, high = clamp
        memcpy(&word, &low, sizeof(word))
        key.add(word)
        memcpy(&word, &high, sizeof(word))
        key.add(word)
    if options is not None or _options.active_contexts:
        resolved = _options.resolve_options(options)
        key.add(hash(resolved))
    describe(&key, &operands.a)
    describe(&key, &operands.b)
    describe(&key, &operands.c)
    describe(&key, &operands.bias)
    describe(&key, &operands.aux)
    describe(&key, &operands.out)

    if key.fits():
        call = plan_cache().find(key)
    if call.get() == NULL:
        problem = problem_of(&operands, _EPILOGUE_NAMES[index], dtype, compute, clamp)
        if resolved is None:
            resolved = _options.current_options()
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            call = build(problem, resolved, context, operands.packed, 1)
        finally:
            release_context(context)
        if key.fits():
            plan_cache().insert(key, call)

    cdef CachedCall *found = call.get()
    if found.copies:
        if resolved is None:
            resolved = _options.resolve_options(options)
        return _policy.copied_product(
            product_again, found.copies, resolved, (a, b, c, bias, aux, out), held,
            tuple([found.result_shape[axis] for axis in range(found.result_ndim)]), _dtype_of_hip(found.result_type).name,
            dict(alpha=alpha, beta=beta, epilogue=epilogue, clamp=clamp, dtype=dtype, compute=compute, options=options, stream=stream),
            wait,
        )
    cdef object result = execute(found, &operands, a, out, held, c_alpha, c_beta, 0, device, c_stream, wait)
    if out is not None:
        _operand.written(out, operands.out.provider)
    if found.extra_ndim >= 0:
        return result[0], {_EXTRA_NAMES[index]: result[1]}
    return result


def product_again(a, b, c, bias, aux, out, *, alpha, beta, epilogue, clamp, dtype, compute, options, stream):
    """Run a product whose operands were copied; for rocpy.blaslt.matmul."""
    return product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, stream)


def matmul(a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
           scale_a=None, scale_b=None, scale_c=None, scale_d=None, bint amax=False, dtype=None, compute=None, out=None,
           options=None, algorithm=None, autotune=None, stream=None):
    """Return ``epilogue(alpha * a @ b + beta * c + bias)``, fused into one product.

    Plans are kept: a second call with the same shapes, types and epilogue does no planning. For choosing among algorithms, keep a
    :class:`rocpy.Matmul`.

    Parameters
    ----------
    a
        Left operand, shape ``(..., M, K)`` or ``(K,)``: torch, numpy (with ml_dtypes) or any array with DLPack.
    b
        Right operand, shape ``(..., K, N)`` or ``(K,)``, of a's dtype and on a's device, or a :class:`rocpy.Weight`. Batch axes broadcast.
    c
        Addend of the result's dtype, broadcast to the result's shape.
    alpha, beta
        Host scalars; ``beta`` defaults to 1 when ``c`` is given. With ``beta=0``, ``c`` is not read.
    epilogue
        Name or :class:`rocpy.Epilogue`; ``"gelu"`` is the tanh form.
    bias
        For epilogues with a bias: length N, the last axis of the result, or ``(batch, N)``.
    aux
        For gradient epilogues: the pre-activation, as the array or as the dict that the forward call returned.
    clamp
        ``(low, high)`` of the clamp epilogues.
    epilogue_inputs, scale_a, scale_b, scale_c, scale_d, amax, autotune
        Not supported yet; anything but the default raises UnsupportedError.
    dtype
        Element type of the result: that of ``a`` by default; float16 and bfloat16 products also give float32.
    compute
        ``"tf32"`` allows reduced precision inside a float32 product.
    out
        Array that receives the result; any layout, but not memory that is read.
    options
        :class:`rocpy.blaslt.Options` or a dict.
    algorithm
        A :class:`rocpy.blaslt.Algorithm` of this problem, instead of the first.
    stream
        Stream that orders the product; ``None``: the current stream of the operands' framework.

    Returns
    -------
    array
        Of a's framework, on its device, row-major unless ``out`` says otherwise. With an ``_aux`` or bias-gradient epilogue, a pair
        of it and a dict.

    Raises
    ------
    InvalidOperandError
        If an operand is not an array, is on another device, or ``out`` cannot be written.
    InvalidProblemError
        If shapes or dtypes do not fit, or an operand of the epilogue is missing or too many.
    UnsupportedError
        If the platform has no algorithm, or a torch operand requires a gradient.

    Notes
    -----
    Stream: CPU arrays with ``stream=None`` are done on return; otherwise the call returns when the product is queued.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> rocpy.matmul(a, b, epilogue="relu_bias", bias=np.full(4, -1, np.float32))
    array([[2., 2., 2., 2.],
           [2., 2., 2., 2.]], dtype=float32)
    """
    if (epilogue_inputs is not None or scale_a is not None or scale_b is not None or scale_c is not None or scale_d is not None
            or amax or autotune):
        _policy.refuse_later(epilogue_inputs=epilogue_inputs, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
                             amax=amax, autotune=autotune)
    if algorithm is not None:
        return _policy.forced_product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, algorithm, stream)
    return product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, stream)


cdef list _TAKES_BIAS = [row.bias for row in EPILOGUES.values()]
cdef list _EXTRA_NAMES = [row.outputs[0] if row.outputs else None for row in EPILOGUES.values()]
