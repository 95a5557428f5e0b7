# SPDX-License-Identifier: MIT
"""Matmul: a product that is planned once and executed many times."""

from dataclasses import replace

from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libcpp.memory cimport shared_ptr

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport Status
from abi cimport hipStream_t

from rocpy._operand cimport Operand
from rocpy.blaslt._arguments cimport Operands, check_out, epilogue_index, info, parse_all, parse_one, problem_of, real, sole_aux
from rocpy.blaslt._launch cimport (
    CachedCall, MatmulFactors, StreamContext, after_hold, after_wait, algorithms_of, borrow_context, build, execute, place_of, release_context, settle,
)
from rocpy.blaslt.weight cimport Weight

from rocpy.blaslt import lowering as _lowering
from rocpy.blaslt import _policy
from rocpy.blaslt import _staging
from rocpy.blaslt import _options
from rocpy.blaslt._arguments import EPILOGUE_NAMES
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.call import matmul as _matmul
from rocpy.blaslt.epilogues import EPILOGUES
from rocpy.blaslt.problem import OperandInfo
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, RocpyError, UnsupportedError
from rocpy.runtime.device import Device

# Algorithms that plan() asks for. hipBLASLt walks its whole library when asked for more than it ranked, which takes milliseconds.
cdef int _REQUESTED = 32
cdef tuple _RESETTABLE = ("a", "b", "c", "bias", "aux")


