# SPDX-License-Identifier: MIT
"""Classes of fused blocks: their methods are the block's own with pairs of calls as one, as long as those are its own.

A block keeps its submodules and everything that its methods read. Where the method that the code was made of is no
longer what its class has, the new one runs; `rocpy.torch.replace.calls` decides in each call whether a pair may be one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from rocpy.torch.analysis.source import Unread, compile_as, syntax_of
from rocpy.torch.analysis.straight_line import Chain, rewrite
from rocpy.torch.replace.calls import HELPERS, is_quiet_layer, row_of, run_sequence

__all__ = ["PAIRS", "Method", "fused_class", "is_fused_class", "original_class", "refusal", "subclass_of"]

#: The attribute of a fused block that holds its pairs, for its representation alone: the names of a layer and of the
#: activation behind it, and what a function there computes.
PAIRS = "_rocpy_fused_pairs"

#: A method that is to be changed: its name, its pairs, and the layers that may be computed together with those.
#: Plain data, by which a copy in another process finds its class.
Method = tuple[str, tuple[Chain, ...], tuple[str, ...]]

# How a block's copies find its class again: by the original one, which can be imported.
_ORIGINAL = "_rocpy_original_class"
_is_dynamo = torch.compiler.is_dynamo_compiling


def refusal(base: type) -> str | None:
    """Return why there cannot be a subclass of a class without code of its own running; ``None`` where there can."""
    if type(base) is not type or type(base.__init_subclass__) is MethodType:
        return "its class runs code of its own when it is subclassed"
    return None


def is_fused_class(cls: type) -> bool:
    """Whether a class was made here."""
    return _ORIGINAL in cls.__dict__


def original_class(cls: type) -> type:
    """Return the class that a fused one was made of."""
    original: type = cls.__dict__[_ORIGINAL]
    return original


# ---- methods ----


def _fused_method(base: type, method: Method) -> Callable[..., Any] | None:
    """Return a method that runs its own code with pairs as one call; ``None`` where it is another than it was."""
    name, chains, seconds = method
    original = getattr(base, name, None)
    if original is nn.Sequential.forward and issubclass(base, nn.Sequential):
        return _checked(base, name, original, run_sequence)
    if type(original) is not FunctionType:
        return None
    try:
        tree, rewritten = rewrite(syntax_of(original), frozenset(chains).__contains__, frozenset(seconds))
    except Unread:
        return None
    if set(rewritten) != set(chains):
        return None
    return _checked(base, name, original, compile_as(original, tree, HELPERS))


def _checked(base: type, name: str, original: Any, fused: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls ``fused`` as long as the class has the original and nobody changed that."""
    code, defaults, options = original.__code__, original.__defaults__, original.__kwdefaults__

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        # torch's compiler reads the block's own code, for which it has guards of its own.
        if _is_dynamo():
            return getattr(super(classes[0], self), name)(*args, **kwargs)
        if (
            getattr(base, name) is original
            and original.__code__ is code
            and original.__defaults__ is defaults
            and original.__kwdefaults__ is options
        ):
            return fused(self, *args, **kwargs)
        return getattr(super(classes[0], self), name)(*args, **kwargs)

    classes: list[type] = []
    run._rocpy_classes = classes  # type: ignore[attr-defined]
    return run


# ---- classes ----


def _rebuild(base: type, methods: tuple[Method, ...]) -> nn.Module:
    instance: nn.Module = object.__new__(fused_class(base, methods))
    return instance


def fused_class(base: type, methods: tuple[Method, ...]) -> type:
    """Return the subclass of a block's class with fused methods; it has the same name.

    The name is kept because programs choose modules by it: what to wrap, what to keep in one piece.

    Parameters
    ----------
    base
        The block's class.
    methods
        The methods; one whose source is another than it was stays as it is.
    """
    return _subclass(base, methods, tuple(getattr(base, name, None) for name, *_ in methods))


def subclass_of(base: type, rebuild: tuple[Callable[..., Any], tuple[Any, ...]], body: dict[str, Any]) -> type:
    """Return a subclass by the same name, whose objects are copied and pickled by a call that makes an empty one."""

    def reduce(self: Any, protocol: Any) -> Any:  # noqa: ARG001
        return *rebuild, self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__

    common = {
        _ORIGINAL: base,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": reduce,
    }
    return type(base.__name__, (base,), common | body)


def _fused_now(block: nn.Module) -> list[str]:
    """Return the pairs that would be one call now: a block's modules may have been exchanged."""
    pairs = []
    for name, child, row_of_function in block.__dict__.get(PAIRS, ()):
        layer = block._modules.get(name)
        row = row_of(block._modules.get(child)) if child else row_of_function
        if row is not None and layer is not None and is_quiet_layer(layer, getattr(layer, "weight", None)):
            pairs.append(f"{name} + {row}")
    return pairs


@functools.cache
def _subclass(base: type, methods: tuple[Method, ...], originals: tuple[Any, ...]) -> type:  # noqa: ARG001
    def extra_repr(self: Any) -> str:
        plain = base.extra_repr(self)  # type: ignore[attr-defined]
        pairs = _fused_now(self)
        return ", ".join(part for part in (plain, f"fused: {', '.join(pairs)}" if pairs else "") if part)

    fused = {method[0]: _fused_method(base, method) for method in methods}
    body: dict[str, Any] = {name: function for name, function in fused.items() if function is not None}
    instance = subclass_of(base, (_rebuild, (base, methods)), body | {"extra_repr": extra_repr})
    for function in fused.values():
        if function is not None:
            function._rocpy_classes.append(instance)  # type: ignore[attr-defined]
    return instance
