# SPDX-License-Identifier: MIT
"""Groups that lie one after the other in one operand: one plan found for all sizes, launched in one loop."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp.memory cimport shared_ptr

cimport abi
from abi cimport hipStream_t
from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport DefaultFpEnvironment, Status
from rocpy._dlpack cimport array_type_of_hip
from rocpy._memory_record cimport pinned_memories
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport check_copies, check_whole, describe, describe_scales, parse_all, problem_of
from rocpy.blaslt.grouped._boundaries cimport PackedGroups, Steps, longest, read_groups, take_one
from rocpy.blaslt.grouped._plans cimport (
    GroupedCall, GroupRun, GroupedProduct, Ragged, add_settings, call_of, find, kind_of_groups, launch_groups, next_run, plan_run,
    read_group_scales,
)
from rocpy.blaslt.engine.build cimport copied_names
from rocpy.blaslt.engine._scales cimport check_apart
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, Completion, Operands, PlanKey, StreamContext, algorithms_of, borrow_context, operand_a,
    operand_aux, operand_b, operand_bias, operand_d, operand_scale_a, operand_scale_b, plan_cache, refuse_captured,
    release_context, wait_if_running, wait_or_keep,
)
from rocpy.blaslt.engine.streams cimport synchronization
from rocpy.blaslt.operands._cpu_arrays cimport stages_arrays
from rocpy.blaslt.front.steps cimport Step, refuse_forbidden_copies, refuse_steps
from rocpy.runtime._capture cimport capture_of, keep_with_foreign_graph
from rocpy.runtime.handles.call_stream cimport CallStream
from rocpy.runtime.handles.keep_alive cimport hold

from rocpy.blaslt.selection.tuning_state cimport measures
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.grouped import preparations as _preparations
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.algorithms import LISTED
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.arrays import views as _views
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.grouped.group_slices import GroupSlices, explanation_of
from rocpy.blaslt.model.explanation import GroupedExplanation
from rocpy.errors import LibraryError, UnsupportedError

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
    if not status.ok() and call.completion != Completion.CAPTURE:
        wait_if_running(c_stream)  # some groups may be queued, and their operands are about to go
    _core.check(status)
    if call.completion == Completion.CAPTURE:
        capture_of(c_stream, call.device).keep(held)
    elif call.completion == Completion.WAIT:
        if abi.slot_hipStreamQuery(c_stream) != abi.hipSuccess:
            wait_or_keep(c_stream, held)
    elif call.completion == Completion.KEEP_ALIVE:
        hold(c_stream, call.device, held)
    return 0


cdef bint is_staged(object array) except? -1:
    _core.ensure()
    return stages_arrays() and _staging.needed(array)


cdef inline void moves(GroupedProduct *product, int slot, void *data, int32_t type, int64_t per_index, int64_t per_group) noexcept nogil:
    cdef int64_t size = <int64_t>1 << array_type_of_hip(type).shift
    product.operands[slot].data = <char *>data
    product.operands[slot].element_bytes = size
    product.operands[slot].per_index = per_index * size
    product.operands[slot].per_group = per_group * size


def compute_packed(a, b, **arguments):
    """Return what rocpy.grouped_matmul returns for groups in one operand; nothing is handed to torch's dispatcher, which calls this."""
    cdef DefaultFpEnvironment environment
    environment.hold()
    return packed(call_of(dict(arguments, a=a, b=b)))


def check_settings(arguments):
    """Refuse what no grouped product takes, whatever its operands."""
    call_of(arguments).resolve()


def explain_packed(**arguments):
    """Return how groups in one operand would be computed: the arrays that would be copied first, or each run of groups of one size."""
    cdef PackedGroups groups
    cdef CachedCall *cached
    cdef GroupedCall call = call_of(arguments)
    cdef list runs = []
    begin(call)
    plan(&groups, call)
    cached = groups.planned.get()
    if cached.kind == CallKind.copy:
        return GroupedExplanation((), copied_names(cached))
    if cached.kind == CallKind.compose:
        runs.extend(slices_of(&groups, call).explained())
    elif cached.plan != NULL:
        explain_runs(&groups, call, runs)
    return GroupedExplanation(tuple(runs))


cdef object packed(GroupedCall call):
    """Return the products of groups that lie one after the other in one operand; makes the steps that they need."""
    cdef CallStream order
    order.enter(<void *>call.stream)
    cdef object outcome = product(call)
    return finished(<Step>outcome) if type(outcome) is Step else outcome


cdef object finished(Step step):
    """Return the outputs of a call that begins with a step: the call that it prepares, then what follows on its outputs."""
    try:
        return step.finish(packed(<GroupedCall>step.prepare()))
    finally:
        step.preparation.close()


cdef int begin(GroupedCall call) except -1:
    """Read what does not depend on the operands, and refuse what no operand may be."""
    call.resolve()
    call.a, call.b, call.bias = _operand.readable(call.a, "a"), _operand.readable(call.b, "b"), _operand.readable(call.bias, "bias")
    for name, value in (("a", call.a), ("b", call.b), ("bias", call.bias), ("out", call.out)):
        _groups.refuse_sequence(name, value)
    return 0


