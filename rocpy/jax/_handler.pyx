# SPDX-License-Identifier: MIT
"""What XLA calls for a product inside a compiled function: find the plan, launch; the GIL is taken only to make a plan or an error."""

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as c_bool
from libcpp.memory cimport shared_ptr

cimport abi
from rocpy cimport _core
from abi cimport hipStream_t
from rocpy._core cimport DefaultFpEnvironment, Library, Status
from rocpy._dlpack cimport array_type_of_hip, export_capsule
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport describe, problem_of
from rocpy.blaslt.engine.build cimport build
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, MatmulFactors, MatmulPointers, Operands, PlanKey, PlanSettings, StreamContext, aim, borrow_context, plan_cache, release_context,
)
from rocpy.blaslt.operands._cpu_arrays cimport CpuArrays, cpu_arrays, stages_arrays
from rocpy.blaslt.selection.tuning_state cimport knows_process_tuning, measures, process_tuning_word, tuning_word
from rocpy.runtime._extents cimport numpy_dtype

import json

import numpy

from rocpy import platform
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.options import DEFAULT, Options, key_word
from rocpy.blaslt.model.settings import COMPUTE_TYPES
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError, UnsupportedError
from rocpy.runtime.memory import Buffer

cdef extern from "<string_view>" namespace "std" nogil:
    cppclass string_view:
        const char *data()
        size_t size()
        c_bool empty()

cdef extern from "_frame.hpp" namespace "rocpy" nogil:
    struct XLA_FFI_Error "XLA_FFI_Error":
        pass
    struct XLA_FFI_CallFrame "XLA_FFI_CallFrame":
        pass
    enum:
        frame_a
        frame_b
        frame_c
        frame_bias
        frame_aux
        frame_operand_count
    cppclass ProductFrame:
        int32_t epilogue
        int32_t compute
        c_bool clamped
        double low
        double high
        double alpha
        double beta
        c_bool scaled
        double scale_a
        double scale_b
        string_view options
        Operand operands[5]
        Operand result
        Operand extra
    cppclass OptionWords:
        c_bool find(string_view text, int64_t *word)
        void insert(string_view text, int64_t word)
    OptionWords &option_words()
    cppclass FrameNames:
        void add(const char *name) except +
    FrameNames &frame_epilogues()
    FrameNames &frame_computes()
    const char *read_frame(const XLA_FFI_CallFrame *frame, ProductFrame *out)
    c_bool answers_metadata(XLA_FFI_CallFrame *frame)
    XLA_FFI_Error *frame_error(const XLA_FFI_CallFrame *frame, const char *message, int code)
    XLA_FFI_Error *frame_device_and_stream(const XLA_FFI_CallFrame *frame, int *device, hipStream_t *stream)
    c_bool fits(const Operand &operand, int32_t type, int32_t ndim, const int64_t *shape)

# XLA_FFI_Error_Code.
cdef enum:
    xla_invalid_argument = 3
    xla_resource_exhausted = 8
    xla_unimplemented = 12
    xla_internal = 13

cdef int _CPU = 1, _ROCM = 10  # DLDeviceType
cdef tuple _COMPUTE_NAMES = (None, *COMPUTE_TYPES)

# What came of looking for a plan without the GIL.
cdef enum Outcome:
    launched
    not_planned
    needs_python
    refused
    failed


cdef Outcome attempt(ProductFrame *frame, Operands *operands, PlanKey *key, int device, hipStream_t stream, bint waits,
                     Status *status) noexcept nogil:
    """Launch a product whose plan is kept; otherwise say what stands in the way, with the plan's key."""
    cdef shared_ptr[CachedCall] call
    cdef CachedCall *cached
    cdef PlanSettings settings
    cdef int64_t word = 0
    if frame.scaled:
        return needs_python
    settings.epilogue, settings.dtype, settings.compute = frame.epilogue, frame.result.type, frame.compute
    key.begin(settings)
    key.add(process_tuning_word())
    key.add(device)
    if frame.clamped:
        key.add_number(frame.low)
        key.add_number(frame.high)
    if not frame.options.empty() and not option_words().find(frame.options, &word):
        return not_planned
    key.add(word)
    describe(key, operands)
    if not key.fits():
        return needs_python
    call = plan_cache().find(key[0])
    cached = call.get()
    if cached == NULL:
        return not_planned
    if cached.kind != CallKind.launch or cached.transposed or cached.plan == NULL:
        return needs_python
    if not fits(frame.result, cached.result_type, cached.result_ndim, cached.result_shape) or (
        not fits(frame.extra, cached.extra_type, cached.extra_ndim, cached.extra_shape) and (cached.extra_ndim >= 0 or frame.extra.ndim >= 0)
    ):
        return refused
    status[0] = launch(cached, frame, operands, device, stream)
    if not status.ok():
        return failed
    if waits and abi.slot_hipStreamQuery(stream) == abi.hipErrorNotReady:
        status.library, status.code, status.function = Library.hip, abi.slot_hipStreamSynchronize(stream), b"hipStreamSynchronize"
        if not status.ok():
            return failed
    return launched


