# SPDX-License-Identifier: MIT
"""A call of the function form: parse the operands, find the plan, launch. A call whose plan is kept does nothing else."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip

from rocpy._operand cimport Operand
from rocpy._core cimport DefaultFpEnvironment, DefaultVectorEnvironment, Status
from rocpy._memory_record cimport MemoryRecord, changed, pinned_memories, record_of, refuse_changed, refuse_other_shape
from rocpy._producers.torch_tensors cimport is_plain_tensor
from rocpy.blaslt.operands._arguments cimport (
    check_copies, check_whole, describe, describe_scales, dtype_code, epilogue_index, must_be_staged, parse_all, problem_of,
    read_factors, sole_aux,
)
from rocpy.blaslt.operands._cpu_arrays cimport stages_arrays
from rocpy.blaslt.engine.build cimport build
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, Completion, Launch, MatmulFactors, Operands, PlanKey, PlanSettings, StreamContext, algorithms_of,
    borrow_context, execute, overwrites_c, refuse_capture, resolve_device_and_stream, plan_cache, release_context,
)
from rocpy.blaslt.front.steps cimport Arguments, Step, layout, preparing_step, refuse_steps, staging_step
from rocpy.blaslt.model.executable cimport Executable
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, are_numbers, with_weight_scale
from rocpy.blaslt.engine._scales cimport Scales, check_apart, read_scales
from rocpy.blaslt.engine.streams cimport synchronization
from rocpy.blaslt.selection.tuning_state cimport measures, tuning_word
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.runtime._capture cimport keep_with_foreign_graph
from rocpy.runtime.handles.call_stream cimport CallStream
from rocpy.runtime.handles.stream_handle cimport StreamUse

from numpy import ndarray

from rocpy.blaslt.selection import tuner as _tuner
from rocpy.blaslt.model import algorithms as _algorithms
from rocpy.blaslt.composed import product as _composed
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.arrays import views as _views
from rocpy.blaslt.arrays.staging import on_device_of
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.epilogues import EPILOGUES, UserEpilogue
from rocpy.blaslt.model.scale_arguments import scale_keywords
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

cdef list _ACTIVE = _options.ACTIVE
cdef object _DEFAULT = _options.DEFAULT
cdef object _USER_EPILOGUE = UserEpilogue
cdef list _TAKES_BIAS = [row.bias for row in EPILOGUES.values()]
cdef str _SUMMED_ASIDE = _refusals.SUMMED_ASIDE
cdef list _EXTRA_NAMES = [row.outputs[0] if row.outputs else None for row in EPILOGUES.values()]


cdef object product(Arguments *call, bint launches):
    """Launch a product and return its outputs, or return the Step to take instead; `finished` takes it. Without `launches` all that is
    refused of a call is refused, and nothing is computed.
    """
    cdef Operands operands
    cdef MatmulFactors factors
    cdef Launch launch
    cdef PlanKey key
    cdef shared_ptr[CachedCall] planned
    cdef CachedCall *cached
    cdef StreamUse use
    cdef object aux, _viewed, _weight, _prepared, _bounds  # what the arguments borrow from this function
    cdef object result, a = <object>call.a, b  # before blocks are brought into the library's order
    cdef Scales scales = None
    cdef DefaultVectorEnvironment environment
    environment.hold()
    _core.ensure()
    if type(<object>call.aux) is dict:
        aux = sole_aux(<object>call.aux)
        call.aux = <PyObject *>aux
    _viewed = view_operands(call)
    call.weight, call.owner = <PyObject *>NULL, call.a
    if isinstance(<object>call.b, WeightOperand):
        _weight = read_weight(call)
    b = <object>call.b
    if <object>call.scales is not None:
        _prepared = prepare_blocks(call)
    if stages_arrays() and must_be_staged(<object>call.a, (<object>call.b, <object>call.c, <object>call.bias, <object>call.aux)):
        return staging_step(call)
    cdef tuple held = parse_all(
        &operands, <object>call.a, <object>call.b, <object>call.c, <object>call.bias, <object>call.aux, <object>call.out)
    cdef tuple records = records_of_call(call, &operands) if may_run_code(call, held) else ()
    read_factors(&factors, <object>call.alpha, <object>call.beta, <object>call.c, operands.a.type)
    launch.operands, launch.factors = &operands, &factors
    launch.completion = resolve_device_and_stream(&operands.a, <object>call.stream, &launch.device, &launch.stream, &use)
    if call.weight != NULL and launch.completion != Completion.WAIT and launch.completion != Completion.KEEP_ALIVE:
        keep_with_foreign_graph(launch.stream, launch.device, <object>call.weight)
    if <object>call.scales is not None:
        scales = read_scales(<ScaleArguments>call.scales, &operands.a, &operands.b, launch.device, counts_rows(call))
        if <object>call.out is not None:
            check_apart(scales, &operands.out)
    if held is not None or launch.completion == Completion.CAPTURE:
        check_copies(
            (a, b, <object>call.c, <object>call.bias, <object>call.aux), &operands, scales, launch.completion, <object>call.options)

    _bounds = fill_key(&key, call, &launch, scales, tuning_word())
    if key.fits():
        planned = plan_cache().find(key)
    if planned.get() == NULL:
        planned = make_plan(call, &launch, scales)
        if key.fits():
            plan_cache().insert(key, planned)
    cached = launch.call = planned.get()
    if cached.kind != CallKind.launch:
        return preparing_step(call, &launch)
    if cached.integer_factors:
        check_whole(&factors)
    if cached.transposed or cached.plan == NULL:
        check_work_aside(call, &launch)
    if not launches:
        return None
    refuse_changed(records)

    launch.algorithm, launch.program = cached.algorithm, <void **>NULL
    launch.out = NULL
    if <object>call.out is not None and not cached.transposed:
        launch.out = &operands.out
    if launch.completion >= Completion.KEEP_ALIVE:
        held = (held, pinned_memories(arrays_of(call)))
    try:
        result = execute(&launch, <object>call.owner, <object>call.out, held, scales)
    except (LibraryError, UnsupportedError) as error:
        if not is_composed_after(error, call, &launch, scales):
            raise
        return product(call, True)  # whose plan is to compose
    if cached.transposed:
        result = _copies.transposed_product(
            result, <object>call.out, (lambda: None) if launch.completion == Completion.WAIT else synchronization(launch.stream, &operands.a))
    elif launch.out != NULL:
        _operand.written(<object>call.out, operands.out.provider)
    if cached.extra_ndim < 0 and (scales is None or not scales.amax):
        return result
    return with_further_outputs(call, &launch, scales, result)


cdef inline bint is_inert(object value) noexcept:
    """Whether a number or an array is read without running code of the caller's."""
    return value is None or type(value) is float or type(value) is int or _operand.is_plain(value)


