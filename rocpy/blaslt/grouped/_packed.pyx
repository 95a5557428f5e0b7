# SPDX-License-Identifier: MIT
"""Groups that lie one after the other in one operand: offsets read, one plan found for all sizes, launched in one loop."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from abi cimport hipStream_t
from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport Status
from rocpy._dlpack cimport array_type_of_hip
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport Operands, check_whole, describe, describe_scales, epilogue_index, info, parse_all, problem_of, real
from rocpy.blaslt.grouped._plans cimport (
    GroupRun, GroupedOperand, GroupedProduct, Ragged, add_settings, find, launch_groups, measuring, next_run, plan_run, read_group_scales,
)
from rocpy.blaslt.engine.launch cimport (
    CachedCall, MatmulFactors, PlanKey, StreamContext, after_capture, after_hold, after_wait, algorithms_of, borrow_context, operand_a, operand_aux,
    operand_b, operand_bias, operand_d, operand_scale_a, operand_scale_b, place_of, plan_cache, refuse_capture, refuse_captured,
    release_context, settle,
)
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.blaslt.engine.streams cimport Settle
from rocpy.runtime._capture cimport capture_of, keep_with_foreign_graph
from rocpy.runtime.handles.keep_alive cimport hold
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy import platform
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.grouped.pieces import Pieces
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import LibraryError, UnsupportedError

cdef extern from "table.hpp" namespace "rocpy" nogil:
    struct Table:
        int (*hipStreamQuery)(hipStream_t stream) noexcept nogil
        int (*hipStreamSynchronize)(hipStream_t stream) noexcept nogil
        int (*hipMemsetAsync)(void *dst, int value, size_t bytes, hipStream_t stream) noexcept nogil
    Table table

cdef extern from *:
    """
    static inline rocpy::Status hip_failure(int code, const char *function) { return {rocpy::Library::hip, code, function}; }
    """
    Status hip_failure(int code, const char *function) nogil

cdef int _CPU = 1  # kDLCPU
cdef int _HIP_NOT_READY = 600  # hipErrorNotReady
cdef int64_t _GROUPED = 1 << 56  # in the first word of a key: no product of one matrix has it
cdef list _ACTIVE = _options.ACTIVE
cdef int _staged = -1
# Algorithms that an explanation counts.
cdef int _LISTED = _choice.LISTED


cdef int chosen_epilogue(object epilogue) except -1:
    cdef int index = epilogue_index(epilogue)
    _groups.check_epilogue(EPILOGUES[EPILOGUE_NAMES[index]])
    return index


cdef object allocate(Operand *made, const Operand *like, int32_t type, int ndim, const int64_t *shape, object owner):
    made.type = type
    made.device_type = like.device_type
    made.device_id = like.device_id
    made.ndim = ndim
    memcpy(made.shape, shape, <size_t>ndim * sizeof(int64_t))
    return _operand.allocate(owner, like.provider, made)


cdef int finish(Status status, hipStream_t c_stream, int device, int after, tuple held) except -1:
    """Report a failed launch, and keep or wait for what the stream still uses."""
    cdef int code
    if not status.ok() and after != after_capture:
        settle(c_stream)  # some groups may be queued, and their operands are about to go
    _core.check(status)
    if after == after_capture:
        capture_of(c_stream, device).keep(held)
    elif after == after_wait:
        if table.hipStreamQuery(c_stream) == _HIP_NOT_READY:
            with nogil:
                code = table.hipStreamSynchronize(c_stream)
            _core.check(hip_failure(code, b"hipStreamSynchronize"))
    elif after == after_hold:
        hold(c_stream, device, held)
    return 0


cdef bint is_staged(object array) except? -1:
    global _staged
    _core.ensure()
    if _staged < 0:
        _staged = not platform.current().host_memory
    return _staged and _staging.needed(array)


# As many boundaries as groups can have whose results are indexed with 32 bits.
cdef int64_t _MOST_OFFSETS = 2**31


cdef bint on_device(object offsets) except -1:
    cdef Operand seen
    if type(offsets) is list or type(offsets) is tuple:
        return False
    _operand.parse(offsets, "offsets", &seen)
    return seen.device_type != _CPU


cdef int read_offsets(object offsets, int64_t groups, vector[int64_t] *out) except -1:
    """Read integers from a sequence or an array; one whose length cannot be right is not read."""
    cdef Operand seen
    cdef int64_t i
    if type(offsets) is not list and type(offsets) is not tuple:
        _operand.parse(offsets, "offsets", &seen)
        if seen.device_type == _CPU and seen.ndim == 1 and seen.type in (10, 24):  # HIP_R_32I, HIP_R_64I
            if seen.shape[0] > _MOST_OFFSETS or (groups >= 0 and seen.shape[0] > groups + 1):
                raise _groups.wrong_count(seen.shape[0], groups)
            out.resize(<size_t>seen.shape[0])
            for i in range(seen.shape[0]):
                if seen.type == 10:
                    out[0][<size_t>i] = (<int32_t *>seen.data)[i * seen.strides[0]]
                else:
                    out[0][<size_t>i] = (<int64_t *>seen.data)[i * seen.strides[0]]
            return 0
    cdef list numbers = _groups.offset_numbers(offsets)
    out.resize(<size_t>len(numbers))
    for i in range(<int64_t>len(numbers)):
        # What does not fit in 64 bits leaves the array, as the nearest number that does.
        out[0][<size_t>i] = max(-(2**63), min(numbers[i], 2**63 - 1))
    return 0


cdef int read_boundaries(object offsets, int64_t groups, int64_t total, vector[int64_t] *out) except -1:
    """Read the boundaries of the groups: E + 1 numbers that rise from 0 or more to the total or less. `groups` < 0: as many as there are."""
    read_offsets(offsets, groups, out)
    cdef int64_t count = <int64_t>out.size(), i, previous = 0
    if groups >= 0 and count == groups:
        out.insert(out.begin(), <int64_t>0)
        count += 1
    elif count < 1 or (groups >= 0 and count != groups + 1):
        raise _groups.wrong_count(count, groups)
    for i in range(count):
        if out[0][<size_t>i] < previous or out[0][<size_t>i] > total:
            raise _groups.wrong_offsets([out[0][<size_t>j] for j in range(count)], total)
        previous = out[0][<size_t>i]
    return 0


cdef inline void one_matrix(Operand *operand, int axis) noexcept nogil:
    """Leave an axis of an operand out."""
    cdef int i
    operand.ndim -= 1
    for i in range(axis, operand.ndim):
        operand.shape[i] = operand.shape[i + 1]
        operand.strides[i] = operand.strides[i + 1]


cdef void settle_strides(Operand *operand) noexcept nogil:
    """Give an operand without elements the strides of a dense one: its own say nothing, and one matrix of it may have elements."""
    cdef int axis
    cdef int64_t step = 1
    for axis in range(operand.ndim):
        step *= operand.shape[axis]
    if operand.ndim < 0 or step:
        return
    step = 1
    for axis in range(operand.ndim - 1, -1, -1):
        operand.strides[axis] = step
        step *= max(<int64_t>1, operand.shape[axis])


cdef inline void moves(GroupedProduct *product, int place, void *data, int32_t type, int64_t per_index, int64_t per_group) noexcept nogil:
    cdef int64_t size = <int64_t>1 << array_type_of_hip(type).shift
    product.operands[place].data = <char *>data
    product.operands[place].element_bytes = size
    product.operands[place].per_index = per_index * size
    product.operands[place].per_group = per_group * size


cdef struct Steps:  # from one element of the shared axis to the next, and from one group to the next, in elements
    int64_t a_index
    int64_t a_group
    int64_t b_index
    int64_t b_group
    int64_t bias_index
    int64_t bias_group
    int64_t d_index
    int64_t d_group
    int64_t aux_index
    int64_t aux_group


cdef object packed(object run, object a, object b, object offsets, object groups, object epilogue, object bias, object clamp, object alpha,
                   object scale_a, object scale_b, object dtype, object out, object options, object stream, list explained):
    """Products of groups that lie one after the other in one operand.

    With a list in `explained` nothing is computed: it receives, for each run of groups of one size, the first group, their number and size,
    the problem, the algorithms and the chosen one's place and source.
    """
    cdef int index = chosen_epilogue(epilogue)
    row = EPILOGUES[EPILOGUE_NAMES[index]]
    for name, value in (("a", a), ("b", b), ("bias", bias), ("out", out)):
        _groups.refuse_sequence(name, value)
    cdef object resolved = _options.resolve_options(options) if options is not None or _ACTIVE else None
    if is_staged(a):
        refuse_captured(stream, "operands in CPU memory are copied to the device", "move them there")
        return _groups.staged(run, a, b, bias, out, _options.resolve_options(options), dict(
            offsets=offsets, groups=groups, epilogue=epilogue, clamp=clamp, alpha=alpha, scale_a=scale_a, scale_b=scale_b, dtype=dtype,
            options=options, stream=stream))
    if clamp is not None:
        clamp = _settings.clamp_bounds(clamp)
    cdef MatmulFactors factors
    factors.alpha = real(alpha, "alpha")
    # `whole` are the operands, `one` those of a product whose plan serves all groups but for one extent.
    cdef Operands whole, one
    cdef object kept = parse_all(&whole, a, b, None, bias, None, out)
    cdef GroupedProduct product
    cdef GroupedOperand placed[2]
    cdef Scales scales = None
    cdef int64_t total, longest = 0, count = -1
    cdef int a_ndim = whole.a.ndim, b_ndim = whole.b.ndim, axis, result_ndim = 2
    cdef int64_t result_shape[3]
    cdef vector[int64_t] starts
    cdef hipStream_t c_stream = NULL
    cdef int device = 0
    cdef StreamUse use
    cdef int after = place_of(&whole.a, stream, &device, &c_stream, &use)
    if groups is not None:
        count = _groups.count_of(groups)
    if a_ndim == 2 and b_ndim == 3:
        product.ragged = Ragged.m
        total = whole.a.shape[0]
        result_shape[0], result_shape[1] = total, whole.b.shape[2]
    elif a_ndim == 3 and b_ndim == 2:
        product.ragged = Ragged.n
        total = whole.b.shape[1]
        result_shape[0], result_shape[1] = whole.a.shape[1], total
    elif a_ndim == 2 and b_ndim == 2:
        product.ragged = Ragged.k
        total = whole.a.shape[1]
    else:
        raise _groups.wrong_form(info(&whole.a), info(&whole.b))
    if product.ragged != Ragged.k:
        _groups.check_count(count, whole.b.shape[0] if b_ndim == 3 else whole.a.shape[0])
        count = whole.b.shape[0] if b_ndim == 3 else whole.a.shape[0]
    if after == after_capture and on_device(offsets):
        refuse_capture(after, "offsets on a device are read back", "pass them as a list, or in CPU memory")
    read_boundaries(offsets, count, total, &starts)
    count = <int64_t>starts.size() - 1
    if product.ragged == Ragged.k:
        result_ndim = 3
        result_shape[0], result_shape[1], result_shape[2] = count, whole.a.shape[0], whole.b.shape[1]
    if not fit(&whole, product.ragged, count, result_ndim, result_shape):
        raise _groups.mismatch(info(&whole.a), info(&whole.b), info(&whole.bias), info(&whole.out), count,
                               tuple([result_shape[axis] for axis in range(result_ndim)]))

    settle_strides(&whole.a)
    settle_strides(&whole.b)
    settle_strides(&whole.bias)
    settle_strides(&whole.out)
    memcpy(&one, &whole, sizeof(Operands))
    # The plan depends on whether the shared axis has more than one element, and not on how many; columns set the leading dimension.
    cdef int64_t shared = min(total, <int64_t>2)
    if product.ragged == Ragged.m:
        one.a.shape[0] = shared
        one_matrix(&one.b, 0)
    elif product.ragged == Ragged.n:
        one_matrix(&one.a, 0)
    else:
        one.a.shape[1] = one.b.shape[0] = shared
    if one.bias.ndim == 2:
        one_matrix(&one.bias, 0)
    if one.out.ndim == 3:
        one_matrix(&one.out, 0)
    elif one.out.ndim == 2 and product.ragged == Ragged.m:
        one.out.shape[0] = shared
    if scale_a is not None or scale_b is not None:
        for axis in range(count):
            longest = max(longest, starts[<size_t>axis + 1] - starts[<size_t>axis])
        scales = read_group_scales((scale_a, scale_b), product.ragged, &whole, count, longest, device, placed)
    cdef PlanKey key
    add_settings(&key, _GROUPED | <int64_t><int32_t>product.ragged << 40, index, device, dtype, clamp, resolved, scales)
    describe(&key, &one)
    if scales is not None:
        describe_scales(&key, scales)
        for axis in range(2):
            # Groups with the same scales may be one batch.
            key.add(placed[axis].per_index != 0 or placed[axis].per_group != 0)
    cdef Steps at
    steps(&at, &whole, product.ragged, result_shape)
    for step in (at.a_group, at.b_group, at.bias_group, at.d_index, at.d_group):
        key.add(step)
    cdef shared_ptr[CachedCall] call = find(&key, &one, index, dtype, clamp, resolved, device, c_stream, scales, 0, None)
    cdef CachedCall *found = call.get()
    if resolved is None:
        resolved = _options.current_options()
    if found.integer_factors:
        check_whole(&factors)
    cdef object pieces = None, model = None
    if found.copies or explained is not None:
        pieces = pieces_of(&product, starts, (a, b, bias, out, scale_a, scale_b), found.result_type, dict(
            epilogue=epilogue, clamp=clamp, alpha=alpha, options=options, stream=stream), &at)
    if found.copies and explained is None:
        refuse_capture(after, "an operand must be copied or the products composed", "see rocpy.explain(); pass dense operands")
    if found.copies >> 7:  # _recipes.UNFUSED_BIT
        return pieces.one_by_one(Settle(<size_t>c_stream)) if explained is None else explained.extend(pieces.explained())
    if found.copies and explained is not None:
        return explained.append([name for name, bit in _settings.COPY_BITS.items() if found.copies >> bit & 1])
    if found.copies:
        if after != after_wait:
            settle(c_stream)
        return _groups.copied(run, [name for name, bit in _settings.COPY_BITS.items() if found.copies >> bit & 1], resolved,
                              dict(a=a, b=b, bias=bias, out=out), array_type_of_hip(found.result_type).name.decode(), dict(
            offsets=offsets, groups=groups, epilogue=epilogue, clamp=clamp, alpha=alpha, scale_a=scale_a, scale_b=scale_b, dtype=dtype,
            options=options, stream=stream),
            (lambda: None) if after == after_wait else Settle(<size_t>c_stream))

    cdef StreamContext *context = NULL
    cdef Status status
    cdef GroupRun at_run
    cdef int first = operand_b if found.swapped else operand_a, second = operand_a if found.swapped else operand_b
    if found.plan != NULL:
        product.spec = &found.plan.spec()
        product.swapped = found.swapped
        moves(&product, first, whole.a.data, whole.a.type, at.a_index, at.a_group)
        moves(&product, second, whole.b.data, whole.b.type, at.b_index, at.b_group)
        moves(&product, operand_d, NULL, found.result_type, at.d_index, at.d_group)
        if whole.bias.ndim >= 0:
            moves(&product, operand_bias, whole.bias.data, whole.bias.type, at.bias_index, at.bias_group)
        if found.extra_ndim >= 0:
            moves(&product, operand_aux, NULL, found.result_type, at.aux_index, at.aux_group)
        if scales is not None:
            memcpy(&product.operands[<int>operand_scale_b if found.swapped else <int>operand_scale_a], &placed[0], sizeof(GroupedOperand))
            memcpy(&product.operands[<int>operand_scale_a if found.swapped else <int>operand_scale_b], &placed[1], sizeof(GroupedOperand))
    cdef shared_ptr[CachedCall] ready
    if explained is not None:
        if found.plan == NULL:
            return None
        model = problem_of(&one, EPILOGUE_NAMES[index], dtype, None, clamp, scales)
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            while next_run(product, starts.data(), count, &at_run):
                problem = pieces.problem(model, at_run.extent, at_run.count)
                ready = plan_run(&product, &at_run, problem, resolved, context, _LISTED)
                explained.append((at_run.first, at_run.count, at_run.extent, problem, algorithms_of(ready.get(), device),
                                  ready.get().algorithm, ready.get().source.c_str().decode(), device))
                at_run.first += at_run.count
        finally:
            release_context(context)
        return None

    cdef Operand fresh, extra
    cdef object result = out, beside = None
    cdef bint composed = False
    cdef bint gaps = starts[0] > 0 or starts[<size_t>count] < total
    if product.ragged == Ragged.k:
        gaps = False
    if out is None:
        result = allocate(&fresh, &whole.a, found.result_type, result_ndim, result_shape, a)
        if gaps:
            clear(&fresh, c_stream)
    else:
        memcpy(&fresh, &whole.out, sizeof(Operand))
    if found.extra_ndim >= 0:
        beside = allocate(&extra, &whole.a, found.result_type, result_ndim, result_shape, a)
        if gaps:
            clear(&extra, c_stream)
        product.operands[<int>operand_aux].data = <char *>extra.data
    if found.plan != NULL:
        product.operands[<int>operand_d].data = <char *>fresh.data
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            while True:
                with nogil:
                    status = launch_groups(context, product, &key, starts.data(), count, ready, factors.alpha, &at_run)
                if not status.ok() or at_run.first >= count:
                    break
                if model is None:
                    model = problem_of(&one, EPILOGUE_NAMES[index], dtype, None, clamp, scales)
                    pieces = pieces_of(&product, starts, (a, b, bias, out, scale_a, scale_b), found.result_type, dict(
                        epilogue=epilogue, clamp=clamp, alpha=alpha, options=options, stream=stream), &at)
                problem = pieces.problem(model, at_run.extent, at_run.count)
                if after != after_capture and measuring():
                    pieces.measure(problem, resolved, at_run.first, at_run.count)
                ready = plan_run(&product, &at_run, problem, resolved, context, 1)
                keep(&key, &at_run, ready)
        except BaseException as error:
            if after != after_capture:
                settle(c_stream)  # some groups may be queued, and their operands are about to go
            if after == after_capture or not isinstance(error, UnsupportedError):
                raise
            composed = True  # the library has nothing for groups of this size
        finally:
            release_context(context)
        if not composed:
            if scales is not None:
                keep_with_foreign_graph(c_stream, device, scales.numbers)
            held = (kept, a, b, bias, result, beside, *([] if scales is None else scales.held))
            try:
                finish(status, c_stream, device, after, pinned_memories(held) if after >= after_hold else held)
            except (LibraryError, UnsupportedError) as error:
                if after == after_capture or not _library.is_refused_launch(error):
                    raise
                composed = True
        if composed:
            if pieces is None:
                pieces = pieces_of(&product, starts, (a, b, bias, out, scale_a, scale_b), found.result_type, dict(
                    epilogue=epilogue, clamp=clamp, alpha=alpha, options=options, stream=stream), &at)
            # Each by itself: those that the library does not launch are composed.
            return pieces.one_by_one(Settle(<size_t>c_stream))
    if out is not None:
        _operand.written(out, whole.out.provider)
    return result if beside is None else (result, {row.outputs[0]: beside})


cdef object pieces_of(const GroupedProduct *product, const vector[int64_t] &starts, tuple operands, int32_t result_type, dict arguments,
                      const Steps *at):
    """Return what the groups are of the user's arrays, for those that are planned, measured, explained or computed one by one."""
    return Pieces("mnk"[<int32_t>product.ragged], starts, operands, array_type_of_hip(result_type).name.decode(), arguments, dict(
        a=(at.a_index, at.a_group), b=(at.b_index, at.b_group), bias=(at.bias_index, at.bias_group)))


