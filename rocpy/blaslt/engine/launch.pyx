# SPDX-License-Identifier: MIT
"""The launch of a plan: allocate the result, enqueue, keep what the stream still reads."""

from cpython.exc cimport PyErr_Clear
from cpython.ref cimport Py_INCREF
from libc.string cimport memcpy

cimport abi
from rocpy cimport _core
from rocpy cimport _operand
from rocpy._dlpack cimport DLDeviceType, array_type_of_hip
from rocpy._memory_record cimport pinned_memories
from rocpy._producers.torch_tensors cimport torch_api
from rocpy.blaslt.engine._scales cimport scale_a, scale_amax, scale_b, without_factors
from rocpy.runtime._capture cimport capture_of, is_foreign, keep_with_foreign_graph
from rocpy.runtime.device cimport enter, leave
from rocpy.runtime.handles.call_stream cimport await_handle
from rocpy.runtime.handles.keep_alive cimport hold
from rocpy.runtime.handles.stream_handle cimport StreamUse, device_of_stream, handle_of

from rocpy._messages.modules import imported
from rocpy.blaslt.model.algorithms import Algorithm, origin
from rocpy.errors import InvalidOperandError, UnsupportedError

cdef int _CPU = 1  # kDLCPU
cdef int _FLOAT32 = 0  # hipDataType


cdef list algorithms_of(CachedCall *call, int device):
    """Return the algorithms of a planned call as data, in the platform's order; empty where nothing is launched. With a device they tell
    what their ids hold for, which takes a handle the first time."""
    cdef list algorithms = []
    cdef const MatmulAlgorithm *algorithm
    cdef int32_t index = 0
    cdef size_t i
    if call.plan == NULL:
        return algorithms
    library, arch = ("", "") if device < 0 else origin(device)
    for i in range(call.plan.algorithms().size()):
        algorithm = &call.plan.algorithms()[i]
        memcpy(&index, &algorithm.algo, sizeof(index))
        # c_str: Cython would copy the string where nothing catches what that throws.
        algorithms.append(Algorithm(index, algorithm.name.c_str().decode(), algorithm.workspace_bytes, algorithm.waves, rank=<int>i,
                                    library=library, arch=arch, lowering="native" if call.plan.spec().program == NULL else "fused"))
    return algorithms


cdef inline void set_up(Operand *out, const Operand *like, int32_t type, int32_t ndim, const int64_t *shape) noexcept nogil:
    out.type = type
    out.device_type = like.device_type
    out.device_id = like.device_id
    out.ndim = ndim
    memcpy(out.shape, shape, <size_t>ndim * sizeof(int64_t))


cdef void aim(MatmulPointers *pointers, const CachedCall *call, const Operand *a, const Operand *b, const Operand *c) noexcept nogil:
    """Set where a product reads its factors and its addend, in the library's order."""
    pointers.a = b.data if call.swapped else a.data
    pointers.b = a.data if call.swapped else b.data
    pointers.c = c.data if c.ndim >= 0 else NULL


cdef object execute(const Launch *launch, object owner, object out, tuple held, Scales scales):
    """Allocate what is to be returned, launch, and keep or wait for what the stream still uses."""
    cdef CachedCall *call = launch.call
    cdef const Operands *operands = launch.operands
    cdef const Operand *a = &operands.a
    cdef Operand fresh, extra, amax
    cdef object result, extra_result = None, amax_result = None
    cdef MatmulPointers pointers
    if launch.out == NULL:
        set_up(&fresh, a, call.result_type, call.result_ndim, call.result_shape)
        result = _operand.allocate(owner, a.provider, &fresh)
        pointers.d = fresh.data
    else:
        result = out
        pointers.d = launch.out.data
    pointers.bias = operands.bias.data if operands.bias.ndim >= 0 else NULL
    pointers.aux = operands.aux.data if operands.aux.ndim >= 0 else NULL
    pointers.program = launch.program
    if call.extra_ndim >= 0:
        set_up(&extra, a, call.extra_type, call.extra_ndim, call.extra_shape)
        extra_result = _operand.allocate(owner, a.provider, &extra)
        if call.extra_is_aux:
            pointers.aux = extra.data
        else:
            pointers.bias = extra.data
    if scales is not None and scales.amax:
        set_up(&amax, a, _FLOAT32, 0, call.result_shape)
        amax_result = _operand.allocate(owner, a.provider, &amax)
    if call.plan == NULL:
        # No elements in the result, but perhaps in a bias gradient: a sum of nothing.
        if call.extra_ndim >= 0:
            clear(&extra, launch.stream)
        if amax_result is not None:
            clear(&amax, launch.stream)
    else:
        held = aim_and_enqueue(launch, &pointers, held, scales, &amax)
    finish(launch, held, result, extra_result, amax_result)
    return outputs(result, extra_result, amax_result)