cdef class Matmul:
    """A product that is planned once and executed many times: ``epilogue(alpha * a @ b + beta * c + bias)``.

    Parameters
    ----------
    a, b, c, alpha, beta, epilogue, bias, aux, clamp, dtype, compute, options, stream
        As for :func:`rocpy.matmul`. The operands are kept until they are reset or the object is closed.

    Raises
    ------
    RocpyError
        What :func:`rocpy.matmul` raises; all checks are made here.

    Notes
    -----
    Stream: ``execute`` runs on the stream given to it, else on the one given here, else on the current stream of the operands' framework.
    One Matmul belongs to one thread at a time; different ones run in parallel. On a GPU, operands in CPU memory are copied when they are
    given, here and by reset_operands.

    References
    ----------
    ``hipblasLtMatmulAlgoGetHeuristic``, ``hipblasLtMatmul``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a, b, bias = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.zeros(4, np.float32)
    >>> with rocpy.Matmul(a, b, epilogue="relu_bias", bias=bias) as mm:
    ...     algorithms = mm.plan()
    ...     first = mm.execute()
    ...     mm.reset_operands(a=2 * a)
    ...     second = mm.execute(algorithm=algorithms[-1])
    >>> float(first[0, 0]), float(second[0, 0])
    (3.0, 6.0)
    """

    cdef Operands operands
    cdef shared_ptr[CachedCall] call
    cdef dict given  # the user's operands, by name
    cdef tuple held
    cdef MatmulFactors factors
    cdef int epilogue
    cdef bint closed, busy, released
    cdef object options, stream, clamp, dtype, compute
    cdef object launched  # the problem as it is launched: with dense operands where copies are made
    cdef list found
    cdef str extra_name
    cdef object prototype  # the user's a where the operands are copies on the device: results come back as its framework has them
    #: The validated problem, plain data.
    cdef readonly object problem
    #: Names of operands that are copied at each execution, because the library cannot take them as they lie.
    cdef readonly tuple copies

    def __cinit__(self, *args, **kwargs):
        self.closed = True  # until __init__ has succeeded
        self.busy = False

    def __init__(self, a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
                 scale_a=None, scale_b=None, scale_c=None, scale_d=None, bint amax=False, dtype=None, compute=None, options=None,
                 stream=None):
        if (epilogue_inputs is not None or scale_a is not None or scale_b is not None or scale_c is not None or scale_d is not None
                or amax):
            _policy.refuse_later(epilogue_inputs=epilogue_inputs, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
                                 amax=amax)
        _core.ensure()
        self.epilogue = epilogue_index(epilogue)
        row = EPILOGUES[EPILOGUE_NAMES[self.epilogue]]
        self.extra_name = row.outputs[0] if row.outputs else None
        if bias is None and type(b) is Weight and row.bias:
            bias = (<Weight>b).bias
        if aux is not None:
            aux = sole_aux(aux)
        self.options = _options.resolve_options(options)
        self.prototype = None
        if _staging.needed(a):
            _staging.check_allowed(self.options)
            self.prototype = a
            a, b, c, bias, aux = [_staging.upload(value, name) for name, value in zip(_RESETTABLE, (a, b, c, bias, aux))]
        self.held = parse_all(&self.operands, a, b, c, bias, aux, None)
        self.factors.alpha = real(alpha, "alpha")
        self.set_beta(beta, c)
        self.clamp = None if clamp is None else _policy.clamp_bounds(clamp)
        if compute is not None:
            _policy.compute_code(compute)
        self.stream = stream
        self.dtype = dtype
        self.compute = compute
        self.given = {"a": a, "b": b, "c": c, "bias": bias, "aux": aux}
        self.state_problem()
        self.closed = False

    cdef int set_beta(self, object beta, object c) except -1:
        self.factors.beta = (1.0 if c is not None else 0.0) if beta is None else real(beta, "beta")
        if c is None and self.factors.beta != 0.0:
            raise InvalidProblemError(f"beta = {self.factors.beta} scales c, and there is no c; pass c= or leave beta away")
        return 0

    cdef int state_problem(self) except -1:
        """State the problem of the operands as they are, and what of it must be copied; drops the plan."""
        self.problem = problem_of(&self.operands, EPILOGUE_NAMES[self.epilogue], self.dtype, self.compute, self.clamp)
        self.call.reset()
        self.found = None
        self.copies = ()
        self.launched = self.problem
        if self.problem.m and self.problem.n and self.problem.batch:
            self.copies = _lowering.lower(self.problem).copies
        if not self.copies:
            return 0
        if "transpose" in self.copies:
            raise UnsupportedError(
                f"bias: shape {self.problem.bias.shape}, one per row, is added by the transposed product; use rocpy.matmul, or make a Matmul "
                "of b.T and a.T with the bias as a vector"
            )
        if self.options.copies == "error":
            raise _policy.copy_refused(self.copies[0], getattr(self.problem, self.copies[0]).text)
        dense = {}
        for name in self.copies:
            operand = getattr(self.problem, name)
            dense[name] = OperandInfo.dense(self.problem.result_shape if name == "c" else operand.shape, operand.dtype)
        self.launched = replace(self.problem, **dense)
        return 0

    cdef int enter(self) except -1:
        if self.closed:
            raise ClosedError("this Matmul was closed; make a new one")
        if self.busy:
            raise RocpyError("this Matmul is in use by another thread; give each thread its own")
        if self.released:
            raise InvalidOperandError("the operands were released; pass them again with reset_operands()")
        self.busy = True
        return 0

    def plan(self, *, int max_algorithms=_REQUESTED):
        """Ask the platform for algorithms; execute() takes the first unless told otherwise.

        Parameters
        ----------
        max_algorithms
            How many to ask for, 1 or more.

        Returns
        -------
        list of Algorithm
            Best first, as predicted; empty when the result has no elements. Planning again starts from nothing.

        Raises
        ------
        UnsupportedError
            If the platform has none.
        ClosedError
            After close().

        References
        ----------
        ``hipblasLtMatmulAlgoGetHeuristic``.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((64, 64)), np.ones((64, 64))) as mm:
        ...     len(mm.plan()) >= 1
        True
        """
        if max_algorithms < 1:
            raise InvalidProblemError(f"max_algorithms={max_algorithms}; it must be 1 or more")
        self.enter()
        try:
            self.make_plan(max_algorithms)
            return list(self.found)
        finally:
            self.busy = False

    cdef int make_plan(self, int requested) except -1:
        cdef StreamContext *context = NULL
        cdef Status status
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        place_of(&self.operands.a, self.stream, &device, &c_stream)
        with nogil:
            status = borrow_context(device, c_stream, &context)
        _core.check(status)
        try:
            self.call = build(self.launched, self.options, context, self.operands.packed, requested)
        finally:
            release_context(context)
        self.found = algorithms_of(self.call.get())
        return 0

    def execute(self, *, out=None, algorithm=None, stream=None):
        """Compute the product of the operands as they are now.

        Parameters
        ----------
        out
            Array that receives the result.
        algorithm
            One of :attr:`algorithms`; the first by default. An unplanned product is planned first.
        stream
            Stream that orders the product, instead of the one given at construction.

        Returns
        -------
        array
            The result; with an ``_aux`` or bias-gradient epilogue, a pair of it and a dict.

        Raises
        ------
        InvalidProblemError
            If the algorithm is not one of this product's.
        ClosedError
            After close().

        References
        ----------
        ``hipblasLtMatmul``.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((2, 3)), np.ones((3, 1))) as mm:
        ...     mm.execute()
        array([[3.],
               [3.]])
        """
        cdef size_t chosen = 0
        cdef Operands operands
        cdef Operand target
        cdef Weight weight
        cdef Operands *used = &self.operands
        cdef tuple held = self.held
        cdef int device = 0
        cdef int after
        cdef bint direct = False
        cdef hipStream_t c_stream = NULL
        cdef object result
        self.enter()
        try:
            if self.operands.packed:
                weight = <Weight>self.given["b"]
                weight.current()
                self.operands.b = weight.operand
            if self.found is None:
                self.make_plan(_REQUESTED)
            chosen = self.call.get().algorithm
            if algorithm is not None:
                chosen = self.place_of_algorithm(algorithm)
            if stream is None:
                stream = self.stream
            after = place_of(&self.operands.a, stream, &device, &c_stream)
            if self.copies:
                if after != after_wait:
                    settle(c_stream)
                memcpy(&operands, &self.operands, sizeof(Operands))
                used = &operands
                held = (held, self.copy_into(&operands))
            if out is not None:
                direct = self.read_out(used, out, &target)
            result = execute(self.call.get(), &used.a, &used.b, &used.c, &used.bias, &used.aux, &target, self.given["a"],
                             out if direct else None, (held, self.given, out) if after == after_hold else held, self.factors, chosen, device, c_stream, after)
            extra = None
            if self.extra_name is not None:
                result, extra = result
                if self.call.get().plan == NULL and self.extra_name in ("bgrada", "bgradb"):
                    extra = _policy.lonely_gradient(_matmul, self.extra_name, self.given["a"], self.given["b"], self.problem.dtype)
            if self.prototype is not None:
                result = _staging.download(result, self.prototype, stream)
                extra = None if extra is None else _staging.download(extra, self.prototype, stream)
            if out is not None:
                if not direct:
                    if after != after_wait:
                        settle(c_stream)
                    _policy.assign(out, result)
                else:
                    _operand.written(out, target.provider)
                result = out
            return result if extra is None else (result, {self.extra_name: extra})
        finally:
            self.busy = False

    cdef tuple copy_into(self, Operands *operands):
        cdef list copied = []
        for name in self.copies:
            array = _policy.contiguous(self.given[name], self.problem.result_shape if name == "c" else None)
            if name == "a":
                copied.append(parse_one(array, name, &operands.a, &operands.a))
            elif name == "b":
                copied.append(parse_one(array, name, &operands.b, &operands.a))
            elif name == "c":
                copied.append(parse_one(array, name, &operands.c, &operands.a))
            elif name == "bias":
                copied.append(parse_one(array, name, &operands.bias, &operands.a))
            else:
                copied.append(parse_one(array, name, &operands.aux, &operands.a))
        return tuple(copied)

    cdef bint read_out(self, Operands *operands, object out, Operand *target) except? -1:
        """Parse out. True: it is dense, so that the product may be written straight into it."""
        cdef const CachedCall *call = self.call.get()
        cdef int64_t step = 1
        cdef int axis
        cdef bint dense = True, same
        if self.prototype is None:
            parse_one(out, "out", target, &operands.a)
            check_out(operands, target)
        else:  # the operands are copies on the device, so that out cannot share memory with them
            _operand.parse_output(out, "out", target)
        same = target.ndim == call.result_ndim and target.type == call.result_type
        for axis in range(call.result_ndim - 1, -1, -1):
            if not same or target.shape[axis] != call.result_shape[axis]:
                same = False
                break
            dense = dense and (target.strides[axis] == step or target.shape[axis] == 1)
            step *= target.shape[axis]
        if not same:
            given = info(target)
            raise InvalidProblemError(
                f"out: shape {given.shape}, {given.dtype}; the result has shape {self.problem.result_shape}, {self.problem.dtype}"
            )
        return dense and self.prototype is None

    cdef size_t place_of_algorithm(self, object algorithm) except? 99999:
        if not isinstance(algorithm, Algorithm):
            raise InvalidProblemError(f"algorithm: a {type(algorithm).__name__}; it must be one of .algorithms")
        for place, mine in enumerate(self.found):
            if mine.id == algorithm.id and mine.name == algorithm.name:
                return place
        raise InvalidProblemError(f"algorithm {algorithm} is not one of this product's; take one of .algorithms")

    def reset_operands(self, *, a=None, b=None, c=None, bias=None, aux=None, alpha=None, beta=None):
        """Put other operands in the place of those given before.

        Parameters
        ----------
        a, b, c, bias, aux
            New operands of the same shape, dtype and device; what is not given stays. Other strides are allowed and planned for.
        alpha, beta
            New host scalars.

        Raises
        ------
        InvalidProblemError
            If a new operand's shape or dtype differs, or the product has no such operand; the message shows both. Nothing is changed then.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((2, 3)), np.ones((3, 1))) as mm:
        ...     mm.reset_operands(a=np.zeros((2, 3)), alpha=2.0)
        ...     mm.execute()
        array([[0.],
               [0.]])
        """
        cdef Operands fresh
        if self.released and None not in (a, b):
            self.released = False
        self.enter()
        try:
            given = dict(self.given)
            changes = {name: value for name, value in zip(_RESETTABLE, (a, b, c, bias, aux)) if value is not None}
            if "aux" in changes:
                changes["aux"] = sole_aux(changes["aux"])
            if self.prototype is not None:
                changes = {name: _staging.upload(value, name) for name, value in changes.items()}
            for name in changes:
                if given[name] is None and getattr(self.problem, name) is None:
                    raise InvalidProblemError(f"{name}: this product was made without; make a new Matmul with {name}=")
            given.update(changes)
            held = parse_all(&fresh, given["a"], given["b"], given["c"], given["bias"], given["aux"], None)
            operands = {"a": info(&fresh.a), "b": info(&fresh.b, fresh.packed), "c": info(&fresh.c), "bias": info(&fresh.bias),
                        "aux": info(&fresh.aux)}
            for name in changes:
                old, new = getattr(self.problem, name), operands[name]
                if old.shape != new.shape or old.dtype != new.dtype or old.packed != new.packed:
                    raise InvalidProblemError(
                        f"{name}: it was shape {old.shape}, {old.dtype}{', packed' if old.packed else ''} and would become shape "
                        f"{new.shape}, {new.dtype}{', packed' if new.packed else ''}; make a new Matmul for another problem"
                    )
            problem = problem_of(&fresh, EPILOGUE_NAMES[self.epilogue], self.dtype, self.compute, self.clamp)
            new_alpha = self.factors.alpha if alpha is None else real(alpha, "alpha")
            if beta is not None:
                self.set_beta(beta, given["c"])
            self.factors.alpha = new_alpha
            memcpy(&self.operands, &fresh, sizeof(Operands))
            self.given, self.held = given, held
            if problem != self.problem:
                self.state_problem()
        finally:
            self.busy = False

    def release_operands(self):
        """Let go of the operands and keep the plan; reset_operands() with a and b makes the product usable again."""
        self.enter()
        self.released = True
        self.held = ()
        self.given = dict.fromkeys(self.given)
        self.busy = False

    @property
    def algorithms(self):
        """The algorithms of the last plan(), best first; empty before."""
        return list(self.found or ())

    @property
    def choice(self):
        """The algorithm that execute() takes by itself, ``None`` before plan(), and where that choice came from."""
        if not self.found:
            return None, "nothing to compute"
        return self.found[self.call.get().algorithm], self.call.get().source.decode()

    @property
    def packed(self):
        """Whether b is a packed Weight."""
        return bool(self.operands.packed)

    @property
    def device_name(self):
        """Name of the device that it runs on."""
        cdef int device = 0
        cdef hipStream_t c_stream = NULL
        if self.closed:
            raise ClosedError("this Matmul was closed; make a new one")
        place_of(&self.operands.a, self.stream, &device, &c_stream)
        return Device(device).name

    def close(self):
        """Give back the plan and the operands. Closing twice is harmless."""
        if self.busy:
            raise RocpyError("this Matmul is in use by another thread; close it afterwards")
        self.closed = True
        self.call.reset()
        self.held = ()
        self.given = {}
        self.found = None

    def __enter__(self):
        if self.closed:
            raise ClosedError("this Matmul was closed; make a new one")
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        return f"<rocpy.Matmul {self.problem}{', closed' if self.closed else ''}>"
