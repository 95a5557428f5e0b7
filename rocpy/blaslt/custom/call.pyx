# SPDX-License-Identifier: MIT
"""The function form with an epilogue of the user's: the strategy chosen for such operands before, or a plan."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from numpy import generic

from rocpy cimport _operand
from rocpy._operand cimport Operand
from rocpy.blaslt.custom.outs cimport check_outs
from rocpy.blaslt.model.executable cimport Executable
from rocpy.blaslt.model.product_call cimport ProductCall
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands._arguments cimport real

from rocpy._locks import hold_over_forks, reentrant_lock
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.plan import CustomProduct
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.settings import compute_code
from rocpy.blaslt.selection.tuning_state cimport measures
from rocpy.blaslt.selection import tuner as _tuner
from rocpy.epilogues.expressions.types import plain_number

__all__ = ["by_algorithm", "executable_of"]

# By what decides how a product is computed, oldest first.
cdef dict _EXECUTABLES = {}
cdef int _MOST = 512
cdef object _LOCK = reentrant_lock()
hold_over_forks(_LOCK)
cdef list _ACTIVE = _options.ACTIVE


# The words of a key; a call that needs more is planned each time.
cdef enum:
    MOST_WORDS = 512

cdef struct Words:
    int count
    int64_t words[MOST_WORDS]

# The call before: it is compared faster than a key is made and looked up.
cdef Executable _LAST = None
cdef str _LAST_TEXT = None
cdef Words _LAST_WORDS


cdef bint is_last(str text, const Words *words) noexcept:
    return (_LAST is not None and text is _LAST_TEXT and words.count == _LAST_WORDS.count
            and memcmp(words.words, _LAST_WORDS.words, words.count * sizeof(int64_t)) == 0)


cdef void remember(str text, const Words *words, Executable executable) noexcept:
    global _LAST, _LAST_TEXT
    # What is let go may make a call of its own, which remembers that one: it goes first.
    _LAST = None
    memcpy(_LAST_WORDS.words, words.words, words.count * sizeof(int64_t))
    _LAST_WORDS.count = words.count
    _LAST_TEXT = text
    _LAST = executable


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
    Executable or None
        What makes the results; ``None`` where the user names an algorithm that only a planned product takes: `by_algorithm`.
    """
    cdef Executable executable = None
    cdef Words words
    cdef list rest = []
    cdef tuple facts = seen(call.epilogue)
    complete(call, <tuple>facts[1])
    cdef bint plain = True
    cdef bint known = describe_inputs(&words, rest, <dict>call.inputs, &plain)
    # The memory of numbers and plain arrays can be used.
    if not plain:
        call.inputs = _custom.resolved(call.inputs)
        _custom.check_inputs(call.inputs)
    known = known and describe(&words, rest, call, tuning)
    if call.algorithm is not None:
        if not isinstance(call.algorithm, (int, str, Algorithm)):  # a record that was exported tells its problem too, which is compared
            return None
        rest.append((type(call.algorithm), call.algorithm))
    cdef str text = <str>facts[2]
    if known and not rest and is_last(text, &words):
        executable = _LAST
    else:
        executable = lookup_or_plan(call, key_of(text, &words, rest) if known else None)
        if executable is None:
            return None
        if known and not rest:
            remember(text, &words, executable)
    if call.out is None and executable.single:
        call.out = (None,)
    else:
        call.out = check_outs(call.out, executable.bound, call.a, call.b, call.c, <dict>call.inputs, call.scales, call.options)
    return executable


cdef Executable lookup_or_plan(ProductCall call, object key):
    cdef Executable executable = None
    if key is not None:
        executable = <Executable>_EXECUTABLES.get(key)
    if executable is None:
        executable = plan(call)
        if key is not None and executable is not None:
            with _LOCK:
                _EXECUTABLES[key] = executable
                if len(_EXECUTABLES) > _MOST:
                    del _EXECUTABLES[next(iter(_EXECUTABLES))]
    return executable


def by_algorithm(ProductCall call not None):
    """Return the result of a call whose algorithm the user names, by a planned product."""
    with CustomProduct(call.a, call.b, call.c, **arguments_of(call)) as planned:
        return planned.execute(out=call.out, algorithm=call.algorithm)


cdef int complete(ProductCall call, tuple names) except -1:
    """Read the Weight, check what may not be given, and name all inputs."""
    cdef bint amax = call.scales is not None and call.scales.amax
    if isinstance(call.b, WeightOperand):
        call.b = (<WeightOperand>call.b).read()  # of one time, its bias among it
    if call.bias is not None or call.aux is not None or call.clamp is not None or amax:
        _custom.refuse_operands(bias=call.bias, aux=call.aux, clamp=call.clamp, amax=amax or None)
    call.inputs = named_inputs(call, names)
    return 0


# An epilogue, the names of its inputs, and its text, of the call before: an object's own attributes are slow to ask for.
cdef tuple _SEEN = (None, None, None)


cdef tuple seen(object epilogue):
    """Return an epilogue with the names of its inputs and its text."""
    global _SEEN
    cdef tuple facts = _SEEN
    if facts[0] is not epilogue:
        facts = (epilogue, <tuple?>epilogue.expression.inputs, <str?>epilogue.text)
        _SEEN = facts
    return facts


