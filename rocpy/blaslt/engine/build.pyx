# SPDX-License-Identifier: MIT
"""Plans from problems: lowered, stated as the library wants it, and one of its algorithms chosen."""

from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport make_shared, shared_ptr

cimport abi
from abi cimport rocpyExtProgramOperand_t
from rocpy cimport _core
from rocpy._core cimport Status
from rocpy._dlpack cimport array_type_of_hip, max_dims
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, CopiedArrays, LayoutSpec, MatmulPlan, MatmulSpec, NativeRecipe, StreamContext, algorithms_of, borrow_context,
    library_version, operand_a, operand_aux, operand_b, operand_bias, operand_c, operand_d, operand_scale_a, operand_scale_b, release_context,
)
from rocpy.blaslt.engine._scales cimport scale_a, scale_amax, scale_b, scale_c, scale_d
from rocpy.blaslt.engine.program cimport TileProgram, has_programs, operand_type, stand_in

from dataclasses import replace

from rocpy import platform as _platform
from rocpy.blaslt.model import lowering as _lowering
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import recipes as _recipes
from rocpy.blaslt.selection.releases import number_of
from rocpy.dtypes import lookup as _dtype
from rocpy.errors import InvalidProblemError, UnsupportedError

# Products under this many floating-point operations are launched with the GIL held: giving it up and back costs more than they take.
cdef double _SYNCHRONOUS_FLOPS = 2e5
cdef int _FLOAT32 = 0, _BYTE = 8  # hipDataType


cdef int fill_layout(LayoutSpec *spec, object layout, int32_t type) except -1:
    spec.type = type
    spec.order = 0
    spec.rows = layout.rows
    spec.columns = layout.columns
    spec.ld = layout.ld
    spec.batch_stride = layout.batch_stride
    return 0


cdef int fill_scales(MatmulSpec *spec, object problem, object lowered) except -1:
    """State which scales there are; the library's A is the user's b where the product is swapped."""
    cdef bint first = bool(problem.scale_b if lowered.swapped else problem.scale_a)
    cdef bint second = bool(problem.scale_a if lowered.swapped else problem.scale_b)
    spec.scales.set(<size_t>scale_a, first)
    spec.scales.set(<size_t>scale_b, second)
    spec.scales.set(<size_t>scale_c, bool(problem.scale_c))
    spec.scales.set(<size_t>scale_d, bool(problem.scale_d))
    spec.scales.set(<size_t>scale_amax, bool(problem.amax))
    spec.scale_mode_a = lowered.scale_mode_a
    spec.scale_mode_b = lowered.scale_mode_b
    return 0


cdef int fill_attributes(MatmulSpec *spec, int version) except -1:
    """State the attributes that not every release has, and those whose numbers differ between releases."""
    spec.strides_bias = number_of("attribute", "BIAS_BATCH_STRIDE", version) is not None
    if number_of("attribute", "A_SCALE_MODE", version) is not None:
        return 0
    if spec.scale_mode_a:
        spec.vector_attribute_a = number_of("attribute", "A_SCALE_POINTER_VEC_EXT", version) or 0
    if spec.scale_mode_b:
        spec.vector_attribute_b = number_of("attribute", "B_SCALE_POINTER_VEC_EXT", version) or 0
    return 0


cdef int fill_shape(int32_t *ndim, int64_t *extents, tuple shape) except -1:
    cdef int axis
    if len(shape) > max_dims:
        raise InvalidProblemError(f"the result, shape {shape}, has {len(shape)} axes; at most {max_dims} are supported")
    ndim[0] = <int32_t>len(shape)
    for axis in range(len(shape)):
        extents[axis] = shape[axis]
    return 0


# What hipBLASLt answers for types, epilogues and attributes that it does not have, at planning: hipblasStatus_t.
cdef tuple _REFUSALS = (3, 6, 7, 10)
# Algorithms that are asked for when only some of them will do.
cdef int _REPRODUCIBLE = 64


cdef bint refuses(const Status &status):
    """Whether a status of planning says that the library has no such product."""
    return status.library == _core.Library.hipblaslt and status.code in _REFUSALS


cdef shared_ptr[CachedCall] unfused(shared_ptr[CachedCall] result, object problem, object options, StreamContext *context, bint packed,
                                    str why) except *:
    """Make the call one that begins with the nearest native product, or refuse for the reason given."""
    cdef object last = None
    _recipes.check_function(problem)
    if options.fallback == "error":
        raise _recipes.refused(why)
    _recipes.check_reproducible(problem, options)
    strict = _recipes.strict(options)
    for recipe in _recipes.recipes_of(problem):
        if not _recipes.keeps_scales(problem, recipe):
            continue
        try:
            # Of operands that are copied first: a call that copies says nothing about what comes after.
            base = _recipes.base_problem(problem, recipe)
            base = _lowering.with_copies(base, _lowering.lower(base).copies)
            build(base, strict, context, packed and not recipe.operands, 1)
        except (InvalidProblemError, UnsupportedError) as error:
            last = error
            continue
        state_recipe(result.get(), recipe)
        return result
    raise _recipes.not_composed(why, last)


