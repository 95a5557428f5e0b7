# SPDX-License-Identifier: MIT
"""What the conversions of arrays need of numpy and of torch: the same functions under the same names."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._messages.modules import is_tensor
from rocpy._operand import describe
from rocpy._producers.torch_modes import gradient_reason, is_batched, kind_reason, nothing_traces
from rocpy._producers.torch_refusals import advice, refuse_layout
from rocpy.dtypes import DType
from rocpy.errors import InvalidOperandError, UnsupportedError

__all__ = ["PACKED", "library_of", "plain", "read", "refuse_gradient"]

# The type that torch packs two to a byte, and its magnitudes by code.
PACKED = "float4_e2m1fn"
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class _Numpy:
    """What quantization needs of an array library, by numpy."""

    where, isfinite, rint = staticmethod(np.where), staticmethod(np.isfinite), staticmethod(np.rint)
    clip, frexp = staticmethod(np.clip), staticmethod(np.frexp)

    @staticmethod
    def cast(x: Any, name: str) -> Any:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return np.asarray(x).astype(dtypes.lookup(name).numpy if name in dtypes.DTYPES else name)

    @staticmethod
    def reinterpreted(x: Any, name: str) -> Any:
        return np.asarray(x, order="C").view(dtypes.lookup(name).numpy if name in dtypes.DTYPES else name)

    @staticmethod
    def largest(x: Any, axis: int | tuple[int, ...], *, keep: bool) -> Any:
        return np.max(abs(x), axis=axis, keepdims=keep, initial=0.0)

    @staticmethod
    def padded(x: Any, count: int) -> Any:
        return np.concatenate([x, np.zeros((*x.shape[:-1], count), x.dtype)], axis=-1)

    @staticmethod
    def moved(x: Any, source: int, target: int) -> Any:
        return np.ascontiguousarray(np.moveaxis(x, source, target))

    @staticmethod
    def check(row: DType, extent: int) -> None:
        """Every type is there, one element to a byte."""

    @staticmethod
    def narrow(x: Any, row: DType) -> Any:
        return np.asarray(x).astype(row.numpy)

    @staticmethod
    def wide(x: Any) -> Any:
        return x.astype(np.float64)

    @staticmethod
    def on_host(x: Any) -> Any:
        """Return the array as numpy's, without a copy; ``None`` where it has no memory that the host may read."""
        return x

    @staticmethod
    def of_codes(codes: Any, row: DType) -> Any:
        return codes.view(row.numpy)

    @staticmethod
    def of_array(x: Any) -> Any:
        return x


NUMPY = _Numpy()


class _Torch:
    """The same by torch, which the array brings along."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.where, self.isfinite, self.rint, self.clip = torch.where, torch.isfinite, torch.round, torch.clamp
        self.frexp = torch.frexp

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, dtypes.DTYPES[name].torch if name in dtypes.DTYPES else name)

    def cast(self, x: Any, name: str) -> Any:
        return x.to(self._dtype(name))

    def reinterpreted(self, x: Any, name: str) -> Any:
        return x.contiguous().view(self._dtype(name))

    def largest(self, x: Any, axis: int | tuple[int, ...], *, keep: bool) -> Any:
        if x.numel() == 0:  # torch has no largest of nothing; a sum of nothing is zero
            return x.sum(axis, keepdim=keep)
        return x.abs().amax(axis, keepdim=keep)

    def padded(self, x: Any, count: int) -> Any:
        return self.torch.cat([x, x.new_zeros((*x.shape[:-1], count))], dim=-1)

    @staticmethod
    def moved(x: Any, source: int, target: int) -> Any:
        return x.movedim(source, target).contiguous()

    def check(self, row: DType, extent: int) -> None:
        """Refuse what torch has no type for."""
        if not row.torch or not hasattr(self.torch, row.torch):
            raise UnsupportedError(f"dtype: this torch has no {row.name}; pass a numpy array, or use another dtype")
        if row.name == PACKED and extent % 2:
            raise UnsupportedError(
                f"x: {extent} elements along the last axis; torch packs two {row.name} elements into a byte: pad the "
                "axis to an even length"
            )

    def narrow(self, x: Any, row: DType) -> Any:
        if row.name != PACKED:
            return x.to(self._dtype(row.name))
        magnitudes = self.torch.tensor(_E2M1, dtype=x.dtype, device=x.device)
        codes = self.torch.searchsorted(magnitudes, x.abs().contiguous()).to(self.torch.uint8)
        codes |= self.torch.signbit(x).to(self.torch.uint8) << 3
        return (codes[..., 0::2] | codes[..., 1::2] << 4).view(self._dtype(row.name))

    def wide(self, x: Any) -> Any:
        if dtypes.lookup(x.dtype).name != PACKED:
            return x.to(self.torch.float64)
        both = x.view(self.torch.uint8)
        codes = self.torch.stack([both & 15, both >> 4], dim=-1).flatten(-2).long()
        values = [*_E2M1, *(-value for value in _E2M1)]
        return self.torch.tensor(values, dtype=self.torch.float64, device=x.device)[codes]

    def on_host(self, x: Any) -> Any:
        if x.device.type != "cpu" or not nothing_traces() or kind_reason(x) is not None or is_batched(x):
            return None
        plain = x.detach().resolve_neg()
        return (
            plain.float() if plain.dtype is self.torch.bfloat16 else plain
        ).numpy()  # numpy has no bfloat16 of its own

    def of_codes(self, codes: Any, row: DType) -> Any:
        if row.name == PACKED:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        return self.of_array(codes).view(self._dtype(row.name))

    def of_array(self, x: Any) -> Any:
        return self.torch.from_numpy(x)


def plain(array: Any, name: str) -> Any:
    """Return an instance of a subclass of numpy's array as a plain one, other objects as they are.

    Raises
    ------
    InvalidOperandError
        If plain values would not be all of it: a mask, or arithmetic of its own.
    """
    if not isinstance(array, np.ndarray) or type(array) is np.ndarray:
        return array
    describe(array, name)
    return array.view(np.ndarray)


def library_of(x: Any, name: str) -> Any:
    """Return the functions of the library that an array belongs to; `name` is its own in messages."""
    if isinstance(x, np.ndarray):
        return NUMPY
    if is_tensor(x):
        return _Torch(sys.modules["torch"])
    raise InvalidOperandError(
        f"{name}: got {type(x).__module__}.{type(x).__name__}, expected a numpy array or a torch tensor"
    )


def read(x: Any, name: str) -> tuple[Any, Any]:
    """Return the functions of the library that an array of a caller's belongs to, and the array, with plain values."""
    library = library_of(x, name)
    if isinstance(library, _Torch):
        refuse_layout(x, name)
    return library, plain(x, name)


def refuse_gradient(x: Any, name: str) -> None:
    """Refuse a tensor that autograd records, for a function that has no gradient."""
    reason = gradient_reason(x) if hasattr(x, "requires_grad") else None
    if reason is not None:
        raise UnsupportedError(f"{name}: {reason}, and rounding to a narrow type has no gradient; {advice(reason)}")