cdef Status launch(CachedCall *call, ProductFrame *frame, Operands *operands, int device, hipStream_t stream) noexcept nogil:
    cdef MatmulPointers pointers
    cdef MatmulFactors factors
    cdef StreamContext *context = NULL
    cdef Status status
    factors.alpha = frame.alpha
    factors.beta = frame.beta
    aim(&pointers, call, &operands.a, &operands.b, &operands.c)
    pointers.d = operands.out.data
    pointers.bias = operands.bias.data if operands.bias.ndim >= 0 else NULL
    pointers.aux = operands.aux.data if operands.aux.ndim >= 0 else NULL
    if call.extra_ndim >= 0:
        if call.extra_is_aux:
            pointers.aux = frame.extra.data
        else:
            pointers.bias = frame.extra.data
    status = borrow_context(device, stream, &context)
    if status.ok():
        status = call.plan.launch(context, pointers, factors, call.algorithm)
        release_context(context)
    if not status.ok():
        # Some of the batch may be queued, and XLA will reuse its memory.
        abi.slot_hipStreamSynchronize(stream)
    return status


cdef object options_of(ProductFrame *frame):
    if frame.options.empty():
        return DEFAULT
    text = frame.options.data()[:frame.options.size()]
    return Options(**json.loads(text))


cdef object view(const Operand *operand, bint transposed, bint on_device):
    """Return an operand as an array of the framework that composes what the library cannot fuse; None for an absent one."""
    cdef Operand dense = operand[0]
    cdef int axis
    cdef char *start
    cdef object array
    cdef Py_ssize_t bytes
    if operand.ndim < 0:
        return None
    if transposed:
        dense.shape[dense.ndim - 1], dense.shape[dense.ndim - 2] = operand.shape[dense.ndim - 2], operand.shape[dense.ndim - 1]
    if on_device:
        if transposed:
            raise UnsupportedError(
                "the gradient of this product must be composed, which it cannot be on a device; compute it in another "
                "dtype"
            )
        return Buffer.from_dlpack(export_capsule(None, &dense, True, 0))
    shape = tuple([dense.shape[axis] for axis in range(dense.ndim)])
    dtype = numpy_dtype(dense.type)
    bytes = array_type_of_hip(dense.type).bits // 8
    for extent in shape:
        bytes *= extent
    if bytes == 0:
        array = numpy.empty(shape, dtype)
    else:
        start = <char *>dense.data
        array = numpy.frombuffer(<char[:bytes]>start, dtype).reshape(shape)
    return array.swapaxes(-1, -2) if transposed else array


cdef bint is_transposed(const Operand *operand) noexcept nogil:
    return operand.ndim >= 2 and operand.strides[operand.ndim - 1] != 1 and operand.strides[operand.ndim - 2] == 1


cdef int by_function_form(ProductFrame *frame, Operands *operands, object options, size_t stream, bint on_device) except -1:
    """Run what is not one launch as rocpy.matmul does: copies, compositions, empty results."""
    a = view(&operands.a, is_transposed(&operands.a), on_device)
    b = view(&operands.b, is_transposed(&operands.b), on_device)
    c, bias, aux = (view(&operands.c, False, on_device), view(&operands.bias, False, on_device), view(&operands.aux, False, on_device))
    out = view(&operands.out, False, on_device)
    scales = {"scale_a": frame.scale_a, "scale_b": frame.scale_b} if frame.scaled else {}
    result = matmul(
        a, b, c, alpha=frame.alpha, beta=None if c is None else frame.beta, epilogue=EPILOGUE_NAMES[frame.epilogue], bias=bias, aux=aux,
        clamp=(frame.low, frame.high) if frame.clamped else None, dtype=array_type_of_hip(frame.result.type).name.decode(),
        compute=_COMPUTE_NAMES[frame.compute], out=out, options=options, stream=stream if on_device else None, **scales,
    )
    if frame.extra.ndim < 0:
        return 0
    extra = view(&frame.extra, False, on_device)
    value = result[1][EPILOGUES[EPILOGUE_NAMES[frame.epilogue]].outputs[0]]
    if on_device:
        extra.copy_from(value, stream=stream)
    else:
        extra[...] = value
    return 0


cdef int make_plan(ProductFrame *frame, Operands *operands, PlanKey *key, object options, int device, hipStream_t stream) except -1:
    """Plan a product and keep the plan, under the key that the function form gives it too."""
    cdef shared_ptr[CachedCall] call
    cdef StreamContext *context = NULL
    cdef Status status
    problem = problem_of(
        operands, EPILOGUE_NAMES[frame.epilogue], array_type_of_hip(frame.result.type).name.decode(), _COMPUTE_NAMES[frame.compute],
        (frame.low, frame.high) if frame.clamped else None)
    with nogil:
        status = borrow_context(device, stream, &context)
    _core.check(status)
    try:
        call = build(problem, options, context, False, 1)
    finally:
        release_context(context)
    plan_cache().insert(key[0], call)
    return 0


