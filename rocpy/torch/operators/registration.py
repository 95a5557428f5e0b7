# SPDX-License-Identifier: MIT
"""How an operator of ``torch.ops.rocpy`` is registered: schema, kernel, shapes without memory, recording, autocast.

And how it is called: where torch's dispatcher would do no more than call the kernel, or what records it, that is called
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from rocpy._producers.torch_modes import is_fake
from rocpy._producers.torch_tensors import route
from rocpy.errors import UnsupportedError
from rocpy.torch.operators.autograd import needs_grad
from rocpy.torch.operators.below import KERNELS, AtOnce, Below, below_torch
from rocpy.torch.operators.kernels import split_names
from rocpy.torch.operators.shapes import MLP_OPERANDS, needs_one_kind, refuse_mixed
from rocpy.torch.operators.sharding import register_for

__all__ = ["LIBRARY", "autocast_device", "cast_for", "check_without_values", "define", "record", "route_of"]

LIBRARY = torch.library.Library("rocpy", "FRAGMENT")

_AFTER_AUTOGRAD = torch._C._after_autograd_keyset
_AUTOCAST_KEYS = {
    "cpu": torch._C.DispatchKey.AutocastCPU,
    "cuda": torch._C.DispatchKey.AutocastCUDA,
}
_Narrow = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
_narrow: dict[Any, _Narrow] = {}
_fakes: dict[Any, Callable[..., Any]] = {}


def route_of(*operands: Any) -> int:
    """Return how the operands of an operator can be used; 0: torch's compiler or its dispatcher must see them."""
    return 0 if torch.compiler.is_compiling() else route(*operands)


def define(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    narrow: _Narrow = map,
) -> Any:
    """Define an operator, with what it computes on memory and what its results are without; returns its overload.

    ``narrow(cast, args)`` casts the arguments that autocast casts: without one, each that is a tensor.
    """
    LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, below_torch(kernel), "CompositeExplicitAutograd")
    torch.library.register_fake(f"rocpy::{name}", fake, lib=LIBRARY)
    operator = getattr(torch.ops.rocpy, name).default
    KERNELS[operator], _fakes[operator], _narrow[operator] = kernel, fake, narrow
    for device, key in _AUTOCAST_KEYS.items():
        LIBRARY.impl(name, _autocast(operator, device, narrow), key.name)
    return operator


def record(operator: Any, recorded: Callable[..., Any]) -> Callable[..., Any]:
    """Register what records an operator: ``recorded(below, *args)`` is called where a gradient is needed.

    ``below(*args)`` is the operator itself, without recording: a :class:`Below`, or an :class:`AtOnce`.

    Returns
    -------
    callable
        ``run(access, *args)``, which runs the operator on operands of which :func:`route_of` has returned ``access``.
    """

    def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        access = 0 if kwargs else route(*_tensors(args))
        if access != 0:  # as from a compiled graph: there is nothing below that must see it
            return run(access, *args)
        below = Below(operator, keyset & _AFTER_AUTOGRAD)
        operands = [*args, *kwargs.values()]
        for x in args:
            if type(x) is list:
                operands += x
        register_for(operands)
        if needs_one_kind(operands):
            refuse_mixed(**_named(operator, args, kwargs))
        if forward_ad._current_level >= 0:
            _refuse_tangents(operator, operands)
        if needs_grad(*operands):
            if torch._C._functorch.peek_interpreter_stack() is None:
                return recorded(below, *args, **kwargs)
            with enable_single_level_autograd_function():
                return recorded(Below(operator, keyset & _AFTER_AUTOGRAD, records=True), *args, **kwargs)
        return below(*args, **kwargs)

    LIBRARY.impl(operator._opname, autograd, "Autograd", with_keyset=True)
    at_once = AtOnce(operator)
    kernel, narrow = KERNELS[operator], _narrow[operator]

    def run(access: int, *args: Any) -> Any:
        if access == 1:
            return kernel(*args)
        if access == 2:
            return recorded(at_once, *args)
        device = None if torch.compiler.is_compiling() else autocast_device(args[0])
        if device is None:
            return operator(*args)
        with torch._C._ExcludeDispatchKeyGuard(_autocast_keys[device]):
            access = route(*_tensors(args))
            if access != 0:
                return run(access, *narrow(cast_for(device), args))
        return operator(*args)

    return run


def _tensors(args: Sequence[Any]) -> list[Any]:
    tensors = [x for x in args if isinstance(x, Tensor)]
    for x in args:
        if type(x) is list:
            tensors += [one for one in x if isinstance(one, Tensor)]
    return tensors


def autocast_device(x: Any) -> str | None:
    """Return the type of the device that a plain tensor is on, if autocast is on for it."""
    if type(x) is not Tensor and type(x) is not torch.nn.Parameter:
        return None
    device: str = x.device.type
    return device if device in _AUTOCAST_KEYS and torch.is_autocast_enabled(device) else None


# What users call the arguments of operators that have other names.
_NAMES = MLP_OPERANDS | {"boundaries": "offsets"}


def _named(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's tensors by the names that users know."""
    named = {argument.name: value for argument, value in zip(operator._schema.arguments, args, strict=False)}
    named.update(kwargs)
    for name, value in zip(split_names(named.get("names", "")), named.pop("inputs", ()), strict=True):
        named[f"epilogue_inputs[{name!r}]"] = value
    return {_NAMES.get(name, name): value for name, value in named.items() if isinstance(value, Tensor)}


def _refuse_tangents(operator: Any, operands: Sequence[Any]) -> None:
    # Of this level alone: while torch runs a transform, the levels below it cannot be asked. rocpy's own functions ask
    # all of them before (tangents.py).
    for x in operands:
        if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            raise UnsupportedError(
                f"{operator}: an operand carries a tangent of forward-mode differentiation, which rocpy's products do "
                "not propagate; use reverse mode, or torch's own product there"
            )


_autocast_keys = {device: torch._C.DispatchKeySet(key) for device, key in _AUTOCAST_KEYS.items()}


def cast_for(device: str) -> Callable[[Any], Any]:
    """Return what casts an argument as autocast does for a device."""

    def cast(value: Any) -> Any:
        # torch's rule for its own products: everything floating but float64.
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64:
            return value.to(torch.get_autocast_dtype(device)) if value.device.type == device else value
        return value

    return cast


def check_without_values(operator: Any, arguments: Sequence[Any], required: bool = False) -> None:
    """Refuse what an operator refuses by shapes and types, where a tensor has no memory or it is ``required``."""
    if required or any(x.is_meta or is_fake(x) for x in _tensors(arguments)):
        device = autocast_device(arguments[0])
        _fakes[operator](*(arguments if device is None else _narrow[operator](cast_for(device), arguments)))


def _autocast(operator: Any, device: str, narrow: _Narrow) -> Callable[..., Any]:
    cast = cast_for(device)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_autocast_keys[device]):
            return operator(*narrow(cast, args), **{name: cast(x) for name, x in kwargs.items()})

    return run
