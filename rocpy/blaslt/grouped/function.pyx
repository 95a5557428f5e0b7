# SPDX-License-Identifier: MIT
"""grouped_matmul: many products of different sizes in one call, from lists or from one operand packed group after group."""

from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from abi cimport hipStream_t
from rocpy cimport _operand
from rocpy._core cimport DefaultFpEnvironment, Status
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport Operands, check_whole, describe, describe_scales, info, parse_all, real
from rocpy.blaslt.grouped._plans cimport add_settings, find
from rocpy.blaslt.grouped._packed cimport allocate, chosen_epilogue, finish, is_staged, packed
from rocpy.blaslt.engine.launch cimport (
    CachedCall, MatmulFactors, MatmulPointers, PlanKey, StreamContext, after_capture, after_hold, after_wait, borrow_context, place_of, refuse_capture, release_context,
    scale_a as _SCALE_A, scale_b as _SCALE_B,
)
from rocpy.blaslt.engine._scales cimport Scales, read_scales
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.runtime._capture cimport keep_with_foreign_graph
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy._operand import TorchLayerRequired, torch_dispatcher
from rocpy.blaslt.grouped import scales as _group_scales
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model import scale_arguments as _scale_arguments
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.arrays.blocks import are_blocks
from rocpy.blaslt.front.call import matmul as _matmul
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

cdef extern from "grouped.hpp" namespace "rocpy" nogil:
    cdef cppclass ListedProduct:
        shared_ptr[CachedCall] call
        MatmulPointers pointers
    Status launch_list(StreamContext *context, const vector[ListedProduct] &products, double alpha)

cdef list _ACTIVE = _options.ACTIVE


def grouped_matmul(a, b, /, *, offsets=None, groups=None, epilogue=None, bias=None, clamp=None, alpha=1.0, scale_a=None, scale_b=None,
                   dtype=None, out=None, options=None, stream=None):
    """Return many products, ``epilogue(alpha * a[g] @ b[g] + bias[g])`` for each group g, launched in one call.

    Parameters
    ----------
    a, b
        Without ``offsets``: sequences of operands as :func:`rocpy.matmul` takes them, of any shapes; one of length 1, or a single array or
        :class:`rocpy.Weight`, serves all groups. With ``offsets``: arrays in which the groups lie one after the other, ``(T, K)`` and
        ``(E, K, N)`` for groups of rows (a mixture of experts); ``(E, M, K)`` and ``(K, T)`` for groups of columns; ``(M, T)`` and
        ``(T, N)`` for a sum over each group, as in the gradient of the first.
    offsets
        Where the groups begin and end: E + 1 boundaries, or the E ends. Integers in a sequence or an array; one on a device is read back.
    groups
        E, needed only to say that the ``offsets`` of a sum over groups are the ends.
    epilogue
        As for :func:`rocpy.matmul`; those with a bias gradient or an ``aux`` operand are not taken.
    bias
        ``(N,)``, ``(E, N)`` or, for groups of columns, ``(T,)``; for lists a sequence, or one array for all.
    clamp
        ``(low, high)`` of the clamp epilogues.
    alpha
        Host scalar.
    scale_a, scale_b
        Factors of operands of 8 bits: for lists a sequence, or what :func:`rocpy.matmul` takes for all. With ``offsets`` a number, float32
        of shape ``(E, 1, 1)`` for one for each group, or one for each row of a and column of b: ``(T,)`` where the groups share that axis
        out, else ``(E, M)`` and ``(E, N)``.
    dtype
        Element type of the results.
    out
        Array that receives the result, or a sequence of them. What no group covers keeps what it held.
    options
        :class:`rocpy.blaslt.Options` or a dict.
    stream
        Stream that orders the products; ``None``: the current stream of the operands' framework.

    Returns
    -------
    array or list of array
        A list for lists; else ``(T, N)``, ``(M, T)`` or ``(E, M, N)``, zero where no group is. With an ``_aux`` epilogue, a pair of it and
        a dict.

    Raises
    ------
    InvalidOperandError
        If an operand is not what the form takes, or on another device.
    InvalidProblemError
        If shapes do not fit, or the offsets decrease or leave the array.
    UnsupportedError
        If the platform has no algorithm.

    Notes
    -----
    Stream: as for :func:`rocpy.matmul`. Groups of equal size that follow each other are one strided batch. hipBLASLt's own grouped product
    is a C++ class that changes between releases; it is not used. A captured stream's graph has the groups that the ``offsets`` told then.
    Torch's autograd records it: gradients flow to ``a``, ``b`` and ``bias``, each a grouped product itself; ``out``, scales and ``stream`` are
    refused there.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> tokens, experts = np.ones((5, 2), np.float32), np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    >>> rocpy.grouped_matmul(tokens, experts, offsets=[0, 2, 2, 5])
    array([[ 2.,  4.],
           [ 2.,  4.],
           [18., 20.],
           [18., 20.],
           [18., 20.]], dtype=float32)
    >>> [d.shape for d in rocpy.grouped_matmul([np.ones((2, 3)), np.ones((1, 4))], [np.ones((3, 5)), np.ones((4, 2))])]
    [(2, 5), (1, 2)]
    """
    cdef DefaultFpEnvironment environment
    environment.hold()
    if stream is not None:
        stream = hold_stream(stream)
    try:
        if offsets is None:
            return listed(a, b, groups, epilogue, bias, clamp, alpha, scale_a, scale_b, dtype, out, options, stream)
        return packed(grouped_matmul, a, b, offsets, groups, epilogue, bias, clamp, alpha, scale_a, scale_b, dtype, out, options, stream, None)
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None:
            raise
    return dispatcher("grouped_matmul", (a, b), dict(
        offsets=offsets, groups=groups, epilogue=epilogue, bias=bias, clamp=clamp, alpha=alpha, scale_a=scale_a, scale_b=scale_b, dtype=dtype,
        out=out, options=options, stream=stream))


