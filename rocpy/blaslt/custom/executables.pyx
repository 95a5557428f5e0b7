# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""How products with an epilogue of the user's are computed: by the library's own epilogues, or by tile programs."""

from rocpy.blaslt.custom.tile cimport algorithms_of_program, run_program
from rocpy.blaslt.engine.program cimport TileProgram
from rocpy.blaslt.model.executable cimport Executable
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, all_scales
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands._arguments cimport real

from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.custom.launch import refuse_captured_outs, synchronize_user_stream
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.scale_arguments import scales_of

__all__ = ["LibraryExecutable", "TileExecutable", "native_call", "planned_call"]


cpdef ProductCall planned_call(dict operands, dict inputs, object alpha, object beta, dict settings, object options, object stream, tuple outs):
    """Return a planned product as a call; ``stream`` and ``outs`` are the execution's own."""
    cdef ProductCall call = ProductCall.__new__(ProductCall)
    call.a, call.b, call.c, call.alpha, call.beta = operands["a"], operands["b"], operands["c"], alpha, beta
    call.inputs, call.options, call.stream, call.out = inputs, options, stream, outs
    if settings:
        call.compute, call.scales = settings.get("compute"), scales_of(settings)
    return call


cdef object scaled_beta(object beta, object factor):
    return factor if beta is None else real(beta, "beta") * factor


cpdef ProductCall native_call(object form, ProductCall call):
    """Return the product with one of the library's epilogues in the place of the user's; ``form`` is a :class:`NativeForm`."""
    return with_form(call, form.alpha, form.c, form.beta, form.bias, form.clamp)


cdef ProductCall with_form(ProductCall call, object alpha, str c, object beta, str bias, object clamp):
    cdef ProductCall native = ProductCall.__new__(ProductCall)
    cdef bint factor_is_one = alpha == 1
    native.a, native.b, native.compute, native.options, native.stream, native.scales = (
        call.a, call.b, call.compute, call.options, call.stream, call.scales)
    native.alpha = call.alpha if factor_is_one else real(call.alpha, "alpha") * alpha
    if c:
        native.c, native.beta = call.inputs[c], beta
    else:
        native.c = call.c
        native.beta = scaled_beta(call.beta, alpha) if call.c is not None and not factor_is_one else call.beta
    if bias:
        native.bias = call.inputs[bias]
    native.clamp = clamp
    return native


cdef ScaleArguments with_units(ScaleArguments scales, object unit_a, object unit_b):
    """Return scales with those of 1 that are missing."""
    cdef ScaleArguments more = ScaleArguments.__new__(ScaleArguments)
    if scales is not None:
        more.a, more.b, more.c, more.d, more.amax = scales.a, scales.b, scales.c, scales.d, scales.amax
        more.from_weight = scales.from_weight
    if unit_a is not None:
        more.a = unit_a
    if unit_b is not None:
        more.b = unit_b
    return more


cdef class LibraryExecutable(Executable):
    """A product with one of the library's own epilogues, and what is done after it.

    Parameters
    ----------
    bound
        The function bound to its inputs.
    form
        The library's epilogue with its factors.
    dtype
        Type of the product's result.
    unit_scales
        Scales of 1 that the product needs, by name.
    rest
        What computes the rest of the function; ``None`` where nothing is left.
    algorithm
        The product's algorithm that the user named; ``None``: the product makes its own choice.
    """

    cdef object dtype, epilogue, rest, algorithm
    cdef object alpha, beta, clamp  # of the form: its attributes are slower to ask for
    cdef str c, bias
    cdef object unit_a, unit_b  # scales of 1, or None

    def __init__(self, bound, form, dtype, unit_scales, rest=None, algorithm=None):
        Executable.__init__(self, bound)
        self.dtype, self.epilogue, self.rest, self.algorithm = dtype, form.epilogue, rest, algorithm
        self.alpha, self.c, self.beta, self.bias, self.clamp = form.alpha, form.c, form.beta, form.bias, form.clamp
        self.unit_a, self.unit_b = unit_scales.get("scale_a"), unit_scales.get("scale_b")

    cpdef ProductCall begin(self, ProductCall call):
        cdef ProductCall native = with_form(call, self.alpha, self.c, self.beta, self.bias, self.clamp)
        native.epilogue, native.dtype, native.algorithm = self.epilogue, self.dtype, self.algorithm
        if self.unit_a is not None or self.unit_b is not None:
            native.scales = with_units(call.scales, self.unit_a, self.unit_b)
        if self.rest is None:
            native.out = (<tuple>call.out)[0]
        else:
            self.rest.refuse_capture(call.inputs, self.bound, call.out, call.stream)
        return native

    cpdef tuple finish(self, ProductCall call, object base):
        if self.rest is None:
            return (base,)
        return tuple(self.rest.finish(base, call.inputs, self.bound, call.out, _options.resolve_options(call.options), call.stream))


cdef class TileExecutable(Executable):
    """A tile program of the platform.

    Parameters
    ----------
    bound
        The function bound to its inputs.
    fused
        The program, with what the product does itself.
    rank
        Which of the platform's algorithms runs it.
    """

    cdef TileProgram program
    cdef tuple inputs
    cdef str bias, dtype
    cdef object alpha
    cdef int lead, rank

    def __init__(self, bound, fused, rank):
        Executable.__init__(self, bound)
        self.program, self.inputs, self.rank = fused.code.program, fused.code.inputs, rank
        self.bias, self.dtype, self.alpha, self.lead = fused.bias, fused.dtype, fused.alpha, fused.lead

    cdef ProductCall program_call(self, ProductCall call):
        """Return the product that the program is applied to."""
        cdef ProductCall converted = ProductCall.__new__(ProductCall)
        converted.a, converted.b, converted.c, converted.compute, converted.options, converted.stream = call.a, call.b, call.c, call.compute, call.options, call.stream
        converted.alpha, converted.beta, converted.dtype, converted.scales = call.alpha, call.beta, self.dtype, call.scales
        if call.scales is not None or isinstance(call.b, WeightOperand):
            converted.scales = all_scales(call.b, call.scales)
        if self.alpha != 1:
            converted.alpha = real(call.alpha, "alpha") * self.alpha
            if call.c is not None:
                converted.beta = scaled_beta(call.beta, self.alpha)
        if self.bias:
            converted.bias = call.inputs[self.bias]
        converted.inputs = tuple([call.inputs[name] for name in self.inputs])
        return converted

    def algorithms(self, ProductCall call, int requested):
        """Return the algorithms that run the program."""
        return algorithms_of_program(self.program, self.program_call(call), requested)

    cpdef tuple finish(self, ProductCall call, object base):
        cdef tuple outs = <tuple>call.out
        cdef Py_ssize_t i
        if call.stream is not None:
            refuse_captured_outs(outs, call.stream)
        cdef tuple results = run_program(self.program, self.program_call(call), self.rank)
        ordered = [*results[1:self.lead + 1], results[0], *results[self.lead + 1:]]
        for i in range(len(outs)):
            if outs[i] is not None:
                synchronize_user_stream(call.stream, call.a)
                _copies.assign(outs[i], ordered[i])
                synchronize_user_stream(call.stream, call.a)
                ordered[i] = outs[i]
        return tuple(ordered)
