# SPDX-License-Identifier: MIT
"""The function form: its arguments, and who takes them. It is entered once a call: what it calls does not call it.

Most calls give few of the arguments. Before Python 3.12, which counts no references to None, reading the others' defaults takes a tenth of
a small product's time: what is called reads what is given, and leaves the rarer arguments to the function that has them all."""

from collections.abc import Mapping

from cpython.ref cimport PyObject

from rocpy._producers.torch_tensors cimport is_plain_tensor, torch_is_first
from rocpy.blaslt.front.call cimport custom_matmul, outputs
from rocpy.blaslt.front.steps cimport Arguments
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, scales_or_none
from rocpy.blaslt.operands._arguments cimport epilogue_index

from rocpy._operand import TorchLayerRequired, torch_dispatcher
from rocpy.blaslt.front.planned import forced_product
from rocpy.blaslt.model.epilogues import UserEpilogue, refuse_inputs
from rocpy.blaslt.selection.tuning_state import override


cdef extern from *:
    """
    // What Python calls for a function that Cython makes stands in the function itself.
    static void rocpy_set_vectorcall(PyObject *function, vectorcallfunc entry) {
      *(vectorcallfunc *)((char *)function + Py_TYPE(function)->tp_vectorcall_offset) = entry;
    }
    """
    ctypedef object (*vectorcallfunc)(PyObject *function, PyObject *const *values, size_t count, PyObject *names)
    vectorcallfunc PyVectorcall_Function(object function)
    void rocpy_set_vectorcall(object function, vectorcallfunc entry)
    Py_ssize_t PyVectorcall_NARGS(size_t count)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *names)
    PyObject *PyTuple_GET_ITEM(PyObject *names, Py_ssize_t index)


cdef object _USER_EPILOGUE = UserEpilogue
cdef object _ONE = 1.0


