# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""grouped_matmul: many products of different sizes in one call, from lists or from one operand packed group after group."""

from libcpp.algorithm cimport sort
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport pair
from libcpp.vector cimport vector
from libc.string cimport memcpy

from abi cimport hipStream_t
from rocpy cimport _operand
from rocpy._core cimport DefaultFpEnvironment, Status
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand, share_memory, span
from rocpy.blaslt.operands._arguments cimport check_copies, check_whole, describe, describe_scales, info, parse_all
from rocpy.blaslt.grouped._plans cimport GroupedCall, add_settings, find
from rocpy.blaslt.grouped._packed cimport allocate, finish, is_staged, packed
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, Completion, MatmulPointers, Operands, PlanKey, PlanKind, StreamContext, borrow_context, is_nothing,
    release_context, synchronize_stream,
)
from rocpy.blaslt.engine._scales cimport Scales, check_apart, read_scales, scale_a as _SCALE_A, scale_b as _SCALE_B, without_factors
from rocpy.blaslt.front.call cimport check_product, outputs_of
from rocpy.blaslt.front.steps cimport refuse_steps
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, is_scale_array, scales_or_none, with_weight_scale
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.blaslt.selection.tuning_state cimport measures
from rocpy.runtime._capture cimport keep_with_foreign_graph
from rocpy.runtime.handles.call_stream cimport CallStream

from rocpy._operand import TorchLayerRequired, torch_dispatcher
from rocpy.blaslt.grouped import scales as _group_scales
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.arrays.blocks import have_blocks, prepare as prepare_blocks
from rocpy.blaslt.arrays.copies import assign
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.scale_arguments import scale_keywords
from rocpy.errors import InvalidOperandError, InvalidProblemError, LibraryError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

cdef extern from "grouped.hpp" namespace "rocpy" nogil:
    cdef cppclass ListedProduct:
        shared_ptr[CachedCall] call
        MatmulPointers pointers
    Status launch_list(StreamContext *context, const vector[ListedProduct] &products, double alpha)


