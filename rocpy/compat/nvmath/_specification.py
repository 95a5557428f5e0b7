# SPDX-License-Identifier: MIT
"""What a product's operands must be under nvmath-python's rules, and what follows from them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import read_complex, read_float
from rocpy.compat.nvmath import _arrays, _block_scaling
from rocpy.compat.nvmath._configuration import MatmulOptions
from rocpy.compat.nvmath._enums import ComputeType, CudaDataType
from rocpy.compat.nvmath._epilogs import Extents
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

_SINGLE = {
    ComputeType.COMPUTE_32F: "float32",
    ComputeType.COMPUTE_32F_PEDANTIC: "float32",
    ComputeType.COMPUTE_32F_FAST_16F: "float32",
    ComputeType.COMPUTE_32F_FAST_16BF: "float32",
    ComputeType.COMPUTE_32F_FAST_TF32: "tf32",
    ComputeType.COMPUTE_32F_EMULATED_16BFX9: "float32",
}
_DOUBLE = {
    ComputeType.COMPUTE_64F: "float64",
    ComputeType.COMPUTE_64F_PEDANTIC: "float64",
    ComputeType.COMPUTE_64F_EMULATED_FIXEDPOINT: "float64",
}
_NARROW: dict[ComputeType, str | None] = {ComputeType.COMPUTE_32F: None, ComputeType.COMPUTE_32F_PEDANTIC: None}
# For each type of a and b: the legal compute types as rocpy's compute=, and the legal scale types. A compute type that
# only permits less precision is served by the full one; float16 accumulates in float32, as hipBLASLt does.
_LEGAL: dict[str, tuple[dict[ComputeType, str | None], tuple[CudaDataType, ...]]] = {
    "float16": (
        _NARROW | {ComputeType.COMPUTE_16F: None, ComputeType.COMPUTE_16F_PEDANTIC: None},
        (CudaDataType.CUDA_R_32F, CudaDataType.CUDA_R_16F),
    ),
    "bfloat16": (_NARROW, (CudaDataType.CUDA_R_32F,)),
    "float32": (dict(_SINGLE), (CudaDataType.CUDA_R_32F,)),
    "float64": (dict(_DOUBLE), (CudaDataType.CUDA_R_64F,)),
    "complex64": (dict.fromkeys(_SINGLE), (CudaDataType.CUDA_C_32F, CudaDataType.CUDA_R_32F)),
    "complex128": (dict.fromkeys(_DOUBLE), (CudaDataType.CUDA_C_64F, CudaDataType.CUDA_R_64F)),
    "float8_e4m3fn": (_NARROW, (CudaDataType.CUDA_R_32F,)),
    "float8_e5m2": (_NARROW, (CudaDataType.CUDA_R_32F,)),
    "float4_e2m1fn": (_NARROW, (CudaDataType.CUDA_R_32F,)),
}
_NAMES = ("a", "b", "c")


@dataclasses.dataclass(frozen=True)
class Specification:
    """A checked product: extents, types, and whether the result is column-major unless an epilog says so."""

    extents: Extents
    k: int
    vector_a: bool
    vector_b: bool
    dtype: str
    result_dtype: str
    compute: str | None
    conjugate: tuple[bool, bool]
    column_major: bool
    device: str
    quantized: str  # the type of a result with scales by blocks, made of one of result_dtype; empty for others

    @property
    def is_complex(self) -> bool:
        """Whether the operands are complex."""
        return dtypes.lookup(self.dtype).kind == "complex"

    @property
    def flops(self) -> int:
        """Floating-point operations, batch and complex factors counted."""
        batch = int(np.prod(self.extents.batch, dtype=np.int64))
        return 2 * self.extents.m * self.extents.n * self.k * batch * (4 if self.is_complex else 1)


def specify(a: Any, b: Any, c: Any, beta: Any, qualifiers: Any, options: MatmulOptions) -> Specification:
    """Check the operands against each other and the options."""
    package = _arrays.package_of(a, "a")
    _arrays.same_package(package, b, "b")
    if c is not None:
        _arrays.same_package(package, c, "c")
        if _arrays.device_of(c) != _arrays.device_of(a):
            raise _misplaced("c", c, a)
    if _arrays.device_of(b) != _arrays.device_of(a):
        raise _misplaced("b", b, a)
    for name, operand in (("a", a), ("b", b)):
        if len(operand.shape) < 1:
            raise InvalidProblemError(f"{name}: got shape (), expected one axis or more")
    shape_a = (1, *a.shape) if len(a.shape) == 1 else tuple(a.shape)
    shape_b = (*b.shape, 1) if len(b.shape) == 1 else tuple(b.shape)
    (m, k), (kb, n) = shape_a[-2:], shape_b[-2:]
    k, kb = k * _block_scaling.packing_of(a), kb * _block_scaling.packing_of(b)
    if k != kb:
        raise InvalidProblemError(f"a: shape {tuple(a.shape)}, b: shape {tuple(b.shape)}; K is {k} in a and {kb} in b")
    if 0 in (*shape_a, *shape_b):
        raise InvalidProblemError(
            f"a: shape {tuple(a.shape)}, b: shape {tuple(b.shape)}; nvmath takes no empty operands; rocpy.matmul does"
        )
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    if batch_a and batch_b and batch_a != batch_b:
        raise InvalidProblemError(
            f"a: batch axes {batch_a}, b: {batch_b}; nvmath requires them to be equal, or one operand without "
            "them; rocpy.matmul broadcasts"
        )
    extents = Extents(batch_a or batch_b, m, n, package)
    dtype = _dtype(a, b)
    if options.inplace and c is None:
        raise InvalidProblemError("inplace: the result is written into c, and there is no c; pass c=")
    if c is not None:
        _check_c(c, beta, extents, options.inplace)
    c_dtype = None if c is None else _arrays.dtype_name(c, "c")
    wanted = None if options.inplace else options.result_dtype
    result_dtype = wanted or c_dtype or dtype
    narrow = dtypes.lookup(result_dtype).bits <= 8
    if options.result_amax and not narrow:
        raise InvalidProblemError(f"result_amax: the result is {result_dtype}; it is for results of 8 bits or fewer")
    quantized = result_dtype if options.block_scaling and narrow else ""
    if quantized:
        result_dtype = "float32" if c_dtype is None else c_dtype
    if c_dtype is not None and c_dtype != result_dtype:
        raise UnsupportedError(
            f"c is {c_dtype} and the result {result_dtype}: hipBLASLt requires them to be equal; cast c, "
            "or choose result_type"
        )
    _check_blocks(a, b, dtype, quantized, (m, n, k), options)
    order = a if c is None else c
    column_major = len(order.shape) > 1 and _arrays.is_column_major(order)
    return Specification(
        extents,
        k,
        len(a.shape) == 1,
        len(b.shape) == 1,
        dtype,
        result_dtype,
        _compute(dtype, options),
        _conjugation(qualifiers),
        column_major,
        _arrays.device_of(a),
        quantized,
    )


def factor(value: Any, name: str, specification: Specification) -> Any:
    """Return a host scalar as a number of the scale type."""
    kind = complex if specification.is_complex else float
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return read_complex(value) if specification.is_complex else read_float(value)
    except (TypeError, ValueError, OverflowError):
        shown = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else repr(value)
        raise InvalidProblemError(
            f"{name}: {shown} is not convertible to {kind.__name__}, the scale type of a product of "
            f"{specification.dtype}"
        ) from None


def _misplaced(name: str, operand: Any, a: Any) -> InvalidProblemError:
    return InvalidProblemError(
        f"{name} is on {_arrays.device_of(operand)} and a on {_arrays.device_of(a)}; all operands must be in the same "
        "memory"
    )


def _dtype(a: Any, b: Any) -> str:
    first, second = _arrays.dtype_name(a, "a"), _arrays.dtype_name(b, "b")
    if first not in _LEGAL or second not in _LEGAL:
        raise InvalidProblemError(
            f"a is {first} and b {second}; nvmath takes {', '.join(_LEGAL)}; see rocpy.matmul for others"
        )
    if first != second and not (first.startswith("float8") and second.startswith("float8")):
        raise InvalidProblemError(f"a is {first} and b is {second}; they must have one type")
    return first


def _check_blocks(
    a: Any, b: Any, dtype: str, quantized: str, extents: tuple[int, int, int], options: MatmulOptions
) -> None:
    """Refuse operands and results that scales by blocks do not go with."""
    fp4 = dtype == "float4_e2m1fn"
    if not options.block_scaling:
        if fp4:
            raise InvalidProblemError(
                "block_scaling: operands of float4_e2m1fn need it; pass options block_scaling=True"
            )
        return
    if dtypes.lookup(dtype).bits > 8:
        raise InvalidProblemError(f"block_scaling: a is {dtype}; it is for operands of 8 bits (MXFP8) and of 4 (NVFP4)")
    if min(len(a.shape), len(b.shape)) < 2 or tuple(a.shape[:-2]) != tuple(b.shape[:-2]):
        raise InvalidProblemError(
            f"block_scaling: a of shape {tuple(a.shape)} and b of shape {tuple(b.shape)}; both have two axes or more, "
            "and the same batch axes"
        )
    steps = (128, 128, 64 if fp4 else 128)
    if any(extent % step for extent, step in zip(extents, steps, strict=True)):
        raise InvalidProblemError(
            f"block_scaling: M, N, K = {extents}; they must be multiples of {', '.join(map(str, steps))}"
        )
    allowed = (dtype,) if fp4 else ("float8_e4m3fn", "float8_e5m2")
    if quantized and (options.inplace or quantized not in allowed):
        why = "written into c" if options.inplace else f"of {dtype} operands"
        raise InvalidProblemError(
            f"result_type: {quantized} {why}, with scales by blocks; it may be {', '.join(allowed)} in an array of its "
            "own, or float32, bfloat16 or float16"
        )


def _check_c(c: Any, beta: Any, extents: Extents, inplace: bool) -> None:
    shape = tuple(c.shape)
    if len(shape) < 2:
        raise InvalidProblemError(
            f"c: got shape {shape}, expected two axes or more: use ({extents.m}, 1) for one column"
        )
    if beta is None:
        raise InvalidProblemError("beta: required when c is given; pass beta=")
    full = (*extents.batch, extents.m, extents.n)
    fits = shape[-2] == extents.m and shape[-1] in (1, extents.n) and shape[:-2] in ((), extents.batch)
    if not fits or (inplace and shape != full):
        raise InvalidProblemError(
            f"c: got shape {shape}, expected {full}"
            + (" where the result is written into it" if inplace else f", or ({extents.m}, 1) without batch axes")
        )


def _compute(dtype: str, options: MatmulOptions) -> str | None:
    legal, scales = _LEGAL[dtype]
    if options.compute_type is not None and options.compute_type not in legal:
        raise InvalidProblemError(
            f"compute_type={ComputeType(options.compute_type).name}: a product of {dtype} has "
            f"{', '.join(kind.name for kind in legal)}"
        )
    if options.scale_type is not None and options.scale_type not in scales:
        raise InvalidProblemError(
            f"scale_type={CudaDataType(options.scale_type).name}: a product of {dtype} has "
            f"{', '.join(kind.name for kind in scales)}"
        )
    return None if options.compute_type is None else legal[ComputeType(options.compute_type)]


def _conjugation(qualifiers: Any) -> tuple[bool, bool]:
    """Return which operands are conjugated by the qualifiers; torch's own mark goes with the tensor."""
    if qualifiers is None:
        return False, False
    if not isinstance(qualifiers, np.ndarray):
        raise InvalidOperandError(
            f"qualifiers: got {type(qualifiers).__name__}, expected an array of matrix_qualifiers_dtype"
        )
    rows = qualifiers
    if rows.dtype.names is None or "is_conjugate" not in rows.dtype.names or rows.shape not in ((2,), (3,)):
        raise InvalidProblemError(
            f"qualifiers: an array of {rows.dtype}, shape {rows.shape}; it must be of matrix_qualifiers_dtype, with "
            "an element for each of a, b and c"
        )
    marks = [bool(mark) for mark in rows["is_conjugate"]]
    if any(marks[2:]):
        raise InvalidProblemError("qualifiers: c cannot be conjugated; conjugate it beforehand")
    return marks[0], marks[1]