def matmul(a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
           scale_a=None, scale_b=None, scale_c=None, scale_d=None, amax=False, dtype=None, compute=None, out=None,
           options=None, algorithm=None, autotune=None, stream=None):
    """Return ``epilogue(alpha * a @ b + beta * c + bias)``, fused into one product.

    Plans are cached: a second call with the same shapes, types and epilogue does no planning. To choose among algorithms, use a
    :class:`rocpy.Matmul`.

    Parameters
    ----------
    a
        Left operand, shape ``(..., M, K)`` or ``(K,)``: torch, numpy (with ml_dtypes) or any array with DLPack.
    b
        Right operand, shape ``(..., K, N)`` or ``(K,)``, of a's dtype and on a's device, or a :class:`rocpy.Weight`. Batch axes broadcast.
        8-bit floats of one dialect may be mixed, and the types of the MX formats.
    c
        Addend of the result's dtype, broadcast to the result's shape.
    alpha, beta
        Host scalars: complex for complex operands, integers for integer results without scales; ``beta`` defaults to 1 if ``c`` is
        passed. With ``beta=0``, ``c`` is not read.
    epilogue
        Name or :class:`rocpy.Epilogue`; ``"gelu"`` is the tanh form. Or a function decorated with :func:`rocpy.epilogue`; if it returns a
        tuple, matmul returns a tuple, and ``out`` is one.
    bias
        For epilogues with a bias: length N, which is 1 if ``b`` is a vector, or ``(batch, N)``; or, for matrices, of shape ``(M, 1)``,
        one value per row, unless that shape means ``(batch, N)``.
    aux
        For gradient epilogues: the pre-activation, as the array or as the dict that the forward call returned.
    clamp
        ``(low, high)`` of the clamp epilogues.
    epilogue_inputs
        Inputs of an epilogue created by :func:`rocpy.epilogue`: a dict of arrays that broadcast to the result, and numbers, by name.
    scale_a, scale_b
        Factors of the elements of 8-bit and narrower operands: a number, or float32 for each row of a (``(M,)`` or ``(M, 1)``) and column
        of b (``(N,)`` or ``(1, N)``), behind batch axes that broadcast to the product's. An ambiguous shape is refused: pass one with all
        batch axes. For the MX formats ``float8_e8m0fnu`` or uint8 for each 32 consecutive elements along K, of shape ``(..., M, K / 32)``
        and ``(..., K / 32, N)``. Both are required, except for int8 products with integer results; pass 1.0 for unscaled values.
    scale_c, scale_d
        Numbers by which a c of 8-bit floats is multiplied, and a result of 8-bit floats before it is rounded.
    amax
        Whether to return ``"amax"`` in the dict, the largest magnitude of the result before ``scale_d``; for operands of 8 bits or fewer.
    dtype
        Element type of the result: that of ``a`` by default; float16 and bfloat16 products can also return float32. 8-bit and narrower
        floats return bfloat16 by default, int8 returns int32.
    compute
        ``"tf32"`` allows reduced precision inside a float32 product.
    out
        Array that receives the result, of any framework, and of any strides by which no elements overlap, aligned and in native byte order;
        it must not share memory with an operand, except that it may be ``c``. If the product cannot return its dtype, a result in float32
        is cast into it, or in ``dtype`` or in 16 bits, where ``c``, ``aux`` or the bias has them; not to a type that drops what the
        result's has: a fraction, a sign or an imaginary part. For a function with several results a tuple, with ``None`` for those that
        are new arrays; each may be one of ``epilogue_inputs``.
    options
        :class:`rocpy.blaslt.Options` or a dict.
    algorithm
        A :class:`rocpy.blaslt.Algorithm` of this problem, instead of the first.
    autotune
        ``True``: measure this problem's algorithms now, unless they have been measured before, and store the choice; ``False``: neither
        measure nor use measurements; ``None``: as set by :mod:`rocpy.tuning` and ``ROCPY_AUTOTUNE``.
    stream
        Stream that orders the product; ``None``: the current stream of the operands' framework.

    Returns
    -------
    array
        Of a's framework, on its device, row-major unless ``out`` is passed. With an ``_aux`` or bias-gradient epilogue, a pair
        of it and a dict.

    Raises
    ------
    InvalidOperandError
        If an operand is not an array, is on another device, or ``out`` cannot be written.
    InvalidProblemError
        If shapes or dtypes do not fit, or an operand of the epilogue is missing or not used by it.
    UnsupportedError
        If the platform has no algorithm, or a torch operand requires a gradient.

    Notes
    -----
    Stream: with CPU arrays and ``stream=None`` the result is complete on return; otherwise the call returns when the product is queued.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> rocpy.matmul(a, b, epilogue="relu_bias", bias=np.full(4, -1, np.float32))
    array([[2., 2., 2., 2.],
           [2., 2., 2., 2.]], dtype=float32)
    """
    cdef Arguments arguments
    cdef ProductCall call
    cdef ScaleArguments scales
    if autotune is not None:
        with override(autotune):
            return matmul(
                a, b, c, alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, epilogue_inputs=epilogue_inputs,
                scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax, dtype=dtype, compute=compute, out=out,
                options=options, algorithm=algorithm, stream=stream)
    if epilogue is not None and type(epilogue) is not str and isinstance(epilogue, _USER_EPILOGUE):
        call = ProductCall.__new__(ProductCall)
        call.a, call.b, call.c, call.bias, call.aux, call.out, call.alpha, call.beta = a, b, c, bias, aux, out, alpha, beta
        call.epilogue, call.inputs, call.clamp, call.dtype, call.compute = epilogue, epilogue_inputs, clamp, dtype, compute
        call.options, call.stream, call.algorithm = options, stream, algorithm
        call.scales = scales_or_none(scale_a, scale_b, scale_c, scale_d, amax)
        try:
            return custom_matmul(call)
        except TorchLayerRequired:
            dispatcher = torch_dispatcher()
            if dispatcher is None:
                raise
        return dispatcher("matmul", (a, b, c), dict(
            alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, epilogue_inputs=epilogue_inputs, dtype=dtype,
            compute=compute, out=out, options=options, stream=stream, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
            amax=amax, algorithm=algorithm))
    if epilogue_inputs is not None:
        refuse_inputs(epilogue)
    scales = scales_or_none(scale_a, scale_b, scale_c, scale_d, amax)
    arguments.a, arguments.b, arguments.c = <PyObject *>a, <PyObject *>b, <PyObject *>c
    arguments.bias, arguments.aux, arguments.out = <PyObject *>bias, <PyObject *>aux, <PyObject *>out
    arguments.alpha, arguments.beta, arguments.epilogue = <PyObject *>alpha, <PyObject *>beta, <PyObject *>epilogue
    arguments.clamp, arguments.dtype, arguments.compute = <PyObject *>clamp, <PyObject *>dtype, <PyObject *>compute
    arguments.options, arguments.stream, arguments.scales = <PyObject *>options, <PyObject *>stream, <PyObject *>scales
    arguments.algorithm, arguments.row = <PyObject *>algorithm, epilogue_index(epilogue)
    try:
        if algorithm is not None and isinstance(algorithm, Mapping):  # a record that was exported tells its problem too, which is compared
            return forced_product(a, b, c, algorithm, out, stream, dict(
                alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, dtype=dtype, compute=compute, options=options,
                scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax))
        return outputs(&arguments)
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None:
            raise
    return dispatcher("matmul", (a, b, c), dict(
        alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, dtype=dtype, compute=compute, out=out, options=options,
        stream=stream, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax, algorithm=algorithm))