cdef bint are_inert(ScaleArguments scales) noexcept:
    return is_inert(scales.a) and is_inert(scales.b) and is_inert(scales.c) and is_inert(scales.d)


cdef bint are_inert_bounds(object clamp) noexcept:
    return type(clamp) is tuple and len(<tuple>clamp) == 2 and is_inert((<tuple>clamp)[0]) and is_inert((<tuple>clamp)[1])


cdef inline bint may_run_code(const Arguments *call, tuple held) noexcept:
    """Whether reading an argument may run code of the caller's, which could replace the memory of operands that were read before it."""
    if not (is_inert(<object>call.alpha) and is_inert(<object>call.beta)):
        return True
    if <object>call.clamp is not None and not are_inert_bounds(<object>call.clamp):
        return True
    if <object>call.scales is not None and not are_inert(<ScaleArguments>call.scales):
        return True
    if held is None:  # each array itself is what was read
        return False
    if not is_inert(<object>call.out):
        return True
    return not _operand.are_plain(call.a, call.a if call.weight != NULL else call.b, call.c, call.bias, call.aux)


cdef tuple records_of_call(const Arguments *call, const Operands *operands):
    """Return where the memory of the operands is; refused where it is no longer what was read of them."""
    cdef const Operand *read[6]
    cdef MemoryRecord record
    cdef list records = []
    cdef int i = 0
    read[0], read[1], read[2], read[3], read[4], read[5] = (
        &operands.a, &operands.b, &operands.c, &operands.bias, &operands.aux, &operands.out)
    for name, array in zip(_settings.ARRAYS, arrays_of(call)):
        record = record_of(array, name)
        if record is not None:
            records.append(record)
            refuse_other_shape(record, read[i])
            if not read[i].copied and record.is_elsewhere(read[i].data):
                raise changed(record)
        i += 1
    return tuple(records)


