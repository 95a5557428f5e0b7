# SPDX-License-Identifier: MIT
"""What a fused block calls in place of a layer and its activation: one product where nobody could tell, else both.

The block's own code is what runs. Only the two calls ``activation(layer(x))`` become one, with the objects that the
code has just read; whether they are a replaced layer that nobody watches and a known activation is checked in each
call.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import _symbolic_trace
from torch.nn.modules import module as _module

from rocpy.torch.analysis.catalog import METHODS, Known, hold, operation, row_of_call
from rocpy.torch.analysis.formulas import identify, own_method
from rocpy.torch.layers.functions import run_layers
from rocpy.torch.layers.modules import Linear, calls_are_hooked, run_layer
from rocpy.torch.layers.overrides import functions_are_watched, linear_is_patched
from rocpy.torch.operators.activations import ACTIVATIONS, Activation, is_bare

__all__ = ["HELPERS", "is_quiet_activation", "is_quiet_layer", "row_of", "run_sequence"]

_MISSING = object()
_Module = nn.Module

# What calls a module and looks up its attributes: another library may put its own there, which then decides.
_CALL, _CALL_IMPL, _GETATTR = _Module.__call__, _Module._call_impl, _Module.__getattr__
_FORWARD = Linear.forward
_GETATTRIBUTE: Any = object.__getattribute__
_IS_TORCHS = all(function.__code__.co_filename == _module.__file__ for function in (_CALL, _CALL_IMPL, _GETATTR))
_TENSORS = frozenset((Tensor, nn.Parameter, nn.Buffer, FakeTensor, FunctionalTensor))
_tracing = torch._C._get_tracing_state
_autocast = torch._C._is_any_autocast_enabled


# ---- who could tell ----


def _is_watched() -> bool:
    """Whether somebody sees, or replaces, the calls of all modules or of torch's functions."""
    return bool(
        calls_are_hooked()
        or (Linear.__call__ is not _CALL and not _is_tracer(Linear.__call__))
        or Linear._call_impl is not _CALL_IMPL
        or (Linear.__getattr__ is not _GETATTR and not _is_tracer(Linear.__getattr__))
        or Linear.forward is not _FORWARD
        or linear_is_patched()
        or not _IS_TORCHS
        or _tracing() is not None
        or functions_are_watched()
    )


def _is_tracer(function: Any) -> bool:
    """Whether a method of all modules is what torch puts there while it traces, which calls its own."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == _symbolic_trace.__file__


def is_quiet_layer(layer: Any, x: Any) -> bool:
    """Whether a layer is one that was replaced, and its call with ``x`` runs no code of anybody else's."""
    if type(layer) is not Linear or type(x) not in _TENSORS:
        return False
    return is_bare(layer) and layer.__dict__.get("activation") is None and not _is_watched()


# ---- activations ----

# What modules of a class were known as, by the attributes that they had.
_variants: dict[type, tuple[Known, ...]] = {}
_tried: dict[type, int] = {}
_TRIES = 16


def _known_module(module: nn.Module) -> Known | None:
    cls = type(module)
    for known in _variants.get(cls, ()):
        if _matches(module, known):
            return known
    if _tried.get(cls, 0) >= _TRIES:
        return None
    _tried[cls] = _tried.get(cls, 0) + 1
    activation = identify(module)
    if activation is None or own_method(module, "forward") is None:
        return None
    _variants[cls] = (*_variants.get(cls, ()), activation)
    return activation


def _matches(module: nn.Module, known: Known) -> bool:
    table, cls = module.__dict__, type(module)
    for name, value in known.reads:
        if table.get(name, _MISSING) is not value:
            return False
    for name, function in known.methods:
        method = table.get(name)
        if getattr(method, "__func__", None) is not function or getattr(method, "__self__", None) is not module:
            return False
    return not any(hasattr(cls, name) for name in known.absent)


def _is_quiet_module(module: nn.Module, known: Known) -> bool:
    cls = type(module)
    return (
        is_bare(module)
        and (cls.__call__ is _CALL or _is_tracer(cls.__call__))
        and cls._call_impl is _CALL_IMPL
        and getattr(cls, "__getattribute__", None) is _GETATTRIBUTE
        and cls.forward is known.forward
    )