cdef object product(GroupedCall call):
    """Launch the groups and return their outputs, or return the Step to take instead; `finished` takes it."""
    cdef PackedGroups groups
    cdef CachedCall *cached
    cdef Step step
    begin(call)
    if is_staged(call.a):
        refuse_captured(call.stream, "operands in CPU memory are copied to the device", "move them there")
        return Step(_preparations.StagedGroups(call, options_of(call)))
    owner = plan(&groups, call)
    cached = groups.planned.get()
    if cached.kind == CallKind.launch:
        return launch_packed(&groups, call, owner)
    refuse_steps(call.completion, cached, &groups.whole, EPILOGUE_NAMES[call.epilogue_index])
    viewed = _views.viewed_call(call, ("a", "b", "bias")) if cached.kind == CallKind.compose else None
    if viewed is not None:
        step = Step(viewed)
        if call.completion != Completion.WAIT:
            step.synchronize = synchronization(call.c_stream, &groups.whole.a)
        return step
    if cached.kind == CallKind.compose:
        return slices_of(&groups, call).one_by_one(synchronization(call.c_stream, &groups.whole.a))
    dtype = array_type_of_hip(cached.result_type).name.decode()
    refuse_forbidden_copies(cached, &groups.whole, options_of(call))
    step = Step(_preparations.CopiedGroups(call, copied_names(cached), dtype, covered(&groups)))
    # What frameworks do with operands and results does not follow the order of a stream that the user gave.
    if call.completion != Completion.WAIT:
        step.synchronize = synchronization(call.c_stream, &groups.whole.a)
    return step


cdef inline bint has_gaps(const PackedGroups *groups) noexcept:
    """Whether elements of the result belong to no group."""
    return groups.ragged != Ragged.k and (groups.starts[0] > 0 or groups.starts[<size_t>groups.count] < groups.total)


cdef object covered(const PackedGroups *groups):
    """Return the index of those elements of the result that belong to a group."""
    if not has_gaps(groups):
        return Ellipsis
    part = slice(groups.starts[0], groups.starts[<size_t>groups.count])
    return part if groups.ragged == Ragged.m else (slice(None), part)


cdef inline object options_of(GroupedCall call):
    return _options.current_options() if call.resolved is None else call.resolved


cdef object plan(PackedGroups *groups, GroupedCall call):
    """Read operands, groups and scales, and find the plan of one group; returns what must be kept alive beside the operands."""
    cdef object owner = parse_all(&groups.whole, call.a, call.b, None, call.bias, None, call.out)
    call.resolve_stream(&groups.whole.a)
    read_groups(groups, call)
    take_one(groups)
    if call.scale_a is not None or call.scale_b is not None:
        call.scales = read_group_scales(call, groups.ragged, &groups.whole, groups.count, longest(groups.starts), &groups.scale_a, &groups.scale_b)
        if call.out is not None:
            check_apart(call.scales, &groups.whole.out)
    check_copies((call.a, call.b, None, call.bias, None), &groups.whole, call.scales, call.completion, call.options)
    fill_key(groups, call)
    groups.planned = find(&groups.key, &groups.one, call, call.scales, 0, None)
    if groups.planned.get().integer_factors:
        check_whole(&call.factors)
    return owner


cdef int fill_key(PackedGroups *groups, GroupedCall call) except -1:
    """Write down everything that decides the plan of a group."""
    cdef PlanKey *key = &groups.key
    cdef const Steps *at = &groups.steps
    add_settings(key, kind_of_groups(groups.ragged), False, call, call.scales)
    describe(key, &groups.one)
    if call.scales is not None:
        describe_scales(key, call.scales)
        # Groups with the same scales may be one batch.
        key.add(groups.scale_a.per_index != 0 or groups.scale_a.per_group != 0)
        key.add(groups.scale_b.per_index != 0 or groups.scale_b.per_group != 0)
    for step in (at.a_group, at.b_group, at.bias_group, at.d_index, at.d_group):
        key.add(step)
    return 0


cdef int aim_groups(GroupedProduct *product, const PackedGroups *groups, GroupedCall call) except -1:
    """State where each group's operands lie, in the library's order; the results' memory follows when it is allocated."""
    cdef const CachedCall *cached = groups.planned.get()
    cdef const Operands *whole = &groups.whole
    cdef const Steps *at = &groups.steps
    cdef bint swapped = cached.swapped
    product.ragged = groups.ragged
    product.spec = &cached.plan.spec()
    product.swapped = swapped
    moves(product, operand_b if swapped else operand_a, whole.a.data, whole.a.type, at.a_index, at.a_group)
    moves(product, operand_a if swapped else operand_b, whole.b.data, whole.b.type, at.b_index, at.b_group)
    moves(product, operand_d, NULL, cached.result_type, at.d_index, at.d_group)
    if whole.bias.ndim >= 0:
        moves(product, operand_bias, whole.bias.data, whole.bias.type, at.bias_index, at.bias_group)
    if cached.extra_ndim >= 0:
        moves(product, operand_aux, NULL, cached.result_type, at.aux_index, at.aux_group)
    if call.scales is not None:
        product.operands[<int>operand_scale_b if swapped else <int>operand_scale_a] = groups.scale_a
        product.operands[<int>operand_scale_a if swapped else <int>operand_scale_b] = groups.scale_b
    return 0


