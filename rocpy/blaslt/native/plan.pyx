# SPDX-License-Identifier: MIT
"""NativeProduct: a planned product of the library's own, its operands and the path of each execution; _planned.pyx has its plans."""

from numbers import Number

cimport cython
from libc.string cimport memcpy

from rocpy cimport _core
from rocpy cimport _operand

from rocpy._core cimport DefaultFpEnvironment, DefaultVectorEnvironment
from rocpy._memory_record cimport MemoryRecord, any_moved, pinned_memories, refuse_changed, refuse_gradients
from rocpy._operand cimport Operand
from rocpy.blaslt.operands._arguments cimport (
    check_copies, check_whole, epilogue_index, form_of_copied, info, must_be_staged, operand_named, parse_all, parse_one, problem_of, read_factors, read_out,
    reset_factors, sole_aux, staged_infos,
)
from rocpy.blaslt.engine.launch cimport (
    Completion, Launch, MatmulFactors, Operands, execute, overwrites_c, resolve_device_and_stream, refuse_capture, synchronize_stream,
)
from rocpy.blaslt.native._planned cimport Planned, Use, first_algorithms
from rocpy.blaslt.model.packed cimport Packed
from rocpy.blaslt.engine._scales cimport Scales, check_apart
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, all_scales
from rocpy.blaslt.engine.streams cimport synchronization
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.blaslt.operands.weight cimport Weight
from rocpy.runtime._capture cimport keep_with_foreign_graph
from rocpy.runtime.handles.call_stream cimport CallStream
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model import settings as _settings
from rocpy.blaslt.native import reset as _reset
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.scale_arguments import scales_of
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.blaslt.model.epilogues import EPILOGUES, refuse_inputs
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime.handles.stream_handle import hold_stream

cdef tuple _RESETTABLE = ("a", "b", "c", "bias", "aux")


cdef dict read_each_time(dict operands):
    """Return those operands and scales whose memory is the caller's; what is read of a Weight has memory of its own."""
    return {name: value for name, value in operands.items() if not (value is None or isinstance(value, WeightOperand) or isinstance(value, Number))}


cdef dict lasting_arrays(dict arrays):
    return {name: _operand.lasting(value, name) for name, value in arrays.items() if value is not None}


cdef dict readable_arrays(dict arrays):
    return {name: _operand.readable(value, name) for name, value in arrays.items()}


cdef int replace_originals(dict originals, dict changes) except -1:
    for name in changes:
        originals.pop(name, None)
    originals.update(read_each_time(changes))
    return 0


cdef int refuse_others(tuple records, dict originals, dict changes) except -1:
    """Refuse operands that stay and have another shape, type or layout than when they were read."""
    cdef MemoryRecord record
    for record in records:
        if record.name in originals and record.name not in changes:
            record.has_moved()
    return 0