cdef bint set_keyword(Arguments *arguments, PyObject *name, PyObject *value) noexcept:
    """Note an argument. False: it is a rarer one, its name is no constant of a program, or it is given twice."""
    if name == <PyObject *>"bias":
        arguments.bias = value
    elif name == <PyObject *>"epilogue":
        arguments.epilogue = value
    elif name == <PyObject *>"out":
        arguments.out = value
    elif name == <PyObject *>"alpha":
        arguments.alpha = value
    elif name == <PyObject *>"beta":
        arguments.beta = value
    elif name == <PyObject *>"c" and arguments.c == NULL:
        arguments.c = value
    elif name == <PyObject *>"aux":
        arguments.aux = value
    elif name == <PyObject *>"dtype":
        arguments.dtype = value
    elif name == <PyObject *>"compute":
        arguments.compute = value
    elif name == <PyObject *>"options":
        arguments.options = value
    elif name == <PyObject *>"stream":
        arguments.stream = value
    elif name == <PyObject *>"epilogue_inputs":
        arguments.inputs = value
    elif name == <PyObject *>"autotune":
        arguments.autotune = value
    else:
        return False
    return True


cdef bint read_call(Arguments *arguments, PyObject *const *values, Py_ssize_t count, PyObject *names) noexcept:
    """Read the arguments of a call, which the caller keeps. False: they are for the complete function."""
    cdef PyObject *none = <PyObject *>None
    cdef Py_ssize_t i
    if count < 2 or count > 3:
        return False
    arguments.a, arguments.b, arguments.c, arguments.alpha = values[0], values[1], values[2] if count == 3 else NULL, <PyObject *>_ONE
    arguments.bias = arguments.aux = arguments.out = arguments.beta = arguments.epilogue = arguments.clamp = none
    arguments.dtype = arguments.compute = arguments.options = arguments.stream = arguments.scales = arguments.algorithm = none
    arguments.inputs = arguments.autotune = none
    if names != NULL:
        for i in range(PyTuple_GET_SIZE(names)):
            if not set_keyword(arguments, PyTuple_GET_ITEM(names, i), values[count + i]):
                return False
    if arguments.c == NULL:
        arguments.c = none
    return True


cdef ProductCall user_call(const Arguments *arguments):
    """Return a call with an epilogue of the user's."""
    cdef ProductCall call = ProductCall.__new__(ProductCall)
    call.a, call.b, call.c = <object>arguments.a, <object>arguments.b, <object>arguments.c
    call.bias, call.aux, call.out = <object>arguments.bias, <object>arguments.aux, <object>arguments.out
    call.alpha, call.beta, call.epilogue = <object>arguments.alpha, <object>arguments.beta, <object>arguments.epilogue
    call.inputs, call.dtype, call.compute = <object>arguments.inputs, <object>arguments.dtype, <object>arguments.compute
    call.options, call.stream = <object>arguments.options, <object>arguments.stream
    return call


cdef inline bint is_for_torch(const Arguments *arguments) except -1:
    """Whether torch must see a call, where that shows before its operands are read: it costs little and saves two exceptions."""
    return is_plain_tensor(<object>arguments.a) and torch_is_first(arguments.a, arguments.b, arguments.c, arguments.bias)


cdef object by_dispatcher(object dispatcher, PyObject *const *values, Py_ssize_t count, PyObject *names):
    """Hand a call to torch's dispatcher, with the arguments that it was given."""
    cdef Py_ssize_t i
    cdef tuple operands = (<object>values[0], <object>values[1]) if count == 2 else (<object>values[0], <object>values[1], <object>values[2])
    cdef dict keywords = {}
    if names != NULL:
        for i in range(PyTuple_GET_SIZE(names)):
            keywords[<object>PyTuple_GET_ITEM(names, i)] = <object>values[count + i]
    autotune = keywords.pop("autotune", None)
    if autotune is None:
        return dispatcher("matmul", operands, keywords)
    with override(autotune):
        return dispatcher("matmul", operands, keywords)


cdef vectorcallfunc _take_all = PyVectorcall_Function(matmul)


cdef object usual(Arguments *arguments):
    """Make a call whose arguments are the usual ones; None where they are not for products."""
    cdef bint built_in = arguments.epilogue == <PyObject *>None or type(<object>arguments.epilogue) is str
    if built_in and arguments.inputs == <PyObject *>None:
        arguments.row = epilogue_index(<object>arguments.epilogue)
        return outputs(arguments)
    if not built_in and isinstance(<object>arguments.epilogue, _USER_EPILOGUE):
        return custom_matmul(user_call(arguments))
    return None


cdef object usual_tuned(Arguments *arguments):
    with override(<object>arguments.autotune):
        return usual(arguments)


cdef object take_usual(PyObject *function, PyObject *const *values, size_t count, PyObject *names):
    """What Python calls for rocpy.matmul, which keeps its name, its signature and all else."""
    cdef Arguments arguments
    cdef object result = None
    if read_call(&arguments, values, PyVectorcall_NARGS(count), names):
        if is_for_torch(&arguments):
            dispatcher = torch_dispatcher()
            if dispatcher is not None:
                return by_dispatcher(dispatcher, values, PyVectorcall_NARGS(count), names)
        try:
            result = usual(&arguments) if arguments.autotune == <PyObject *>None else usual_tuned(&arguments)
        except TorchLayerRequired:
            pass
    if result is not None:
        return result
    return _take_all(function, values, count, names)


if _take_all != NULL:
    rocpy_set_vectorcall(matmul, take_usual)
