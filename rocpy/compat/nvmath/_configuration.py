# SPDX-License-Identifier: MIT
"""Options, preferences and scales as nvmath-python has them: dataclasses, each of which may be given as a dict."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np

import rocpy
from rocpy import dtypes
from rocpy._integers import integer_of
from rocpy.compat.nvmath._enums import ComputeType, CudaDataType, MatmulNumericalImplFlags, MatmulReductionScheme
from rocpy.compat.nvmath._memory import check_allocator, checked_handle
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = [
    "MatmulEpilogPreferences",
    "MatmulOptions",
    "MatmulPlanPreferences",
    "MatmulQuantizationScales",
    "matrix_qualifiers_dtype",
]

#: One element for each of a, b and c; only ``is_conjugate`` is read.
matrix_qualifiers_dtype = np.dtype([("structure", object), ("is_conjugate", np.int32)])

_MEMORY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|b|kb|mb|gb|tb|kib|mib|gib|tib)?\s*", re.IGNORECASE)
_UNITS = {"b": 1} | {
    f"{prefix}{suffix}b": base**power
    for suffix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate("kmgt", 1)
}


@dataclasses.dataclass
class MatmulOptions:
    """Options of a product.

    Attributes
    ----------
    inplace
        Whether the result is written into c, which is returned.
    compute_type, scale_type, result_type
        Numbers of :class:`ComputeType` and :class:`CudaDataType`; ``result_type`` also takes any dtype of rocpy's.
    result_amax
        Whether the largest magnitude of an 8-bit result is returned as ``aux["result_amax"]``.
    memory_limit
        Largest workspace: bytes, a fraction of the device's memory, or text such as ``"12 MiB"`` or ``"80%"``.
    sm_count_target, fast_accumulation, device_id, logger, blocking
        Accepted; see the compatibility page.
    block_scaling
        Whether the operands have block scales along K, in tiles: MXFP8 for operands of 8 bits, NVFP4 for those of 4.
    handle
        Address of a hipBLASLt handle (``hipblasLtCreate``) that the products use; it must outlive them.
    allocator
        Object with ``memalloc(size)`` or ``memalloc_async(size, stream)``, which allocates workspaces.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg.advanced import MatmulOptions
    >>> MatmulOptions(memory_limit="12 MiB").memory_limit
    '12 MiB'
    """

    inplace: bool = False
    compute_type: int | None = None
    scale_type: int | None = None
    result_type: Any = None
    result_amax: bool = False
    block_scaling: bool = False
    sm_count_target: int | None = 0
    fast_accumulation: bool | None = False
    device_id: int = 0
    handle: int | None = None
    logger: logging.Logger | None = None
    memory_limit: int | float | str | None = "80%"
    blocking: Literal[True, "auto"] = "auto"
    allocator: Any = None

    def __post_init__(self) -> None:
        """Check what can be checked with no operand and no device."""
        if self.compute_type is not None:
            self.compute_type = _member(ComputeType, self.compute_type, "compute_type")
        if self.scale_type is not None:
            self.scale_type = _member(CudaDataType, self.scale_type, "scale_type")
        if self.result_type is not None:
            _dtype_name(self.result_type, "result_type")
        if self.blocking not in (True, "auto"):
            raise InvalidProblemError(f"blocking: got {self.blocking!r}, expected True or 'auto'")
        _take_defaults(self, "device_id", "fast_accumulation", "memory_limit", "sm_count_target")
        _memory(self.memory_limit, 1 << 40)
        if self.logger is None:
            self.logger = logging.getLogger()
        check_logger(self.logger)
        if self.allocator is not None:
            check_allocator(self.allocator)
        if self.handle is not None:
            self.handle = checked_handle(self.handle)

    @property
    def result_dtype(self) -> str | None:
        """Name of the result's dtype, ``None`` where it follows from the operands."""
        return None if self.result_type is None else _dtype_name(self.result_type, "result_type")

    def workspace_bytes(self) -> int:
        """Return the memory limit in bytes of the device."""
        if isinstance(self.memory_limit, str | float | np.floating):
            return _memory(self.memory_limit, _device_bytes(self.device_id))
        return _memory(self.memory_limit, 0)


@dataclasses.dataclass
class MatmulEpilogPreferences:
    """Preferences of an epilog's auxiliary output; only the defaults are supported.

    Attributes
    ----------
    aux_type
        Its type; ``None``: that of the result.
    aux_amax
        Whether its largest magnitude is returned.
    """

    aux_type: int | None = None
    aux_amax: bool = False

    def __post_init__(self) -> None:
        """Refuse what hipBLASLt has no attribute for."""
        if self.aux_type is not None or self.aux_amax:
            raise UnsupportedError("aux_type, aux_amax: auxiliary outputs have the result's type; omit them")


