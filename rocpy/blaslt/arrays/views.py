# SPDX-License-Identifier: MIT
"""Arrays in CPU memory of frameworks that rocpy composes nothing by: products of numpy's views of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocpy._operand import array_like, numpy_view, readable
from rocpy.blaslt.arrays.framework import root
from rocpy.blaslt.model.packed import Packed
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.runtime.memory import Buffer

__all__ = ["delivered", "viewed", "viewed_call", "viewed_inputs"]


def viewed(array: Any, name: str) -> Any:
    """Return numpy's view of an array of such a framework, jax among them; other arrays as they are."""
    array = readable(array, name)
    if isinstance(array, (np.ndarray, np.generic, Buffer, Packed)) or is_weight(array):
        return array
    exports = hasattr(array, "__dlpack__") or hasattr(array, "__array_interface__")
    own = root(array) in ("torch", "cupy") or hasattr(array, "resolve_conj")
    return numpy_view(array, name) if exports and not own else array


def viewed_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a custom epilogue, with views of arrays in their stead."""
    return {name: viewed(one, f"epilogue_inputs[{name!r}]") for name, one in inputs.items()}


def delivered(outputs: Any, like: Any, written: tuple[Any, ...] = ()) -> Any:
    """Return outputs of numpy's as arrays of the framework of ``like``: an array, or tuples and dicts of them.

    Those that the caller passed to be ``written`` are themselves.
    """
    if isinstance(outputs, tuple):
        return tuple(delivered(one, like, written) for one in outputs)
    if isinstance(outputs, dict):
        return {name: delivered(one, like, written) for name, one in outputs.items()}
    if not isinstance(outputs, np.ndarray) or any(outputs is one for one in written):
        return outputs
    return array_like(like, outputs)


class _Viewed(Preparation[Any]):
    """A product, or one of groups, of numpy's views, whose results are arrays like the operands."""

    def __init__(self, call: Any, views: dict[str, Any]) -> None:
        self._call, self._views = call, views

    def prepare(self) -> Any:
        """Return the call on the views."""
        return self._call.replaced(**self._views)

    def finish(self, outputs: Any) -> Any:
        """Return the outputs as the call's own framework has them; ``out`` is itself."""
        a, out = self._call.a, self._call.out
        if self._views["a"] is a:
            return outputs
        return delivered(outputs, a, tuple(out) if isinstance(out, (tuple, list)) else (out,))


def viewed_call(call: Any, names: tuple[str, ...] = ("a", "b", "c", "bias", "aux")) -> Preparation[Any] | None:
    """Return how a call is made on views of its operands; ``None`` where it is made on the operands themselves.

    ``call`` is a product's or one of groups, whose operands have these ``names``.
    """
    views = {name: viewed(getattr(call, name), name) for name in names}
    inputs = getattr(call, "inputs", None)
    if isinstance(inputs, dict):
        views["inputs"] = viewed_inputs(inputs)
    return _Viewed(call, views) if any(views[name] is not getattr(call, name) for name in names) else None