cdef tuple aim_and_enqueue(const Launch *launch, MatmulPointers *pointers, tuple held, Scales scales, const Operand *amax):
    """Launch a product of which there is something to compute; returns what it reads beside the operands."""
    cdef CachedCall *call = launch.call
    cdef const Operand *a = &launch.operands.a
    aim(pointers, call, a, &launch.operands.b, &launch.operands.c)
    if scales is not None:
        if is_nothing(launch.factors.alpha, a) and not sums_operand(call):
            scales = without_factors(scales, a, &launch.operands.b, launch.device)
        aim_scales(pointers, call, scales)
        if scales.amax:
            pointers.scales[<int>scale_amax] = amax.data
        if launch.completion >= Completion.KEEP_ALIVE:
            held = (held, pinned_memories(scales.held))
        keep_with_foreign_graph(launch.stream, launch.device, scales.numbers)
    enqueue(launch, pointers)
    return held


cdef inline int finish(const Launch *launch, tuple held, object result, object extra, object amax) except -1:
    """Keep or wait for what the stream still uses."""
    if launch.completion == Completion.WAIT:
        if abi.slot_hipStreamQuery(launch.stream) != abi.hipSuccess:
            wait_or_keep(launch.stream, (held, result, extra, amax))
    elif launch.completion == Completion.KEEP_ALIVE:
        # Their owners may free the operands at once, or in the order of another stream.
        hold(launch.stream, launch.device, (held, pinned_memories((result, extra, amax))))
    elif launch.completion == Completion.CAPTURE:
        capture_of(launch.stream, launch.device).keep((held, pinned_memories((result, extra, amax))))
    return 0


cdef int wait_or_keep(hipStream_t stream, object objects) except -1:
    try:
        with nogil:
            await_handle(stream)
    except BaseException:
        Py_INCREF(objects)
        raise
    return 0


cdef bint sums_operand(const CachedCall *call) noexcept nogil:
    """Whether a product's bias gradient is a sum along a or b, which their scales multiply whatever alpha is."""
    return call.plan.spec().epilogue == abi.HIPBLASLT_EPILOGUE_BGRADA or call.plan.spec().epilogue == abi.HIPBLASLT_EPILOGUE_BGRADB


cdef inline void aim_scales(MatmulPointers *pointers, const CachedCall *call, Scales scales):
    memcpy(pointers.scales, scales.pointers, sizeof(pointers.scales))
    if call.swapped:
        pointers.scales[<int>scale_a] = scales.pointers[<int>scale_b]
        pointers.scales[<int>scale_b] = scales.pointers[<int>scale_a]


cdef inline int enqueue(const Launch *launch, const MatmulPointers *pointers) except -1:
    """Launch; without the GIL where the launch itself computes, or another thread uses the stream's context."""
    cdef StreamContext *context = NULL
    cdef Status status = borrow_context(launch.device, launch.stream, &context)
    if status.ok():
        if launch.call.synchronous and not context.launching.load():
            status = launch.call.plan.launch(context, pointers[0], launch.factors[0], launch.algorithm)
        else:
            with nogil:
                status = launch.call.plan.launch(context, pointers[0], launch.factors[0], launch.algorithm)
        release_context(context)
    if not status.ok() and launch.completion != Completion.CAPTURE:
        wait_if_running(launch.stream)  # some of the batch may be queued, and its operands are about to go
    return _core.check(status)


