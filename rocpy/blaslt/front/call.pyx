# SPDX-License-Identifier: MIT
"""The function form: parse the operands, find the plan, launch. A call whose plan is kept does nothing else."""

from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip
from abi cimport hipStream_t

from rocpy._core cimport DefaultFpEnvironment, DefaultVectorEnvironment
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport (
    Operands, add_bounds, begin_key, check_whole, describe, describe_scales, info, dtype_code, epilogue_index, must_be_staged, parse_all, problem_of, read_factors,
    sole_aux, staged_infos,
)
from rocpy.blaslt.engine.build cimport build
from rocpy.blaslt.engine.launch cimport (
    CachedCall, MatmulFactors, PlanKey, StreamContext, after_capture, after_hold, after_wait, algorithms_of, borrow_context, execute, overwrites_c, place_of, plan_cache,
    refuse_capture, refuse_captured, release_context, settle,
)
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.engine._scales cimport Scales, read_scales
from rocpy.blaslt.engine.streams cimport Settle
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.runtime._capture cimport keep_with_foreign_graph
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy import platform
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.model import algorithms as _algorithms
from rocpy.blaslt.composed import product as _composed
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import recipes as _recipes
from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model import scale_arguments as _scale_arguments
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.front.stateful import forced_product
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.epilogues import EPILOGUES, is_custom, refuse_inputs
from rocpy._operand import TorchLayerRequired, torch_dispatcher
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

# Whether arrays in CPU memory must be copied to the device; -1 until a platform is chosen.
cdef int _staged = -1
cdef list _ACTIVE = _options.ACTIVE
cdef object _DEFAULT = _options.DEFAULT
# What a plan's key holds of tuning; -1 until a product asks, and again after a change.
cdef int64_t _tuning = -1
cdef list _OVERRIDDEN = _choice.OVERRIDDEN
cdef list _TAKES_BIAS = [row.bias for row in EPILOGUES.values()]
cdef list _EXTRA_NAMES = [row.outputs[0] if row.outputs else None for row in EPILOGUES.values()]


def _tuning_changed():
    global _tuning
    _tuning = -1


_choice.on_change(_tuning_changed)


cdef int get_ready() except -1:
    """Learn what holds for every product of the process until tuning changes."""
    global _staged, _tuning
    if _staged < 0:
        _staged = not platform.current().host_memory
    if _tuning < 0:
        _tuning = _choice.process_key_word()
    return 0


cdef int64_t tuning_word() noexcept nogil:
    return _tuning


cdef bint stages_arrays() noexcept nogil:
    return _staged != 0


