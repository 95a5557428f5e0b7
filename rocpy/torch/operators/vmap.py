# SPDX-License-Identifier: MIT
"""Rules of torch.vmap: the mapped axis becomes a batch axis of one product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.options import forbids_composing
from rocpy.blaslt.model.shapes import is_column_bias
from rocpy.torch.operators import blocks, custom_products, linear_layer, products
from rocpy.torch.operators.activations import ACTIVATIONS, Activation
from rocpy.torch.operators.registration import LIBRARY
from rocpy.torch.operators.shapes import ProductSettings, check_product

__all__ = ["register"]


def _front(x: Any, axis: int | None) -> Any:
    """Return an operand with its mapped axis first, or as it is where it has none."""
    return x if x is None or axis is None else x.movedim(axis, 0)


def _padded(x: Any, mapped: bool, own: int, wanted: int) -> Any:
    """Return an operand with axes of extent 1 behind the mapped one, so that those of all operands line up."""
    return x.reshape(x.shape[0], *(1,) * (wanted - own), *x.shape[1:]) if mapped and wanted > own else x


def _entry(x: Tensor) -> Tensor:
    """Return the first entry of an operand whose mapped axis is in front; one without values where there is none."""
    return x[0] if x.shape[0] else x.new_empty(x.shape[1:])


def _linear(operator: Any, aux: bool) -> Callable[..., Any]:
    def rule(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Any:
        x_axis, weight_axis, bias_axis = in_dims[:3]
        rows, matrix, row = _front(x, x_axis), _front(weight, weight_axis), _front(bias, bias_axis)
        if weight_axis is None and bias_axis is None:
            return operator(rows, matrix, row, activation), (0, 0) if aux else 0
        # A weight or bias for each entry: one batched product, in which all axes of an input but the last are rows.
        if x_axis is None:
            rows = rows.expand(info.batch_size, *rows.shape)
        lead = rows.shape[1:-1]
        rows = rows.reshape(rows.shape[0], math.prod(lead), rows.shape[-1])

        def run(function: Activation) -> Tensor:
            epilogue = function.epilogue(row is not None)
            d = products.product(rows, matrix.mT, None, row, None, epilogue, 1.0, 0.0, None, None, None)
            return d.reshape(d.shape[0], *lead, d.shape[-1])

        function = ACTIVATIONS[activation]
        if forbids_composing():
            return ((run(function), run(ACTIVATIONS["none"])), (0, 0)) if aux else (run(function), 0)
        pre = run(ACTIVATIONS["none"])
        y = function.function(pre)
        # Results of an operator share no memory.
        return ((y, pre.clone() if y is pre else pre), (0, 0)) if aux else (y, 0)

    return rule


def _mlp(aux: bool) -> Callable[..., Any]:
    """Two layers, each by its own rule."""
    second = _linear(linear_layer.linear, False)

    def rule(info: Any, in_dims: Any, x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Any:
        keep = aux and ACTIVATIONS[activation].saves == "input"
        first = _linear(linear_layer.linear_aux if keep else linear_layer.linear, keep)
        results, _ = first(info, in_dims[:3], x, w1, b1, activation)
        hidden, *pre = results if keep else (results,)
        y, _ = second(info, (0, *in_dims[3:5]), hidden, w2, b2, "none")
        return ([y, hidden, *pre], [0] * (2 + len(pre))) if aux else (y, 0)

    return rule


def _bias(bias: Tensor, mapped: bool, own: int, m: int, n: int, lead: Any, matrices: bool) -> Tensor:
    """Return a bias with the mapped axis in front, of a shape that stands for the same in a product of this batch."""
    shape = tuple(bias.shape[1:] if mapped else bias.shape)
    if own > 1 and is_column_bias(shape, m, n, tuple(lead[1:]), matrices):
        # With all axes, so that it is never one for each batch entry.
        return _padded(bias if mapped else bias.unsqueeze(0), True, own, len(lead) + 1)
    bias = _padded(bias, mapped, own, len(lead))
    # Spelled out where one element could be taken for a bias per row.
    return bias.expand(*lead, n) if bias.dim() > 1 and n == 1 else bias


class _Axes:
    """The operands of the batched product, and where the axes lie of what goes with one entry.

    Parameters
    ----------
    size
        Extent of the mapped axis.
    a, b
        The operands, the mapped axis in front.
    mapped, own
        Of a and b, and of others after them: whether they are mapped, and how many axes one entry has.
    """

    def __init__(self, size: int, a: Tensor, b: Tensor, mapped: Sequence[bool], own: Sequence[int]) -> None:
        self.rows, self.columns = own[0] > 1, own[1] > 1  # whether the result has these axes
        batch = max(own[0], own[1], 2) - 2
        self._full = batch + self.rows + self.columns
        left = _padded(a if self.rows else a.unsqueeze(-2), mapped[0], max(own[0], 2), batch + 2)
        self.right = _padded(b if self.columns else b.unsqueeze(-1), mapped[1], max(own[1], 2), batch + 2)
        if not (mapped[0] or mapped[1]):
            left = left.expand(size, *(1,) * (batch + 2 - left.dim()), *left.shape)
        self.left = left
        self.lead = torch.broadcast_shapes(left.shape[:-2], self.right.shape[:-2])

    def promoted(self, x: Tensor, mapped: bool, own: int) -> Tensor:
        """Return something that broadcasts to the result, with the axes that vectors leave away."""
        missing = self._full - own
        x = _padded(x, True, own, self._full) if mapped else x.reshape((*(1,) * missing, *x.shape))
        x = x if self.columns else x.unsqueeze(-1)
        return x if self.rows else x.unsqueeze(-2)

    def demoted(self, x: Tensor) -> Tensor:
        """Return a result without the axes that vectors leave away."""
        x = x if self.rows else x.squeeze(-2)
        return x if self.columns else x.squeeze(-1)


def _product(
    info: Any,
    in_dims: Any,
    a: Tensor,
    b: Tensor,
    c: Any,
    bias: Any,
    aux: Any,
    epilogue: str,
    *settings: Any,
) -> Any:
    row = EPILOGUES[epilogue]
    mapped = [axis is not None for axis in in_dims[:5]]
    operands = [_front(x, axis) for x, axis in zip((a, b, c, bias, aux), in_dims[:5], strict=True)]
    # Batched operands broadcast where those of one product do not: what that refuses is refused first.
    first = [_entry(x) if is_mapped else x for x, is_mapped in zip(operands, mapped, strict=True)]
    check_product(first[0], first[1], first[2], first[3], first[4], epilogue, ProductSettings(*settings))
    a, b, c, bias, aux = operands
    own = [0 if x is None else x.dim() for x in first]
    axes = _Axes(info.batch_size, a, b, mapped, own)
    m, n = axes.left.shape[-2], axes.right.shape[-1]
    if bias is not None:
        bias = _bias(bias, mapped[3], own[3], m, n, axes.lead, axes.rows and axes.columns)
    if aux is not None:
        aux = axes.promoted(aux, mapped[4], own[4]).expand(*axes.lead, m, n)
    operator = products.product_extra if row.outputs else products.product
    addend = None if c is None else axes.promoted(c, mapped[2], own[2])
    result = operator(axes.left, axes.right, addend, bias, aux, epilogue, *settings)
    demoted = axes.demoted
    if not row.outputs:
        return demoted(result), 0
    y, extra = result
    if row.aux == "store":
        return (demoted(y), demoted(extra)), (0, 0)
    if row.gradient == "bgrad":
        return (demoted(y), extra), (0, 0)
    # Sums of one operand: mapped only where that is.
    which = 0 if row.gradient == "bgrada" else 1
    if not (mapped[which] or (which == 0 and not mapped[1])):
        return (demoted(y), extra), (0, None)
    return (demoted(y), extra.reshape(extra.shape[0], *first[which].shape[:-2], extra.shape[-1])), (0, 0)


def _epilogue(
    info: Any,
    in_dims: Any,
    a: Tensor,
    b: Tensor,
    c: Any,
    inputs: Sequence[Tensor],
    names: str,
    expression: str,
    *settings: Any,
) -> Any:
    dims = [*in_dims[:3], *in_dims[3]]
    mapped = [axis is not None for axis in dims]
    operands = [_front(x, axis) for x, axis in zip((a, b, c, *inputs), dims, strict=True)]
    first = [_entry(x) if is_mapped else x for x, is_mapped in zip(operands, mapped, strict=True)]
    # Refuses what one product refuses; and of an input without axes a mapped one must not widen the results.
    one = custom_products.results_without_values(*first[:3], first[3:], names, expression, *settings)
    own = [0 if x is None else x.dim() for x in first]
    axes = _Axes(info.batch_size, operands[0], operands[1], mapped, own)
    others = [
        x if x is None or not (is_mapped or count) else axes.promoted(x, is_mapped, count)
        for x, is_mapped, count in list(zip(operands, mapped, own, strict=True))[2:]
    ]
    results = custom_products.operator(axes.left, axes.right, others[0], others[1:], names, expression, *settings)
    return [axes.demoted(x).to(like.dtype) for x, like in zip(results, one, strict=True)], [0] * len(one)


def register() -> None:
    """Register the rules."""
    for operator, rule in (
        (linear_layer.linear, _linear(linear_layer.linear, False)),
        (linear_layer.linear_aux, _linear(linear_layer.linear_aux, True)),
        (blocks.mlp, _mlp(False)),
        (blocks.mlp_aux, _mlp(True)),
        (products.product, _product),
        (products.product_extra, _product),
        (custom_products.operator, _epilogue),
    ):
        torch.library.register_vmap(operator, rule, lib=LIBRARY)