cdef int keep(PlanKey *key, const GroupRun *run, const shared_ptr[CachedCall] &call) except -1:
    """Keep the plan of a run of groups under the product's key, its size and its number."""
    cdef int size = key.size
    key.add(run.extent)
    key.add(run.count)
    if key.fits():
        plan_cache().insert(key[0], call)
    key.size = size
    return 0


cdef void steps(Steps *at, const Operands *whole, Ragged ragged, const int64_t *shape) noexcept nogil:
    memset(at, 0, sizeof(Steps))
    if whole.bias.ndim == 2:
        at.bias_group = whole.bias.strides[0]
    if ragged == Ragged.m:
        at.a_index, at.b_group = whole.a.strides[0], whole.b.strides[0]
        at.aux_index = shape[1]
        at.d_index = whole.out.strides[0] if whole.out.ndim >= 0 else shape[1]
    elif ragged == Ragged.n:
        at.a_group, at.b_index = whole.a.strides[0], whole.b.strides[1]
        at.aux_index = 1
        at.d_index = whole.out.strides[1] if whole.out.ndim >= 0 else 1
        at.bias_index = whole.bias.strides[0] if whole.bias.ndim == 1 else 0
    else:
        at.a_index, at.b_index = whole.a.strides[1], whole.b.strides[0]
        at.aux_group = shape[1] * shape[2]
        at.d_group = whole.out.strides[0] if whole.out.ndim >= 0 else shape[1] * shape[2]


