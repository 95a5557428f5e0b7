# SPDX-License-Identifier: MIT
"""nvmath-python's stateful and stateless matrix product over rocpy.Matmul."""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rocpy._integers import integer_of
from rocpy.compat.nvmath import _arrays, _epilogs
from rocpy.compat.nvmath._algorithm import Algorithm
from rocpy.compat.nvmath._block_results import quantized
from rocpy.compat.nvmath._configuration import (
    MatmulOptions,
    MatmulPlanPreferences,
    MatmulQuantizationScales,
    checked_limit,
    coerce,
)
from rocpy.compat.nvmath._engine import Engine, algorithm_records, check_target, kinds_of, timed
from rocpy.compat.nvmath._enums import MatmulEpilog
from rocpy.compat.nvmath._errors import MatmulStateError, ReleasedError
from rocpy.compat.nvmath._memory import Resources
from rocpy.compat.nvmath._specification import factor, specify
from rocpy.errors import InvalidProblemError, warn

__all__ = ["Matmul", "matmul"]


class Matmul(Engine):
    """A product by nvmath-python's rules: ``epilog(alpha * a @ b + beta * c)``, planned once and executed many times.

    Parameters
    ----------
    a, b, c
        Arrays of numpy, cupy or torch, all of one package. Batch axes must be equal, or one operand has none. A c with
        one axis is a column, as before nvmath-python 0.3.
    alpha, beta
        Host scalars; ``beta`` is the factor of ``c``.
    qualifiers
        Array of :data:`matrix_qualifiers_dtype`: which of a and b are conjugated. The array is not modified.
    quantization_scales
        :class:`MatmulQuantizationScales` or a dict, for 8-bit operands.
    options
        :class:`MatmulOptions` or a dict.
    stream
        Stream of the product, ``None``: the package's current one.

    Raises
    ------
    RocpyError
        ``ValueError``, ``TypeError`` or ``RuntimeError`` as in nvmath, each also rocpy's own class.

    Notes
    -----
    Most epilogs give a column-major result, as in nvmath. Operands are read when execute() runs.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath.linalg.advanced import Matmul, MatmulEpilog
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> with Matmul(a, b) as mm:
    ...     algorithms = mm.plan(epilog=MatmulEpilog.BIAS, epilog_inputs={"bias": np.array([0, 10], np.float32)})
    ...     mm.execute()[:, 0].tolist()
    [3.0, 13.0]
    """

    def __init__(
        self,
        a: Any,
        b: Any,
        /,
        c: Any = None,
        *,
        alpha: Any = None,
        beta: Any = None,
        qualifiers: Any = None,
        quantization_scales: MatmulQuantizationScales | Mapping[str, Any] | None = None,
        options: MatmulOptions | Mapping[str, Any] | None = None,
        stream: Any = None,
    ) -> None:
        self._freed = False
        self._released = False
        self._inner = None
        self._algorithms = []
        self.options = coerce(MatmulOptions, options, "options")
        self._resources = Resources(self.options.handle, self.options.allocator)
        if c is not None:
            _arrays.package_of(c, "c")
        self._specification = specify(a, b, _arrays.column(c), beta, qualifiers, self.options)
        beta = _used(beta, c)
        self._operands = {"a": a, "b": b, "c": c}
        if self.options.inplace:
            check_target(self._operands)
        self._kinds = kinds_of(self._operands)
        self._alpha = 1.0 if alpha is None else factor(alpha, "alpha", self._specification)
        self._beta = None if beta is None else factor(beta, "beta", self._specification)
        self._scales = self._check_scales(quantization_scales)
        self._epilog = MatmulEpilog.DEFAULT
        self._inputs = {}
        self._stream = stream
        self._log("constructed for %s and %s", tuple(a.shape), tuple(b.shape))

    # ---- phases ----

    def plan(
        self,
        *,
        preferences: MatmulPlanPreferences | Mapping[str, Any] | None = None,
        algorithms: Sequence[Algorithm] | None = None,
        epilog: MatmulEpilog | int | None = None,
        epilog_inputs: Mapping[str, Any] | None = None,
        stream: Any = None,  # noqa: ARG002 (planning queues nothing)
    ) -> list[Algorithm]:
        """Plan the product; an earlier plan is discarded.

        Parameters
        ----------
        preferences
            :class:`MatmulPlanPreferences` or a dict.
        algorithms
            Only these, in this order.
        epilog, epilog_inputs
            The epilog, and its input arrays: ``bias``, ``relu_aux`` or ``gelu_aux``.
        stream
            As for the constructor.

        Returns
        -------
        list of Algorithm
            Best first.
        """
        self._check_ready("plan")
        wanted = coerce(MatmulPlanPreferences, preferences, "preferences")
        if epilog is None and epilog_inputs:
            warn("epilog_inputs are not used without an epilog")
        member = MatmulEpilog.DEFAULT if epilog is None else _epilogs.find(epilog)
        inputs = {} if epilog is None else _epilogs.check_inputs(member, epilog_inputs)
        records = None if algorithms is None else algorithm_records(algorithms)
        inner = self._make(member, inputs, wanted)
        try:
            with self._lent(inner, self._stream):
                planned = inner.plan(max_algorithms=max(1, wanted.limit), algorithms=records)
        except BaseException:
            inner.close()
            raise
        self._resources.release()
        # The old plan goes only now: one that fails leaves it as it was.
        if self._inner is not None:
            self._inner.close()
        self._inner, self._epilog, self._inputs = inner, member, inputs
        self._transposed = _epilogs.ROWS[member].column or self._specification.column_major
        self._dirty = True
        self._algorithms = [Algorithm(record) for record in planned]
        self._log("planned with %s: %d algorithms, the first %s", member.name, len(planned), planned[0])
        return list(self._algorithms)

    def autotune(
        self,
        iterations: int = 10,
        prune: int | None = None,
        release_workspace: bool = False,  # noqa: ARG002
        stream: Any = None,
    ) -> None:
        """Measure the planned algorithms, interleaved, and put the fastest first.

        Parameters
        ----------
        iterations
            Number of measurements of each algorithm, of which the median is used.
        prune
            How many algorithms to keep.
        release_workspace
            Accepted and ignored; workspaces belong to the stream's pool.
        stream
            As for the constructor.
        """
        inner = self._check_planned("autotune")
        repetitions, survivors = integer_of(iterations), integer_of(prune)
        if repetitions is None or repetitions < 1:
            raise InvalidProblemError(f"iterations: got {iterations!r}, expected 1 or more")
        if prune is not None and (survivors is None or survivors < 1):
            raise InvalidProblemError(f"prune: got {prune!r}, expected 1 or more, or None")
        times: dict[Algorithm, list[float]] = {algorithm: [] for algorithm in self._algorithms}
        saved = self._save_c()
        stream = self._stream if stream is None else stream
        self._refresh(inner)
        stopwatch = self._stopwatch(inner, stream)
        try:
            for _ in range(repetitions):
                for algorithm in random.sample(self._algorithms, len(self._algorithms)):
                    queue = functools.partial(self._queue, inner, algorithm, stream)
                    times[algorithm].append(stopwatch.time_ms(queue))
                    self._restore_c(saved)
        finally:
            stopwatch.close()
        medians = {algorithm: statistics.median(measured) for algorithm, measured in times.items()}
        best = sorted(self._algorithms, key=medians.__getitem__)[:survivors]
        self._algorithms = [timed(algorithm, medians[algorithm]) for algorithm in best]
        self._log("autotuned: %s", self._algorithms)

    def execute(
        self,
        *,
        algorithm: Algorithm | None = None,
        release_workspace: bool = False,
        stream: Any = None,
    ) -> Any:
        """Compute the product of the operands as they are now.

        Parameters
        ----------
        algorithm
            One of :attr:`algorithms`, the first by default.
        release_workspace
            Whether to free the memory from the user's allocator; other workspaces belong to the stream's pool.
        stream
            As for the constructor.

        Returns
        -------
        array
            Of the operands' package; a pair of it and a dict if the epilog or the options have further results.
        """
        inner = self._check_planned("execute")
        if algorithm is None:
            algorithm = self._algorithms[0]
        elif algorithm not in self._algorithms:
            raise InvalidProblemError(f"algorithm: {algorithm!r} is not one of this plan's; pass one of .algorithms")
        result = self._launch(inner, algorithm, stream)
        auxiliary: dict[str, Any] = {}
        if isinstance(result, tuple):
            result, extra = result
            auxiliary = self._auxiliary(extra)
        if self.options.inplace:
            result = self._operands["c"]
        else:
            result = _arrays.transposed(result) if self._transposed else result
            if self._specification.vector_a and self._specification.vector_b:
                result = result[..., 0, 0]
            elif self._specification.vector_a:
                result = result[..., 0, :]
            elif self._specification.vector_b:
                result = result[..., 0]
        if self._specification.quantized:
            result, auxiliary["d_out_scale"] = quantized(result, self._specification.quantized, self._transposed)
        if release_workspace:
            self._resources.release()
        return (result, auxiliary) if auxiliary else result

    def reset_operands(
        self,
        a: Any = None,
        b: Any = None,
        c: Any = None,
        *,
        alpha: Any = None,
        beta: Any = None,
        quantization_scales: MatmulQuantizationScales | Mapping[str, Any] | None = None,
        epilog_inputs: Mapping[str, Any] | None = None,
        stream: Any = None,  # noqa: ARG002
    ) -> None:
        """Replace operands, factors, scales or epilog inputs; those that are not passed are unchanged.

        Raises
        ------
        ValueError
            If nothing is passed, or an operand differs from the previous one in shape, strides, dtype or device; the
            message shows both.
        RuntimeError
            If operands, scales or epilog inputs were released and not all of them are passed.
        """
        self._check_alive("reset_operands")
        changes = {name: value for name, value in (("a", a), ("b", b), ("c", c)) if value is not None}
        nothing = alpha is None and beta is None and quantization_scales is None and epilog_inputs is None
        if not changes and nothing:
            raise InvalidProblemError("reset_operands: no operands; pass at least one")
        for name, value in changes.items():
            self._check_same(name, value)
        operands = {**self._operands, **changes}
        beta = _used(beta, self._kinds["c"])
        new_alpha = self._alpha if alpha is None else factor(alpha, "alpha", self._specification)
        new_beta = self._beta if beta is None else factor(beta, "beta", self._specification)
        scales = self._scales if quantization_scales is None else self._merged_scales(quantization_scales)
        inputs = self._merged_inputs(epilog_inputs)
        missing = [name for name, kind in self._kinds.items() if kind is not None and operands[name] is None]
        missing += [f"quantization_scales.{name}" for name, value in scales.items() if value is None]
        missing += [name for name, value in inputs.items() if value is None]
        if missing:
            raise ReleasedError(f"{', '.join(missing)}: released; pass all operands again")
        if self.options.inplace and changes and not self._copies:  # copied, structured operands may share memory
            check_target(operands)
        self._operands, self._alpha, self._beta, self._scales, self._inputs = (
            operands, new_alpha, new_beta, scales, inputs
        )  # fmt: skip
        self._released = False
        self._dirty = True

    # The checks cost little here.
    reset_operands_unchecked = reset_operands

    def release_operands(self) -> None:
        """Release operands, scales and epilog inputs and keep the plan. The user's own objects are not modified."""
        self._check_alive("release_operands")
        self._operands = dict.fromkeys(self._operands)
        self._inputs = dict.fromkeys(self._inputs)
        self._scales = dict.fromkeys(self._scales)
        self._records = ()
        self._released = True
        if self._inner is not None:
            self._inner.release_operands()

    def applicable_algorithm_ids(self, limit: int = 8) -> list[int]:
        """Return the ids of algorithms that can compute the product."""
        self._check_ready("applicable_algorithm_ids")
        limit = checked_limit(limit)
        with self._make(self._epilog, self._inputs, MatmulPlanPreferences()) as inner:
            return [record.id for record in inner.plan(max_algorithms=max(1, limit))]

    @property
    def algorithms(self) -> list[Algorithm]:
        """The algorithms of the plan, best first."""
        self._check_alive("algorithms")
        if self._inner is None:
            raise MatmulStateError("algorithms: there is no plan yet; call plan()")
        return list(self._algorithms)

    @property
    def flop_count(self) -> int:
        """Floating-point operations of the product, including batches and complex factors."""
        return self._specification.flops

    def free(self) -> None:
        """Release everything; calling it again has no effect."""
        if self._freed:
            return
        self._freed = True
        if self._inner is not None:
            self._inner.close()
        self._inner, self._algorithms = None, []
        self._operands, self._inputs, self._records = {}, {}, ()
        self._resources.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