def grouped_matmul(a, b, /, *, offsets=None, groups=None, epilogue=None, bias=None, clamp=None, alpha=1.0, scale_a=None, scale_b=None,
                   dtype=None, out=None, options=None, stream=None):
    """Return many products, ``epilogue(alpha * a[g] @ b[g] + bias[g])`` for each group g, launched in one call.

    Parameters
    ----------
    a, b
        Without ``offsets``: sequences of operands as :func:`rocpy.matmul` takes them, of any shapes; one of length 1, or a single array or
        :class:`rocpy.Weight`, is used for all groups. With ``offsets``: arrays in which the groups are stored one after another, ``(T,
        K)`` and ``(E, K, N)`` for groups of rows (a mixture of experts); ``(E, M, K)`` and ``(K, T)`` for groups of columns; ``(M, T)``
        and ``(T, N)`` for a sum over each group, as in the gradient of the first.
    offsets
        Where the groups begin and end: E + 1 boundaries, or the E ends. Integers in a sequence or an array; one on a device is read back.
    groups
        E, needed only to state that the ``offsets`` of a sum over groups are the ends.
    epilogue
        Name or member, as for :func:`rocpy.matmul`; custom ones and those with a bias gradient or an ``aux`` operand are not supported.
    bias
        ``(N,)``, ``(E, N)`` or, for groups of columns, ``(T,)``; for lists a sequence, or one array for all.
    clamp
        ``(low, high)`` of the clamp epilogues.
    alpha
        Host scalar.
    scale_a, scale_b
        Factors of operands of 8 bits: for lists a sequence, or scales as for :func:`rocpy.matmul`, used for all groups. With ``offsets``
        a number, float32 of shape ``(E, 1, 1)`` for one for each group, or one for each row of a and column of b: ``(T,)`` if that axis
        is divided among the groups, otherwise ``(E, M)`` and ``(E, N)``.
    dtype
        Element type of the results.
    out
        Array that receives the result, or a sequence of arrays. Elements that no group covers are unchanged.
    options
        :class:`rocpy.blaslt.Options` or a dict.
    stream
        Stream that orders the products; ``None``: the current stream of the operands' framework.

    Returns
    -------
    array or list of array
        A list for lists; otherwise ``(T, N)``, ``(M, T)`` or ``(E, M, N)``, zero where there is no group. With an ``_aux`` epilogue, a
        pair of it and a dict.

    Raises
    ------
    InvalidOperandError
        If an operand does not have the required type, or is on another device.
    InvalidProblemError
        If shapes do not fit, or the offsets decrease or exceed the array.
    UnsupportedError
        If the platform has no algorithm.

    Notes
    -----
    Stream: as for :func:`rocpy.matmul`. Consecutive groups of equal size are one strided batch. hipBLASLt's own grouped product is a C++
    class that changes between releases; it is not used. A graph keeps the groups that ``offsets`` described at capture time. It is
    recorded by torch's autograd: gradients flow to ``a``, ``b`` and ``bias``, each computed by a grouped product; ``out``, scales and
    ``stream`` are refused there.

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
    cdef GroupedCall call = GroupedCall.__new__(GroupedCall)
    environment.hold()
    if stream is not None:
        stream = hold_stream(stream)
    call.a, call.b, call.bias, call.out = a, b, bias, out
    call.offsets, call.groups, call.scale_a, call.scale_b = offsets, groups, scale_a, scale_b
    call.epilogue, call.clamp, call.alpha, call.dtype = epilogue, clamp, alpha, dtype
    call.options, call.stream = options, stream
    try:
        return listed(call) if offsets is None else packed(call)
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None:
            raise
    return dispatcher("grouped_matmul", (a, b), dict(
        offsets=offsets, groups=groups, epilogue=epilogue, bias=bias, clamp=clamp, alpha=alpha, scale_a=scale_a, scale_b=scale_b, dtype=dtype,
        out=out, options=options, stream=stream))


# An operand of a group.
cdef struct Noted:
    Operand operand
    Py_ssize_t group
    int which


cdef enum:
    OF_OUT
    OF_A
    OF_B
    OF_BIAS
    OF_SCALE_A
    OF_SCALE_B


cdef tuple _OF_CALLS = (InvalidOperandError, InvalidProblemError, UnsupportedError)  # what a group is refused by
cdef tuple ROLES = ("out", "a", "b", "bias", "scale_a", "scale_b")  # by the enumerators above


cdef str text_of(const Noted *noted):
    return f"{ROLES[noted.which]}[{noted.group}]"


cdef list read_each(list listed, str name):
    """Return what products work with in the place of operands; one for all groups is read once."""
    cdef object before = None, read = None
    cdef list results = []
    for one in listed:
        if one is not before:
            try:
                before, read = one, _operand.readable(one, name)
            except _OF_CALLS as error:
                raise _groups.in_group(error, len(results))
        results.append(read)
    return results


cdef class ListedGroups:
    """Groups of which each has operands of its own, on their way to one launch."""

    cdef GroupedCall call
    cdef list a, b, bias, out, scale_a, scale_b
    cdef list results, held, numbers
    cdef list later  # groups that are computed each by itself
    cdef bint begun
    cdef object extra_name  # of what the epilogue gives beside each result, or None
    cdef Operand first  # the a of the first group that is launched
    cdef vector[Noted] noted  # where results are written to arrays of the caller's
    cdef list owners  # of what is noted: the next copy would otherwise lie at the address of one that is freed
    cdef vector[ListedProduct] products

    def __cinit__(self, GroupedCall call not None):
        cdef Py_ssize_t count
        self.call = call
        a, b, bias, self.out = _groups.aligned(call.a, call.b, call.bias, call.out, call.groups)
        self.a, self.b, self.bias = read_each(a, "a"), read_each(b, "b"), read_each(bias, "bias")
        count = len(self.a)
        self.extra_name = call.row.outputs[0] if call.row.outputs else None
        self.scale_a = _group_scales.of_lists(call.scale_a, "scale_a", count)
        self.scale_b = _group_scales.of_lists(call.scale_b, "scale_b", count)
        self.results, self.held, self.numbers, self.later, self.owners = [None] * count, [], [], [], []

    cdef ProductCall call_of(self, Py_ssize_t g):
        """Return one group as a product by itself."""
        call = self.call
        return ProductCall(
            self.a[g], self.b[g], bias=self.bias[g], out=self.out[g], alpha=call.alpha, epilogue=call.epilogue, clamp=call.clamp, dtype=call.dtype,
            options=call.options, stream=call.stream, scales=scales_or_none(self.scale_a[g], self.scale_b[g], None, None, False))

    cdef int compute_later(self) except -1:
        """Compute the groups that are not part of the launch, each by itself and aside: none writes to its out before all have succeeded."""
        cdef ProductCall one
        for g in self.later:
            one = self.call_of(g)
            try:
                if one.out is not None:
                    check_product(one)
                    one.out = _groups.array_like(one.out)
                self.results[g] = outputs_of(one)
            except _OF_CALLS as error:
                raise _groups.in_group(error, g)
        return 0

    cdef int deliver_later(self) except -1:
        """Write the results that were computed aside to the caller's arrays."""
        cdef GroupedCall call = self.call
        if call.out is None or not self.later:
            return 0
        # The frameworks' copies do not follow the order of a stream that the user gave.
        waits = self.begun and call.stream is not None
        if waits:
            synchronize_stream(call.c_stream, self.first.device_type, self.first.device_id)
        for g in self.later:
            result, out = self.results[g], self.out[g]
            if out is not None:
                assign(out, result if self.extra_name is None else result[0])
                self.results[g] = out if self.extra_name is None else (out, result[1])
        if waits:
            synchronize_stream(call.c_stream, self.first.device_type, self.first.device_id)
        return 0

    cdef ScaleArguments read_weight(self, Py_ssize_t g):
        """Return the scales of a group; what a Weight holds is read at one time, and takes the Weight's place."""
        cdef WeightSnapshot weight
        cdef ScaleArguments values = scales_or_none(self.scale_a[g], self.scale_b[g], None, None, False)
        if isinstance(self.b[g], WeightOperand):
            weight = <WeightSnapshot>(<WeightOperand>self.b[g]).read()
            self.b[g] = weight  # owned by this call
            if weight.scale is not None:
                values = with_weight_scale(values, weight.factors)
        return values

    cdef int add(self, Py_ssize_t g) except -1:
        """Plan a group and allocate its result, or leave it for later."""
        cdef GroupedCall call = self.call
        cdef Operands operands
        cdef PlanKey key
        cdef Scales scales = None
        cdef shared_ptr[CachedCall] planned
        cdef CachedCall *cached
        cdef object live = None
        cdef ScaleArguments values = self.read_weight(g)
        left, right, bias = self.a[g], self.b[g], self.bias[g]
        if bias is None and call.row.bias and isinstance(right, WeightOperand):
            bias = (<WeightSnapshot>right).bias
        if values is not None and have_blocks(values):
            left, right = prepare_blocks(left, right, values, resolve_options(call.options))
        owners = parse_all(&operands, left, right, None, bias, None, self.out[g])
        if call.out is not None:
            self.owners.append(owners)
            self.note(g, OF_OUT, &operands.out)
            self.note(g, OF_A, &operands.a)
            if not operands.packed:
                self.note(g, OF_B, &operands.b)
            self.note(g, OF_BIAS, &operands.bias)
        if not self.begun:
            self.begun = True
            memcpy(&self.first, &operands.a, sizeof(Operand))
            call.resolve_stream(&self.first)
        elif self.first.device_type != operands.a.device_type or self.first.device_id != operands.a.device_id:
            raise _groups.elsewhere(info(&operands.a).text, info(&self.first).text)
        if values is not None:
            scales = read_scales(values, &operands.a, &operands.b, call.device, call.resolved is not None and call.resolved.reproducible == "batch")
            if self.out[g] is not None:
                check_apart(scales, &operands.out)
                self.note(g, OF_SCALE_A, &scales.arrays[<int>_SCALE_A])
                self.note(g, OF_SCALE_B, &scales.arrays[<int>_SCALE_B])
            self.numbers.append(scales.numbers)
        check_copies((self.a[g], self.b[g], None, bias, None), &operands, scales, call.completion, call.options)
        add_settings(&key, PlanKind.product, operands.packed, call, scales)
        describe(&key, &operands)
        if scales is not None:
            describe_scales(&key, scales)
        if call.completion != Completion.CAPTURE and measures():
            live = ((left, right, None, bias, None, None), dict(
                call.keywords(("alpha", "epilogue", "clamp", "dtype", "stream")), **scale_keywords(values, right)))
        planned = find(&key, &operands, call, scales, 1, live)
        cached = planned.get()
        if cached.kind != CallKind.launch or cached.transposed:
            refuse_steps(call.completion, cached, &operands, EPILOGUE_NAMES[call.epilogue_index])
            self.later.append(g)
            return 0
        if cached.integer_factors:
            check_whole(&call.factors)
        self.take(g, planned, &operands, scales, left.memory if type(left) is Packed else left, (owners, left, right, bias))
        return 0

    cdef int add_staged(self, Py_ssize_t g) except -1:
        """Leave a group in CPU memory for later, on copies."""
        self.later.append(g)
        if self.call.out is None:
            return 0
        for which, one in ((OF_OUT, self.out), (OF_A, self.a), (OF_B, self.b), (OF_BIAS, self.bias)):
            if one[g] is not None and not isinstance(one[g], WeightOperand):
                self.note_array(g, which, one[g])
        for which, one in ((OF_SCALE_A, self.scale_a), (OF_SCALE_B, self.scale_b)):
            if is_scale_array(one[g]):
                self.note_array(g, which, one[g])
        return 0

    cdef int note_array(self, Py_ssize_t g, int which, object array) except -1:
        cdef Operand seen
        if which == OF_OUT:
            self.owners.append(_operand.parse_output(array, ROLES[which], &seen))
        else:
            self.owners.append(_operand.parse(array, ROLES[which], &seen))
        return self.note(g, which, &seen)

    cdef int note(self, Py_ssize_t g, int which, const Operand *operand) except -1:
        """Note the memory of an operand, if there is one."""
        cdef Noted one
        if operand.ndim >= 0:
            memcpy(&one.operand, operand, sizeof(Operand))
            one.group, one.which = g, which
            self.noted.push_back(one)
        return 0

    cdef int check_noted(self) except -1:
        """Refuse results that share memory, with one another or with what another group reads; a group's own was checked with it."""
        cdef vector[pair[pair[size_t, size_t], size_t]] ranges
        cdef pair[pair[size_t, size_t], size_t] reach
        cdef const Noted *one
        cdef const Noted *other
        cdef size_t i, j
        for i in range(self.noted.size()):
            span(&self.noted[i].operand, &reach.first.first, &reach.first.second)
            reach.second = i
            ranges.push_back(reach)
        sort(ranges.begin(), ranges.end())
        for i in range(ranges.size()):
            one = &self.noted[ranges[i].second]
            for j in range(i + 1, ranges.size()):
                if ranges[j].first.first >= ranges[i].first.second:
                    break
                other = &self.noted[ranges[j].second]
                if one.group == other.group or not (one.which == OF_OUT or other.which == OF_OUT):
                    continue
                if share_memory(&one.operand, &other.operand):
                    if other.which == OF_OUT and (one.which != OF_OUT or other.group < one.group):
                        one, other = other, one
                    raise _groups.overlap(text_of(one), text_of(other), other.which == OF_OUT)
        return 0

    cdef int take(self, Py_ssize_t g, const shared_ptr[CachedCall] &planned, const Operands *operands, Scales scales, object like,
                  tuple owners) except -1:
        """Allocate the result of a planned group, by the framework of ``like``, and add it to the launch."""
        cdef CachedCall *cached = planned.get()
        cdef ListedProduct product
        cdef Operand fresh, extra
        cdef object result = self.out[g], auxiliary = None
        if scales is not None and is_nothing(self.call.factors.alpha, &operands.a):
            scales = without_factors(scales, &operands.a, &operands.b, self.call.device)
            self.numbers.append(scales.numbers)
        if result is None:
            result = allocate(&fresh, &operands.a, cached.result_type, cached.result_ndim, cached.result_shape, like)
            product.pointers.d = fresh.data
        else:
            product.pointers.d = operands.out.data
        product.pointers.aux = NULL
        if cached.extra_ndim >= 0:
            auxiliary = allocate(&extra, &operands.a, cached.result_type, cached.extra_ndim, cached.extra_shape, like)
            product.pointers.aux = extra.data
        self.results[g] = result if self.extra_name is None else (result, {self.extra_name: auxiliary})
        self.held.append((*owners, result, auxiliary, *([] if scales is None else scales.held)))
        if cached.plan == NULL:
            return 0
        product.pointers.a = operands.b.data if cached.swapped else operands.a.data
        product.pointers.b = operands.a.data if cached.swapped else operands.b.data
        product.pointers.c = NULL
        product.pointers.bias = operands.bias.data if operands.bias.ndim >= 0 else NULL
        if scales is not None:
            product.pointers.scales[<int>_SCALE_A] = scales.pointers[<int>_SCALE_B if cached.swapped else <int>_SCALE_A]
            product.pointers.scales[<int>_SCALE_B] = scales.pointers[<int>_SCALE_A if cached.swapped else <int>_SCALE_B]
        product.call = planned
        self.products.push_back(product)
        return 0

    cdef int launch(self) except -1:
        """Launch what was planned, and keep or wait for what the stream still uses."""
        cdef GroupedCall call = self.call
        cdef StreamContext *context = NULL
        cdef Status status
        cdef hipStream_t c_stream = call.c_stream
        cdef int device = call.device
        cdef double alpha = call.factors.alpha
        if call.completion != Completion.WAIT and call.completion != Completion.KEEP_ALIVE:
            keep_with_foreign_graph(c_stream, device, ([one for one in self.b if isinstance(one, WeightOperand)], self.numbers))
        with nogil:
            status = borrow_context(device, c_stream, &context)
            if status.ok():
                status = launch_list(context, self.products, alpha)
                release_context(context)
        held = [pinned_memories(one) for one in self.held] if call.completion >= Completion.KEEP_ALIVE else self.held
        try:
            finish(status, call, (held,))
        except (LibraryError, UnsupportedError) as error:
            if call.completion == Completion.CAPTURE or not _library.is_refused_launch(error):
                raise
            self.later = list(range(len(self.a)))  # each by itself: those that the library does not launch are composed
            self.compute_later()
        return 0


cdef object listed(GroupedCall call):
    """Products of sequences of operands."""
    cdef ListedGroups groups
    cdef CallStream order
    cdef Py_ssize_t g
    order.enter(<void *>call.stream)
    call.resolve()
    groups = ListedGroups(call)
    if not groups.a:
        return []
    staged = is_staged(groups.a[0])
    for g in range(len(groups.a)):
        try:
            if staged:
                groups.add_staged(g)
            else:
                groups.add(g)
        except _OF_CALLS as error:
            raise _groups.in_group(error, g)
    groups.check_noted()
    groups.compute_later()
    if groups.products.size():
        groups.launch()
        if call.out is not None:
            touch(groups.out)
    groups.deliver_later()
    return collected(call.row, groups.results)


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