cdef class NativeProduct(Planned):
    """A product that the library computes by itself; what rocpy.blaslt.front.stateful documents."""

    cdef object owner  # a, or the bytes it is packed in: whose framework makes results
    cdef tuple held

    def __init__(self, a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
                 scale_a=None, scale_b=None, scale_c=None, scale_d=None, amax=False, dtype=None, compute=None, options=None,
                 stream=None):
        cdef DefaultFpEnvironment environment
        cdef CallStream order
        environment.hold()
        order.enter_outside(<void *>stream)
        if epilogue_inputs is not None:
            refuse_inputs(epilogue)
        _core.ensure()
        self.epilogue = epilogue_index(epilogue)
        row = EPILOGUES[EPILOGUE_NAMES[self.epilogue]]
        self.extra_name = row.outputs[0] if row.outputs else None
        self.weight = <Weight>b if type(b) is Weight else None
        if isinstance(b, WeightOperand):
            b = self.taken = <WeightSnapshot>(<WeightOperand>b).read()
        if bias is None and self.taken is not None and row.bias:
            bias = self.taken.bias
            self.weight_bias = bias is not None
        if aux is not None:
            aux = sole_aux(aux)
        originals = lasting_arrays(dict(zip(_RESETTABLE, (a, b, c, bias, aux))))
        original_scales = lasting_arrays({"scale_a": scale_a, "scale_b": scale_b, "scale_c": scale_c, "scale_d": scale_d})
        views = readable_arrays(originals)
        a, b, c, bias, aux = [views.get(name) for name in _RESETTABLE]
        self.options = _options.resolve_options(options)
        cdef ScaleArguments scales = all_scales(b, scales_of({**original_scales, "amax": amax}))
        if bias is not None and self.taken is not None:
            b = originals["b"] = views["b"] = _copies.unpacked(b, bias)
        if scales is not None:
            a, b = _blocks.prepare(a, b, scales, self.options)
        self.prototype, self.staged = None, ()
        if _staging.has_own_memory() and must_be_staged(a, (b, c, bias, aux)):
            _staging.check_allowed(self.options)
            infos = staged_infos((a, b, c, bias, aux, None), None, self.options, self.taken is not None)
            self.staged = _staging.copied_names(infos, originals["b"])
            _staging.check_layouts(infos, (a, b), self.options, scales, dict(epilogue=row.name, dtype=dtype, compute=compute, clamp=clamp))
            self.prototype = _staging.prototype(a)
            with _staging.on_device_of(stream):
                a, b, c, bias, aux = [
                    _staging.take(value, name, self.options, scales) for name, value in zip(_RESETTABLE, (a, b, c, bias, aux))]
                scales = _staging.upload_scales(scales)
        self.held = parse_all(&self.operands, a, b, c, bias, aux, None)
        check_copies((a, b, c, bias, aux), &self.operands, None, Completion.WAIT, self.options)
        read_factors(&self.factors, alpha, beta, c, self.operands.a.type)
        self.scale_values = scales
        self.scales = None if scales is None else self.read(scales, &self.operands)
        self.clamp = None if clamp is None else _settings.clamp_bounds(clamp)
        if compute is not None:
            _settings.compute_code(compute)
        self.stream = stream
        self.dtype = dtype
        self.compute = compute
        self.cached_plans = {}
        self.operand_arrays = {"a": a, "b": b, "c": c, "bias": bias, "aux": aux}
        self.owner = (<Packed>a).memory if type(a) is Packed else a
        self.state_problem(problem_of(&self.operands, EPILOGUE_NAMES[self.epilogue], self.dtype, self.compute, self.clamp, self.scales))
        # Copies on the device hold what the operands were when they were given.
        self.originals, self.original_scales, self.views = {}, {}, {}
        if self.prototype is None:
            self.originals, self.original_scales, self.views = read_each_time(originals), read_each_time(original_scales), views
        self.record_memory()
        self.closed = False

    def execute(self, *, out=None, algorithm=None, stream=None):
        return self.run(out, algorithm, stream)

    cdef object run(self, object out, object algorithm, object stream):
        cdef DefaultVectorEnvironment environment
        cdef CallStream order
        environment.hold()
        self.enter()
        try:
            if stream is None:
                stream = self.stream
            if stream is not None:
                stream = hold_stream(stream)  # before the operands' addresses are read, as it may run code of the caller's
            order.enter(<void *>stream)
            if self.weight is not None and self.weight.read() is not self.taken:
                self.take_operands({"b": self.weight}, None, None, {})
            refuse_gradients(self.records)
            self.read_again()
            return self.launch_product(out, algorithm, stream)
        finally:
            self.busy = Use.idle

    @cython.final
    cdef inline object launch_product(self, object out, object algorithm, object stream):
        """Compute the product and return its outputs as arrays of the caller's kind."""
        cdef Launch launch
        cdef Operands copied
        cdef Operand target
        cdef StreamUse use
        cdef object result
        cdef tuple held = self.held
        if self.planned_algorithms is None:
            self.make_plan(first_algorithms)
        launch.algorithm = self.find(algorithm).rank if algorithm is not None and self.planned_algorithms else self.chosen
        launch.call, launch.operands, launch.factors = self.call.get(), &self.operands, &self.factors
        launch.out = NULL
        launch.program = NULL
        launch.completion = resolve_device_and_stream(&self.operands.a, stream, &launch.device, &launch.stream, &use)
        if self.taken is not None and launch.completion != Completion.WAIT and launch.completion != Completion.KEEP_ALIVE:
            keep_with_foreign_graph(launch.stream, launch.device, self.taken)
        if launch.completion == Completion.CAPTURE:
            self.refuse_steps(&launch)
        if self.copies and self.unfused is None:
            held = (held, self.copy_operands(&launch, &copied))
        if out is not None:
            # Of copied operands the caller's are those that out may share memory with.
            if read_out(launch.call, &self.operands, out, self.prototype, self.problem, self.options, &target):
                launch.out = &target
            else:
                refuse_capture(launch.completion, "out= is of another dtype or order than the product", "pass an out= that the product can write")
            if self.scales is not None and self.prototype is None:
                check_apart(self.scales, &target)
            if not _operand.is_plain(out):
                refuse_changed(self.records)
        if self.unfused is None:
            result = self.launch_or_compose(&launch, out, held, stream, algorithm is not None)
        else:
            result = self.compose(&launch, stream)
        return self.deliver(&launch, result, out, stream)

    cdef int refuse_steps(self, Launch *launch) except -1:
        """Refuse an execution under capture that is more than a launch."""
        if self.prototype is not None:
            refuse_capture(launch.completion, "operands in CPU memory are copied to the device", "move them there")
        if self.unfused is not None:
            refuse_capture(launch.completion, "the product is composed", "see rocpy.explain(), and execute it outside of the capture")
        if self.copies:
            name = self.copies[0]
            conjugated = bool(operand_named(&self.operands, name).conjugated)
            refuse_capture(launch.completion, f"{name} must be copied",
                           _refusals.readable_form(name, columns=self.problem.column_bias, conjugated=conjugated))
        if launch.call.plan == NULL and self.extra_name in ("bgrada", "bgradb"):
            refuse_capture(launch.completion, _refusals.SUMMED_ASIDE, "execute it outside of the capture")
        if launch.call.transposed:
            refuse_capture(launch.completion, "the result of a bias per row must be transposed",
                           _refusals.turning_remedy(EPILOGUE_NAMES[self.epilogue], is_planned=True))
        if self.copied:
            refuse_capture(launch.completion, f"a copy of {self.copied[0]} is read", form_of_copied(self.copied[0], self.scales))
        return 0

    cdef tuple copy_operands(self, Launch *launch, Operands *copied):
        """Launch copies of those operands that the library cannot take as they lie; returns the copies."""
        cdef list arrays = []
        if launch.completion != Completion.WAIT:
            synchronize_stream(launch.stream, self.operands.a.device_type, self.operands.a.device_id)
        memcpy(copied, &self.operands, sizeof(Operands))
        for name in self.copies:
            array = _copies.copy_of(self.operand_arrays[name], name, self.problem)
            arrays.append(parse_one(array, name, operand_named(copied, name), &copied.a))
        launch.operands = copied
        return tuple(arrays)

    cdef object compose(self, Launch *launch, object stream):
        """Compute the product of several; what it returns is new, whatever `out` can take."""
        launch.out = NULL
        return self.unfused.execute(launch.algorithm, stream, synchronization(launch.stream, &self.operands.a))

    @cython.final
    cdef inline object launch_or_compose(self, Launch *launch, object out, tuple held, object stream, bint named):
        """Launch the product; where the library refuses what it had planned, compose it from then on. `named`: the user chose its algorithm."""
        cdef object result
        try:
            result = execute(launch, self.owner, out,
                             (held, pinned_memories((*self.operand_arrays.values(), out))) if launch.completion >= Completion.KEEP_ALIVE else held,
                             self.scales)
            if launch.call.transposed:
                if launch.completion != Completion.WAIT:
                    synchronize_stream(launch.stream, self.operands.a.device_type, self.operands.a.device_id)
                result = _copies.transposed_product(result, None, lambda: None)
            return result
        except (LibraryError, UnsupportedError) as error:
            if named or self.is_pinned or overwrites_c(launch):
                raise
            if not _library.composes_after(error, self.launched, launch.device) or self.options.fallback == "error":
                raise
            refuse_capture(launch.completion, "the library refuses the launch of this product, which is composed", "see rocpy.explain()")
            self.make_plan(first_algorithms)
            launch.algorithm = self.chosen
            return self.compose(launch, stream)

    @cython.final
    cdef inline object deliver(self, const Launch *launch, object result, object out, object stream):
        """Return a result and what is beside it: in `out`, or in the memory of the caller's arrays where the product ran on copies."""
        cdef object extra, amax
        if out is None and self.scales is None and self.extra_name is None and self.prototype is None:
            return result
        extra = amax = None
        if self.scales is not None and self.scales.amax:
            result, extra, amax = result
        elif self.extra_name is not None:
            result, extra = result
        if self.extra_name is not None and self.call.get().plan == NULL and self.extra_name in ("bgrada", "bgradb"):
            extra = self._bias_gradient_of_empty(result)
        if self.prototype is not None:
            result = _staging.download(result, self.prototype, stream)
            extra = None if extra is None else _staging.download(extra, self.prototype, stream)
            amax = None if amax is None else _staging.download(amax, self.prototype, stream)
        if launch.out != NULL:
            _operand.written(out, launch.out.provider)
        elif out is not None:
            if launch.completion != Completion.WAIT:
                synchronize_stream(launch.stream, self.operands.a.device_type, self.operands.a.device_id)
            _copies.assign(out, result)
        if out is not None:
            result = out
        if amax is not None:
            return result, ({"amax": amax} if extra is None else {self.extra_name: extra, "amax": amax})
        return result if extra is None else (result, {self.extra_name: extra})

    @cython.final
    cdef inline int read_again(self) except -1:
        if any_moved(self.records) or self.copied:
            self.take_operands(dict(self.originals), None, None, self.original_scales, True)
        return 0

    def read_operands(self):
        """Take the operands as they are now, as execute() does; raises where one is of another shape, dtype or layout."""
        self.enter()
        try:
            self.read_again()
        finally:
            self.busy = Use.idle

    def reset_operands(self, *, a=None, b=None, c=None, bias=None, aux=None, alpha=None, beta=None, scale_a=None, scale_b=None,
                       scale_c=None, scale_d=None, epilogue_inputs=None):
        cdef CallStream order
        order.enter_outside(<void *>self.stream)
        if epilogue_inputs is not None:
            refuse_inputs(EPILOGUE_NAMES[self.epilogue])
        self.enter(resetting=True)
        try:
            changes = {name: value for name, value in zip(_RESETTABLE, (a, b, c, bias, aux)) if value is not None}
            self.take_operands(changes, alpha, beta, {"scale_a": scale_a, "scale_b": scale_b, "scale_c": scale_c, "scale_d": scale_d})
        finally:
            self.busy = Use.idle

    def take(self, dict changes, alpha, beta, dict scales, accept):
        """Put other operands, factors and scales in the place of those before, as reset_operands() does.

        Parameters
        ----------
        changes : dict
            The operands that change, by name.
        alpha, beta : number or None
            Factors that change.
        scales : dict
            Scales that change, by name.
        accept : callable or None
            Called with the problem that they make, before anything is changed; what it raises comes out.
        """
        cdef CallStream order
        order.enter_outside(<void *>self.stream)
        self.enter(resetting=True)
        try:
            self.take_operands(changes, alpha, beta, scales, False, accept)
        finally:
            self.busy = Use.idle

    cdef int take_operands(self, dict changes, object alpha, object beta, dict changed_scales, bint same=False, object accept=None) except -1:
        """Put other operands, factors and scales in the place of those before; what is refused changes nothing. `same`: they are those
        before, and their memory is read again. `accept` may refuse the problem that they make."""
        cdef Operands fresh
        cdef Scales scales = self.scales
        cdef MatmulFactors factors = self.factors
        cdef Weight weight = self.weight
        cdef WeightSnapshot taken = self.taken
        cdef DefaultFpEnvironment environment
        environment.hold()
        self.busy = Use.changing
        if not same:
            refuse_others(self.records, self.originals, changes)
        named = dict(self.operand_arrays)
        if "b" in changes and not same:
            b = changes["b"]
            weight = <Weight>b if type(b) is Weight else None
            taken = <WeightSnapshot>(<WeightOperand>b).read() if isinstance(b, WeightOperand) else None
        if "b" in changes and taken is not None and not same:
            changes["b"] = taken
            if self.weight_bias and "bias" not in changes and taken.bias is not None:
                changes["bias"] = taken.bias
            else:
                changes["b"] = _copies.unpacked(taken, changes.get("bias", self.operand_arrays["bias"]))
            if changed_scales.get("scale_b") is None:
                changed_scales = {**changed_scales, "scale_b": taken.factors}
        if self.released:
            _reset.refuse_lacking(_reset.lacking_operands(self.problem, changes))
        if "aux" in changes:
            changes["aux"] = sole_aux(changes["aux"])
        changes, changed_scales = lasting_arrays(changes), lasting_arrays(changed_scales)
        originals, original_scales = dict(self.originals), dict(self.original_scales)
        if self.prototype is None and not same:
            replace_originals(originals, changes)
            replace_originals(original_scales, changed_scales)
        changes = readable_arrays(changes)
        views = {} if self.prototype is not None else {**self.views, **changes}
        values = _reset.scales(self.scale_values, scales_of(changed_scales))
        changes = _blocks.prepare_changes(changes, values, self.options, self.problem.k)
        if self.prototype is not None:
            with _staging.on_device_of(self.stream):
                changes = {name: _staging.take(value, name, self.options, values) for name, value in changes.items()}
                values = _staging.upload_scales(values)
        _reset.check_names(self.problem, named, changes)
        named.update(changes)
        held = parse_all(&fresh, named["a"], named["b"], named["c"], named["bias"], named["aux"], None)
        check_copies(tuple(named.values()), &fresh, None, Completion.WAIT, self.options)
        operands = {"a": info(&fresh.a), "b": info(&fresh.b, fresh.packed), "c": info(&fresh.c), "bias": info(&fresh.bias),
                    "aux": info(&fresh.aux)}
        problem = self.problem
        m_changes = self.options.dynamic == "m" and "a" in changes and operands["a"].shape != problem.a.shape
        if values is not None and values is not self.scale_values or scales is not None and (same or "a" in changes or "b" in changes):
            scales = self.read(values, &fresh)
            _reset.check_scales(self.scales.problem, scales.problem, m_changes)
        conjugation_changed = fresh.a.conjugated != bool(problem.conj_a) or fresh.b.conjugated != bool(problem.conj_b)
        if _reset.check(problem, operands, changes, self.options.dynamic) or conjugation_changed:
            problem = problem_of(&fresh, EPILOGUE_NAMES[self.epilogue], self.dtype, self.compute, self.clamp, scales)
        reset_factors(&factors, alpha, beta, named["c"], fresh.a.type)
        if self.call.get() != NULL and self.call.get().integer_factors:
            check_whole(&factors)
        if accept is not None:
            accept(problem)
        if problem is not self.problem:
            self.change_problem(problem)
        self.factors, self.scales, self.scale_values = factors, scales, values
        self.released = False
        memcpy(&self.operands, &fresh, sizeof(Operands))
        self.operand_arrays, self.held, self.originals, self.original_scales, self.views = named, held, originals, original_scales, views
        self.record_memory()
        self.weight, self.taken = weight, taken
        self.owner = (<Packed>named["a"]).memory if type(named["a"]) is Packed else named["a"]
        if self.unfused is not None:
            self.unfused.reset(named, self.scalars(), values)
        self.busy = Use.executing
        return 0

    def release_operands(self):
        """Let go of the operands and keep the plan; reset_operands() with all of them makes the product usable again."""
        self.enter(resetting=True)
        self.released = True
        self.held = self.records = ()
        self.originals, self.views = {}, {}
        self.operand_arrays = dict.fromkeys(self.operand_arrays)
        self.owner = self.weight = self.taken = None
        if self.unfused is not None:
            self.unfused.release()
        self.busy = Use.idle

    def close(self):
        """Give back the plan and the operands. Closing twice is harmless."""
        if self.busy != Use.idle:
            self.refuse_use("close it afterwards")
        self.closed = True
        self.call.reset()
        self.held = self.records = ()
        self.operand_arrays = self.originals = self.original_scales = self.views = {}
        self.owner = self.weight = self.taken = None
        self.cached_plans = {}
        if self.unfused is not None:
            self.unfused.close()