def _used(beta: Any, c: Any) -> Any:
    """Return beta where there is a c; elsewhere it is not used, which nvmath-python warns about."""
    if c is None and beta is not None:
        warn("beta scales c, and there is no c; it is not used")
        return None
    return beta


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: Any = None,
    beta: Any = None,
    epilog: MatmulEpilog | int | None = None,
    epilog_inputs: Mapping[str, Any] | None = None,
    qualifiers: Any = None,
    quantization_scales: MatmulQuantizationScales | Mapping[str, Any] | None = None,
    options: MatmulOptions | Mapping[str, Any] | None = None,
    preferences: MatmulPlanPreferences | Mapping[str, Any] | None = None,
    algorithm: Algorithm | None = None,
    stream: Any = None,
) -> Any:
    """Return ``epilog(alpha * a @ b + beta * c)`` by nvmath-python's rules; arguments as for :class:`Matmul`.

    Parameters
    ----------
    a, b, c, alpha, beta, qualifiers, quantization_scales, options, stream
        As for :class:`Matmul`.
    epilog, epilog_inputs, preferences
        As for :meth:`Matmul.plan`; one algorithm is requested.
    algorithm
        The algorithm to use, instead of the first.

    Returns
    -------
    array
        Of the operands' package; a pair of it and a dict if the epilog or the options have further results.

    Raises
    ------
    RocpyError
        As :class:`Matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath.linalg.advanced import matmul
    >>> matmul(np.ones((2, 3)), np.ones((3, 2)), alpha=2.0)
    array([[6., 6.],
           [6., 6.]])
    """
    wanted = coerce(MatmulPlanPreferences, preferences, "preferences")
    wanted.limit = 1
    with Matmul(
        a, b, c, alpha=alpha, beta=beta, qualifiers=qualifiers, quantization_scales=quantization_scales,
        options=options, stream=stream,
    ) as mm:  # fmt: skip
        mm.plan(
            preferences=wanted,
            epilog=epilog,
            epilog_inputs=epilog_inputs,
            algorithms=None if algorithm is None else [algorithm],
        )
        return mm.execute()
