# SPDX-License-Identifier: MIT
"""Groups that lie one after the other in one operand: one plan found for all sizes, launched in one loop."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from abi cimport hipStream_t
from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport DefaultFpEnvironment, Status
from rocpy._dlpack cimport array_type_of_hip
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport check_whole, describe, describe_scales, parse_all, problem_of
from rocpy.blaslt.grouped._boundaries cimport PackedGroups, Steps, longest, read_groups, take_one
from rocpy.blaslt.grouped._plans cimport (
    GroupedCall, GroupRun, GroupedOperand, GroupedProduct, Ragged, add_settings, find, launch_groups, next_run, plan_run, read_group_scales,
)
from rocpy.blaslt.engine.launch cimport (
    CachedCall, Completion, Operands, PlanKey, StreamContext, algorithms_of, borrow_context, operand_a, operand_aux, operand_b, operand_bias,
    operand_d, operand_scale_a, operand_scale_b, plan_cache, refuse_capture, refuse_captured, release_context, synchronize_stream,
)
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.blaslt.engine.streams cimport SynchronizeStream
from rocpy.runtime._capture cimport capture_of, keep_with_foreign_graph
from rocpy.runtime.handles.keep_alive cimport hold

from rocpy import platform
from rocpy.blaslt.selection.tuning_state cimport measures
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.algorithms import LISTED
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.grouped.group_slices import GroupSlices, explanation_of
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

cdef int _HIP_NOT_READY = 600  # hipErrorNotReady
cdef int64_t _GROUPED = 1 << 56  # in the first word of a key: no product of one matrix has it
cdef int _staged = -1
# Algorithms that an explanation counts.
cdef int _LISTED = LISTED


cdef object allocate(Operand *operand, const Operand *like, int32_t type, int ndim, const int64_t *shape, object owner):
    operand.type = type
    operand.device_type = like.device_type
    operand.device_id = like.device_id
    operand.ndim = ndim
    memcpy(operand.shape, shape, <size_t>ndim * sizeof(int64_t))
    return _operand.allocate(owner, like.provider, operand)


cdef int finish(Status status, GroupedCall call, tuple held) except -1:
    """Report a failed launch, and keep or wait for what the stream still uses."""
    cdef hipStream_t c_stream = call.c_stream
    cdef int code
    if not status.ok() and call.completion != Completion.CAPTURE:
        synchronize_stream(c_stream)  # some groups may be queued, and their operands are about to go
    _core.check(status)
    if call.completion == Completion.CAPTURE:
        capture_of(c_stream, call.device).keep(held)
    elif call.completion == Completion.WAIT:
        if table.hipStreamQuery(c_stream) == _HIP_NOT_READY:
            with nogil:
                code = table.hipStreamSynchronize(c_stream)
            _core.check(hip_failure(code, b"hipStreamSynchronize"))
    elif call.completion == Completion.KEEP_ALIVE:
        hold(c_stream, call.device, held)
    return 0


cdef bint is_staged(object array) except? -1:
    global _staged
    _core.ensure()
    if _staged < 0:
        _staged = not platform.current().host_memory
    return _staged and _staging.needed(array)


cdef inline void moves(GroupedProduct *product, int slot, void *data, int32_t type, int64_t per_index, int64_t per_group) noexcept nogil:
    cdef int64_t size = <int64_t>1 << array_type_of_hip(type).shift
    product.operands[slot].data = <char *>data
    product.operands[slot].element_bytes = size
    product.operands[slot].per_index = per_index * size
    product.operands[slot].per_group = per_group * size


def compute_packed(a, b, **arguments):
    """Return what rocpy.grouped_matmul returns for groups in one operand; nothing is handed to torch's dispatcher, which calls this."""
    cdef DefaultFpEnvironment environment
    cdef GroupedCall call = GroupedCall.__new__(GroupedCall)
    environment.hold()
    for name, value in dict(arguments, a=a, b=b).items():
        setattr(call, name, value)
    return packed(call, compute_packed, None)