cdef dict named_inputs(ProductCall call, tuple names):
    """Return all inputs of the function by name, in its order."""
    cdef dict named
    if call.inputs is None and not names:
        return {}
    if type(call.inputs) is dict and are_in_order(<dict>call.inputs, names):
        return <dict>call.inputs
    named = _custom.complete(call.epilogue, call.inputs, call.b)
    return {name: named[name] for name in names}


cdef bint are_in_order(dict inputs, tuple names) except -1:
    """Whether these are all inputs, none of them None, as they are named."""
    cdef Py_ssize_t position = 0
    if len(inputs) != len(names):
        return False
    for name, value in inputs.items():
        if value is None or name != names[position]:
            return False
        position += 1
    return True


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
        if call.algorithm is None and measures():
            passed = arguments_of(call)
            for name in ("options", "bias", "aux", "amax"):
                passed.pop(name, None)
            _tuner.measure(planned.launched, planned.options, (call.a, call.b, call.c, None, None, None), passed)
        planned.plan()
        return planned.executable(call.algorithm)


cdef bint describe_inputs(Words *words, list rest, dict inputs, bint *plain) except -1:
    """Begin to write down what decides how a product is computed; false where that is unknown. ``plain``: whether all are numbers or arrays
    whose memory can be used."""
    words.count = 0
    for value in inputs.values():
        if not add_signature(words, rest, value, plain):
            plain[0] = False
            return False
    return True


cdef bint describe(Words *words, list rest, ProductCall call, object tuning) except -1:
    """Write down the rest of it; false where that is unknown."""
    cdef bint plain
    cdef int64_t *to = words.words + words.count
    if words.count + 3 > MOST_WORDS:
        return False
    to[0], to[1], to[2] = tuning, real(call.alpha, "alpha") == 1.0, call.beta is None
    words.count += 3
    if call.dtype is not None or call.compute is not None:
        rest.append((str(call.dtype), 0 if call.compute is None else compute_code(call.compute)))
    if call.options is not None or _ACTIVE:
        rest.append(_options.resolve_options(call.options))
    if not (add_signature(words, rest, call.a, &plain) and add_signature(words, rest, call.b, &plain)
            and add_signature(words, rest, call.c, &plain)):
        return False
    return call.scales is None or add_scales(words, rest, call.scales)


cdef tuple key_of(str text, const Words *words, list rest):
    seen_words = PyBytes_FromStringAndSize(<const char *>words.words, words.count * sizeof(int64_t))
    return (text, seen_words, tuple(rest)) if rest else (text, seen_words)


cdef bint add_scales(Words *words, list rest, ScaleArguments scales) except -1:
    """Write down kinds and shapes of the scales; false where they are unknown."""
    cdef bint plain
    return (add_signature(words, rest, scales.a, &plain) and add_signature(words, rest, scales.b, &plain)
            and add_signature(words, rest, scales.c, &plain) and add_signature(words, rest, scales.d, &plain))


cdef enum Seen:
    absent, plain_array, truth, whole, floating, other


cdef bint add_plain(Words *words, object kind, const Operand *seen) noexcept:
    """Write down class, type, device and shape of an array, as numbers: they compare and hash faster than its own attributes. False where
    there is no space for more."""
    cdef int axis
    cdef int64_t *to = words.words + words.count
    if words.count + 6 + seen.ndim > MOST_WORDS:
        return False
    to[0], to[1], to[2], to[3], to[4], to[5] = Seen.plain_array, <int64_t><size_t><PyObject *>kind, seen.type, seen.device_type, seen.device_id, seen.ndim
    for axis in range(seen.ndim):
        to[6 + axis] = seen.shape[axis]
    words.count += 6 + seen.ndim
    return True


cdef bint add_number(Words *words, object x) except -1:
    """Write down a number as the constant that it becomes: 1, 1.0 and True are three of them, and so are 0.0 and -0.0. False where it is
    none that an epilogue may have, or where there is no space."""
    cdef int64_t *to = words.words + words.count
    cdef double value
    if words.count + 2 > MOST_WORDS:
        return False
    x = plain_number(x)
    if type(x) is float:
        value = x
        to[0] = Seen.floating
        memcpy(to + 1, &value, sizeof(double))
    elif x is not None and -0x8000000000000000 <= x < 0x8000000000000000:
        to[0], to[1] = Seen.truth if type(x) is bool else Seen.whole, x
    else:
        return False
    words.count += 2
    return True


cdef bint add_signature(Words *words, list rest, object x, bint *plain) except -1:
    """Write down type and shape of an operand; false where they are unknown. Unset ``plain`` where it is no array whose memory can be used,
    and no number."""
    cdef Operand seen
    cdef type kind = type(x)
    if words.count == MOST_WORDS:
        return False
    if x is None:
        words.words[words.count] = Seen.absent
        words.count += 1
        return True
    if _operand.parse_plainly(x, &seen):  # before types are asked for, which takes longer
        return add_plain(words, kind, &seen)
    if isinstance(x, (bool, int, float, generic)):
        return add_number(words, x)
    words.words[words.count] = Seen.other
    words.count += 1
    plain[0] = False
    if isinstance(x, WeightOperand):
        rest.append((kind, x.layout, x.packed, x.scale is not None))
        return add_signature(words, rest, x.source, plain)
    try:
        shape = tuple(x.shape)
        for extent in shape:
            if not isinstance(extent, int):
                return False  # a symbol of a tracer
        rest.append((kind, shape, str(x.dtype), str(getattr(x, "device", ""))))
    except (AttributeError, TypeError, RuntimeError, ValueError):  # the last ones of nested tensors and torch.fx's symbols
        return False
    return True