cdef object product(object a, object b, object c, object alpha, object beta, object epilogue, object bias, object aux, object clamp,
                    object dtype, object compute, object out, object options, object stream, tuple given, object algorithm=None):
    """Launch a product and return its outputs, or return the Step to take instead; `finished` takes it."""
    cdef Operands operands
    cdef PlanKey key
    cdef shared_ptr[CachedCall] call
    cdef int index, device = 0
    cdef hipStream_t c_stream = NULL
    cdef MatmulFactors factors
    cdef double low, high
    cdef int after
    cdef StreamContext *context = NULL
    cdef object resolved = None, owner = a
    cdef Scales scales = None
    cdef WeightSnapshot weight = None
    cdef int64_t tuning
    cdef Step step
    cdef StreamUse use
    cdef DefaultVectorEnvironment environment
    environment.hold()
    _core.ensure()
    index = epilogue_index(epilogue)
    if aux is not None:
        aux = sole_aux(aux)
    if isinstance(b, WeightOperand):
        # From here on b, its bias and its scale are of one time, and this call owns them.
        weight = <WeightSnapshot>(<WeightOperand>b).read()
        b = weight
        if bias is None and _TAKES_BIAS[index]:
            bias = weight.bias
        if weight.scale is not None and (given is None or len(given) == 5):
            given = _scale_arguments.weight_scales(given, weight.factors)
        if bias is not None:
            b = _copies.unpacked(weight, bias)
    if given is not None:
        a, b = _blocks.prepare(a, b, given[0], given[1], _options.resolve_options(options))
        if type(a) is Packed:
            owner = (<Packed>a).memory
    get_ready()
    if _staged and must_be_staged(a, (b, c, bias, aux)):
        refuse_captured(stream, "operands in CPU memory are copied to the device", "move them there")
        stream = hold_stream(stream)
        return Step(_staging.staged(ProductCall(a, b, c, bias, aux, out, alpha, beta, epilogue, clamp, dtype, compute, options, stream, given, algorithm),
                                    staged_infos(a, b, c, bias, aux, out)))
    cdef tuple held = parse_all(&operands, a, b, c, bias, aux, out)
    read_factors(&factors, alpha, beta, c, operands.a.type)
    after = place_of(&operands.a, stream, &device, &c_stream, &use)
    if weight is not None and after != after_wait and after != after_hold:
        keep_with_foreign_graph(c_stream, device, weight)

    if given is not None:
        scales = read_scales(given, &operands.a, &operands.b, device)

    # The key: everything that decides a plan.
    tuning = _choice.key_word() if _OVERRIDDEN else _tuning
    begin_key(&key, index, dtype_code(dtype), 0 if compute is None else 1 + _settings.compute_code(compute), operands.packed, scales is not None,
              tuning, device)
    if clamp is not None:
        clamp = _settings.clamp_bounds(clamp)
        low, high = clamp
        add_bounds(&key, low, high)
    if options is not None or _ACTIVE:
        resolved = _options.resolve_options(options)
        if resolved is not _DEFAULT:
            key.add(hash(resolved))
    describe(&key, &operands)
    if scales is not None:
        describe_scales(&key, scales)
    if algorithm is not None:
        for word in _algorithms.key_words(algorithm, device):
            key.add(word)

    if key.fits():
        call = plan_cache().find(key)
    if call.get() == NULL:
        problem = problem_of(&operands, EPILOGUE_NAMES[index], dtype, compute, clamp, scales)
        if resolved is None:
            resolved = _options.current_options()
        if algorithm is None and after != after_capture and _choice.measures(tuning):
            _choice.measure(problem, resolved, (a, b, c, bias, aux, out), dict(
                alpha=alpha, beta=beta, epilogue=epilogue, clamp=clamp, dtype=dtype, compute=compute, stream=hold_stream(stream),
                **_scale_arguments.scale_arguments(b, given)))
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            call = (build(problem, resolved, context, operands.packed, 1) if algorithm is None
                    else forced(problem, resolved, context, operands.packed, algorithm))
        finally:
            release_context(context)
        if key.fits():
            plan_cache().insert(key, call)

    cdef CachedCall *found = call.get()
    if found.copies:
        refuse_capture(after, "an operand must be copied or the product composed", "see rocpy.explain(); pass dense operands")
        stream = hold_stream(stream)
        if resolved is None:
            resolved = _options.resolve_options(options)
        if found.copies >> 7 & 1 and algorithm is not None:  # _recipes.UNFUSED_BIT; the native product inside is the one that is forced
            return forced_product(a, b, c, algorithm, out, stream, dict(
                alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, dtype=dtype, compute=compute, options=options,
                **_scale_arguments.scale_arguments(b, given)))
        step = Step(preparation(
            ProductCall(a, b, c, bias, aux, out, alpha, beta, epilogue, clamp, dtype, compute, options, stream, given, algorithm),
            &operands, found, EPILOGUE_NAMES[index], resolved))
        # What frameworks do with operands and results does not follow the order of a stream that the user gave.
        step.waits, step.stream = stream is not None if found.copies >> 7 & 1 else after != after_wait, c_stream
        return step
    if found.integer_factors:
        check_whole(&factors)
    if found.turned:
        refuse_capture(after, "the result must be transposed", "pass a bias of length N")
        if resolved is None:
            resolved = _options.resolve_options(options)
        _refusals.refuse_turning(resolved, layout(&operands.bias))
    cdef object result
    try:
        result = execute(found, &operands.a, &operands.b, &operands.c, &operands.bias, &operands.aux, &operands.out, owner,
                         None if found.turned else out, (held, pinned_memories((a, b, c, bias, aux, out))) if after >= after_hold else held,
                         factors, scales, found.algorithm, device, c_stream, after)
    except (LibraryError, UnsupportedError) as error:
        if algorithm is not None or found.plan == NULL or overwrites_c(found, &operands.c, &operands.out):
            raise
        if not _library.composes_after(error, problem_of(&operands, EPILOGUE_NAMES[index], dtype, compute, clamp, scales), device):
            raise
        return product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, stream, given)
    if found.turned:
        result = _copies.turned_product(result, out, (lambda: None) if after == after_wait else Settle(<size_t>c_stream))
    elif out is not None:
        _operand.written(out, operands.out.provider)
    if found.extra_ndim < 0 and (scales is None or not scales.amax):
        return result
    cdef dict beside = {}
    if found.extra_ndim >= 0:
        name = _EXTRA_NAMES[index]
        beside[name] = result[1]
        if found.plan == NULL and name in ("bgrada", "bgradb"):
            beside[name] = _composed.bias_gradient_of_empty(
                EPILOGUE_NAMES[index], a, b, given, result[0], array_type_of_hip(found.result_type).name.decode())
    if scales is not None and scales.amax:
        beside["amax"] = result[2]
    return result[0], beside