cdef int run_with_python(ProductFrame *frame, Operands *operands, PlanKey *key, Outcome outcome, int device, hipStream_t stream,
                         bint on_device) except -1:
    """Do what an attempt could not."""
    cdef Status status
    cdef object options = options_of(frame)
    if outcome == not_planned:
        _core.ensure()
        tuning_word()  # read from the environment, for attempts without the GIL
        if options is not DEFAULT:
            option_words().insert(frame.options, key_word(options))
        if on_device:
            set_device(operands, frame, device)
        elif device < 0:
            abi.hipGetDevice(&device)
        if frame.scaled or (not on_device and (stages_arrays() or measures())):
            return by_function_form(frame, operands, options, <size_t>stream, on_device)
        outcome = attempt(frame, operands, key, device, stream, not on_device, &status)
        if outcome == not_planned:
            make_plan(frame, operands, key, options, device, stream)
            outcome = attempt(frame, operands, key, device, stream, not on_device, &status)
    if outcome == failed:
        _core.check(status)
    elif outcome == refused:
        raise InvalidProblemError(
            "the arrays of the results do not have the shapes and types of this product; trace the function again"
        )
    elif outcome != launched:
        # Also where no plan is kept, because the cache is turned off.
        by_function_form(frame, operands, options, <size_t>stream, on_device)
    return 0


cdef void set_device(Operands *operands, ProductFrame *frame, int device) noexcept:
    """Say of the operands that they are where XLA's device is: in memory that the host reaches too, on a platform whose devices share it."""
    cdef int kind = _CPU if platform.current().host_memory else _ROCM
    cdef Operand *each[7]
    cdef int i
    each[0], each[1], each[2], each[3] = &operands.a, &operands.b, &operands.c, &operands.bias
    each[4], each[5], each[6] = &operands.aux, &operands.out, &frame.extra
    for i in range(7):
        each[i].device_type = kind
        each[i].device_id = device if kind == _ROCM else 0


cdef XLA_FFI_Error *handle(XLA_FFI_CallFrame *call, bint on_device) noexcept nogil:
    """One call of XLA's. Errors become XLA's, with the name and the text of ours."""
    cdef ProductFrame frame
    cdef Operands operands
    cdef PlanKey key
    cdef Status status
    cdef Outcome outcome = not_planned
    cdef XLA_FFI_Error *error
    cdef const char *fault
    cdef hipStream_t stream = NULL
    cdef int device = -1
    cdef DefaultFpEnvironment environment  # XLA's threads flush subnormal numbers
    environment.hold()
    if answers_metadata(call):
        return NULL
    fault = read_frame(call, &frame)
    if fault != NULL:
        return frame_error(call, fault, xla_invalid_argument)
    operands.a, operands.b, operands.c = frame.operands[<int>frame_a], frame.operands[<int>frame_b], frame.operands[<int>frame_c]
    operands.bias, operands.aux, operands.out = frame.operands[<int>frame_bias], frame.operands[<int>frame_aux], frame.result
    operands.packed = False
    if on_device:
        error = frame_device_and_stream(call, &device, &stream)
        if error != NULL:
            return error
    # The first product of the process chooses the platform, which takes the GIL.
    if _core.loaded() and knows_process_tuning() and (on_device or cpu_arrays == CpuArrays.in_place):
        if on_device or abi.slot_hipGetDevice(&device) == 0:
            outcome = attempt(&frame, &operands, &key, device, stream, not on_device, &status)
            if outcome == launched:
                return NULL
    with gil:
        try:
            if outcome == failed:
                _core.check(status)
            if on_device:
                set_device(&operands, &frame, device)
            run_with_python(&frame, &operands, &key, outcome, device, stream, on_device)
        except Exception as raised:
            text = f"{type(raised).__name__}: {raised}".encode()
            return frame_error(call, text, code_of(raised))
    return NULL


cdef int code_of(object raised) noexcept:
    if isinstance(raised, (InvalidProblemError, InvalidOperandError)):
        return xla_invalid_argument
    if isinstance(raised, UnsupportedError):
        return xla_unimplemented
    return xla_resource_exhausted if isinstance(raised, OutOfMemoryError) else xla_internal


cdef XLA_FFI_Error *on_cpu(XLA_FFI_CallFrame *call) noexcept nogil:
    return handle(call, False)


cdef XLA_FFI_Error *on_rocm(XLA_FFI_CallFrame *call) noexcept nogil:
    return handle(call, True)


for _name in EPILOGUE_NAMES:
    frame_epilogues().add(_name.encode())
for _name in _COMPUTE_NAMES:
    frame_computes().add((_name or "").encode())

CPU_HANDLER = PyCapsule_New(<void *>&on_cpu, NULL, NULL)
ROCM_HANDLER = PyCapsule_New(<void *>&on_rocm, NULL, NULL)
