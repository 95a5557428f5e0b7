# SPDX-License-Identifier: MIT
"""The gate of a feed-forward block as an epilogue of its product, whose rows do not depend on each other.

torch's functions of the halves of one product, which the block uses otherwise, may depend on an array's shape.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from rocpy.epilogues import CustomEpilogue
from rocpy.epilogues.expressions.expression import Builder
from rocpy.torch.layers.functions import linear
from rocpy.torch.operators.activations import Activation

__all__ = ["gate_by_rows"]


@functools.cache
def _gate(activation: str) -> CustomEpilogue:
    builder = Builder(("up",))
    x = builder.x()
    function = x if activation == "none" else builder.op(activation, x)
    return CustomEpilogue(builder.finish([builder.op("mul", function, builder.input("up"))], True, (), "gate"))


def gate_by_rows(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Any:
    """Return ``activation(x @ gate.T) * (x @ up.T)`` for the weights of both, gate first, in two products."""
    gate, up = weight.chunk(2)
    gate_bias, up_bias = (None, None) if bias is None else bias.chunk(2)
    return linear(x, gate, gate_bias, _gate(activation.name), epilogue_inputs={"up": linear(x, up, up_bias)})