cdef str layout(const Operand *operand):
    return info(operand).text if operand.ndim >= 0 else ""


cdef object preparation(object call, const Operands *operands, CachedCall *found, str epilogue, object options):
    """Return how a product is computed that the library cannot launch as it is: composed, or of copies."""
    cdef str dtype = array_type_of_hip(found.result_type).name.decode()
    if found.copies >> 7 & 1:  # _recipes.UNFUSED_BIT
        recipe = _recipes.recipe_of(found.copies, epilogue, array_type_of_hip(operands.a.type).name.decode(), dtype)
        return _composed.Composed(call, recipe, epilogue, dtype, options)
    names = tuple([name for name, bit in _settings.COPY_BITS.items() if found.copies >> bit & 1])
    if options.copies == "error":
        _copies.refuse_copied(names, dict(zip(_settings.COPY_BITS, (
            layout(&operands.a), layout(&operands.b), layout(&operands.c), layout(&operands.bias), layout(&operands.aux),
            layout(&operands.out)))), dtype)
    return _copies.Copied(call, names, tuple([found.result_shape[axis] for axis in range(found.result_ndim)]), dtype)


cdef class Step:
    """What is done instead of launching a call, and the stream that waits for it; the call that is prepared holds the stream."""

    cdef object preparation
    cdef hipStream_t stream
    cdef bint waits

    def __cinit__(self, object preparation):
        self.preparation = preparation

    cdef int wait(self) except -1:
        return settle(self.stream) if self.waits else 0

    cdef object prepare(self):
        self.wait()
        call = self.preparation.prepare()
        self.wait()
        return call

    cdef object finish(self, object outputs):
        if not self.preparation.works_on_result:
            return outputs
        self.wait()
        outputs = self.preparation.finish(outputs)
        self.wait()
        return outputs


cdef object finished(Step step):
    """Return the outputs of a call that begins with a step: the call that it prepares, then what follows on its outputs."""
    cdef object call, outcome
    cdef DefaultVectorEnvironment environment
    environment.hold()
    try:
        call = step.prepare()
        outcome = product(call.a, call.b, call.c, call.alpha, call.beta, call.epilogue, call.bias, call.aux, call.clamp, call.dtype,
                          call.compute, call.out, call.options, call.stream, call.scales, call.algorithm)
        return step.finish(finished(<Step>outcome) if type(outcome) is Step else outcome)
    finally:
        step.preparation.close()


def run(preparation):
    """Make the call that a Preparation names, and finish its result."""
    _core.ensure()
    return finished(Step(preparation))


cdef shared_ptr[CachedCall] forced(object problem, object options, StreamContext *context, bint packed, object algorithm) except *:
    """Plan a problem with the algorithm that the user names; all of the platform's are asked for where the ranked ones lack it."""
    cdef shared_ptr[CachedCall] call
    cdef int requested
    for requested in (_choice.LISTED, _choice.ALL):
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


cdef object custom_matmul(object a, object b, object c, dict arguments):
    """Run a product with an epilogue of the user's, through torch's dispatcher where that must see it."""
    cdef DefaultFpEnvironment environment
    environment.hold()
    from rocpy.blaslt.custom import call as _custom_call  # a plain product needs none of it

    try:
        return _custom_call.product(matmul_here, a, b, c, dict(arguments))
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None:
            raise
    return dispatcher("matmul", (a, b, c), arguments)


