# SPDX-License-Identifier: MIT
"""Freezing of a model for inference: the weights of its layers are packed once, until it is trained again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rocpy._messages.html import table
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.layers import packing
from rocpy.torch.layers.modules import Linear
from rocpy.torch.operators.activations import ACTIVATIONS
from rocpy.torch.operators.linear_layer import linear_result
from rocpy.torch.replace.report import Left

__all__ = ["FreezeReport", "freeze"]


@dataclass(eq=False)
class FreezeReport:
    """The result of :func:`rocpy.torch.freeze`.

    Parameters
    ----------
    frozen
        Names of the layers whose weight is packed.
    not_frozen
        Layers that read their weight unpacked, with the reason.
    packed_bytes
        Memory of the packed weights, in addition to that of the parameters.
    """

    frozen: list[str] = field(default_factory=list)
    not_frozen: list[Left] = field(default_factory=list)
    packed_bytes: int = 0
    _layers: list[Any] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Free the packed weights and let the layers read their parameters again; a second call has no effect."""
        layers, self._layers = self._layers, []
        for layer in layers:
            packing.unfreeze(layer)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        rows = [{name: getattr(row, name) for name in row.__slots__} for row in self.not_frozen]
        return {"frozen": list(self.frozen), "not_frozen": rows, "packed_bytes": self.packed_bytes}

    def _summary(self) -> str:
        return f"{len(self.frozen)} linear layers frozen, {self.packed_bytes} bytes packed"

    def __repr__(self) -> str:
        return f"<FreezeReport: {self._summary()}, {len(self.not_frozen)} not frozen>"

    def _repr_html_(self) -> str:
        rows = [(name, "frozen", None) for name in self.frozen]
        return table(
            self._summary(),
            ("layer", "", ""),
            [*rows, *((row.name or "(the model)", "not frozen", row.reason) for row in self.not_frozen)],
        )

    def __str__(self) -> str:
        lines = [self._summary()]
        lines += [f"  {row.name or '(the model)'}  not frozen  {row.reason}" for row in self.not_frozen]
        return "\n".join(lines)


def freeze(model: torch.nn.Module) -> FreezeReport:
    """Pack the weights of a model's layers for inference; they must not change in ways that torch does not report.

    Parameters
    ----------
    model
        A model in eval mode with layers of this package: :class:`Linear`, :class:`MLP` and :class:`GatedMLP`, or layers
        replaced by :func:`replace_linear`.

    Returns
    -------
    FreezeReport
        Which layers are packed, which are not and why, and the memory used; ``undo()`` reverses it.

    Raises
    ------
    InvalidOperandError
        If ``model`` is not a module.
    InvalidProblemError
        If it, or a layer of it, is in training mode, or it has no layer of this package.

    Notes
    -----
    Packed weights take the weights' memory a second time; if the platform does not pack weights, nothing is packed.
    They are used only if autograd records nothing: under ``torch.no_grad()`` or ``torch.inference_mode()``, or with
    parameters that require no gradient.

    A call reads all weights again, also those that are packed already. ``train()`` on the model or on a layer undoes
    this for the layers concerned and frees their packed weights; ``eval()`` does not freeze again. Copies of a frozen
    model are frozen; an unpickled one packs its weights when it is first called.

    Changes that torch reports take effect at the next call: writes to a parameter, ``load_state_dict`` (also with
    ``assign=True``), replacing the parameter or its storage, ``torch.utils.swap_tensors``, and optimizer steps,
    including fused and compiled ones. Writes through ``weight.data``, a numpy view, a pointer or the storage, those
    of most collectives of other backends of torch.distributed, and functions of ``torch.optim`` called without an
    optimizer, are not detected: call this function again, or :meth:`Linear.repack`, after them. With ``ROCPY_DEBUG=1``
    each product checks, and warns.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> model = torch.nn.Sequential(rt.Linear(4, 8, activation="relu"), rt.Linear(8, 2)).eval()
    >>> report = rt.freeze(model)
    >>> report.frozen
    ['0', '1']
    >>> with torch.inference_mode():
    ...     model(torch.ones(3, 4)).shape
    torch.Size([3, 2])
    >>> report.undo()
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidOperandError(f"model: got {type(model).__name__}; pass a torch.nn.Module")
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, Linear)]
    if not layers:
        raise InvalidProblemError(
            "model: it has no layer of rocpy.torch to freeze; call rocpy.torch.replace_linear(model) first, whose "
            "report names the layers that it cannot replace"
        )
    training = next((name or "the model" for name, layer in [("", model), *layers] if layer.training), None)
    if training is not None:
        raise InvalidProblemError(f"model: {training} is in training mode; call model.eval() first")
    report = FreezeReport()
    for name, layer in layers:
        reason = _freeze(layer, report)
        if reason is None:
            report.frozen.append(name)
        else:
            report.not_frozen.append(Left(name, type(layer).__name__, reason))
    return report


def _freeze(layer: Linear, report: FreezeReport) -> str | None:
    """Pack one layer's weight, as it is now; return why that cannot be."""
    packing.forget(layer)  # packed before a write that torch did not report
    weight = layer.weight
    if type(weight) is not torch.nn.Parameter:
        return f"its weight is computed, or a {type(weight).__name__}"
    if weight.is_meta:
        return "its weight has no memory yet"
    if weight.is_inference():
        return "its weight was created in inference mode, where changes are not counted"
    if packing.is_sharded(layer):
        return "its weight is gathered again for each call, by torch.distributed.fsdp.fully_shard"
    refusal = _refusal(layer, weight)
    if refusal is not None:
        return refusal
    packed = packing.pack(layer, weight)
    table = layer.__dict__
    table.setdefault(packing.PACK_BEFORE, layer.pack)
    table["pack"] = True
    report._layers.append(layer)
    if packed is not None and packed.packed:
        report.packed_bytes += weight.nbytes
    return None


def _refusal(layer: Linear, weight: torch.Tensor) -> str | None:
    """Return why a layer has no result for an input of its weight's type; its calls raise an error."""
    shape_only = weight.detach().to("meta")
    try:
        linear_result(shape_only[:1], shape_only, None, layer._row or ACTIVATIONS["none"])
    except (InvalidProblemError, UnsupportedError) as error:
        return str(error)
    return None
