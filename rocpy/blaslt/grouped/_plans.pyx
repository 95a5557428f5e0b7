# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Calls of grouped_matmul and their plans: settings, scales, and the choice among the algorithms of each run of groups."""

from libc.stdint cimport int64_t
from libcpp.memory cimport make_shared, shared_ptr

from abi cimport hipStream_t
from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport Status
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport dtype_code, epilogue_index, problem_of, real, check_same_device
from rocpy.blaslt.engine.build cimport build, refuses
from rocpy.blaslt.engine.launch cimport (
    CachedCall, MatmulPlan, MatmulSpec, Operands, PlanKey, PlanKind, PlanSettings, StreamContext, algorithms_of, borrow_context,
    resolve_device_and_stream, plan_cache, release_context,
)
from rocpy.blaslt.engine._scales cimport Scales, read_number

from rocpy.blaslt.selection.tuning_state cimport measures, tuning_word
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import tuner as _tuner
from rocpy.blaslt.grouped import scales as _group_scales
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import UnsupportedError

cdef int _CPU = 1  # kDLCPU
# Algorithms that are asked for when only some of them will do.
cdef int _REPRODUCIBLE = 64
cdef list _ACTIVE = _options.ACTIVE
cdef object _DEFAULT = _options.DEFAULT


cdef tuple _ARGUMENTS = ("a", "b", "offsets", "groups", "epilogue", "bias", "clamp", "alpha", "scale_a", "scale_b", "dtype", "out", "options",
                         "stream")


cdef class GroupedCall:
    """The arguments of :func:`rocpy.grouped_matmul`, and what follows from them for all groups."""

    def __cinit__(self):
        self.alpha = 1.0

    def replaced(self, **changes):
        """Return the call with other arguments in the place of some."""
        return call_of({**self.keywords(_ARGUMENTS), **changes})

    cdef int resolve(self) except -1:
        """Read what does not depend on the operands."""
        self.epilogue_index = epilogue_index(self.epilogue)
        self.row = EPILOGUES[EPILOGUE_NAMES[self.epilogue_index]]
        _groups.check_epilogue(self.row)
        if self.clamp is not None:
            self.bounds = _settings.clamp_bounds(self.clamp)
        if self.options is not None or _ACTIVE:
            self.resolved = _options.resolve_options(self.options)
        self.factors.alpha = real(self.alpha, "alpha")
        return 0

    cdef int resolve_stream(self, const Operand *like) except -1:
        """Find the device and the stream that the call runs on, and what is done after its launch."""
        self.completion = resolve_device_and_stream(like, self.stream, &self.device, &self.c_stream, &self.use)
        return 0

    cdef dict keywords(self, tuple names):
        """Return arguments as they were passed."""
        return {name: getattr(self, name) for name in names}


cdef GroupedCall call_of(dict arguments):
    cdef GroupedCall call = GroupedCall.__new__(GroupedCall)
    for name, value in arguments.items():
        if name not in _ARGUMENTS:
            raise TypeError(f"grouped_matmul() got an unexpected keyword argument {name!r}")
        setattr(call, name, value)
    return call


cdef int add_settings(PlanKey *key, PlanKind kind, bint packed, GroupedCall call, Scales scales) except -1:
    """Begin a key with everything but the operands and the scales' kinds."""
    cdef PlanSettings settings
    settings.kind, settings.epilogue, settings.dtype = kind, call.epilogue_index, dtype_code(call.dtype)
    settings.packed, settings.scaled = packed, scales is not None
    key.begin(settings)
    key.add(tuning_word())
    key.add(call.device)
    if call.bounds is not None:
        for bound in call.bounds:
            key.add_number(bound)
    key.add(0 if call.resolved is None or call.resolved is _DEFAULT else _options.key_word(call.resolved))
    return 0


