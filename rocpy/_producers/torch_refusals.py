# SPDX-License-Identifier: MIT
"""The refusals of torch tensors whose memory is not to be read or not dense, and what to do about each."""

from __future__ import annotations

import sys
from typing import Any

from rocpy._messages.modules import is_instance_of
from rocpy.errors import InvalidOperandError, UnsupportedError, shown_as

__all__ = ["TorchLayerRequired", "advice", "is_unreadable", "refuse_layout"]


@shown_as(UnsupportedError)
class TorchLayerRequired(UnsupportedError):  # noqa: N818 - a call for the torch layer, not a fault
    """A torch tensor whose memory must not be used directly: autograd, a transform or another layer must see the call.

    The function form catches it and hands the call to the dispatcher that `set_torch_dispatcher` registered, if any.
    """


def advice(reason: str) -> str:
    """Return what to do about a reason why torch's dispatcher must see a tensor."""
    if "requires grad" in reason:
        return "call it under torch.no_grad() or pass the tensor's .detach(); a gradient is never silently dropped"
    if "tangent" in reason:
        return (
            "use torch's own product, or pass torch.autograd.forward_ad.unpack_dual(x).primal if the tangent is not "
            "needed"
        )
    if "autocast" in reason:
        return (
            "leave the autocast region, or convert the operands and use torch.autocast(..., enabled=False) around the "
            "call"
        )
    if "no memory" in reason:
        return "pass a tensor with memory"
    if "DTensor" in reason:
        return "pass its .to_local() or its .full_tensor()"
    if "wraps" in reason:
        return "pass a plain tensor, such as one that it wraps"
    if "subclass" in reason:
        return "pass tensor.as_subclass(torch.Tensor) to use its plain memory"
    return "call it outside of the transform or the tracing"


def is_unreadable(array: Any) -> bool:
    """Return whether a tensor is no array of values, and torch has no operators of other packages for it."""
    if array.is_nested:
        return True
    torch = sys.modules["torch"]
    return (
        type(array) is not torch.Tensor
        and type(array) is not torch.nn.Parameter
        and (
            is_instance_of(array, "torch.nn.parameter", "UninitializedTensorMixin")
            or is_instance_of(array, "torch.masked", "MaskedTensor")
        )
    )


def refuse_layout(array: Any, name: str) -> None:
    """Raise for tensors that have no plain memory at all.

    Raises
    ------
    InvalidOperandError
        The tensor is nested, masked, sparse or quantized, or not initialized.
    """
    if array.is_nested:
        seen, do = "a nested tensor", "pass its .to_padded_tensor(...) or its components"
    elif is_instance_of(array, "torch.nn.parameter", "UninitializedTensorMixin"):
        seen = "a parameter or buffer that is not initialized"
        do = "call its module on an input first, or its .materialize(shape)"
    elif is_instance_of(array, "torch.masked", "MaskedTensor"):
        seen, do = "a masked tensor", "pass its .to_tensor(value), or its .get_data() to ignore the mask"
    elif array.layout is not sys.modules["torch"].strided:
        seen, do = f"a tensor of layout {array.layout}", "pass its .to_dense()"
    elif array.is_quantized:
        # Products take those integers of 8 bits that have a sign.
        integers = " or .int_repr()" if array.dtype == sys.modules["torch"].qint8 else ""
        seen, do = f"a quantized tensor ({array.dtype})", f"pass its .dequantize(){integers}"
    else:
        return
    raise InvalidOperandError(f"{name}: got {seen}, expected a tensor with dense memory; {do}")
