# SPDX-License-Identifier: MIT
"""The planning half of a native product: its problem, its plans and the algorithms among which it chooses."""

from dataclasses import replace

from cpython.pythread cimport PyThread_get_thread_ident
from libcpp.memory cimport shared_ptr

from rocpy cimport _core
from rocpy._core cimport DefaultFpEnvironment, Status
from abi cimport hipStream_t

from rocpy._memory_record cimport MemoryRecord, record_of, refuse_other_shape
from rocpy.blaslt.operands._arguments cimport check_whole, operand_named, reads_copy
from rocpy.blaslt.engine.build cimport build, recipe_of
from rocpy.blaslt.engine.launch cimport CachedCall, CallKind, Operands, StreamContext, algorithms_of, borrow_context, resolve_device_and_stream, release_context
from rocpy.blaslt.engine._scales cimport Scales, read_scales
from rocpy.blaslt.model.planned_product cimport PlannedProduct
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.runtime cimport device as _device
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model import algorithms as _algorithms
from rocpy.blaslt.model import lowering as _lowering
from rocpy.errors import ClosedError, InvalidOperandError, RocpyError, UnsupportedError
from rocpy.runtime.device import Device

# Plans of other layouts or Ms that a Matmul keeps.
cdef int _MOST_CACHED_PLANS = 8


cdef class CachedPlan:
    """The plan of a problem that is not the present one."""

    cdef shared_ptr[CachedCall] call
    cdef list planned_algorithms
    cdef size_t chosen