def matmul_here(a, b, c, *, alpha, beta, epilogue, bias, clamp, dtype, compute, out, options, stream, scale_a, scale_b, scale_c, scale_d):
    """Run a product with one of the library's epilogues; torch's dispatcher is left to the caller."""
    cdef tuple given = None
    if scale_a is not None or scale_b is not None or scale_c is not None or scale_d is not None:
        given = (scale_a, scale_b, scale_c, scale_d, False)
    outcome = product(a, b, c, alpha, beta, epilogue, bias, None, clamp, dtype, compute, out, options, stream, given)
    return finished(<Step>outcome) if type(outcome) is Step else outcome


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
        8-bit floats of one dialect may be mixed, and the types of the MX formats.
    c
        Addend of the result's dtype, broadcast to the result's shape.
    alpha, beta
        Host scalars, complex for complex operands, whole for integer results without scales; ``beta`` defaults to 1 when ``c`` is given. With
        ``beta=0``, ``c`` is not read.
    epilogue
        Name or :class:`rocpy.Epilogue`; ``"gelu"`` is the tanh form. Or a function made by :func:`rocpy.epilogue`; one that returns a
        tuple makes matmul return one, and ``out`` is a tuple then.
    bias
        For epilogues with a bias: length N, the last axis of the result, or ``(batch, N)``; or one for each row, of shape ``(M, 1)``,
        where that is not ``(batch, N)``.
    aux
        For gradient epilogues: the pre-activation, as the array or as the dict that the forward call returned.
    clamp
        ``(low, high)`` of the clamp epilogues.
    epilogue_inputs
        Inputs of an epilogue made by :func:`rocpy.epilogue`: a dict of arrays that broadcast to the result, and numbers, by name.
    scale_a, scale_b
        Factors of the elements of 8-bit and narrower operands: a number, or float32 for each row of a (``(M,)`` or ``(M, 1)``) and column
        of b (``(N,)`` or ``(1, N)``), behind batch axes that broadcast to the product's. A shape that can be read in two ways is refused:
        write all batch axes out. For the MX formats ``float8_e8m0fnu`` or uint8 for each 32 neighbours along K, of shape
        ``(..., M, K / 32)`` and ``(..., K / 32, N)``. Both are needed, but by int8 that gives integers; 1.0 says that none is meant.
    scale_c, scale_d
        Numbers that a c of 8-bit floats is multiplied by, and a result of 8-bit floats before it is rounded.
    amax
        Whether the dict holds ``"amax"``, the largest magnitude of the result before ``scale_d``; of operands of 8 bits and fewer.
    dtype
        Element type of the result: that of ``a`` by default; float16 and bfloat16 products also give float32. 8-bit and narrower
        floats give bfloat16 by default, int8 gives int32.
    compute
        ``"tf32"`` allows reduced precision inside a float32 product.
    out
        Array that receives the result; any layout, but not memory that is read. A result of another dtype is cast into it.
    options
        :class:`rocpy.blaslt.Options` or a dict.
    algorithm
        A :class:`rocpy.blaslt.Algorithm` of this problem, instead of the first.
    autotune
        ``True``: measure this problem's algorithms now unless that was done before, and remember the choice; ``False``: neither
        measure nor use what was measured; ``None``: as :mod:`rocpy.tuning` and ``ROCPY_AUTOTUNE`` say.
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
    cdef tuple given = None
    cdef object outcome
    if epilogue is not None and type(epilogue) is not str and is_custom(epilogue):
        return custom_matmul(a, b, c, dict(
            alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, epilogue_inputs=epilogue_inputs, dtype=dtype,
            compute=compute, out=out, options=options, stream=stream, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
            amax=amax, algorithm=algorithm, autotune=autotune))
    if epilogue_inputs is not None:
        refuse_inputs(epilogue)
    if autotune is not None:
        with _choice.override(autotune):
            return matmul(
                a, b, c, alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, scale_a=scale_a, scale_b=scale_b,
                scale_c=scale_c, scale_d=scale_d, amax=amax, dtype=dtype, compute=compute, out=out, options=options, algorithm=algorithm,
                stream=stream)
    if scale_a is not None or scale_b is not None or scale_c is not None or scale_d is not None or amax:
        given = (scale_a, scale_b, scale_c, scale_d, amax)
    if type(algorithm) is dict:  # a record that was exported tells its problem too, which is compared
        return forced_product(a, b, c, algorithm, out, stream, dict(
            alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, dtype=dtype, compute=compute, options=options,
            scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax))
    try:
        outcome = product(a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, out, options, stream, given, algorithm)
        return finished(<Step>outcome) if type(outcome) is Step else outcome
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None or algorithm is not None:
            raise
    return dispatcher("matmul", (a, b, c), dict(
        alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, dtype=dtype, compute=compute, out=out, options=options,
        stream=stream, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax))