cdef object packed(GroupedCall call, object run, object explained):
    """Products of groups that lie one after the other in one operand.

    With a PackedExplanation in `explained` nothing is computed: it receives how each run of groups of one size would be.
    """
    cdef PackedGroups groups
    cdef GroupedOperand scales_at[2]
    cdef GroupedProduct product
    cdef vector[int64_t] starts
    cdef PlanKey key
    cdef Scales scales = None
    call.resolve()
    for name, value in (("a", call.a), ("b", call.b), ("bias", call.bias), ("out", call.out)):
        _groups.refuse_sequence(name, value)
    if is_staged(call.a):
        refuse_captured(call.stream, "operands in CPU memory are copied to the device", "move them there")
        return _groups.staged(run, call.a, call.b, call.bias, call.out, _options.resolve_options(call.options), call.keywords(
            ("offsets", "groups", "epilogue", "clamp", "alpha", "scale_a", "scale_b", "dtype", "options", "stream")))
    cdef object owner = parse_all(&groups.whole, call.a, call.b, None, call.bias, None, call.out)
    call.resolve_stream(&groups.whole.a)
    read_groups(&groups, call, &starts)
    take_one(&groups)
    if call.scale_a is not None or call.scale_b is not None:
        scales = read_group_scales((call.scale_a, call.scale_b), groups.ragged, &groups.whole, groups.count, longest(starts), call.device,
                                   scales_at)
    fill_key(&key, &groups, call, scales, scales_at)
    cdef shared_ptr[CachedCall] planned = find(&key, &groups.one, call, scales, 0, None)
    cdef CachedCall *cached = planned.get()
    if cached.integer_factors:
        check_whole(&call.factors)
    if cached.copies:
        return not_as_they_lie(cached, &groups, call, starts, run, explained)
    aim_groups(&product, cached, &groups, scales, scales_at)
    if explained is not None:
        if cached.plan != NULL:
            explain_runs(&product, cached, &groups, call, scales, starts, explained)
        return None
    return launch_packed(&product, cached, &groups, call, scales, starts, &key, owner)


cdef int fill_key(PlanKey *key, const PackedGroups *groups, GroupedCall call, Scales scales, const GroupedOperand *scales_at) except -1:
    """Write down everything that decides the plan of a group."""
    cdef const Steps *at = &groups.steps
    cdef int which
    add_settings(key, _GROUPED | <int64_t><int32_t>groups.ragged << 40, call, scales)
    describe(key, &groups.one)
    if scales is not None:
        describe_scales(key, scales)
        for which in range(2):
            # Groups with the same scales may be one batch.
            key.add(scales_at[which].per_index != 0 or scales_at[which].per_group != 0)
    for step in (at.a_group, at.b_group, at.bias_group, at.d_index, at.d_group):
        key.add(step)
    return 0


cdef object not_as_they_lie(const CachedCall *cached, PackedGroups *groups, GroupedCall call, const vector[int64_t] &starts, object run,
                            object explained):
    """Compute or explain what the library does not take as it lies: operands are copied first, or the products composed."""
    cdef bint composed = cached.copies >> 7  # _recipes.UNFUSED_BIT
    cdef list names = [name for name, bit in _settings.COPY_BITS.items() if cached.copies >> bit & 1]
    if explained is not None:
        if composed:
            explained.runs.extend(slices_of(groups, call, starts, cached.result_type).explained())
        else:
            explained.copied = tuple(names)
        return None
    refuse_capture(call.completion, "an operand must be copied or the products composed", "see rocpy.explain(); pass dense operands")
    if composed:
        return slices_of(groups, call, starts, cached.result_type).one_by_one(SynchronizeStream(<size_t>call.c_stream))
    if call.completion != Completion.WAIT:
        synchronize_stream(call.c_stream)
    resolved = _options.current_options() if call.resolved is None else call.resolved
    return _groups.copied(
        run, names, resolved, call.keywords(("a", "b", "bias", "out")), array_type_of_hip(cached.result_type).name.decode(),
        call.keywords(("offsets", "groups", "epilogue", "clamp", "alpha", "scale_a", "scale_b", "dtype", "options", "stream")),
        (lambda: None) if call.completion == Completion.WAIT else SynchronizeStream(<size_t>call.c_stream))