cdef inline object view_operands(Arguments *call):
    """Take numpy's views of operands that offer their memory and nothing else; returns what owns them."""
    cdef bint is_weight = isinstance(<object>call.b, WeightOperand)
    if _operand.are_plain(call.a, call.a if is_weight else call.b, call.c, call.bias, call.aux):
        return None
    cdef object a = _operand.readable(<object>call.a, "a"), c = _operand.readable(<object>call.c, "c")
    cdef object bias = _operand.readable(<object>call.bias, "bias"), aux = _operand.readable(<object>call.aux, "aux")
    cdef object b = <object>call.b if is_weight else _operand.readable(<object>call.b, "b")
    if (<PyObject *>a == call.a and <PyObject *>b == call.b and <PyObject *>c == call.c and <PyObject *>bias == call.bias
            and <PyObject *>aux == call.aux):
        return None
    call.a, call.b, call.c, call.bias, call.aux = <PyObject *>a, <PyObject *>b, <PyObject *>c, <PyObject *>bias, <PyObject *>aux
    return a, b, c, bias, aux


cdef inline object read_weight(Arguments *call):
    """Read the Weight that b is; returns what owns it. From then on b, its bias and its scale are of one time."""
    cdef WeightSnapshot weight = <WeightSnapshot>(<WeightOperand><object>call.b).read()
    cdef object b = weight, bias = <object>call.bias
    cdef ScaleArguments passed = <ScaleArguments>call.scales
    cdef ScaleArguments scales = passed
    if bias is None and _TAKES_BIAS[call.row]:
        bias = weight.bias
    if weight.scale is not None and (scales is None or not scales.from_weight):
        scales = with_weight_scale(scales, weight.factors)
    if weight.packed and bias is not None and may_be_of_rows(bias):
        b = _copies.unpacked(weight, bias)
    call.weight, call.b, call.bias, call.scales = <PyObject *>weight, <PyObject *>b, <PyObject *>bias, <PyObject *>scales
    return weight if b is weight and scales is passed else (weight, b, scales)  # the weight owns its bias


cdef inline bint may_be_of_rows(object bias) except -1:
    """Whether a bias may hold one value per row."""
    cdef Operand seen
    return not _operand.parse_plainly(bias, &seen) or seen.ndim > 1


cdef object prepare_blocks(Arguments *call):
    """Bring operands with a scale for each block into the form that the library reads; returns what owns them."""
    cdef ScaleArguments scales = <ScaleArguments>call.scales
    cdef object a = <object>call.a, b = <object>call.b
    if not are_numbers(scales):
        a, b = _blocks.prepare(a, b, scales, _options.resolve_options(<object>call.options))
    call.a, call.b = <PyObject *>a, <PyObject *>b
    if type(a) is Packed:
        call.owner = <PyObject *>(<Packed>a).memory
    return a, b


cdef inline bint counts_rows(const Arguments *call) except -1:
    """Whether the result's rows must not depend on how many there are."""
    return (<object>call.options is not None or _ACTIVE) and _options.resolve_options(<object>call.options).reproducible == "batch"


cdef inline tuple arrays_of(const Arguments *call):
    return (<object>call.a, <object>call.b, <object>call.c, <object>call.bias, <object>call.aux, <object>call.out)


cdef inline object fill_key(PlanKey *key, Arguments *call, const Launch *launch, Scales scales, int64_t tuning):
    """Write down everything that decides a plan. From then on the bounds of a clamp are floats; returns what owns them."""
    cdef PlanSettings settings
    cdef tuple bounds = None
    settings.epilogue, settings.dtype = call.row, dtype_code(<object>call.dtype)
    if <object>call.compute is not None:
        settings.compute = _settings.compute_code(<object>call.compute)
    settings.packed, settings.scaled = launch.operands.packed, scales is not None
    key.begin(settings)
    key.add(tuning)
    key.add(launch.device)
    if <object>call.clamp is not None:
        bounds = _settings.clamp_bounds(<object>call.clamp)
        call.clamp = <PyObject *>bounds
        for bound in bounds:
            key.add_number(bound)
    key.add(options_word(<object>call.options) if <object>call.options is not None or _ACTIVE else 0)
    describe(key, launch.operands)
    if scales is not None:
        describe_scales(key, scales)
    if <object>call.algorithm is not None:
        for word in _algorithms.key_words(<object>call.algorithm, launch.device):
            key.add(word)
    return bounds


