# SPDX-License-Identifier: MIT
"""``nvmath.linalg``'s plain product: no epilogs and no algorithms; sequences of operands are as many products."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rocpy import platform
from rocpy.compat.nvmath import _product
from rocpy.compat.nvmath._configuration import coerce
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = ["ExecutionCPU", "ExecutionCUDA", "Matmul", "MatmulOptions", "matmul"]


@dataclasses.dataclass(kw_only=True)
class MatmulOptions:
    """Options of the plain product.

    Attributes
    ----------
    allocator
        As for the advanced product.
    blocking, logger
        As for the advanced product.
    inplace
        The result is written into c, and is c.
    """

    allocator: Any = None
    blocking: Any = "auto"
    logger: logging.Logger | None = None
    inplace: bool = False


@dataclasses.dataclass(kw_only=True)
class ExecutionCPU:
    """Run on the CPU, which the host platform does; ``num_threads`` is ``ROCPY_NUM_THREADS``' to say."""

    num_threads: int | None = None


@dataclasses.dataclass(kw_only=True)
class ExecutionCUDA:
    """Run on the device with this number."""

    device_id: int = 0


class Matmul(_product.Matmul):
    """A product ``alpha * a @ b + beta * c`` by the rules of ``nvmath.linalg``; see its advanced twin.

    Parameters
    ----------
    a, b, c, alpha, beta, qualifiers, stream
        As for the advanced product; ``c`` has the full shape of the result.
    options
        :class:`MatmulOptions` or a dict.
    execution
        ``None``, ``"cpu"``, ``"cuda"``, :class:`ExecutionCPU` or :class:`ExecutionCUDA`: it must be where the platform
        computes.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath import linalg
    >>> with linalg.Matmul(np.ones((2, 3)), np.ones((3, 1))) as mm:
    ...     mm.plan()
    ...     mm.execute()
    array([[3.],
           [3.]])
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
        options: MatmulOptions | Mapping[str, Any] | None = None,
        execution: Any = None,
        stream: Any = None,
    ) -> None:
        self._freed = True  # until the advanced constructor has begun
        for name, value in (("a", a), ("b", b)):
            if isinstance(value, (list, tuple)):
                raise UnsupportedError(f"{name}: a sequence; matmul() takes those, or a Matmul for each product")
        given = coerce(MatmulOptions, options, "options")
        device_id = _device(execution)
        super().__init__(
            a, b, c, alpha=alpha, beta=beta, qualifiers=_plain(qualifiers), stream=stream,
            options={**vars(given), "device_id": device_id},
        )  # fmt: skip

    def plan(self, *, stream: Any = None) -> None:  # type: ignore[override]
        """Plan the product; a second time does nothing."""
        if self._inner is None:
            super().plan(stream=stream)

    def execute(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        """Return the product of the operands as they are now."""
        return super().execute(stream=stream)

    def execute_unchecked(self, *, stream: Any = None) -> Any:
        """Do what :meth:`execute` does, with its checks: they cost little here."""
        return super().execute(stream=stream)


def _device(execution: Any) -> int:
    """Return the device's number, after a look at whether the platform computes where it should."""
    if isinstance(execution, Mapping):
        raise InvalidOperandError("execution: a dict; it must be None, 'cpu', 'cuda', ExecutionCPU or ExecutionCUDA")
    if execution == "cpu" or isinstance(execution, ExecutionCPU):
        if platform.current().name != "host":
            raise UnsupportedError(
                f"execution: the CPU, and this process runs on the {platform.current().name} platform; set "
                "ROCPY_PLATFORM=host before it starts"
            )
        return 0
    if execution in (None, "cuda"):
        return 0
    if isinstance(execution, ExecutionCUDA):
        return execution.device_id
    raise InvalidProblemError(f"execution={execution!r}; it may be None, 'cpu', 'cuda', ExecutionCPU or ExecutionCUDA")


def _plain(qualifiers: Any) -> Any:
    """Refuse qualifiers of matrices that are not general."""
    if qualifiers is None:
        return None
    names = getattr(getattr(qualifiers, "dtype", None), "names", None) or ()
    if "is_conjugate" not in names:
        raise UnsupportedError(
            "qualifiers: only is_conjugate of matrix_qualifiers_dtype is served; hipBLASLt has no symmetric, "
            "triangular or diagonal products"
        )
    return qualifiers


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: Any = None,
    beta: Any = None,
    qualifiers: Any = None,
    options: MatmulOptions | Mapping[str, Any] | None = None,
    execution: Any = None,
    stream: Any = None,
) -> Any:
    """Return ``alpha * a @ b + beta * c``; of sequences, a list of results.

    Parameters
    ----------
    a, b, c, alpha, beta, qualifiers, options, execution, stream
        As for :class:`Matmul`. Of sequences of arrays each gives one product; those of length 1 serve all of them,
        and so do single factors.

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
    >>> from rocpy.compat.nvmath.linalg import matmul
    >>> [d.shape for d in matmul([np.ones((2, 3)), np.ones((4, 3))], [np.ones((3, 5))])]
    [(2, 5), (4, 5)]
    """
    common = {"options": options, "execution": execution, "stream": stream}
    if not any(isinstance(value, (list, tuple)) for value in (a, b, c)):
        return _one(a, b, c, alpha, beta, qualifiers, common=common)
    columns = [_column(value) for value in (a, b, c, alpha, beta, qualifiers)]
    count = max(map(len, columns))
    for name, column in zip(("a", "b", "c", "alpha", "beta", "qualifiers"), columns, strict=True):
        if len(column) not in (1, count):
            raise InvalidProblemError(f"{name}: {len(column)} of them for {count} products; there must be 1 or {count}")
    rows = zip(*(column * count if len(column) == 1 else column for column in columns), strict=True)
    return [_one(*row, common=common) for row in rows]


def _column(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _one(a: Any, b: Any, c: Any, alpha: Any, beta: Any, qualifiers: Any, *, common: dict[str, Any]) -> Any:
    with Matmul(a, b, c, alpha=alpha, beta=beta, qualifiers=qualifiers, **common) as mm:
        mm.plan()
        return mm.execute()
