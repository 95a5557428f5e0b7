# SPDX-License-Identifier: MIT
"""The state dict of a gated block: two projections by the names of those models, which are one parameter in memory."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Never

import torch
from torch import Tensor

from rocpy._producers.torch_modes import is_sharded
from rocpy.errors import InvalidOperandError

__all__ = ["Projection", "join_gate", "projections", "refuse_assignment", "split_gate"]

_NAMES = ("weight", "bias")


class Projection(NamedTuple):
    """The parameters of one projection of a gated block: views of what the block stores for both."""

    weight: Tensor
    bias: Tensor | None

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a parameter of its own."""
        refuse_assignment(name)

    def __repr__(self) -> str:
        """Return what errors of torch show of it, as of functional_call with names of a state dict."""
        shapes = {name: None if x is None else tuple(x.shape) for name, x in self._asdict().items()}
        return f"Projection({shapes}: views of gate_up_proj, by which named_parameters and functional_call name both)"


def refuse_assignment(name: str) -> Never:
    """Raise the error of an assignment to a projection, or to a parameter of one."""
    raise InvalidOperandError(
        f"{name}: cannot be assigned, since gate and up are one parameter, gate_up_proj: copy into that of the block "
        "under torch.no_grad(), as in block.gate_proj.weight.copy_(weight), or load a state dict"
    )


def projections(module: Any) -> tuple[Projection, Projection]:
    """Return the gate and the up projection of a block."""
    layer = module.gate_up_proj
    weights = layer.weight.chunk(2, 0)
    biases = (None, None) if layer.bias is None else layer.bias.chunk(2, 0)
    return Projection(weights[0], biases[0]), Projection(weights[1], biases[1])


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
    assign = bool(metadata.get("assign_to_params_buffers"))
    for name in _NAMES:
        parameter = module.gate_up_proj._parameters.get(name)
        joined = f"{prefix}gate_up_proj.{name}"
        keys = [f"{prefix}{part}_proj.{name}" for part in ("gate", "up")]
        if parameter is None:
            continue
        # torch.distributed.checkpoint adds the parameter itself to a state dict that lacks its name.
        if joined in state and not (state[joined] is parameter and any(key in state for key in keys)):
            continue
        if strict:
            missing += [key for key in keys if key not in state]
        present = {key: state.pop(key) for key in keys if key in state}
        loaded = {key: x for key, x in present.items() if _check(x, key, parameter, assign, errors)}
        state[joined] = parameter  # so that it is not reported by a name that no state dict has
        if loaded:
            # Of a sharded parameter the ranks exchange the halves, so that only those that are needed are read.
            own = () if len(loaded) == len(keys) else parameter.detach().chunk(2, 0)
            halves = [loaded[key] if key in loaded else own[i] for i, key in enumerate(keys)]
            if not assign or _fit(keys, halves, errors):
                try:
                    state[joined] = _join(halves, parameter)
                except (RuntimeError, TypeError, ValueError) as error:  # reported as torch reports what it cannot copy
                    errors.append(f"While joining {keys[0]} and {keys[1]}, an exception occurred: {error}")


def _check(value: Any, key: str, parameter: Tensor, assign: bool, errors: list[str]) -> bool:
    """Whether a state dict's value is loaded as a projection; what is wrong with it is noted, in torch's words."""
    shape = torch.Size((parameter.shape[0] // 2, *parameter.shape[1:]))
    if not torch.overrides.is_tensor_like(value):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint '
            f"but received {type(value)}"
        )
    elif value.shape != shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in current "
            f"model is {shape}."
        )
    elif parameter.is_meta and not assign:
        if not value.is_meta:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                "model, which is a no-op. (Did you mean to pass `assign=True`?)",
                stacklevel=2,
            )
    elif value.is_meta and not assign:
        errors.append(
            f'While copying the parameter named "{key}", got a meta tensor from checkpoint, which has no data to copy'
        )
    else:
        return True
    return False


def _fit(keys: list[str], halves: list[Any], errors: list[str]) -> bool:
    """Whether two projections that are assigned can be one parameter: of one dtype and device."""
    first, second = halves
    if (first.dtype, first.device) == (second.dtype, second.device):
        return True
    errors.append(
        f"{keys[0]} is {first.dtype} on {first.device} and {keys[1]} is {second.dtype} on {second.device}; with "
        "assign=True both must have one dtype and device, since they become one parameter."
    )
    return False


def _join(halves: list[Any], parameter: Any) -> Tensor:
    """Return two projections as one tensor, on the ranks as the parameter is."""
    if not is_sharded(parameter):
        return torch.cat((halves[0], halves[1].to(halves[0].device)))
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    parts = [
        # What is no DTensor is whole, and the same on all ranks.
        half
        if is_sharded(half)
        else DTensor.from_local(half.to(mesh.device_type), mesh, [Replicate()] * mesh.ndim, run_check=False)
        for half in halves
    ]
    both: Tensor = torch.cat(parts).redistribute(placements=parameter.placements)
    return both