cdef int64_t options_word(object requested) except? -1:
    options = _options.resolve_options(requested)
    return 0 if options is _DEFAULT else _options.key_word(options)


cdef object problem_of_call(const Arguments *call, const Launch *launch, Scales scales):
    return problem_of(launch.operands, EPILOGUE_NAMES[call.row], <object>call.dtype, <object>call.compute, <object>call.clamp, scales)


cdef shared_ptr[CachedCall] make_plan(const Arguments *call, const Launch *launch, Scales scales) except *:
    """Plan a call, after measuring its algorithms where that is asked for."""
    cdef StreamContext *context = NULL
    cdef Status status
    cdef bint packed = launch.operands.packed
    problem = problem_of_call(call, launch, scales)
    options = _options.resolve_options(<object>call.options)
    if <object>call.algorithm is None and launch.completion != Completion.CAPTURE and measures():
        _tuner.measure(problem, options, arrays_of(call), dict(
            alpha=<object>call.alpha, beta=<object>call.beta, epilogue=<object>call.epilogue, clamp=<object>call.clamp, dtype=<object>call.dtype,
            compute=<object>call.compute, stream=hold_stream(<object>call.stream),
            **scale_keywords(<ScaleArguments>call.scales, <object>call.b)))
    with nogil:
        status = borrow_context(launch.device, launch.stream, &context)
    _core.check(status)
    try:
        if <object>call.algorithm is None:
            return build(problem, options, context, packed, 1)
        return forced(problem, options, context, packed, <object>call.algorithm)
    finally:
        release_context(context)


cdef int check_work_aside(const Arguments *call, const Launch *launch) except -1:
    """Refuse what follows on a launch where it is forbidden: a framework transposes the result, or sums an operand."""
    if not launch.call.transposed:
        if _EXTRA_NAMES[call.row] in ("bgrada", "bgradb"):
            refuse_capture(launch.completion, _SUMMED_ASIDE, "call it outside of the capture")
        return 0
    refuse_steps(launch.completion, launch.call, launch.operands, EPILOGUE_NAMES[call.row])
    _refusals.refuse_turning(_options.resolve_options(<object>call.options), layout(&launch.operands.bias), EPILOGUE_NAMES[call.row])
    return 0


cdef bint is_composed_after(object error, const Arguments *call, const Launch *launch, Scales scales) except -1:
    """Whether a call whose launch the library refused is composed instead."""
    if <object>call.algorithm is not None or launch.call.plan == NULL or overwrites_c(launch):
        return False
    return _library.composes_after(error, problem_of_call(call, launch, scales), launch.device)


cdef object with_further_outputs(const Arguments *call, const Launch *launch, Scales scales, tuple outputs):
    """Return the result and the dict of what the epilogue and amax give beside it."""
    cdef dict extras = {}
    if launch.call.extra_ndim >= 0:
        name = _EXTRA_NAMES[call.row]
        extras[name] = outputs[1]
        if launch.call.plan == NULL and name in ("bgrada", "bgradb"):
            extras[name] = _composed.bias_gradient_of_empty(
                EPILOGUE_NAMES[call.row], <object>call.a, <object>call.b, <object>call.scales, outputs[0],
                array_type_of_hip(launch.call.result_type).name.decode())
    if scales is not None and scales.amax:
        extras["amax"] = outputs[2]
    return outputs[0], extras


cdef object finished(Step step):
    """Return the outputs of a call that begins with a step: the call that it prepares, then what follows on its outputs."""
    cdef DefaultVectorEnvironment environment
    environment.hold()
    try:
        return step.finish(outputs_of(step.prepare()))
    finally:
        step.preparation.close()


cdef object outputs(Arguments *call):
    """Make a call, with the steps that it needs."""
    cdef CallStream order
    order.enter(<void *>call.stream)
    cdef object outcome = product(call, True)
    return finished(<Step>outcome) if type(outcome) is Step else outcome