cdef shared_ptr[CachedCall] find(PlanKey *key, Operands *operands, GroupedCall call, Scales scales, int requested, tuple live) except *:
    """Return the cached plan of these operands, planning them first where there is none.

    `requested` 0: the plan stands for those of the groups. `live` are the operands and arguments to measure the product with, or None.
    """
    cdef shared_ptr[CachedCall] planned
    cdef StreamContext *context = NULL
    cdef Status status
    cdef int device = call.device
    cdef hipStream_t c_stream = call.c_stream
    if key.fits():
        planned = plan_cache().find(key[0])
    if planned.get() != NULL:
        return planned
    problem = problem_of(operands, EPILOGUE_NAMES[call.epilogue_index], call.dtype, None, call.bounds, scales)
    options = _options.current_options() if call.resolved is None else call.resolved
    if live is not None and measures():
        _tuner.measure(problem, options, live[0], live[1])
    with nogil:
        status = borrow_context(device, c_stream, &context)
    _core.check(status)
    try:
        planned = build(problem, options, context, operands.packed, requested)
    finally:
        release_context(context)
    if key.fits():
        plan_cache().insert(key[0], planned)
    return planned


cdef Scales read_group_scales(GroupedCall call, Ragged ragged, const Operands *whole, int64_t count, int64_t longest, GroupedOperand *of_a,
                              GroupedOperand *of_b):
    """Read the scales of packed groups, and where those of each group lie."""
    cdef tuple values = (call.scale_a, call.scale_b)
    cdef object options = _options.current_options() if call.resolved is None else call.resolved
    cdef bint by_rows = options.reproducible == "batch"
    cdef int device = call.device
    cdef Scales scales = Scales.__new__(Scales)
    cdef GroupedOperand *operand
    cdef Operand seen
    cdef int index
    lines = (_group_scales.Lines(whole.a.shape[whole.a.ndim - 2], ragged == Ragged.m),
             _group_scales.Lines(whole.b.shape[whole.b.ndim - 1], ragged == Ragged.n))
    cdef list pair = list(_group_scales.pair(values, lines, count, longest, by_rows))
    if <float>call.factors.alpha == 0:
        # Nothing is left of the products: the library multiplies that by the factors, and 0 times one that is not finite is NaN.
        pair = list(_group_scales.pair(tuple([None if value is None else 1.0 for value in values]), lines, count, longest, by_rows))
    for index, one in enumerate(pair):
        if one is None:
            continue
        name = "scale_b" if index else "scale_a"
        if one.is_number:
            read_number(scales, index, name, one.value, device)
        else:
            owner = _operand.parse(one.value, name, &seen)
            if seen.copied or (one.value is not values[index] and hasattr(values[index], "shape")):
                scales.note_copy(name, f"pass {name} dense, in native byte order and of the kind of the other scale")
            if seen.device_type == _CPU and whole.a.device_type != _CPU and one.per_group == 0 and one.kind == "scalar":
                scales.note_copy(name, f"pass float({name}), or an array on the device of a")
                read_number(scales, index, name, (<float *>seen.data)[0], device)
            else:
                check_same_device(&whole.a, &seen, name)
                scales.pointers[index] = seen.data
                scales.arrays[index] = seen
                scales.held += [one.value, owner]
        scales.problem[name] = one.kind
        operand = of_b if index else of_a
        operand.data = <char *>scales.pointers[index]
        operand.element_bytes = sizeof(float)
        operand.per_index = one.per_index * <int64_t>sizeof(float)
        operand.per_group = one.per_group * <int64_t>sizeof(float)
    return scales


cdef shared_ptr[CachedCall] plan_run(GroupedProduct *product, const GroupRun *run, object problem, object options, StreamContext *context,
                                     int requested) except *:
    """Plan the product of some groups of one size, and choose among its algorithms as for a product by itself."""
    cdef shared_ptr[CachedCall] result = make_shared[CachedCall]()
    cdef CachedCall *call = result.get()
    cdef MatmulSpec spec = product.spec_of(run.extent, run.count)
    cdef size_t limit = options.max_workspace_bytes
    cdef Status status
    requested = max(requested, <int>_choice.candidates_wanted(problem, options, context.device))
    if spec.required_traits.any():
        requested = max(requested, _REPRODUCIBLE)
    with nogil:
        status = MatmulPlan.create(spec, context, limit, requested, &call.plan)
    if not status.ok() and not refuses(status):
        _core.check(status)
    if not status.ok() or call.plan.algorithms().empty():
        raise _groups.no_algorithm_error(run.extent, problem, options)
    index, source = _choice.choose(problem, options, context.device, algorithms_of(call, -1))
    if index < 0:
        raise UnsupportedError(_library.all_wrong(problem))
    if options.reproducible:
        source = "reproducible"
    call.algorithm = index
    call.source = source.encode()
    return result