def _row(activation: Any, arguments: tuple[Any, ...], options: Any) -> Activation | None:
    """Return the activation that a call computes, if it runs no code of anybody else's."""
    if type(activation) is functools.partial:
        if activation.args or (options and options.keys() & activation.keywords.keys()):
            return None
        activation, options = activation.func, {**activation.keywords, **(options or {})}
    function = operation(activation)
    if function is not None:
        name = row_of_call(function, arguments, options or {})
        return ACTIVATIONS[name] if name is not None and hold(function.guards) else None
    if arguments or options or not isinstance(activation, _Module):
        return None
    known = _known_module(activation)
    if known is None or not hold(known.guards) or (known.composite and _autocast()):
        return None
    return ACTIVATIONS[known.row] if _is_quiet_module(activation, known) else None


def row_of(activation: Any, arguments: tuple[Any, ...] = (), options: Any = None) -> str | None:
    """Return the name of the activation that a call computes; ``None`` where that is not known."""
    matched = _row(activation, arguments, options)
    return None if matched is None else matched.name


def is_quiet_activation(activation: Any, *arguments: Any, **options: Any) -> bool:
    """Whether a callable is a known activation whose call runs no code of anybody else's."""
    return _row(activation, arguments, options) is not None


# ---- the calls ----


def _pair(activation: Any, layer: Any, x: Any, *arguments: Any, **options: Any) -> Any:
    """Return ``activation(layer(x), *arguments, **options)``."""
    if is_quiet_layer(layer, x):
        row = _row(activation, arguments, options)
        if row is not None:
            return run_layer(layer, x, row)
    return activation(layer(x), *arguments, **options)


def _method(name: str, layer: Any, x: Any) -> Any:
    """Return ``getattr(layer(x), name)()``."""
    known = METHODS[name]
    if is_quiet_layer(layer, x) and hold(known.guards):
        return run_layer(layer, x, ACTIVATIONS[known.row])
    return getattr(layer(x), name)()


def _mlp(second: Any, activation: Any, layer: Any, x: Any, *arguments: Any, **options: Any) -> Any:
    """Return ``second(activation(layer(x), *arguments, **options))``."""
    # Two layers at once: the activation's derivative is part of the second one's gradient product.
    if torch.is_grad_enabled() and is_quiet_layer(layer, x) and is_quiet_layer(second, x):
        row = _row(activation, arguments, options)
        if row is not None:
            return run_layers(x, layer.weight, layer.bias, second.weight, second.bias, row)
    return second(_pair(activation, layer, x, *arguments, **options))


#: What the code of a fused block calls, by the names that it has there.
HELPERS = {
    "_rocpy_pair": _pair,
    "_rocpy_method": _method,
    "_rocpy_mlp": _mlp,
    "_rocpy_is_quiet_layer": is_quiet_layer,
    "_rocpy_is_quiet_activation": is_quiet_activation,
}


def run_sequence(sequence: Any, input: Any) -> Any:  # noqa: A002  (torch's name for it)
    """Return what ``nn.Sequential.forward`` does: each of its modules called with the result of the one before."""
    layer: Any = None
    row: Activation | None = None
    for module in sequence:
        if layer is None:
            layer = module if is_quiet_layer(module, input) else None
            input = input if layer is not None else module(input)  # noqa: A001
            continue
        if row is None:
            row = _row(module, (), None)
            if row is not None:
                continue
            input = layer(input)  # noqa: A001
        elif is_quiet_layer(module, input) and torch.is_grad_enabled() and not _is_before_activation(sequence, module):
            input = run_layers(input, layer.weight, layer.bias, module.weight, module.bias, row)  # noqa: A001
            layer = row = None
            continue
        else:
            input = run_layer(layer, input, row)  # noqa: A001
        layer = row = None
        if is_quiet_layer(module, input):
            layer = module
        else:
            input = module(input)  # noqa: A001
    if layer is None:
        return input
    return layer(input) if row is None else run_layer(layer, input, row)


def _is_before_activation(sequence: Any, layer: Any) -> bool:
    members = list(sequence._modules.values())
    at = next((at for at, member in enumerate(members) if member is layer), len(members))
    return at + 1 < len(members) and _row(members[at + 1], (), None) is not None