cdef bint fit(const Operands *whole, Ragged ragged, int64_t count, int ndim, const int64_t *shape) noexcept nogil:
    """Whether the operands' extents go together; _groups.mismatch says what does not."""
    cdef int64_t n = shape[ndim - 1]
    cdef int axis
    if whole.a.shape[whole.a.ndim - 1] != whole.b.shape[whole.b.ndim - 2]:
        return False
    if whole.bias.ndim == 1 and whole.bias.shape[0] != n:
        return False
    if whole.bias.ndim == 2 and (ragged == Ragged.n or whole.bias.shape[0] != count or whole.bias.shape[1] != n):
        return False
    if whole.bias.ndim == 0 or whole.bias.ndim > 2:
        return False
    if whole.out.ndim >= 0 and whole.out.ndim != ndim:
        return False
    for axis in range(ndim):
        if whole.out.ndim >= 0 and whole.out.shape[axis] != shape[axis]:
            return False
        if shape[axis] > 2147483647:
            return False
    return whole.a.shape[whole.a.ndim - 1] <= 2147483647


cdef int clear(Operand *operand, hipStream_t c_stream) except -1:
    """Set a dense array to zeros in the stream's order."""
    cdef size_t bytes = <size_t>1 << array_type_of_hip(operand.type).shift
    cdef int axis
    for axis in range(operand.ndim):
        bytes *= <size_t>operand.shape[axis]
    if bytes:
        _core.check(hip_failure(table.hipMemsetAsync(operand.data, 0, bytes, c_stream), b"hipMemsetAsync"))
    return 0