cdef int aim_groups(GroupedProduct *product, const CachedCall *cached, const PackedGroups *groups, Scales scales,
                    const GroupedOperand *scales_at) except -1:
    """State where each group's operands lie, in the library's order; the results' memory follows when it is allocated."""
    cdef const Operands *whole = &groups.whole
    cdef const Steps *at = &groups.steps
    cdef bint swapped = cached.swapped
    product.ragged = groups.ragged
    if cached.plan == NULL:
        return 0
    product.spec = &cached.plan.spec()
    product.swapped = swapped
    moves(product, operand_b if swapped else operand_a, whole.a.data, whole.a.type, at.a_index, at.a_group)
    moves(product, operand_a if swapped else operand_b, whole.b.data, whole.b.type, at.b_index, at.b_group)
    moves(product, operand_d, NULL, cached.result_type, at.d_index, at.d_group)
    if whole.bias.ndim >= 0:
        moves(product, operand_bias, whole.bias.data, whole.bias.type, at.bias_index, at.bias_group)
    if cached.extra_ndim >= 0:
        moves(product, operand_aux, NULL, cached.result_type, at.aux_index, at.aux_group)
    if scales is not None:
        memcpy(&product.operands[<int>operand_scale_b if swapped else <int>operand_scale_a], &scales_at[0], sizeof(GroupedOperand))
        memcpy(&product.operands[<int>operand_scale_a if swapped else <int>operand_scale_b], &scales_at[1], sizeof(GroupedOperand))
    return 0


cdef object model_of(PackedGroups *groups, GroupedCall call, Scales scales):
    """Return the problem of one group, of some extent."""
    return problem_of(&groups.one, EPILOGUE_NAMES[call.epilogue_index], call.dtype, None, call.bounds, scales)


cdef int explain_runs(GroupedProduct *product, const CachedCall *cached, PackedGroups *groups, GroupedCall call, Scales scales,
                      const vector[int64_t] &starts, object explained) except -1:
    """Plan each run of groups of one size, and launch nothing."""
    cdef StreamContext *context = NULL
    cdef shared_ptr[CachedCall] ready
    cdef GroupRun run
    cdef Status status
    cdef int device = call.device
    cdef hipStream_t c_stream = call.c_stream
    slices = slices_of(groups, call, starts, cached.result_type)
    model = model_of(groups, call, scales)
    options = _options.current_options() if call.resolved is None else call.resolved
    with nogil:
        status = borrow_context(device, c_stream, &context)
    _core.check(status)
    try:
        while next_run(product[0], starts.data(), groups.count, &run):
            problem = slices.problem(model, run.extent, run.count)
            ready = plan_run(product, &run, problem, options, context, _LISTED)
            explained.runs.append((run.first, run.count, explanation_of(
                problem, algorithms_of(ready.get(), device), ready.get().algorithm, ready.get().source.c_str().decode(), device, options)))
            run.first += run.count
    finally:
        release_context(context)
    return 0


cdef bint launch_and_keep(GroupedProduct *product, const CachedCall *cached, PackedGroups *groups, GroupedCall call, Scales scales,
                          const vector[int64_t] &starts, PlanKey *key, tuple held) except -1:
    """Launch every group, and keep or wait for what the stream still uses; returns whether the library takes them all."""
    cdef Status status
    try:
        status = launch_runs(product, cached, groups, call, scales, starts, key)
    except UnsupportedError:
        if call.completion == Completion.CAPTURE:
            raise
        return False  # it has nothing for groups of some size
    if scales is not None:
        keep_with_foreign_graph(call.c_stream, call.device, scales.numbers)
    try:
        finish(status, call, pinned_memories(held) if call.completion >= Completion.KEEP_ALIVE else held)
    except (LibraryError, UnsupportedError) as error:
        if call.completion == Completion.CAPTURE or not _library.is_refused_launch(error):
            raise
        return False
    return True