cdef class Planned(PlannedProduct):
    """What rocpy.blaslt.front.stateful documents about plans."""

    cdef Scales read(self, ScaleArguments scales, Operands *operands):
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        resolve_device_and_stream(&operands.a, self.stream, &device, &c_stream, &use)
        return read_scales(scales, &operands.a, &operands.b, device, self.options.reproducible == "batch")

    cdef int state_problem(self, object problem) except -1:
        """Take a problem, with what of it must be copied, and drop the plan. Refuses before anything is changed."""
        cdef tuple copies = ()
        cdef object launched = problem
        if problem.m and problem.n and problem.batch:
            copies = _lowering.lower(problem).copies
            if self.options.copies == "error":
                _staging.refuse_copies(problem)
            launched = _lowering.with_copies(problem, copies)
        self.problem, self.copies, self.launched = problem, copies, launched
        self.call.reset()
        self.planned_algorithms = self.unfused = None
        return 0

    cdef int change_problem(self, object problem) except -1:
        """Take another problem; the plan goes to those kept, and one kept for the new problem comes from there."""
        cdef CachedPlan entry = None
        cdef object before = self.problem
        if self.call.get() != NULL and self.call.get().plan != NULL:
            entry = CachedPlan()
            entry.call, entry.planned_algorithms, entry.chosen = self.call, self.planned_algorithms, self.chosen
        self.state_problem(problem)
        if entry is not None:
            self.cached_plans[before] = entry
            if len(self.cached_plans) > _MOST_CACHED_PLANS:
                del self.cached_plans[next(iter(self.cached_plans))]
        entry = self.cached_plans.pop(problem, None)
        if entry is not None:
            self.call, self.planned_algorithms, self.chosen = entry.call, entry.planned_algorithms, entry.chosen
        return 0

    def check_open(self):
        """Refuse a product that was closed, or that a reset of its device has ended."""
        PlannedProduct.check_open(self)
        if _device.is_reset(self.generation, self.device):
            raise _device.lost_error("Matmul", self.generation)

    cdef int enter(self, bint resetting=False) except -1:
        if self.closed:
            raise ClosedError("this Matmul was closed; create a new one")
        if _device.is_reset(self.generation, self.device):
            raise _device.lost_error("Matmul", self.generation)
        if self.busy != Use.idle:
            self.refuse_use("give each thread its own")
        if self.released and not resetting:
            raise InvalidOperandError("the operands were released; pass them again with reset_operands()")
        self.busy = Use.changing if resetting else Use.executing
        self.user, self.user_forks = PyThread_get_thread_ident(), _device.forks
        return 0

    cdef int refuse_use(self, str advice) except -1:
        """Refuse a use during another one, unless that is of a thread that stayed in the parent process."""
        if self.user_forks == _device.forks or self.user == PyThread_get_thread_ident():
            raise self.in_use(advice)
        if self.busy == Use.changing:
            raise ClosedError("this Matmul was being planned or reset by another thread when the process forked; create a new one here")
        return 0

    cdef object in_use(self, str advice):
        """Return the error for a use during another one, which may be of code that a use of this thread's own calls."""
        if self.user == PyThread_get_thread_ident():
            return RocpyError("this Matmul is in use by this thread, which is inside one of its methods; call it when that has returned")
        return RocpyError(f"this Matmul is in use by another thread; {advice}")

    cdef int record_memory(self) except -1:
        """Note where the memory of operands and scales is that executions read, and which of them they read a copy of."""
        cdef MemoryRecord record
        cdef list records = [], copied = []
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        resolve_device_and_stream(&self.operands.a, self.stream, &self.device, &c_stream, &use)
        self.generation = _device.generation_of(self.device)
        for name, array in self.originals.items():
            record = record_of(array, name, self.views[name], operand_named(&self.operands, name) if array is self.operand_arrays[name] else NULL)
            if record is not None:
                records.append(record)
                if array is self.operand_arrays[name]:  # neither packed nor on the device
                    refuse_other_shape(record, operand_named(&self.operands, name))
            if reads_copy(record, operand_named(&self.operands, name)):
                copied.append(name)
        if self.scales is not None and self.prototype is None:
            for name, value in self.scale_values.items():
                record = record_of(self.original_scales.get(name, value), name, value)
                if record is not None:
                    records.append(record)
            if self.scales.copied is not None:
                copied.append(self.scales.copied)
        self.copied = tuple(copied)
        self.records = tuple(records)
        return 0

    cdef int read_again(self) except -1:
        """Take operands and scales as they are now."""
        return 0

    def plan(self, *, list algorithms=None, int max_algorithms=first_algorithms):
        self.enter()
        try:
            self.read_again()
            self.make_plan(max_algorithms)
            if algorithms is not None:
                self.restrict(algorithms)
            else:  # more were asked for where a choice that was stored is among them
                del self.planned_algorithms[max_algorithms:]
            return list(self.planned_algorithms)
        finally:
            self.busy = Use.idle

    cdef int make_plan(self, int requested) except -1:
        cdef StreamContext *context = NULL
        cdef Status status
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        cdef DefaultFpEnvironment environment
        environment.hold()
        self.busy = Use.changing
        resolve_device_and_stream(&self.operands.a, self.stream, &device, &c_stream, &use)
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            self.call = build(self.launched, self.options, context, self.operands.packed, requested)
        finally:
            release_context(context)
        if self.call.get().integer_factors:
            check_whole(&self.factors)
        self.unfused = None
        if self.call.get().kind == CallKind.compose:
            self.unfused = self._compose(recipe_of(self.call.get()))
            self.planned_algorithms = self.unfused.plan(requested)
            self.chosen = self.planned_algorithms[0].rank
            self.busy = Use.executing
            return 0
        algorithms = algorithms_of(self.call.get(), device)
        self.chosen = self.call.get().algorithm
        if algorithms:
            algorithms.insert(0, _choice.labelled(algorithms.pop(self.chosen), self.call.get().source.c_str().decode(), self.launched, self.options, device))
        self.planned_algorithms = algorithms
        self.busy = Use.executing
        return 0

    def _compose(self, recipe):
        """Return how a product is done that begins with the native one of a recipe; the products that do so have it."""
        raise UnsupportedError(f"{self.problem}: the library cannot fuse it, and this product is not composed")

    def _bias_gradient_of_empty(self, result):
        """Return the bias gradient of a result without elements, along a or b; the products that compose have it."""
        raise UnsupportedError(f"{self.problem}: the library computes no sums for a result without elements")

    cdef int restrict(self, list wanted) except -1:
        """Leave only the algorithms that the user names, in his order, and take the first."""
        cdef list chosen = [self.find(one) for one in wanted]
        self.planned_algorithms = [replace(one, source="pinned") for one in dict.fromkeys(chosen)]
        self.chosen = self.planned_algorithms[0].rank
        return 0

    cdef object find(self, object algorithm):
        """Return the plan's algorithm that the user means; the platform is asked for all where it is not among those ranked."""
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        mine = self.listed(algorithm)
        if mine is not None:
            return mine
        resolve_device_and_stream(&self.operands.a, self.stream, &device, &c_stream, &use)
        mine = _algorithms.find(algorithm, self.planned_algorithms, device, self.problem)
        if mine is None and self.planned_algorithms:
            mine = self.find_among_all(algorithm, device)
        if mine is None:
            raise _algorithms.missing(algorithm, self.planned_algorithms)
        return mine

    cdef object find_among_all(self, object algorithm, int device):
        cdef shared_ptr[CachedCall] call = self.call
        cdef list before = self.planned_algorithms
        cdef size_t chosen = self.chosen
        taken = self.algorithm
        self.make_plan(all_algorithms)
        mine = _algorithms.find(algorithm, self.planned_algorithms, device)
        if mine is None:
            self.call, self.planned_algorithms, self.chosen = call, before, chosen
            return None
        # The plan is that of all from now on; what the user has seen keeps its order, its times and its choice.
        ranks = {(one.id, one.name): one.rank for one in self.planned_algorithms}
        self.planned_algorithms = [replace(one, rank=ranks[one.id, one.name]) for one in before if (one.id, one.name) in ranks] + [mine]
        self.chosen = ranks.get((taken.id, taken.name), mine.rank)
        return mine

    def pin(self, algorithm):
        self.enter()
        try:
            if self.planned_algorithms is None:
                self.make_plan(first_algorithms)
            mine = self.find(algorithm)
            pinned = replace(mine, source="pinned")
            self.planned_algorithms = [pinned if one is mine else one for one in self.planned_algorithms]
            self.chosen = pinned.rank
            return pinned
        finally:
            self.busy = Use.idle

    cpdef dict scalars(self):
        """Return alpha and beta as keyword arguments."""
        cdef object alpha = complex(self.factors.alpha, self.factors.alpha_imaginary), beta = complex(self.factors.beta, self.factors.beta_imaginary)
        return {"alpha": alpha if alpha.imag else alpha.real, "beta": beta if beta.imag else beta.real}

    @property
    def why(self):
        """Why it is composed."""
        return "" if self.unfused is None else self.unfused.text

    @property
    def converted(self):
        """Names of operands and scales of which a copy is read: in native byte order, aligned, with their sign, dense or packed."""
        return self.copied

    @property
    def packed(self):
        """Whether b is a packed Weight."""
        return bool(self.operands.packed)

    @property
    def device_name(self):
        """Name of the device that it runs on."""
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        if self.closed:
            return Device(self.device).name  # where it was last given operands: its stream may be closed, too
        resolve_device_and_stream(&self.operands.a, self.stream, &device, &c_stream, &use)
        return Device(device).name
