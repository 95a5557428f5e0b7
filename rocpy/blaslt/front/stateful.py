# SPDX-License-Identifier: MIT
"""Matmul: a product that is planned once and executed many times; what it is asked for outside the per-call path."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, Unpack, overload

from rocpy._messages.keywords import suggest_keywords
from rocpy._messages.pickling import refuse_pickling
from rocpy.blaslt.composed.plan import ComposingMatmul
from rocpy.blaslt.model.algorithms import FORMAT, Algorithm, Algorithms
from rocpy.blaslt.model.epilogues import is_custom
from rocpy.blaslt.model.problem import check_record
from rocpy.blaslt.operands.weight import Weight
from rocpy.blaslt.selection.choice import LISTED
from rocpy.blaslt.selection.tuner import tuner
from rocpy.errors import InvalidProblemError
from rocpy.typing import ArrayLike

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import TypeVar

    from rocpy.blaslt.model.call_arguments import AnyAlgorithm, AnyEpilogue, ProductArguments
    from rocpy.blaslt.model.epilogues import PairEpilogue, PlainEpilogue
    from rocpy.blaslt.model.tuning_report import TuningReport
    from rocpy.typing import StreamLike, SupportsDetach

    # The kinds of arrays and of results are those of function.pyi.
    _Numpy: TypeAlias = npt.NDArray[Any]
    _Array = TypeVar("_Array", bound=ArrayLike)
    _Detached = TypeVar("_Detached")

    # What execute() returns: an array of a's framework, or a pair of it and a dict.
    _Result = TypeVar("_Result", default=Any)
else:
    from typing import TypeVar

    _Result = TypeVar("_Result")  # no defaults before Python 3.13

__all__ = ["Matmul"]


class Matmul(ComposingMatmul, Generic[_Result]):
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
    ``tensor.data = other`` and ``array.resize``; a changed shape, dtype, layout or device is an InvalidOperandError.

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

    __slots__ = ()

    if TYPE_CHECKING:
        # fmt: off
        @overload
        def __init__(
            self: Matmul[_Numpy], a: _Numpy,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[_Detached], a: SupportsDetach[_Detached],
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[_Array], a: _Array,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[tuple[_Numpy, dict[str, _Numpy]]], a: _Numpy,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[tuple[_Detached, dict[str, _Detached]]], a: SupportsDetach[_Detached],
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[tuple[_Array, dict[str, _Array]]], a: _Array,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[tuple[_Numpy, dict[str, _Numpy]]], a: _Numpy,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PlainEpilogue | None = None, amax: Literal[True], **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[tuple[_Array, dict[str, _Array]]], a: _Array,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: PlainEpilogue | None = None, amax: Literal[True], **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[_Numpy | Any], a: _Numpy,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: AnyEpilogue | None = None, amax: bool = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        @overload
        def __init__(
            self: Matmul[_Array | Any], a: _Array,
            b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
            epilogue: AnyEpilogue | None = None, amax: bool = False, **arguments: Unpack[ProductArguments],
        ) -> None: ...
        # fmt: on
        def __init__(self, a: Any, b: Any, /, c: Any = None, **arguments: Any) -> None: ...

        def execute(  # noqa: D102 - native/plan.pyx has the documentation
            self,
            *,
            out: ArrayLike | None = None,
            algorithm: AnyAlgorithm | None = None,
            stream: StreamLike | None = None,
        ) -> _Result: ...

    else:  # type checkers read the arguments from __init__

        def __new__(cls, *_, epilogue=None, **__):
            """Make the kind of product that the epilogue asks for."""
            if cls is Matmul and is_custom(epilogue):
                return super().__new__(_custom_matmul())
            return super().__new__(cls)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "pickle what export() gives, and pin() it on a Matmul of the other process")

    @property
    def algorithms(self) -> list[Algorithm]:
        """The algorithms of the last plan(), best first; empty before."""
        return Algorithms(super().algorithms)

    @suggest_keywords
    def plan(
        self,
        *,
        algorithms: Sequence[Algorithm | Mapping[str, Any] | str] | None = None,
        max_algorithms: int = LISTED,
    ) -> list[Algorithm]:
        """Request algorithms from the platform; execute() uses the first unless algorithm= is passed.

        Parameters
        ----------
        algorithms
            Only these, in this order: algorithms, their records (:meth:`Algorithm.to_dict`, :meth:`export`) or kernel
            names. The first is pinned.
        max_algorithms
            Number of algorithms to request, 1 or more.

        Returns
        -------
        list of Algorithm
            Best first, as predicted; empty when the result has no elements. A notebook shows the list as a table.
            Planning again discards the previous plan.

        Raises
        ------
        InvalidProblemError
            If an algorithm belongs to another library, version or architecture, or is not offered for this product.
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
        _check_count(max_algorithms)
        if algorithms is None:
            return Algorithms(super().plan(max_algorithms=max_algorithms))
        if isinstance(algorithms, (str, Algorithm, Mapping)) or not isinstance(algorithms, Sequence):
            raise InvalidProblemError(f"algorithms: got {type(algorithms).__name__}, expected a list of algorithms")
        if not algorithms:
            raise InvalidProblemError("algorithms: got an empty list; omit it to use the platform's algorithms")
        return Algorithms(super().plan(algorithms=list(algorithms), max_algorithms=max_algorithms))

    @suggest_keywords
    def autotune(self, budget_ms: float = 200.0, *, max_algorithms: int = LISTED) -> TuningReport:
        """Measure the algorithms, use the fastest, and store it for later products of this problem.

        Trials run on this product's stream, interleaved, each with cold and with warm caches, and write scratch
        results. The heuristic's first choice is kept unless another algorithm is faster by more than the spread of the
        times, in two rounds. The choice is stored in :func:`rocpy.tuning.current`, also for :func:`rocpy.matmul` and
        for other processes.

        Parameters
        ----------
        budget_ms
            Time limit, in milliseconds.
        max_algorithms
            Number of algorithms to request, 1 or more.

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
            After close(), or if this product or its stream is closed in the meantime; nothing is stored then.

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
        _check_count(max_algorithms)
        return tuner().tune(self, budget_ms=budget_ms, max_algorithms=max_algorithms)

    @suggest_keywords
    def pin(self, algorithm: Algorithm | Mapping[str, Any] | int | str) -> Algorithm:
        """Make execute() use one algorithm from now on, until the next plan().

        Parameters
        ----------
        algorithm
            One of :attr:`algorithms`, its index there, its kernel's name, its record, or the result of :meth:`export`,
            whose problem must be this one.

        Returns
        -------
        Algorithm
            The algorithm as this product has it; its ``source`` is ``"pinned"``.

        Raises
        ------
        InvalidProblemError
            If it is of another library, version, architecture or problem, or is not offered for this product.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> with rocpy.Matmul(np.ones((64, 64)), np.ones((64, 64))) as mm:
        ...     saved = mm.export()
        >>> with rocpy.Matmul(np.ones((64, 64)), np.zeros((64, 64))) as mm:
        ...     mm.pin(saved).source
        'pinned'
        """
        if isinstance(algorithm, Mapping) and "problem" in algorithm:
            check_record(algorithm["problem"], self.problem)
        return super().pin(algorithm)

    def export(self) -> dict[str, Any]:
        """Return the problem and the algorithm that execute() uses, as plain values for JSON.

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
        return {"format": FORMAT, "problem": json.loads(self.problem.to_json()), "algorithm": chosen.to_dict()}

    @suggest_keywords
    def reset_operands(
        self,
        *,
        a: ArrayLike | None = None,
        b: ArrayLike | Weight | None = None,
        c: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        aux: ArrayLike | dict[str, Any] | None = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_c: Any = None,
        scale_d: Any = None,
    ) -> None:
        """Replace the operands.

        Parameters
        ----------
        a, b, c, bias, aux
            New operands of the same shape, dtype and device; omitted operands are unchanged. Other strides are allowed,
            and are planned again. With ``options(dynamic="m")`` M may change, in all operands at once; the last few
            plans are kept, with the algorithms that were pinned.
        alpha, beta
            New host scalars.
        scale_a, scale_b, scale_c, scale_d
            New scales, of the same kinds as before.

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
        super().reset_operands(
            a=a, b=b, c=c, bias=bias, aux=aux, alpha=alpha, beta=beta,
            scale_a=scale_a, scale_b=scale_b, scale_c=scale_c, scale_d=scale_d,
        )  # fmt: skip


def _check_count(max_algorithms: object) -> None:
    if not isinstance(max_algorithms, int) or max_algorithms < 1:
        raise InvalidProblemError(f"max_algorithms: got {max_algorithms!r}, expected 1 or more")


def forced_product(a: Any, b: Any, c: Any, algorithm: Any, out: Any, stream: Any, arguments: dict[str, Any]) -> Any:
    """Run a product by the algorithm that the user names."""
    with Matmul(a, b, c, stream=stream, **arguments) as product:
        if isinstance(algorithm, Mapping):
            algorithm = product.pin(algorithm)
        return product.execute(out=out, algorithm=algorithm)


@functools.cache
def _custom_matmul() -> type[Matmul]:
    """Return the kind of product with an epilogue of the user's, made when the first is asked for."""
    from rocpy.blaslt.custom.plan import CustomProduct  # a product without such an epilogue needs none of it

    class CustomMatmul(CustomProduct, Matmul):
        """What ``rocpy.Matmul`` makes for an epilogue of the user's."""

        __slots__ = ()

    return CustomMatmul
