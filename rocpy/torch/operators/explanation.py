# SPDX-License-Identifier: MIT
"""rocpy.explain for tensors that are recorded, cast or without memory: how their product would be computed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from rocpy._producers.torch_modes import is_fake
from rocpy.blaslt.model.epilogues import find_epilogue, is_custom
from rocpy.blaslt.model.explanation import Explanation
from rocpy.blaslt.model.options import block_of, forbids_composing, resolve_options
from rocpy.torch.operators.autograd import needs_grad
from rocpy.torch.operators.custom_products import recorded_epilogue
from rocpy.torch.operators.products import plain_name, recorded_name
from rocpy.torch.operators.registration import autocast_device, cast_for

__all__ = ["explained"]


def explained(function: Callable[..., Any], operands: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """Return what a function explains of the product that torch records, casts or computes without values."""
    note = ""
    with block_of(resolve_options(arguments.get("options"))):
        if needs_grad(*_tensors((operands, arguments))):
            arguments, note = _recorded(arguments)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_disable_current_modes())
        device = _autocast_device(operands)
        cast = cast_for(device) if device is not None else lambda x: x
        # On every device: what stands for meta tensors, which autocast does not cast, is on another than they are.
        stack.enter_context(torch._C._DisableAutocast())
        inputs = arguments.get("epilogue_inputs")
        named = {name: _mapped(value, cast) for name, value in arguments.items() if name != "epilogue_inputs"}
        if isinstance(inputs, Mapping):  # of which autocast casts the bias alone
            named["epilogue_inputs"] = {
                name: _mapped(x, cast if name == "bias" else lambda x: x) for name, x in inputs.items()
            }
        how = function(*_mapped(operands, cast), **named)
    return _noted(how, note) if note else how


def _recorded(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of the product that records one, and what torch does after it, in words."""
    epilogue: Any = arguments.get("epilogue")
    if is_custom(epilogue):
        return {**arguments, "epilogue": recorded_epilogue(epilogue)}, ""
    row = find_epilogue(epilogue)
    name = None if arguments.get("offsets") is not None and row.name != plain_name(row) else recorded_name(row.name)
    if name is not None:
        return {**arguments, "epilogue": name}, ""
    if forbids_composing():
        return arguments, ""
    plain = {**arguments, "epilogue": plain_name(row), "aux": None, "clamp": None}
    plain = {name: value for name, value in plain.items() if name in arguments or value is not None}
    return plain, f"autograd records epilogue {row.name!r} as {plain_name(row)!r}, then torch's own functions"


def _noted(how: Any, note: str) -> Any:
    if isinstance(how, Explanation):
        return dataclasses.replace(how, unfused=note)
    return dataclasses.replace(how, runs=tuple((first, count, _noted(one, note)) for first, count, one in how.runs))


def _autocast_device(operands: tuple[Any, ...]) -> str | None:
    """Return the type of the device that autocast casts the operands of a product for, if it does."""
    first = next(iter(_tensors(operands)), None)
    if first is None or first.device.type == "meta":
        return None
    return autocast_device(_with_memory(first))


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    several = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for one in several for tensor in _tensors(one)]


def _mapped(value: Any, cast: Callable[[Any], Any]) -> Any:
    """Return arguments with tensors of memory that nothing records."""
    if isinstance(value, Tensor):
        return _with_memory(cast(value.detach()))
    if isinstance(value, Mapping):
        return {name: _mapped(one, cast) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(one, cast) for one in value)
    return value


def _with_memory(x: Tensor) -> Tensor:
    fake = is_fake(x)
    if not (fake or x.is_meta) or not all(isinstance(extent, int) for extent in x.shape):
        return x
    device = x.device if x.device.type != "meta" else torch.get_default_device()
    device = device if device.type != "meta" else torch.device("cpu")
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
