# SPDX-License-Identifier: MIT
"""The state dict of a gated block: two projections by the names of those models, which are one parameter in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["join_gate", "split_gate"]

_NAMES = ("weight", "bias")


def split_gate(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:  # noqa: ARG001
    """Split the parameters for gate and up: a post hook of ``state_dict``."""
    for name in _NAMES:
        both = state.pop(f"{prefix}gate_up_proj.{name}", None)
        if both is not None:
            state[f"{prefix}gate_proj.{name}"], state[f"{prefix}up_proj.{name}"] = both.chunk(2, 0)


def join_gate(
    module: Any,
    state: dict[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],  # noqa: ARG001
    errors: list[str],
) -> None:
    """Join the parameters of gate and up, each checked by its own name: a pre hook of ``load_state_dict``.

    What a state dict lacks, or has in another shape, stays as it is.
    """
    for name in _NAMES:
        parameter = module.gate_up_proj._parameters.get(name)
        joined = f"{prefix}gate_up_proj.{name}"
        if parameter is None or joined in state:
            continue
        keys = [f"{prefix}{part}_proj.{name}" for part in ("gate", "up")]
        if strict:
            missing += [key for key in keys if key not in state]
        halves = list(parameter.detach().chunk(2, 0))
        loaded = False
        for i, key in enumerate(keys):
            if key in state and _check(state[key], key, halves[i], errors):
                halves[i], loaded = state[key], True
            state.pop(key, None)
        if loaded and _fit(keys, halves, metadata, errors):
            state[joined] = torch.cat((halves[0], halves[1].to(halves[0].device)))
        else:
            state[joined] = parameter  # so that it is not reported by a name that no state dict has


def _check(value: Any, key: str, own: Tensor, errors: list[str]) -> bool:
    """Whether a state dict's value is one of a projection; what is wrong with it is noted, in torch's words."""
    if not torch.overrides.is_tensor_like(value):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
            f"but received {type(value)}"
        )
    elif value.shape != own.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in current "
            f"model is {own.shape}."
        )
    else:
        return True
    return False


def _fit(keys: list[str], halves: list[Tensor], metadata: dict[str, Any], errors: list[str]) -> bool:
    """Whether two projections can be one parameter: where they are not copied, of one dtype and device."""
    first, second = halves
    if not metadata.get("assign_to_params_buffers") or (first.dtype, first.device) == (second.dtype, second.device):
        return True
    errors.append(
        f"{keys[0]} is {first.dtype} on {first.device} and {keys[1]} is {second.dtype} on {second.device}; with "
        "assign=True both must have one dtype and device, since they become one parameter."
    )
    return False