cdef object launch_packed(GroupedProduct *product, const CachedCall *cached, PackedGroups *groups, GroupedCall call, Scales scales,
                          const vector[int64_t] &starts, PlanKey *key, object owner):
    """Allocate the results and launch; groups that the library does not take are computed each by itself, composed."""
    cdef Operand fresh, extra
    cdef const Operands *whole = &groups.whole
    cdef object result = call.out, auxiliary = None
    cdef bint gaps = groups.ragged != Ragged.k and (starts[0] > 0 or starts[<size_t>groups.count] < groups.total)
    if call.out is None:
        result = allocate(&fresh, &whole.a, cached.result_type, groups.result_ndim, groups.result_shape, call.a)
        if gaps:
            clear(&fresh, call.c_stream)
    else:
        memcpy(&fresh, &whole.out, sizeof(Operand))
    if cached.extra_ndim >= 0:
        auxiliary = allocate(&extra, &whole.a, cached.result_type, groups.result_ndim, groups.result_shape, call.a)
        if gaps:
            clear(&extra, call.c_stream)
        product.operands[<int>operand_aux].data = <char *>extra.data
    if cached.plan != NULL:
        product.operands[<int>operand_d].data = <char *>fresh.data
        held = (owner, call.a, call.b, call.bias, result, auxiliary, *([] if scales is None else scales.held))
        if not launch_and_keep(product, cached, groups, call, scales, starts, key, held):
            return slices_of(groups, call, starts, cached.result_type).one_by_one(SynchronizeStream(<size_t>call.c_stream))
    if call.out is not None:
        _operand.written(call.out, whole.out.provider)
    return result if auxiliary is None else (result, {call.row.outputs[0]: auxiliary})


cdef Status launch_runs(GroupedProduct *product, const CachedCall *cached, PackedGroups *groups, GroupedCall call, Scales scales,
                        const vector[int64_t] &starts, PlanKey *key) except *:
    """Launch the groups, planning a run of those of one size where it has no plan yet; returns the last launch's status."""
    cdef StreamContext *context = NULL
    cdef shared_ptr[CachedCall] ready
    cdef GroupRun run
    cdef Status status
    cdef int device = call.device
    cdef hipStream_t c_stream = call.c_stream
    cdef double alpha = call.factors.alpha
    cdef object slices = None, model = None, options = None
    with nogil:
        status = borrow_context(device, c_stream, &context)
    _core.check(status)
    try:
        while True:
            with nogil:
                status = launch_groups(context, product[0], key, starts.data(), groups.count, ready, alpha, &run)
            if not status.ok() or run.first >= groups.count:
                return status
            if model is None:
                model = model_of(groups, call, scales)
                slices = slices_of(groups, call, starts, cached.result_type)
                options = _options.current_options() if call.resolved is None else call.resolved
            problem = slices.problem(model, run.extent, run.count)
            if call.completion != Completion.CAPTURE and measures():
                slices.measure(problem, options, run.first, run.count)
            ready = plan_run(product, &run, problem, options, context, 1)
            keep(key, &run, ready)
    except BaseException:
        if call.completion != Completion.CAPTURE:
            synchronize_stream(c_stream)  # some groups may be queued, and their operands are about to go
        raise
    finally:
        release_context(context)


cdef object slices_of(const PackedGroups *groups, GroupedCall call, const vector[int64_t] &starts, int32_t result_type):
    """Return what the groups are of the user's arrays, for those that are planned, measured, explained or computed one by one."""
    cdef const Steps *at = &groups.steps
    return GroupSlices(
        "mnk"[<int32_t>groups.ragged], starts, (call.a, call.b, call.bias, call.out, call.scale_a, call.scale_b),
        array_type_of_hip(result_type).name.decode(), call.keywords(("epilogue", "clamp", "alpha", "options", "stream")),
        dict(a=(at.a_index, at.a_group), b=(at.b_index, at.b_group), bias=(at.bias_index, at.bias_group)))


cdef int keep(PlanKey *key, const GroupRun *run, const shared_ptr[CachedCall] &call) except -1:
    """Keep the plan of a run of groups under the product's key, its size and its number."""
    cdef int size = key.size
    key.add(run.extent)
    key.add(run.count)
    if key.fits():
        plan_cache().insert(key[0], call)
    key.size = size
    return 0


cdef int clear(Operand *operand, hipStream_t c_stream) except -1:
    """Set a dense array to zeros in the stream's order."""
    cdef size_t bytes = <size_t>1 << array_type_of_hip(operand.type).shift
    cdef int axis
    for axis in range(operand.ndim):
        bytes *= <size_t>operand.shape[axis]
    if bytes:
        _core.check(hip_failure(table.hipMemsetAsync(operand.data, 0, bytes, c_stream), b"hipMemsetAsync"))
    return 0