cdef int borrow_arguments(Arguments *arguments, ProductCall call) except -1:
    """Take the arguments of a call that is an object, which the caller keeps."""
    arguments.a, arguments.b, arguments.c = <PyObject *>call.a, <PyObject *>call.b, <PyObject *>call.c
    arguments.bias, arguments.aux, arguments.out = <PyObject *>call.bias, <PyObject *>call.aux, <PyObject *>call.out
    arguments.alpha, arguments.beta, arguments.epilogue = <PyObject *>call.alpha, <PyObject *>call.beta, <PyObject *>call.epilogue
    arguments.clamp, arguments.dtype, arguments.compute = <PyObject *>call.clamp, <PyObject *>call.dtype, <PyObject *>call.compute
    arguments.options, arguments.stream, arguments.scales = <PyObject *>call.options, <PyObject *>call.stream, <PyObject *>call.scales
    arguments.algorithm, arguments.row = <PyObject *>call.algorithm, epilogue_index(call.epilogue)
    return 0


cdef object outputs_of(ProductCall call):
    """Make a call whose arguments are an object."""
    cdef Arguments arguments
    borrow_arguments(&arguments, call)
    return outputs(&arguments)


cdef int check_product(ProductCall call) except -1:
    """Refuse what is refused of a call before anything is computed."""
    cdef Arguments arguments
    borrow_arguments(&arguments, call)
    product(&arguments, False)
    return 0


def run(preparation):
    """Make the call that a Preparation names, and finish its result."""
    _core.ensure()
    return finished(Step(preparation))


cdef shared_ptr[CachedCall] forced(object problem, object options, StreamContext *context, bint packed, object algorithm) except *:
    """Plan a problem with the algorithm that the user names; all of the platform's are asked for where the ranked ones lack it."""
    cdef shared_ptr[CachedCall] call
    cdef int requested
    for requested in (_algorithms.LISTED, _algorithms.ALL):
        call = build(problem, options, context, packed, requested)
        if call.get().plan == NULL:
            return call  # nothing to compute, or the operands are copied first
        listed = algorithms_of(call.get(), context.device)
        listed.insert(0, listed.pop(call.get().algorithm))
        mine = _algorithms.find(algorithm, listed, context.device)
        if mine is not None:
            call.get().algorithm = mine.rank
            call.get().source = b"pinned"
            return call
    raise _algorithms.missing(algorithm, listed)


# The function form with an epilogue of the user's; None until a call has one: a plain product needs none of it.
cdef object _custom = None


cdef object custom_matmul(ProductCall call):
    """Run a product with an epilogue of the user's."""
    cdef DefaultFpEnvironment environment
    cdef CallStream order
    environment.hold()
    if call.stream is not None:
        call.stream = hold_stream(call.stream)
    order.enter(<void *>call.stream)
    if call.stream is None:
        return custom_product(call)
    with on_device_of(call.stream):
        return custom_product(call)


cdef inline bint is_usual(object array):
    """Whether an operand is numpy's, torch's or none, which most are."""
    return (array is None or is_plain_tensor(array) or isinstance(array, (ndarray, WeightOperand))
            or hasattr(array, "resolve_conj"))


cdef object custom_product(ProductCall call):
    """Make the product of the library that the epilogue begins with, if it does, and finish its result."""
    global _custom
    if not (is_usual(call.a) and is_usual(call.b) and is_usual(call.c)):
        for name in ("a", "b", "c", "bias", "aux"):
            setattr(call, name, _operand.readable(getattr(call, name), name))
        viewed = _views.viewed_call(call)
        if viewed is not None:
            return viewed.finish(custom_product(viewed.prepare()))
    if _custom is None:
        from rocpy.blaslt.custom import call as _custom
    cdef Executable executable = _custom.executable_of(call, tuning_word())
    if executable is None:
        return _custom.by_algorithm(call)
    cdef ProductCall first = executable.begin(call)
    cdef object base = None if first is None else outputs_of(first)
    cdef tuple results = executable.finish(call, base)
    return results[0] if executable.single else results


def compute_product(a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
                    dtype=None, compute=None, options=None):
    """Return what rocpy.matmul returns, for those whom it calls: nothing is handed to torch's dispatcher, TorchLayerRequired is raised."""
    cdef ProductCall call = ProductCall.__new__(ProductCall)
    call.a, call.b, call.c, call.bias, call.aux, call.alpha, call.beta = a, b, c, bias, aux, alpha, beta
    call.epilogue, call.inputs, call.clamp, call.dtype, call.compute, call.options = epilogue, epilogue_inputs, clamp, dtype, compute, options
    if isinstance(epilogue, _USER_EPILOGUE):
        return custom_matmul(call)
    return outputs_of(call)