@dataclasses.dataclass
class MatmulPlanPreferences:
    """Preferences of a plan.

    Attributes
    ----------
    limit
        Number of algorithms to request.
    reduction_scheme_mask
        ``NONE`` requests bitwise reproducible results; other values have no counterpart in hipBLASLt.
    max_waves_count, numerical_impl_mask
        Accepted; hipBLASLt has no such preference.
    epilog
        :class:`MatmulEpilogPreferences`.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg.advanced import MatmulPlanPreferences
    >>> MatmulPlanPreferences(limit=2).limit
    2
    """

    reduction_scheme_mask: int | None = MatmulReductionScheme.MASK
    max_waves_count: float | None = 0.0
    numerical_impl_mask: int | None = MatmulNumericalImplFlags.ALL
    limit: int = 8
    epilog: MatmulEpilogPreferences | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        _take_defaults(self, "limit", "max_waves_count", "numerical_impl_mask", "reduction_scheme_mask")
        self.limit = checked_limit(self.limit)
        self.epilog = coerce(MatmulEpilogPreferences, self.epilog, "epilog")


@dataclasses.dataclass
class MatmulQuantizationScales:
    """Factors of narrow operands and of a narrow result: numbers, or float32 arrays of one element.

    With ``block_scaling`` those of a and b alone, each an array of one axis: bytes for MXFP8, ``float8_e4m3fn`` for
    NVFP4.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg.advanced import MatmulQuantizationScales
    >>> MatmulQuantizationScales(a=0.5, b=2.0).b
    2.0
    """

    a: Any = None
    b: Any = None
    c: Any = None
    d: Any = None


def checked_limit(limit: Any) -> int:
    """Return a number of algorithms; what is none is refused."""
    number = integer_of(limit)
    if number is None:
        raise InvalidOperandError(f"limit: got {limit!r}, expected a number of algorithms")
    return number


def check_logger(logger: Any) -> None:
    """Refuse what is no logger."""
    if not isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
        raise InvalidOperandError(f"logger: got {type(logger).__name__}, expected a logging.Logger")


def _take_defaults(record: Any, *names: str) -> None:
    """Replace None in the fields of these names by their defaults, as nvmath-python does."""
    for field in dataclasses.fields(record):
        if field.name in names and getattr(record, field.name) is None:
            setattr(record, field.name, field.default)


_Record = TypeVar("_Record")


def coerce(kind: type[_Record], value: Any, name: str) -> _Record:
    """Return a record given as itself, as a dict, or not at all. The user's own object is never changed."""
    if value is None:
        return kind()
    if isinstance(value, kind):
        return dataclasses.replace(value)  # type: ignore[type-var]
    if isinstance(value, Mapping):
        known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        wrong = [key for key in value if key not in known]
        if wrong:
            raise InvalidOperandError(
                f"{name}: there is no {', '.join(map(repr, wrong))}; there are {', '.join(known)}"
            )
        return kind(**value)
    raise InvalidOperandError(f"{name}: got {type(value).__name__}, expected a {kind.__name__}, a dict, or None")


@functools.cache
def _device_bytes(device_id: int) -> int:
    return int(rocpy.Device(device_id).memory.total_bytes)


def _member(kind: type[Any], value: Any, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidProblemError(f"{name}={value!r} is not a member of {kind.__name__}") from None


def _dtype_name(value: Any, name: str) -> str:
    number = integer_of(value)
    if number is not None:
        try:
            return dtypes.from_hip(number).name
        except InvalidOperandError:
            raise InvalidProblemError(f"{name}={value!r}: there is no such type in rocpy") from None
    return dtypes.lookup(value).name


def _memory(limit: Any, total: int) -> int:
    """Return a memory limit in bytes."""
    number = integer_of(limit)
    if number is not None and number >= 0:
        return number
    if isinstance(limit, float | np.floating) and 0 < limit <= 1:
        return int(limit * total)
    match = _MEMORY.fullmatch(limit) if isinstance(limit, str) else None
    if match is None or (match[2] is None and "." in match[1]) or (match[2] == "%" and float(match[1]) > 100):
        raise InvalidProblemError(
            f"memory_limit: got {limit!r}, expected bytes, a fraction up to 1, a percentage such as '80%', or a number "
            "with B, kB, MB, GB, KiB, MiB or GiB"
        )
    if match[2] == "%":
        return int(float(match[1]) / 100 * total)
    return int(float(match[1]) * _UNITS[(match[2] or "b").lower()])