def explain_packed(a, b, *, offsets, groups=None, epilogue=None, bias=None, clamp=None, alpha=1.0, scale_a=None, scale_b=None, dtype=None,
                   out=None, options=None, stream=None):
    """Return what the packed form would launch; for rocpy.blaslt.grouped.pieces."""
    cdef list found = []
    packed(grouped_matmul, a, b, offsets, groups, epilogue, bias, clamp, alpha, scale_a, scale_b, dtype, out, options, stream, found)
    return found


cdef object listed(object a, object b, object groups, object epilogue, object bias, object clamp, object alpha, object scale_a, object scale_b,
                   object dtype, object out, object options, object stream):
    """Products of sequences of operands."""
    cdef int index = chosen_epilogue(epilogue)
    cdef tuple lists = _groups.aligned(a, b, bias, out, groups)
    cdef list lefts = lists[0], rights = lists[1], biases = lists[2], outs = lists[3]
    cdef Py_ssize_t count = len(lefts), g
    if count == 0:
        return []
    cdef list scales_a = _group_scales.of_lists(scale_a, "scale_a", count), scales_b = _group_scales.of_lists(scale_b, "scale_b", count)
    row = EPILOGUES[EPILOGUE_NAMES[index]]
    if clamp is not None:
        clamp = _settings.clamp_bounds(clamp)
    cdef object resolved = _options.resolve_options(options) if options is not None or _ACTIVE else None
    if is_staged(lefts[0]):
        return collected(row, [
            _matmul(lefts[g], rights[g], epilogue=epilogue, bias=biases[g], clamp=clamp, alpha=alpha, scale_a=scales_a[g],
                    scale_b=scales_b[g], dtype=dtype, out=outs[g], options=options, stream=stream) for g in range(count)])
    cdef MatmulFactors factors
    factors.alpha = real(alpha, "alpha")
    cdef Scales scales
    cdef bint begun = False
    cdef Operands operands
    cdef Operand first, fresh, extra
    cdef PlanKey key
    cdef shared_ptr[CachedCall] call
    cdef CachedCall *found
    cdef ListedProduct product
    cdef vector[ListedProduct] products
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef int device = 0, after = 0
    cdef StreamContext *context = NULL
    cdef Status status
    cdef list results = [None] * count, held = [], later = [], numbers = []
    cdef object left, right, vector_, target, kept, result, beside, live
    cdef WeightSnapshot weight
    products.reserve(<size_t>count)
    for g in range(count):
        left, right, vector_, target = lefts[g], rights[g], biases[g], outs[g]
        given = None if scales_a[g] is None and scales_b[g] is None else (scales_a[g], scales_b[g], None, None, False)
        if isinstance(right, WeightOperand):
            weight = <WeightSnapshot>(<WeightOperand>right).read()
            right = rights[g] = weight  # of one time, and owned by this call
            if vector_ is None and row.bias:
                vector_ = weight.bias
            if weight.scale is not None:
                given = _scale_arguments.weight_scales(given, weight.factors)
        if given is not None and (are_blocks(given[0]) or are_blocks(given[1])):
            later.append(g)  # their operands are brought into the order that the library reads
            continue
        kept = parse_all(&operands, left, right, None, vector_, None, target)
        if not begun:
            begun = True
            memcpy(&first, &operands.a, sizeof(Operand))
            after = place_of(&first, stream, &device, &c_stream, &use)
        elif first.device_type != operands.a.device_type or first.device_id != operands.a.device_id:
            raise _groups.elsewhere(g, info(&operands.a).text, info(&first).text)
        scales = None if given is None else read_scales(given, &operands.a, &operands.b, device)
        if scales is not None:
            numbers.append((<Scales>scales).numbers)
        add_settings(&key, 0, index, device, dtype, clamp, resolved, scales)
        if operands.packed:
            key.words[0] |= <int64_t>1 << 28
        describe(&key, &operands)
        if scales is not None:
            describe_scales(&key, scales)
        live = None if after == after_capture else ((left, right, None, vector_, None, None), dict(
            alpha=alpha, epilogue=epilogue, clamp=clamp, dtype=dtype, stream=stream, **_scale_arguments.scale_arguments(right, given)))
        call = find(&key, &operands, index, dtype, clamp, resolved, device, c_stream, scales, 1, live)
        found = call.get()
        if found.copies or found.turned:
            later.append(g)
            continue
        if found.integer_factors:
            check_whole(&factors)
        result, beside = target, None
        if target is None:
            result = allocate(&fresh, &operands.a, found.result_type, found.result_ndim, found.result_shape, left)
            product.pointers.d = fresh.data
        else:
            product.pointers.d = operands.out.data
        product.pointers.aux = NULL
        if found.extra_ndim >= 0:
            beside = allocate(&extra, &operands.a, found.result_type, found.extra_ndim, found.extra_shape, left)
            product.pointers.aux = extra.data
        results[g] = (result, {row.outputs[0]: beside}) if row.outputs else result
        held.append((kept, left, right, vector_, result, beside, *([] if scales is None else scales.held)))
        if found.plan == NULL:
            continue
        product.pointers.a = operands.b.data if found.swapped else operands.a.data
        product.pointers.b = operands.a.data if found.swapped else operands.b.data
        product.pointers.c = NULL
        product.pointers.bias = operands.bias.data if operands.bias.ndim >= 0 else NULL
        if scales is not None:
            product.pointers.scales[<int>_SCALE_A] = scales.pointers[<int>_SCALE_B if found.swapped else <int>_SCALE_A]
            product.pointers.scales[<int>_SCALE_B] = scales.pointers[<int>_SCALE_A if found.swapped else <int>_SCALE_B]
        product.call = call
        products.push_back(product)
    if later and begun:
        refuse_capture(after, "an operand must be copied or a product composed", "see rocpy.explain(); pass dense operands")
    if products.size():
        if after != after_wait and after != after_hold:
            keep_with_foreign_graph(c_stream, device, ([one for one in rights if isinstance(one, WeightOperand)], numbers))
        with nogil:
            status = borrow_context(device, c_stream, &context)
            if status.ok():
                status = launch_list(context, products, factors.alpha)
                release_context(context)
        if after >= after_hold:
            held = [pinned_memories(one) for one in held]
        try:
            finish(status, c_stream, device, after, (held,))
        except (LibraryError, UnsupportedError) as error:
            if after == after_capture or not _library.is_refused_launch(error):
                raise
            later = list(range(count))  # each by itself: those that the library does not launch are composed
    if out is not None:
        touch(outs)
    for g in later:
        results[g] = _matmul(lefts[g], rights[g], epilogue=epilogue, bias=biases[g], clamp=clamp, alpha=alpha, scale_a=scales_a[g],
                             scale_b=scales_b[g], dtype=dtype, out=outs[g], options=options, stream=stream)
    return collected(row, results)


cdef int touch(list outs) except -1:
    """Tell the frameworks that their arrays were written."""
    cdef Operand seen
    for target in outs:
        _operand.parse(target, "out", &seen)
        _operand.written(target, seen.provider)
    return 0


cdef object collected(object row, list results):
    """Return the results, with what an epilogue gives beside them as one dict of lists."""
    if not row.outputs:
        return results
    name = row.outputs[0]
    return [pair[0] for pair in results], {name: [pair[1][name] for pair in results]}
