# SPDX-License-Identifier: MIT
"""``nvmath.linalg``'s plain product: no epilogs and no algorithms; sequences of operands are as many products."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, NoReturn, Self

from rocpy import platform
from rocpy._messages.pickling import refuse_pickling
from rocpy.compat.nvmath import _arrays
from rocpy.compat.nvmath._configuration import check_logger, coerce
from rocpy.compat.nvmath._errors import InvalidMatmulState, MatmulStateError
from rocpy.compat.nvmath._memory import check_allocator
from rocpy.compat.nvmath._single import Single
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = ["ExecutionCPU", "ExecutionCUDA", "Matmul", "MatmulOptions", "matmul"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MatmulOptions:
    """Options of the plain product.

    Attributes
    ----------
    allocator
        As for the advanced product.
    blocking, logger
        As for the advanced product.
    inplace
        Whether the result is written into c, which is returned.
    """

    allocator: Any = None
    blocking: Literal[True, "auto"] = "auto"
    logger: logging.Logger | None = dataclasses.field(default_factory=logging.getLogger)
    inplace: bool = False

    def __post_init__(self) -> None:
        """Check what can be checked with no operand and no device."""
        if self.blocking not in (True, "auto"):
            raise InvalidProblemError(f"blocking: got {self.blocking!r}, expected True or 'auto'")
        if self.allocator is not None:
            check_allocator(self.allocator)
        if self.logger is not None:
            check_logger(self.logger)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionCPU:
    """Run on the CPU, which the host platform does.

    Attributes
    ----------
    num_threads
        Accepted and ignored; the host platform's threads belong to the process and are set by ``ROCPY_NUM_THREADS``.
    """

    name: ClassVar[Literal["cpu"]] = "cpu"
    num_threads: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionCUDA:
    """Run on a device.

    Attributes
    ----------
    device_id
        Its number, for operands in CPU memory; others stay where they are.
    """

    name: ClassVar[Literal["cuda"]] = "cuda"
    device_id: int = 0


class Matmul:
    """A product ``alpha * a @ b + beta * c`` by the rules of ``nvmath.linalg``, or a sequence of products.

    Parameters
    ----------
    a, b, c
        Arrays, or sequences of arrays with one array per product; sequences of length 1 are used for all products.
        ``c`` has the shape of the result.
    alpha, beta
        Host scalars; with sequences of arrays, sequences of scalars too.
    qualifiers
        Array of :data:`matrix_qualifiers_dtype` that describes a, b and c; with sequences, a sequence of such arrays.
    options
        :class:`MatmulOptions` or a dict.
    execution
        ``None``, ``"cpu"``, ``"cuda"``, :class:`ExecutionCPU` or :class:`ExecutionCUDA`: it must match the platform.
    stream
        As for the advanced product.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath import linalg
    >>> with linalg.Matmul(np.ones((2, 3)), np.ones((3, 1))) as mm:
    ...     mm.plan()
    ...     mm.execute()
    array([[3.],
           [3.]])
    >>> with linalg.Matmul([np.ones((2, 3)), np.ones((4, 3))], [np.ones((3, 5))]) as mm:
    ...     mm.plan()
    ...     [d.shape for d in mm.execute()]
    [(2, 5), (4, 5)]
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
        options: MatmulOptions | dict[str, Any] | None = None,
        execution: ExecutionCPU | ExecutionCUDA | str | None = None,
        stream: Any = None,
    ) -> None:
        self._freed, self._planned, self._parts = False, False, []
        for name, value in (("options", options), ("execution", execution), ("stream", stream)):
            if isinstance(value, (list, tuple)):
                raise InvalidOperandError(f"{name}: got {type(value).__name__}; there is one for all products")
        self.options = coerce(MatmulOptions, options, "options")
        arguments = {"a": a, "b": b, "c": c, "alpha": alpha, "beta": beta, "qualifiers": qualifiers}
        self._sequences = _are_sequences({name: arguments[name] for name in ("a", "b", "c", "qualifiers")})
        self._lengths = {name: _length(value) for name, value in arguments.items()}
        if self.options.inplace and self._sequences and _length(c) != max(self._lengths.values()):
            raise InvalidProblemError(
                "inplace: the results are written into c, and there must be one c for each product"
            )
        rows = _rows(arguments) if self._sequences else [tuple(arguments.values())]
        self.execution = _execution(execution, rows[0][0])
        plain = {field.name: getattr(self.options, field.name) for field in dataclasses.fields(self.options)}
        plain["device_id"] = self.execution.device_id if isinstance(self.execution, ExecutionCUDA) else 0
        try:
            for row in rows:
                self._parts.append(Single(*row, options=plain, stream=stream))
                self._parts[0].check_alike(self._parts[-1])
        except BaseException:
            self.free()
            raise

    _parts: list[Single]

    # ---- phases ----

    def plan(self, *, stream: Any = None) -> None:
        """Plan the product; calling it again has no effect."""
        self._check_alive("plan")
        if not self._planned:
            for part in self._parts:
                part.plan(stream=stream)
        self._planned = True

    def execute(self, *, stream: Any = None) -> Any:
        """Return the product of the operands as they are now; of sequences, a list of products."""
        self._check_alive("execute")
        if not self._planned:
            raise MatmulStateError("execute: there is no plan yet; call plan()")
        results = [part.execute(stream=stream) for part in self._parts]
        return results if self._sequences else results[0]

    def execute_unchecked(self, *, stream: Any = None) -> Any:
        """Do the same as :meth:`execute`, including its checks, which cost little here."""
        return self.execute(stream=stream)

    def reset_operands(
        self, a: Any = None, b: Any = None, c: Any = None, *, alpha: Any = None, beta: Any = None, stream: Any = None
    ) -> None:
        """Replace operands or factors; those that are not passed are unchanged.

        Raises
        ------
        ValueError
            If nothing is passed, an operand differs from the previous one in shape, strides, dtype or device, or a
            sequence in its length; nothing is changed then.
        """
        self._check_alive("reset_operands")
        arguments = {"a": a, "b": b, "c": c, "alpha": alpha, "beta": beta}
        if not self._sequences:
            self._parts[0].reset_operands(**arguments, stream=stream)
            return
        for name, value in arguments.items():
            if value is not None and _length(value) != self._lengths[name]:
                raise InvalidProblemError(
                    f"{name}: {_length(value)} of them, and there were {self._lengths[name] or 'none'}; create a "
                    "new Matmul"
                )
        before = [part.state() for part in self._parts]
        try:
            for part, row in zip(self._parts, _rows(arguments, len(self._parts)), strict=True):
                part.reset_operands(**dict(zip(arguments, row, strict=True)), stream=stream)
        except BaseException:
            for part, state in zip(self._parts, before, strict=True):
                part.restore(state)
            raise

    # The checks cost little here.
    reset_operands_unchecked = reset_operands

    def release_operands(self) -> None:
        """Release the operands and keep the plan."""
        self._check_alive("release_operands")
        for part in self._parts:
            part.release_operands()

    def free(self) -> None:
        """Release everything; calling it again has no effect."""
        self._freed = True
        for part in self._parts:
            part.free()

    def _check_alive(self, what: str) -> None:
        if self._freed:
            raise InvalidMatmulState(f"{what}: this Matmul was freed; create a new one")

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "create another with the same arguments")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


