# SPDX-License-Identifier: MIT
"""Matmul: a product that is planned once and executed many times. It holds a planned product and does not know its kind."""

from collections.abc import Mapping, Sequence
from types import GenericAlias

cimport cython

from rocpy.blaslt.model.planned_product cimport PlannedProduct

from rocpy import _json
from rocpy._integers import integer_of
from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import signature_like
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.model.algorithms import ALL, FORMAT, LISTED, Algorithm, Algorithms
from rocpy.blaslt.model.settings import ARRAYS
from rocpy.blaslt.selection.tuner import tuner
from rocpy.errors import ClosedError, InvalidProblemError

__all__ = ["Matmul"]


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
    Stream: ``execute`` runs on the stream given to it, else on the one given here, else on the current stream of the
    operands' framework. A Matmul may be used by one thread at a time and raises an error if two use it; different
    Matmul objects run in parallel. On a GPU, operands in CPU memory are copied when they are passed, here and to
    reset_operands. Other operands and scales are read from their current memory on each ``execute``, also after
    ``tensor.data = other`` and ``array.resize``, and objects with an array interface or DLPack are asked for it again; a
    changed shape, dtype, layout or device is an InvalidOperandError.

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

    __signature__ = signature_like(
        lambda a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
        scale_a=None, scale_b=None, scale_c=None, scale_d=None, amax=False, dtype=None, compute=None, options=None, stream=None: None
    )
    __class_getitem__ = classmethod(GenericAlias)

    cdef object __weakref__
    cdef PlannedProduct product

    @cython.embedsignature(False)  # Cython puts the `/` and the `*` elsewhere
    def __init__(self, a, b, /, c=None, *, alpha=1.0, beta=None, epilogue=None, bias=None, aux=None, clamp=None, epilogue_inputs=None,
                 scale_a=None, scale_b=None, scale_c=None, scale_d=None, amax=False, dtype=None, compute=None, options=None, stream=None):
        self.product = planned_product(
            a, b, c, alpha=alpha, beta=beta, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, epilogue_inputs=epilogue_inputs,
            scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d, amax=amax, dtype=dtype, compute=compute, options=options,
            stream=stream)

    @cython.final
    cdef inline PlannedProduct held(self):
        if self.product is None:  # __init__ has failed
            raise ClosedError("this Matmul was closed; create a new one")
        return self.product

    def execute(self, *, out=None, algorithm=None, stream=None):
        """Compute the product of the operands as they are now.

        Parameters
        ----------
        out
            Array that receives the result, as in :func:`rocpy.matmul`.
        algorithm
            One of :attr:`algorithms`, its index there, its kernel's name or its record; by default the pinned one, else the first. If
            the product has not been planned, it is planned first.
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
        InvalidOperandError
            If an operand has a different shape, dtype, layout or device than when it was passed, because its memory was replaced.
        ClosedError
            After close().
        UnsupportedError
            If the stream is captured and this execution cannot be part of a graph; if an operand requires a gradient with grad mode
            on, carries a forward-mode tangent, or torch is tracing.

        Notes
        -----
        On a stream captured by :meth:`rocpy.Stream.capture` it becomes part of the graph, which keeps the operands and the result alive.

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
        if self.product is None:
            self.held()  # which raises
        return self.product.run(out, algorithm, stream)

    @property
    def problem(self):
        """The validated problem, plain data."""
        return self.held().problem

    @property
    def launched(self):
        """The problem as it is launched and measured, with dense operands where copies are made."""
        return self.held().launched

    @property
    def options(self):
        """The options in force."""
        return self.held().options

    @property
    def stream(self):
        """The stream given at construction."""
        return self.held().stream

    @property
    def operand_arrays(self):
        """The operands as they are launched, by name."""
        return self.held().operand_arrays

    @property
    def copies(self):
        """Names of operands that are copied at each execution, because the library cannot use their layout, byte order or alignment."""
        product = self.held()
        return tuple([name for name in ARRAYS if name in product.copies or name in product.converted])

    @property
    def staged(self):
        """Names of operands in CPU memory that are copied to the device when they are given."""
        return self.held().staged

    @property
    def unfused(self):
        """How the product is computed if the library cannot fuse it; ``None`` if it can."""
        return self.held().unfused

    @property
    def packed(self):
        """Whether b is a packed Weight."""
        return self.held().packed

    @property
    def device_name(self):
        """Name of the device that it runs on."""
        return self.held().device_name

    @property
    def algorithms(self):
        """The algorithms of the last plan(), best first; empty before."""
        return Algorithms(self.held().algorithms)

    @property
    def algorithm(self):
        """The algorithm that execute() uses by default; ``None`` before plan(), and if there is nothing to compute."""
        return self.held().algorithm

    @property
    def choice(self):
        """The algorithm that execute() uses by default, and where the choice came from."""
        return self.held().choice

    def plan(self, *, algorithms=None, max_algorithms=LISTED):
        """Ask the platform for algorithms; execute() uses the first unless algorithm= is passed.

        Parameters
        ----------
        algorithms
            Only these, in this order: algorithms, their records (:meth:`Algorithm.to_dict`, :meth:`export`) or kernel
            names. The first is pinned.
        max_algorithms
            How many there may be, 1 or more; with a custom epilogue, of each of the ways to compute it.

        Returns
        -------
        list of Algorithm
            Best first, as predicted; empty when the result has no elements. A notebook shows the list as a table.
            Planning again starts from nothing.

        Raises
        ------
        InvalidProblemError
            If an algorithm is of another library, version or architecture, or of another problem, or is not offered for this product.
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
        ...     found = mm.plan()
        ...     only = mm.plan(algorithms=[found[-1].to_dict()])
        >>> only[0].name == found[-1].name, only[0].source
        (True, 'pinned')
        """
        max_algorithms = counted(max_algorithms)
        if algorithms is None:
            return Algorithms(self.held().plan(max_algorithms=max_algorithms))
        if isinstance(algorithms, (str, Algorithm, Mapping)) or not isinstance(algorithms, Sequence):
            raise InvalidProblemError(f"algorithms: got {type(algorithms).__name__}, expected a list of algorithms")
        if not algorithms:
            raise InvalidProblemError("algorithms: got an empty list; omit it to use the platform's algorithms")
        return Algorithms(self.held().plan(algorithms=list(algorithms), max_algorithms=max_algorithms))

    def autotune(self, budget_ms=200.0, *, max_algorithms=LISTED):
        """Measure the algorithms, take the fastest, and remember it for later products of this problem.

        Trials run on this product's stream, interleaved, each with cold and with warm caches, and write scratch
        results. The heuristic's first choice is replaced only if another algorithm is faster by more than the spread
        of the times, in two rounds. The choice is stored in :func:`rocpy.tuning.current`, for the function form and for
        other processes too.

        Parameters
        ----------
        budget_ms
            Time limit of the trials, in milliseconds. The check of the results before them is not counted; if one
            product takes longer, nothing is measured, and the heuristic's choice stays.
        max_algorithms
            How many algorithms to ask for, 1 or more.

        Returns
        -------
        rocpy.tuning.TuningReport
            What was measured, chosen and stored; :attr:`algorithms` has the same order.

        Raises
        ------
        UnsupportedError
            Under graph capture, or if hipBLASLt is configured to override its own choices.
        InvalidProblemError
            If there is nothing to compute.
        ClosedError
            After close(), and if this product or its stream is closed meanwhile; nothing is stored then.

        References
        ----------
        ``hipblasLtMatmulAlgoGetHeuristic``, ``hipEventElapsedTime``.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((64, 64)), np.ones((64, 64))) as mm:
        ...     report = mm.autotune(budget_ms=20)
        ...     mm.algorithms[0] == report.best
        True
        """
        max_algorithms = counted(max_algorithms)
        return tuner().tune(self.held(), budget_ms=budget_ms, max_algorithms=max_algorithms)

    def pin(self, algorithm):
        """Make execute() take one algorithm from now on, until the next plan.

        Parameters
        ----------
        algorithm
            One of :attr:`algorithms`, its index there, its kernel's name, its record, or what :meth:`export` gave,
            whose problem must then be this one.

        Returns
        -------
        Algorithm
            The algorithm as this product has it; its ``source`` is ``"pinned"``.

        Raises
        ------
        InvalidProblemError
            If it is of another library, version, architecture or problem, of another format, or is not offered for this product.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((64, 64)), np.ones((64, 64))) as mm:
        ...     saved = mm.export()
        >>> with rocpy.Matmul(np.ones((64, 64)), np.zeros((64, 64))) as mm:
        ...     mm.pin(saved).source
        'pinned'
        """
        return self.held().pin(algorithm)

    def export(self):
        """Return the problem and the algorithm that execute() takes, as plain values for JSON.

        Returns
        -------
        dict
            ``{"format": 1, "problem": ..., "algorithm": ...}``; :meth:`pin`, :meth:`plan` and
            ``rocpy.matmul(..., algorithm=)`` accept it, in this process or another. An unplanned product is
            planned first.

        Raises
        ------
        InvalidProblemError
            If the result has no elements, so that there is no algorithm.

        Examples
        --------
        >>> import json, numpy as np, rocpy
        >>> a = np.ones((8, 8))
        >>> with rocpy.Matmul(a, a) as mm:
        ...     saved = json.dumps(mm.export())
        >>> float(rocpy.matmul(a, a, algorithm=json.loads(saved))[0, 0])
        8.0
        """
        if not self.algorithms:
            self.plan()
        chosen = self.algorithm
        if chosen is None:
            raise InvalidProblemError("this product has no elements to compute, so it has no algorithm to export")
        return {"format": FORMAT, "problem": _json.loads(self.problem.to_json()), "algorithm": chosen.to_dict()}

    def reset_operands(self, *, a=None, b=None, c=None, bias=None, aux=None, alpha=None, beta=None, scale_a=None, scale_b=None,
                       scale_c=None, scale_d=None, epilogue_inputs=None):
        """Replace the operands.

        Parameters
        ----------
        a, b, c, bias, aux
            New operands of the same shape, dtype and device; omitted operands are unchanged. Other strides are allowed
            and planned for. With ``options(dynamic="m")`` M may change, in all operands that have it at once; the last
            few plans are kept, with the algorithms that were pinned in them.
        alpha, beta
            New host scalars.
        scale_a, scale_b, scale_c, scale_d
            New scales of the kinds of those before.
        epilogue_inputs
            Of a custom epilogue: those inputs that change, by name; numbers of the same type as before. Another number is planned for,
            with the algorithm that was pinned.

        Raises
        ------
        InvalidProblemError
            If a new operand's shape or dtype differs, or the product has no such operand; the message shows both.
            Nothing is changed then.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((2, 3)), np.ones((3, 1)), options={"dynamic": "m"}) as mm:
        ...     mm.reset_operands(a=np.zeros((2, 3)), alpha=2.0)
        ...     mm.execute()
        ...     mm.reset_operands(a=np.ones((1, 3)))
        ...     mm.execute()
        array([[0.],
               [0.]])
        array([[6.]])
        """
        self.held().reset_operands(
            a=a, b=b, c=c, bias=bias, aux=aux, alpha=alpha, beta=beta, scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
            epilogue_inputs=epilogue_inputs)

    def release_operands(self):
        """Release the operands and keep the plan; reset_operands() with all of them makes the product usable again.

        The arrays among a custom epilogue's inputs are such operands.
        """
        self.held().release_operands()

    def close(self):
        """Release the plan and the operands; calling it again has no effect."""
        if self.product is not None:
            self.product.close()

    def __enter__(self):
        self.held().check_open()
        return self

    def __exit__(self, *error):
        self.close()

    def __reduce__(self):
        refuse_pickling(self, "pickle what export() gives, and pin() it on a Matmul of the other process")

    def __repr__(self):
        if self.product is None:
            return "<rocpy.Matmul, closed>"
        return f"<rocpy.Matmul {self.product.problem}{', closed' if self.product.closed else ''}>"


cdef object counted(object max_algorithms):
    """Return how many algorithms are asked for: no platform has more than ALL."""
    number = integer_of(max_algorithms)
    if number is None or number < 1:
        raise InvalidProblemError(f"max_algorithms: got {max_algorithms!r}, expected 1 or more")
    return min(number, ALL)