cdef int fill_program(MatmulSpec *spec, TileProgram program, tuple auxiliaries, object lowered) except -1:
    """State a tile program and how its inputs, then its outputs lie: beside the result, or beside half of it where there are pairs."""
    cdef rocpyExtProgramOperand_t operand
    cdef int64_t bits
    spec.program = program.cached
    for info, lies in zip(auxiliaries, lowered.auxiliaries):
        operand.type = operand_type(info.dtype)
        operand.reserved = 0
        operand.row_stride, operand.column_stride, operand.batch_stride = lies[:3]
        spec.program_operands.push_back(operand)
        bits = array_type_of_hip(operand.type).bits
        for stride in lies[3]:
            spec.program_outer_bytes.push_back(<int64_t>stride * bits // 8)
    return 0


cdef object of_pairs(object lowered):
    """Return the terms of a result half as wide, one of each pair of columns; it is dense and in rows, as the caller made sure."""
    c, d = [replace(each, rows=each.rows // 2, ld=each.ld // 2, batch_stride=each.batch_stride // 2) for each in (lowered.c, lowered.d)]
    steps = {name: tuple([stride // 2 for stride in lowered.outer_strides[name]]) for name in ("c", "d")}
    return replace(lowered, c=c, d=d, outer_strides={**lowered.outer_strides, **steps})


cdef int state_results(CachedCall *call, object problem, TileProgram program) except -1:
    """State what a call allocates: its result, and an auxiliary matrix or the gradient of a bias."""
    cdef object row = problem.row
    call.result_type = _dtype(problem.dtype).hip
    call.extra_type = _dtype(problem.gradient_dtype).hip if row.gradient else call.result_type
    fill_shape(&call.result_ndim, call.result_shape, problem.result_shape)
    if program is not None and program.pairs:
        call.result_shape[call.result_ndim - 1] //= 2
    if row.aux == "store":
        call.extra_is_aux = True
        fill_shape(&call.extra_ndim, call.extra_shape, problem.result_shape)
    elif row.gradient:
        fill_shape(&call.extra_ndim, call.extra_shape, problem.gradient_shape)
    return 0


cdef int state_copies(CachedCall *call, tuple names, bint c_in_columns) except -1:
    """Make the call one that copies arrays."""
    call.kind = CallKind.copy
    call.copies.a, call.copies.b, call.copies.c = "a" in names, "b" in names, "c" in names
    call.copies.bias, call.copies.aux, call.copies.out = "bias" in names, "aux" in names, "out" in names
    call.copies.c_in_columns = c_in_columns
    return 0


cdef tuple copied_names(const CachedCall *call):
    cdef const CopiedArrays *copies = &call.copies
    copied = (copies.a, copies.b, copies.c, copies.bias, copies.aux, copies.out)
    return tuple([name for name, one in zip(_settings.ARRAYS, copied) if one])


cdef int state_recipe(CachedCall *call, object recipe) except -1:
    """Make the call one that begins with the native product of a recipe."""
    call.kind = CallKind.compose
    call.recipe.epilogue, call.recipe.dtype = recipe.epilogue.encode(), recipe.dtype.encode()
    call.recipe.operands, call.recipe.scaled, call.recipe.blocks = recipe.operands.encode(), recipe.scaled, recipe.blocks
    return 0


cdef object recipe_of(const CachedCall *call):
    cdef const NativeRecipe *recipe = &call.recipe
    return _recipes.Recipe(
        recipe.epilogue.c_str().decode(), recipe.dtype.c_str().decode(), recipe.operands.c_str().decode(), recipe.scaled, recipe.blocks)


cdef str why_composed(object problem, object lowered, int device, int version, bint own_program):
    """Return why the library does not compute a product by itself; empty where it may. Nothing composes one with a caller's program."""
    cdef str reason = _recipes.composed(problem, lowered.outer_shape) if problem.scale_a or problem.scale_b or problem.amax else ""
    if not reason and problem.clamp is not None:
        reason = _settings.rounded_bounds(problem.clamp, problem.dtype)
    if not reason:
        reason = (_library.lacking if own_program else _library.refusal)(problem, device, version)
    if reason and own_program:
        raise UnsupportedError(f"{problem}: a tile program cannot be used: {reason}")
    return reason


cdef int fill_matrices(MatmulSpec *spec, object problem, object lowered, bint packed) except -1:
    """State the four matrices, and what is done to a and b."""
    cdef int32_t d_type = _dtype(problem.dtype).hip
    cdef int32_t a_type = _dtype(problem.a.dtype).hip
    cdef int32_t b_type = _dtype(problem.b.dtype).hip
    spec.compute = lowered.compute
    spec.scale_type = lowered.scale_type
    spec.op_a = lowered.op_a
    spec.op_b = lowered.op_b
    fill_layout(&spec.a, lowered.a, b_type if lowered.swapped else a_type)
    fill_layout(&spec.b, lowered.b, a_type if lowered.swapped else b_type)
    fill_layout(&spec.c, lowered.c, d_type)
    fill_layout(&spec.d, lowered.d, d_type)
    if packed:
        spec.a.order = _settings.ORDER_PACKED
    spec.batch_count = lowered.batch_count
    return 0


cdef int fill_epilogue(MatmulSpec *spec, object problem, object lowered, object enumerator) except -1:
    """State the epilogue and what it reads and writes. `enumerator` is its number in this release, where that is known."""
    cdef object row = problem.row
    spec.epilogue = lowered.epilogue
    if row.gradient not in ("bgrada", "bgradb") and enumerator is not None:
        spec.epilogue = enumerator  # the lowering exchanges only the sums along a and b
    spec.uses_bias = row.bias or bool(row.gradient)
    spec.bias_type = _dtype(problem.gradient_dtype if problem.bias is None else problem.bias.dtype).hip
    spec.bias_batch_stride = lowered.bias_batch_stride
    spec.uses_aux = row.aux != "none"
    spec.aux_type = _dtype(problem.dtype).hip
    spec.aux_ld = lowered.aux_ld
    spec.aux_batch_stride = lowered.aux_batch_stride
    if row.clamp:
        spec.has_activation_arguments = True
        spec.activation_low, spec.activation_high = problem.clamp
    return 0


cdef int fill_outer(MatmulSpec *spec, object problem, object lowered) except -1:
    """State the loop over batch axes that the library does not walk: its extents, and each operand's steps in bytes."""
    cdef bint swapped = lowered.swapped
    cdef int i, j
    cdef dict slots = {  # in the library's order
        "a": <int>operand_b if swapped else <int>operand_a,
        "b": <int>operand_a if swapped else <int>operand_b,
        "c": <int>operand_c, "d": <int>operand_d, "bias": <int>operand_bias, "aux": <int>operand_aux,
        "scale_a": <int>operand_scale_b if swapped else <int>operand_scale_a,
        "scale_b": <int>operand_scale_a if swapped else <int>operand_scale_b,
    }
    cdef dict types = {
        "a": spec.b.type if swapped else spec.a.type, "b": spec.a.type if swapped else spec.b.type,
        "c": spec.c.type, "d": spec.d.type, "bias": spec.bias_type, "aux": spec.aux_type,
        "scale_a": _BYTE if problem.scale_a == "block32" else _FLOAT32, "scale_b": _BYTE if problem.scale_b == "block32" else _FLOAT32,
    }
    spec.outer_ndim = <int32_t>len(lowered.outer_shape)
    for j in range(spec.outer_ndim):
        spec.outer_shape[j] = lowered.outer_shape[j]
    for name, strides in lowered.outer_strides.items():
        i = slots[name]
        for j in range(spec.outer_ndim):
            spec.outer_stride_bytes[i][j] = strides[j] * array_type_of_hip(types[name]).bits // 8
    return 0


cdef bint create_plan(CachedCall *call, const MatmulSpec &spec, StreamContext *context, size_t limit, int requested) except? -1:
    """Ask the library for algorithms; returns whether it has any."""
    cdef Status status
    if spec.required_traits.any() and requested < _REPRODUCIBLE:
        requested = _REPRODUCIBLE
    with nogil:
        status = MatmulPlan.create(spec, context, limit, requested, &call.plan)
    if not status.ok() and not refuses(status):
        _core.check(status)
    if status.ok() and not call.plan.algorithms().empty():
        return True
    drop_plan(call)
    return False


cdef void drop_plan(CachedCall *call) noexcept:
    if call.plan != NULL:
        call.plan.release()
        call.plan = NULL


cdef int finish_call(CachedCall *call, object problem, object lowered, int algorithm, str source) except -1:
    """State what the launch of a planned call needs beside the plan."""
    call.algorithm = algorithm
    call.source = source.encode()
    call.swapped = lowered.swapped
    call.synchronous = call.plan.flops() <= _SYNCHRONOUS_FLOPS
    if lowered.transposed:
        call.transposed = True
        transposed_shape = (*problem.batch_shape, problem.n, problem.m)
        fill_shape(&call.result_ndim, call.result_shape, transposed_shape)
        if problem.row.aux == "store":
            fill_shape(&call.extra_ndim, call.extra_shape, transposed_shape)
    return 0


cdef shared_ptr[CachedCall] build(object problem, object options, StreamContext *context, bint packed, int requested,
                                  TileProgram program=None, tuple auxiliaries=()) except *:
    """Plan a problem. The cases with nothing to launch, and those where operands must be copied first, are calls of their own kind.

    `requested` 0: the plan stands for others, and nothing is launched by it. `program` takes the place of the activation, `beside`
    describes its inputs and outputs.
    """
    cdef shared_ptr[CachedCall] result = make_shared[CachedCall]()
    cdef CachedCall *call = result.get()
    cdef MatmulSpec spec = MatmulSpec()
    cdef bint own_program = program is not None
    cdef int version = 0
    cdef object enumerator, lowered
    cdef str reason
    state_results(call, problem, program)
    call.integer_factors = _lowering.scale_type(problem) == "int32"
    if problem.m == 0 or problem.n == 0 or problem.batch == 0:
        _recipes.check_function(problem)
        return result
    if own_program and not has_programs():
        raise UnsupportedError(f"{problem}: the {_platform.current().name} platform does not support tile programs")
    _core.check(library_version(context, &version))
    enumerator = _library.epilogue_number(problem.row, version)
    if problem.row.enumerator is None and enumerator is None and not own_program:
        if has_programs() and _recipes.has_function(problem.row, _dtype(problem.dtype).kind, bool(problem.scale_a or problem.scale_b)):
            program = stand_in(problem.row)
        if program is None and (problem.out is None or problem.out.dtype == problem.dtype):
            return unfused(result, problem, options, context, packed, _recipes.no_enumerator(problem))
    lowered = _lowering.lower(problem, auxiliaries) if auxiliaries else _lowering.lower(problem)
    if lowered.copies:
        state_copies(call, lowered.copies, lowered.columns)
        return result
    if lowered.transposed and problem.out is None:
        _refusals.refuse_turning(options, problem.bias.text, problem.epilogue)
    reason = why_composed(problem, lowered, context.device, version, own_program)
    if reason:
        return unfused(result, problem, options, context, packed, reason)
    if not lowered.swapped and (options.reproducible == "batch" or (options.reproducible and problem.is_complex and problem.out is not None)):
        # What the platform promises of rows holds for a result that lies in rows: it is computed so and copied. A complex one that is
        # computed in columns, with a and b exchanged, has other bits.
        if problem.out is None:
            return unfused(result, problem, options, context, packed, _recipes.not_in_rows(problem))
        state_copies(call, ("out",), False)
        return result

    if program is not None:
        fill_program(&spec, program, auxiliaries, lowered)
        if program.pairs:
            lowered = of_pairs(lowered)
    fill_matrices(&spec, problem, lowered, packed)
    fill_epilogue(&spec, problem, lowered, enumerator if program is None else None)
    fill_scales(&spec, problem, lowered)
    fill_attributes(&spec, version)
    fill_outer(&spec, problem, lowered)
    traits = _recipes.required_traits(options)
    spec.required_traits.run_to_run = traits.run_to_run
    spec.required_traits.batch_invariant = traits.batch_invariant
    wanted = 1 if own_program else _choice.candidates_wanted(problem, options, context.device)
    if not create_plan(call, spec, context, options.max_workspace_bytes, max(requested, wanted)):
        if own_program:
            raise UnsupportedError(
                f"{problem}: the {_platform.current().name} platform has no algorithm for this tile program"
            )
        return unfused(result, problem, options, context, packed, _refusals.no_algorithm(problem, options))
    index, source = 0, "heuristic"
    if requested > 0 and not own_program:  # a record of the problem is none of it with a program of the caller's
        index, source = _choice.choose(problem, options, context.device, algorithms_of(call, -1))
    if index < 0:
        drop_plan(call)
        return unfused(result, problem, options, context, packed, _library.all_wrong(problem))
    finish_call(call, problem, lowered, index, "reproducible" if options.reproducible else source)
    return result


def query(problem, options, int device, bint packed, int requested):
    """Return what planning a problem comes to, a PlanAnswer; allocates no operand.

    ``device`` -1 is the current one.
    """
    cdef StreamContext *context = NULL
    cdef shared_ptr[CachedCall] call
    cdef Status status
    _core.ensure()
    if device < 0:
        abi.hipGetDevice(&device)
    with nogil:
        status = borrow_context(device, NULL, &context)
    _core.check(status)
    try:
        call = build(problem, options, context, packed, requested)
    finally:
        release_context(context)
    return _recipes.PlanAnswer(
        algorithms_of(call.get(), device), copied_names(call.get()),
        recipe_of(call.get()) if call.get().kind == CallKind.compose else None)