cdef bint overwrites_c(const Launch *launch) noexcept:
    cdef const Operand *c = &launch.operands.c
    return launch.out != NULL and c.ndim >= 0 and c.data == launch.out.data and launch.call.plan.spec().outer_ndim > 0


cdef inline object outputs(object result, object extra, object amax):
    if amax is not None:
        return (result, extra, amax)
    return result if extra is None else (result, extra)


cdef int clear(Operand *operand, hipStream_t c_stream) except -1:
    cdef size_t bytes = array_type_of_hip(operand.type).bits // 8
    cdef int axis
    for axis in range(operand.ndim):
        bytes *= <size_t>operand.shape[axis]
    if bytes:
        abi.hipMemsetAsync(operand.data, 0, bytes, c_stream)
    return 0


cdef Completion resolve_device_and_stream(const Operand *like, object stream, int *device, hipStream_t *out,
                                          StreamUse *use) except Completion.FAILED:
    """Resolve device and stream of a call; returns what is to be done after the launch."""
    cdef int other = 0
    _operand.stream_of(stream, like, out, use)
    if like.device_type == _CPU:
        if stream is None:
            abi.hipGetDevice(device)
            return Completion.WAIT  # on the null stream, which is never captured
        device_of_stream(stream, out[0], device)
    else:
        device[0] = like.device_id
        if stream is not None and out[0] != NULL:
            device_of_stream(stream, out[0], &other)
            if other != device[0]:
                raise InvalidOperandError(
                    f"stream: it belongs to device {other}, and the operands are on device {device[0]}; pass a stream "
                    "of that device")
    capture = capture_of(out[0], device[0])
    if capture is not None:
        # A framework that captures its own current stream captures its copies and its memory too.
        return Completion.NOTHING if stream is None and is_foreign(capture) else Completion.CAPTURE
    # On its own current stream a framework orders the memory's reuse itself.
    return Completion.NOTHING if stream is None else Completion.KEEP_ALIVE


cdef int refuse_capture(Completion completion, str what, str do) except -1:
    if completion == Completion.CAPTURE:
        raise UnsupportedError(
            f"stream: it is being captured into a graph, and {what}, which a graph cannot contain; {do}"
        )
    return 0


cdef int refuse_captured(object stream, str what, str do) except -1:
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef int device = 0
    if stream is None:
        return 0
    handle_of(stream, &c_stream, &use)
    device_of_stream(stream, c_stream, &device)
    return refuse_capture(Completion.NOTHING if capture_of(c_stream, device) is None else Completion.CAPTURE, what, do)


cdef int framework_streams(int device_type, int device, hipStream_t *out) except -1:
    """Write the streams that frameworks use at present for memory of a device, three at most; returns how many: none for memory of the CPU."""
    cdef void *current = NULL
    cdef int count = 1
    if device_type == _CPU:
        return 0
    out[0] = NULL
    if torch_api != NULL:
        if torch_api.current_work_stream(<DLDeviceType>device_type, device, &current) == 0:
            out[count] = <hipStream_t>current
            count += 1
        else:
            PyErr_Clear()  # a torch that has no such device
    cupy = imported("cupy")
    if cupy is not None:
        out[count] = <hipStream_t><size_t>cupy.cuda.get_current_stream(device).ptr
        count += 1
    return count


cdef int synchronize_stream(hipStream_t c_stream, int device_type, int device) except -1:
    """Wait for a stream that the user gave, and for what the frameworks have queued: around copies that they make outside its order.

    Other streams of the device are not waited for: a collective that is pending there may end only after this thread's next call.
    """
    cdef hipStream_t streams[3]
    cdef int count = framework_streams(device_type, device, streams)
    cdef int i, previous
    with nogil:
        await_handle(c_stream)
    if count:
        previous = enter(device)  # whose null stream may be among them
        try:
            for i in range(count):
                with nogil:
                    await_handle(streams[i])
        finally:
            leave(previous)
    return 0
