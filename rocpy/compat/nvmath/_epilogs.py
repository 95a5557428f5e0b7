# SPDX-License-Identifier: MIT
"""nvmath-python's epilogs as rocpy's: which inputs and outputs each has, and their shapes.

A product in nvmath is column-major and its bias runs along M; rocpy computes the transposed one, whose bias runs along
the last axis. All arrays below are those of the transposed product: (..., N, M).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rocpy.compat.nvmath import _arrays
from rocpy.compat.nvmath._enums import MatmulEpilog
from rocpy.errors import InvalidOperandError, InvalidProblemError


@dataclasses.dataclass(frozen=True)
class Row:
    """An epilog: rocpy's name for it, what it reads and what it gives, and whether the result must be column-major."""

    epilogue: str
    inputs: tuple[str, ...] = ()
    output: str = ""
    column: bool = True


ROWS = {
    MatmulEpilog.DEFAULT: Row("default", column=False),
    MatmulEpilog.RELU: Row("relu", column=False),
    MatmulEpilog.GELU: Row("gelu", column=False),
    MatmulEpilog.BIAS: Row("bias", ("bias",)),
    MatmulEpilog.RELU_BIAS: Row("relu_bias", ("bias",)),
    MatmulEpilog.GELU_BIAS: Row("gelu_bias", ("bias",)),
    MatmulEpilog.RELU_AUX: Row("relu_aux", output="relu_aux"),
    MatmulEpilog.RELU_AUX_BIAS: Row("relu_aux_bias", ("bias",), "relu_aux"),
    MatmulEpilog.GELU_AUX: Row("gelu_aux", output="gelu_aux"),
    MatmulEpilog.GELU_AUX_BIAS: Row("gelu_aux_bias", ("bias",), "gelu_aux"),
    MatmulEpilog.DRELU: Row("drelu", ("relu_aux",)),
    MatmulEpilog.DRELU_BGRAD: Row("drelu_bgrad", ("relu_aux",), "drelu_bgrad"),
    MatmulEpilog.DGELU: Row("dgelu", ("gelu_aux",)),
    MatmulEpilog.DGELU_BGRAD: Row("dgelu_bgrad", ("gelu_aux",), "dgelu_bgrad"),
    # The transposed product's b is the user's a, and the other way round.
    MatmulEpilog.BGRADA: Row("bgradb", output="bgrada", column=False),
    MatmulEpilog.BGRADB: Row("bgrada", output="bgradb"),
}


@dataclasses.dataclass(frozen=True)
class Extents:
    """The extents of a product, and its package."""

    batch: tuple[int, ...]
    m: int
    n: int
    package: str


def find(epilog: Any) -> MatmulEpilog:
    """Return the member of an epilog given by member or number."""
    try:
        return MatmulEpilog(epilog)
    except ValueError:
        raise InvalidProblemError(f"epilog: got {epilog!r}, expected a member of MatmulEpilog") from None


def check_inputs(epilog: MatmulEpilog, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of an epilog; missing and surplus ones are refused by name."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidOperandError(f"epilog_inputs: got {type(inputs).__name__}, expected a dict of arrays")
    arguments = dict(inputs or {})
    wanted = ROWS[epilog].inputs
    if set(arguments) != set(wanted):
        raise InvalidProblemError(
            f"epilog {epilog.name} takes the inputs {list(wanted) or 'none'}, and epilog_inputs has "
            f"{list(arguments) or 'none'}"
        )
    return arguments


def bias(array: Any, extents: Extents) -> Any:
    """Return the bias of the transposed product, of length M, from one of shape (M,), (M, 1) or (..., M, 1)."""
    _arrays.same_package(extents.package, array, "bias")
    shape = tuple(array.shape)
    rows = shape[0] if len(shape) == 1 else shape[-2] if len(shape) > 1 and shape[-1] == 1 else -1
    if rows != extents.m or shape[:-2] not in ((), extents.batch):
        batch = f", or {(*extents.batch, extents.m, 1)}" if extents.batch else ""
        raise InvalidProblemError(
            f"bias: shape {shape}; nvmath's bias runs along M = {extents.m}: it must be ({extents.m},) or "
            f"({extents.m}, 1){batch}"
        )
    return array if len(shape) == 1 else array[..., 0]


def auxiliary(name: str, array: Any, extents: Extents, dtype: Any) -> Any:
    """Return the auxiliary input of the transposed product from a bit mask, or from a pre-activation with padding."""
    _arrays.same_package(extents.package, array, name)
    mask = name == "relu_aux"
    rows = _arrays.mask_rows(extents.m) if mask else _arrays.round_up(extents.m, 8)
    shape = tuple(array.shape)
    if shape not in ((rows, extents.n), (*extents.batch, rows, extents.n)):
        raise InvalidProblemError(
            f"{name}: got shape {shape}, expected the shape {(*extents.batch, rows, extents.n)} that the forward "
            "product returned"
        )
    if mask and not str(array.dtype).endswith("uint8"):
        raise InvalidProblemError(f"relu_aux: got {array.dtype}, expected uint8, a bit for each element")
    lying = _arrays.transposed(array)
    full = _arrays.unpack_bits(lying, extents.m, dtype) if mask else lying[..., : extents.m]
    return full if len(shape) > 2 or not extents.batch else _arrays.expand(full, (*extents.batch, *full.shape))


def output(name: str, array: Any, extents: Extents) -> Any:
    """Return an auxiliary output in nvmath's shape from that of the transposed product."""
    if name == "relu_aux":
        return _arrays.transposed(_arrays.pack_bits(array))
    if name == "gelu_aux":
        return _arrays.transposed(_arrays.padded(array, _arrays.round_up(extents.m, 8)))
    # A gradient: along the last axis, a batch has one more.
    if not extents.batch:
        return array
    length = extents.n if name == "bgradb" else extents.m
    if tuple(array.shape) != (*extents.batch, length):
        array = _arrays.expand(array, (*extents.batch, length))
    return array[..., None]
