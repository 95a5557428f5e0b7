# SPDX-License-Identifier: MIT
"""What is done instead of launching a call: its operands are copied or staged, or its product is composed."""

from rocpy._dlpack cimport array_type_of_hip
from rocpy._operand cimport Operand
from rocpy.blaslt.engine.build cimport copied_names, recipe_of
from rocpy.blaslt.engine.launch cimport (
    CachedCall, CallKind, Completion, Launch, Operands, refuse_capture, refuse_captured,
)
from rocpy.blaslt.engine.streams cimport synchronization
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.operands._arguments cimport info, operand_named, staged_infos

from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.arrays import views as _views
from rocpy.blaslt.composed import product as _composed
from rocpy.blaslt.front.planned import forced_product
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model.scale_arguments import scale_keywords
from rocpy.blaslt.operands._arguments import EPILOGUE_NAMES
from rocpy.runtime.handles.stream_handle import hold_stream


cdef str layout(const Operand *operand):
    return info(operand).text if operand.ndim >= 0 else ""


cdef const Operand *operand_of(const Operands *operands, str name) noexcept:
    return &operands.out if name == "out" else operand_named(<Operands *>operands, name)


cdef str form_of(const CachedCall *cached, const Operands *operands, str name):
    """Return what to pass so that an operand is not copied, or the result is written where it is wanted."""
    if name == "out" and operands.out.type != cached.result_type:
        return f"pass out= of {array_type_of_hip(cached.result_type).name.decode()}, the result's type"
    return _refusals.readable_form(
        name, columns=cached.copies.c_in_columns, conjugated=bool(operand_of(operands, name).conjugated))


cdef int refuse_steps(Completion completion, const CachedCall *cached, const Operands *operands, str epilogue) except -1:
    """Refuse a call under capture that is more than a launch."""
    if completion != Completion.CAPTURE:
        return 0
    if cached.kind == CallKind.compose:
        return refuse_capture(completion, "the product is composed", "see rocpy.explain(), and call it outside of the capture")
    if cached.kind == CallKind.copy:
        name = copied_names(cached)[0]
        what = "the result must be copied to out" if name == "out" else f"{name} must be copied"
        return refuse_capture(completion, what, form_of(cached, operands, name))
    return refuse_capture(completion, "the result of a bias per row must be transposed", _refusals.turning_remedy(epilogue))


cdef int refuse_forbidden_copies(const CachedCall *cached, const Operands *operands, object options) except -1:
    """Refuse a call that copies arrays, where the options forbid that."""
    if options.copies == "error":
        name = copied_names(cached)[0]
        _copies.refuse_copied(
            name, layout(operand_of(operands, name)), array_type_of_hip(cached.result_type).name.decode(), form_of(cached, operands, name))
    return 0


cdef object preparation(object call, const Operands *operands, CachedCall *cached, str epilogue, object options):
    """Return how a product is computed that the library cannot launch as it is: composed, or of copies."""
    cdef str dtype = array_type_of_hip(cached.result_type).name.decode()
    if cached.kind == CallKind.compose:
        return _composed.Composed(call, recipe_of(cached), epilogue, dtype, options)
    names = copied_names(cached)
    refuse_forbidden_copies(cached, operands, options)
    shape = tuple([cached.result_shape[axis] for axis in range(cached.result_ndim)])
    return _copies.Copied(call, names, shape, dtype, cached.copies.c_in_columns)


cdef class Step:
    """What is done instead of launching a call, and the wait for its stream around it, or None; the call that is prepared holds the stream."""

    def __cinit__(self, object preparation):
        self.preparation = preparation

    cdef int wait(self) except -1:
        return 0 if self.synchronize is None else self.synchronize.wait()

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


cdef object staging_step(const Arguments *call):
    """Return the step of a call whose operands lie in CPU memory and are copied to the device."""
    refuse_captured(<object>call.stream, "operands in CPU memory are copied to the device", "move them there")
    arrays = (<object>call.a, <object>call.b, <object>call.c, <object>call.bias, <object>call.aux, <object>call.out)
    return Step(_staging.staged(
        as_data(call), staged_infos(arrays, <ScaleArguments>call.scales, <object>call.options, call.weight != NULL)))


cdef object preparing_step(const Arguments *call, Launch *launch):
    """Return the step of a call whose operands are copied or whose product is composed."""
    cdef Step step
    cdef bint composed = launch.call.kind == CallKind.compose
    refuse_steps(launch.completion, launch.call, launch.operands, EPILOGUE_NAMES[call.row])
    data = as_data(call)
    viewed = _views.viewed_call(data)
    if viewed is not None:
        step = Step(viewed)
        if data.stream is not None:
            step.synchronize = synchronization(launch.stream, &launch.operands.a)
        return step
    if composed and data.algorithm is not None:  # the native product inside is the one that is forced
        return forced_product(data.a, data.b, data.c, data.algorithm, data.out, data.stream, dict(
            alpha=data.alpha, beta=data.beta, epilogue=data.epilogue, bias=data.bias, aux=data.aux, clamp=data.clamp, dtype=data.dtype,
            compute=data.compute, options=data.options, **scale_keywords(data.scales, data.b)))
    step = Step(preparation(data, launch.operands, launch.call, EPILOGUE_NAMES[call.row], _options.resolve_options(data.options)))
    # What frameworks do with operands and results does not follow the order of a stream that the user gave.
    if data.stream is not None if composed else launch.completion != Completion.WAIT:
        step.synchronize = synchronization(launch.stream, &launch.operands.a)
    return step


cdef object as_data(const Arguments *call):
    """Return a call that outlives this one's arguments; it holds its stream."""
    cdef ProductCall data = ProductCall.__new__(ProductCall)
    data.a, data.b, data.c, data.bias = <object>call.a, <object>call.b, <object>call.c, <object>call.bias
    data.aux, data.out, data.alpha, data.beta = <object>call.aux, <object>call.out, <object>call.alpha, <object>call.beta
    data.epilogue, data.clamp, data.dtype, data.compute = <object>call.epilogue, <object>call.clamp, <object>call.dtype, <object>call.compute
    data.options, data.scales, data.algorithm = <object>call.options, <ScaleArguments>call.scales, <object>call.algorithm
    data.stream = hold_stream(<object>call.stream)
    return data
