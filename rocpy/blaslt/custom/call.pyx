# SPDX-License-Identifier: MIT
"""The function form with an epilogue of the user's: the strategy chosen for such operands before, or a plan."""

import sys
import threading

import numpy as np

from rocpy.blaslt.model.executable cimport Executable
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.model.weight_operand cimport WeightOperand

from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.plan import CustomProduct
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.selection.tuning_state cimport measures
from rocpy.blaslt.selection import tuner as _tuner

__all__ = ["by_algorithm", "executable_of"]

# By what decides how a product is computed, oldest first.
cdef dict _EXECUTABLES = {}
cdef int _MOST = 512
cdef object _LOCK = threading.Lock()
cdef list _ACTIVE = _options.ACTIVE
cdef dict _MODULES = sys.modules
cdef object _ARRAY = np.ndarray


def executable_of(ProductCall call not None, tuning):
    """Return how a call is computed, and complete the call: the Weight's snapshot, all inputs, and an ``out`` for each result.

    Parameters
    ----------
    call : ProductCall
        The arguments of the function form.
    tuning : int
        What a plan's key holds of tuning.

    Returns
    -------
    Executable
        What makes the results.
    """
    cdef Executable executable = None
    complete(call)
    key = key_of(call, tuning)
    if key is not None:
        executable = <Executable>_EXECUTABLES.get(key)
    if executable is None:
        executable = plan(call)
        if key is not None:
            with _LOCK:
                _EXECUTABLES[key] = executable
                if len(_EXECUTABLES) > _MOST:
                    del _EXECUTABLES[next(iter(_EXECUTABLES))]
    if call.out is None and executable.single:
        call.out = (None,)
    else:
        call.out = _custom.check_out(call.out, executable.bound)
    return executable


def by_algorithm(ProductCall call not None):
    """Return the result of a call whose algorithm the user names."""
    algorithm = call.algorithm
    with CustomProduct(call.a, call.b, call.c, **arguments_of(call)) as planned:
        if isinstance(algorithm, dict):
            algorithm = planned.pin(algorithm)
        return planned.execute(out=call.out, algorithm=algorithm)


cdef int complete(ProductCall call) except -1:
    """Read the Weight, check what may not be given, and name all inputs."""
    cdef bint amax = call.scales is not None and call.scales.amax
    if isinstance(call.b, WeightOperand):
        call.b = (<WeightOperand>call.b).read()  # of one time, its bias among it
    if call.bias is not None or call.aux is not None or call.clamp is not None or amax:
        _custom.refuse_operands(bias=call.bias, aux=call.aux, clamp=call.clamp, amax=amax or None)
    call.inputs = named_inputs(call)
    if "torch" in _MODULES:
        _custom.check_tensors(call.inputs)
    return 0


cdef dict named_inputs(ProductCall call):
    """Return all inputs of the function by name, in its order."""
    cdef tuple names = <tuple?>call.epilogue.expression.inputs
    cdef dict named = {}, inputs
    if type(call.inputs) is dict and len(<dict>call.inputs) == len(names):
        inputs = <dict>call.inputs
        for name in names:
            value = inputs.get(name)
            if value is None:
                break
            named[name] = value
        else:
            return named
    named = _custom.complete(call.epilogue, call.inputs, call.b)
    return {name: named[name] for name in names}


cdef dict arguments_of(ProductCall call):
    """Return the keyword arguments of the planned product."""
    cdef dict arguments = {
        "alpha": call.alpha, "beta": call.beta, "epilogue": call.epilogue, "bias": call.bias, "aux": call.aux, "clamp": call.clamp,
        "epilogue_inputs": call.inputs, "dtype": call.dtype, "compute": call.compute, "options": call.options, "stream": call.stream,
    }
    if call.scales is not None:
        arguments.update(call.scales.items(), amax=call.scales.amax)
    return arguments


cdef Executable plan(ProductCall call):
    """Return how products like one are computed, after measuring the strategies where that is asked for."""
    with CustomProduct(call.a, call.b, call.c, **arguments_of(call)) as planned:
        if measures():
            passed = arguments_of(call)
            for name in ("options", "bias", "aux", "amax"):
                passed.pop(name, None)
            _tuner.measure(planned.launched, planned.options, (call.a, call.b, call.c, None, None, None), passed)
        planned.plan()
        return planned.executable


cdef tuple key_of(ProductCall call, object tuning):
    """Return what decides how a product is computed; ``None`` where that is unknown."""
    cdef list key = [
        call.epilogue.text, call.alpha == 1, call.beta is None, None if call.dtype is None else str(call.dtype), call.compute, tuning,
        None if call.options is None and not _ACTIVE else _options.resolve_options(call.options),
    ]
    if not (add_signature(key, call.a) and add_signature(key, call.b) and add_signature(key, call.c)):
        return None
    for value in (<dict>call.inputs).values():
        if not add_signature(key, value):
            return None
    if call.scales is not None and not add_scales(key, call.scales):
        return None
    return tuple(key)


cdef bint add_scales(list key, ScaleArguments scales) except -1:
    """Write down kinds and shapes of the scales; false where they are unknown."""
    return add_signature(key, scales.a) and add_signature(key, scales.b) and add_signature(key, scales.c) and add_signature(key, scales.d)


cdef bint add_signature(list key, object x) except -1:
    """Write down type and shape of an operand; false where they are unknown."""
    cdef type kind = type(x)
    if x is None:
        key.append(None)
        return True
    if kind is _ARRAY:
        key.append(kind)
        key.append(x.shape)
        key.append(x.dtype)
        return True
    if isinstance(x, (bool, int, float)):
        key.append(kind)
        key.append(repr(x))  # 0.0 and -0.0 are equal, and two epilogues
        return True
    if isinstance(x, WeightOperand):
        key.append((kind, x.layout, x.packed, x.scale is not None))
        return add_signature(key, x.source)
    try:
        shape = tuple(x.shape)
        for extent in shape:
            if not isinstance(extent, int):
                return False  # a symbol of a tracer
        key.append((kind, shape, str(x.dtype), str(getattr(x, "device", ""))))
    except (AttributeError, TypeError):
        return False
    return True