cdef object model_of(PackedGroups *groups, GroupedCall call):
    """Return the problem of one group, of some extent."""
    return problem_of(&groups.one, EPILOGUE_NAMES[call.epilogue_index], call.dtype, None, call.bounds, call.scales)


cdef int explain_runs(PackedGroups *groups, GroupedCall call, list runs) except -1:
    """Plan each run of groups of one size, and launch nothing: add their first group, their number and how they would be computed."""
    cdef GroupedProduct product
    cdef StreamContext *context = NULL
    cdef shared_ptr[CachedCall] ready
    cdef GroupRun run
    cdef Status status
    cdef int device = call.device
    cdef hipStream_t c_stream = call.c_stream
    slices = slices_of(groups, call)
    model = model_of(groups, call)
    options = options_of(call)
    aim_groups(&product, groups, call)
    with nogil:
        status = borrow_context(device, c_stream, &context)
    _core.check(status)
    try:
        while next_run(product, groups.starts.data(), groups.count, &run):
            problem = slices.problem(model, run.extent, run.count)
            ready = plan_run(&product, &run, problem, options, context, _LISTED)
            runs.append((run.first, run.count, explanation_of(
                problem, algorithms_of(ready.get(), device), ready.get().algorithm, ready.get().source.c_str().decode(), device, options)))
            run.first += run.count
    finally:
        release_context(context)
    return 0


cdef bint launch_and_keep(GroupedProduct *product, PackedGroups *groups, GroupedCall call, tuple held) except -1:
    """Launch every group, and keep or wait for what the stream still uses; returns whether the library takes them all."""
    cdef Status status
    try:
        status = launch_runs(product, groups, call)
    except UnsupportedError:
        if call.completion == Completion.CAPTURE:
            raise
        return False  # it has nothing for groups of some size
    if call.scales is not None:
        keep_with_foreign_graph(call.c_stream, call.device, call.scales.numbers)
    try:
        finish(status, call, pinned_memories(held) if call.completion >= Completion.KEEP_ALIVE else held)
    except (LibraryError, UnsupportedError) as error:
        if call.completion == Completion.CAPTURE or not _library.is_refused_launch(error):
            raise
        return False
    return True


cdef object launch_packed(PackedGroups *groups, GroupedCall call, object owner):
    """Allocate the results and launch; groups that the library does not take are computed each by itself, composed."""
    cdef GroupedProduct product
    cdef const CachedCall *cached = groups.planned.get()
    cdef Operand fresh, extra
    cdef const Operands *whole = &groups.whole
    cdef object result = call.out, auxiliary = None
    cdef bint gaps = has_gaps(groups)
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
    if cached.plan != NULL:
        aim_groups(&product, groups, call)
        product.operands[<int>operand_d].data = <char *>fresh.data
        if auxiliary is not None:
            product.operands[<int>operand_aux].data = <char *>extra.data
        held = (owner, call.a, call.b, call.bias, result, auxiliary, *([] if call.scales is None else call.scales.held))
        if not launch_and_keep(&product, groups, call, held):
            return slices_of(groups, call).one_by_one(synchronization(call.c_stream, &groups.whole.a))
    if call.out is not None:
        _operand.written(call.out, whole.out.provider)
    return result if auxiliary is None else (result, {call.row.outputs[0]: auxiliary})


cdef Status launch_runs(GroupedProduct *product, PackedGroups *groups, GroupedCall call) except *:
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
                status = launch_groups(context, product[0], &groups.key, groups.starts.data(), groups.count, ready, alpha, &run)
            if not status.ok() or run.first >= groups.count:
                return status
            if model is None:
                model = model_of(groups, call)
                slices = slices_of(groups, call)
                options = options_of(call)
            problem = slices.problem(model, run.extent, run.count)
            if call.completion != Completion.CAPTURE and measures():
                slices.measure(problem, options, run.first, run.count)
            ready = plan_run(product, &run, problem, options, context, 1)
            keep(&groups.key, &run, ready)
    except BaseException:
        if call.completion != Completion.CAPTURE:
            wait_if_running(c_stream)  # some groups may be queued, and their operands are about to go
        raise
    finally:
        release_context(context)


cdef object slices_of(const PackedGroups *groups, GroupedCall call):
    """Return what the groups are of the user's arrays, for those that are planned, measured, explained or computed one by one."""
    cdef const Steps *at = &groups.steps
    return GroupSlices(
        "mnk"[<int32_t>groups.ragged], groups.starts, (call.a, call.b, call.bias, call.out, call.scale_a, call.scale_b),
        array_type_of_hip(groups.planned.get().result_type).name.decode(), call.keywords(("epilogue", "clamp", "alpha", "options", "stream")),
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
        abi.hipMemsetAsync(operand.data, 0, bytes, c_stream)
    return 0