def _execution(requested: Any, a: Any) -> ExecutionCPU | ExecutionCUDA:
    """Return where to compute, after a look at whether the platform computes there."""
    if isinstance(requested, ExecutionCPU) or (isinstance(requested, str) and requested == "cpu"):
        name = platform.current().name
        if name != "host":
            raise UnsupportedError(
                f"execution: the CPU, and this process runs on the {name} platform; set ROCPY_PLATFORM=host before it "
                "starts"
            )
        return requested if isinstance(requested, ExecutionCPU) else ExecutionCPU()
    if not (
        requested is None
        or isinstance(requested, ExecutionCUDA)
        or (isinstance(requested, str) and requested == "cuda")
    ):
        raise InvalidProblemError(
            f"execution: got {requested!r}, expected None, 'cpu', 'cuda', ExecutionCPU() or ExecutionCUDA()"
        )
    lies_on = _arrays.device_index(a)
    if lies_on is not None:
        return ExecutionCUDA(device_id=lies_on)
    if requested is None and platform.current().name == "host":
        return ExecutionCPU()
    return requested if isinstance(requested, ExecutionCUDA) else ExecutionCUDA()


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _length(value: Any) -> int:
    """Return how many there are: 0 of what is not given, 1 of what is no sequence."""
    return 0 if value is None else len(value) if _is_sequence(value) else 1


def _are_sequences(arguments: dict[str, Any]) -> bool:
    """Return whether the operands are sequences: all that are given, or none."""
    for name in ("a", "b"):
        if arguments[name] is None:
            _arrays.package_of(None, name)  # refuses it
    are_sequences = {name: _is_sequence(value) for name, value in arguments.items() if value is not None}
    if len(set(are_sequences.values())) != 1:
        which = ", ".join(name for name, one in are_sequences.items() if one)
        raise InvalidProblemError(
            f"{which}: a sequence; all of {', '.join(are_sequences)} must be sequences, or none of them"
        )
    if not are_sequences["a"]:
        return False
    for name in are_sequences:
        if not arguments[name] or any(map(_is_sequence, arguments[name])):
            raise InvalidProblemError(f"{name}: it must be a sequence of one array or more, not of sequences")
    return True


def _rows(arguments: dict[str, Any], count: int = 0) -> list[tuple[Any, ...]]:
    """Return what belongs to each product."""
    columns = {name: list(value) if _is_sequence(value) else [value] for name, value in arguments.items()}
    count = count or max(map(len, columns.values()))
    for name, column in columns.items():
        if len(column) not in (1, count):
            raise InvalidProblemError(f"{name}: {len(column)} of them for {count} products; there must be 1 or {count}")
    return list(zip(*(column * count if len(column) == 1 else column for column in columns.values()), strict=True))


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: Any = None,
    beta: Any = None,
    qualifiers: Any = None,
    options: MatmulOptions | dict[str, Any] | None = None,
    execution: ExecutionCPU | ExecutionCUDA | str | None = None,
    stream: Any = None,
) -> Any:
    """Return ``alpha * a @ b + beta * c``; of sequences, a list of results.

    Parameters
    ----------
    a, b, c, alpha, beta, qualifiers, options, execution, stream
        As for :class:`Matmul`.

    Returns
    -------
    array or list of arrays
        Of the operands' package.

    Raises
    ------
    RocpyError
        As :class:`Matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat import nvmath
    >>> lower = nvmath.linalg.TriangularMatrixQualifier.create(uplo=nvmath.linalg.FillMode.LOWER)
    >>> qualifiers = np.array([lower, nvmath.linalg.GeneralMatrixQualifier.create()])
    >>> nvmath.linalg.matmul(np.ones((2, 2)), np.ones((2, 1)), qualifiers=qualifiers).tolist()
    [[1.0], [2.0]]
    """
    with Matmul(
        a, b, c, alpha=alpha, beta=beta, qualifiers=qualifiers, options=options, execution=execution, stream=stream
    ) as mm:
        mm.plan()
        return mm.execute()
