# SPDX-License-Identifier: MIT
"""The activations of a layer: torch's functions for each, and which epilogues of the product stand for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor

from rocpy._messages.suggestions import did_you_mean
from rocpy.blaslt.engine.program import available
from rocpy.blaslt.model.epilogues import (
    OTHER_FUNCTIONS,
    OTHER_NAMES,
    TORCH_ACTIVATIONS,
    PairEpilogue,
    PlainEpilogue,
)
from rocpy.errors import InvalidProblemError

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "ActivationName",
    "Approximation",
    "Fused",
    "find_activation",
    "fused",
    "is_bare",
    "name_activation",
]

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Fused:
    """Epilogues that compute an activation inside the product; ``None`` where the library has none.

    Parameters
    ----------
    plain, bias
        Forward, without and with a bias.
    aux, aux_bias
        Forward that also returns the pre-activation, for an activation whose gradient reads it.
    gradient, gradient_bias
        Epilogues that multiply a product by the derivative, without and with the bias gradient; used where a layer's
        gradient product is followed by the activation before it.
    """

    plain: PlainEpilogue | None = None
    bias: PlainEpilogue | None = None
    aux: PairEpilogue | None = None
    aux_bias: PairEpilogue | None = None
    gradient: PlainEpilogue | None = None
    gradient_bias: PairEpilogue | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """One activation.

    Parameters
    ----------
    name
        Its name in the operators' schemas.
    saves
        What its gradient reads: ``""`` nothing, ``"result"``, or ``"input"``, the pre-activation.
    function, in_place
        torch's function, and the one that overwrites its argument.
    derivative
        ``derivative(grad, saved)``, itself differentiable.
    is_analytic
        Whether it is a function of complex numbers too; no epilogue computes that.
    """

    name: str
    saves: str
    function: Callable[[Tensor], Tensor]
    in_place: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor], Tensor]
    is_analytic: bool = False

    @property
    def fused(self) -> Fused:
        """The epilogues that stand for it on this platform."""
        return fused(self.name)

    def fused_for(self, x: Tensor) -> Fused:
        """Return the epilogues that stand for it in a product of x: none for an activation of complex numbers."""
        row_function = fused(self.name)
        return _OF_COMPLEX if self.saves and self.is_analytic and x.is_complex() else row_function

    @property
    def is_exact(self) -> bool:
        """Whether its value is the same wherever an element lies."""
        return self.name in ("none", "relu")

    def epilogue(self, has_bias: bool) -> PlainEpilogue:
        """Return the epilogue of the same formula, whether or not the platform fuses it."""
        name = {"none": "", "gelu": "gelu_erf", "gelu_tanh": "gelu"}.get(self.name, self.name)
        with_bias = f"{name}_bias" if name else "bias"
        return cast("PlainEpilogue", with_bias if has_bias else name or "default")

    @property
    def has_gradient_epilogue(self) -> bool:
        """Whether a product can be multiplied by the derivative while it is computed."""
        return self.fused.gradient is not None


def _silu_derivative(grad: Tensor, x: Tensor) -> Tensor:
    # torch's own kernel has no derivative and takes no complex numbers; there the formula is spelled out.
    if not torch.is_grad_enabled() and not x.is_complex():
        return _aten.silu_backward.default(grad, x)
    s = torch.sigmoid(x)
    return grad * (s * (1 + x * (1 - s))).conj()


def _silu(x: Tensor) -> Tensor:
    # torch's own has no gradient of complex numbers. A symbolic trace has no answer to the question.
    return x * torch.sigmoid(x) if x.is_complex() is True else torch.nn.functional.silu(x)


def _same(x: Tensor) -> Tensor:
    return x


def _same_gradient(grad: Tensor, _: Tensor) -> Tensor:
    return grad


_FUSED = {
    "none": Fused("default", "bias"),
    # The result is positive where the pre-activation is, so that it serves as the aux matrix itself.
    "relu": Fused("relu", "relu_bias", gradient="drelu", gradient_bias="drelu_bgrad"),
    "gelu": Fused(),
    "gelu_tanh": Fused("gelu", "gelu_bias", "gelu_aux", "gelu_aux_bias", "dgelu", "dgelu_bgrad"),
    "silu": Fused("silu", "silu_bias"),
    "sigmoid": Fused("sigmoid"),
}
# Where the platform runs tile programs.
_BY_PROGRAM = {
    "gelu": Fused("gelu_erf", "gelu_erf_bias", "gelu_erf_aux", "gelu_erf_aux_bias", "dgelu_erf", "dgelu_erf_bgrad"),
    "silu": Fused("silu", "silu_bias", "silu_aux", "silu_aux_bias", "dsilu", "dsilu_bgrad"),
    "sigmoid": Fused("sigmoid", "sigmoid_bias"),
}
_OF_COMPLEX = Fused()
_table: dict[str, Fused] = {}


def fused(activation: str) -> Fused:
    """Return the epilogues that compute an activation; the one place where a new lowering is named.

    Parameters
    ----------
    activation
        Name of a row of ``ACTIVATIONS``.
    """
    if not _table:
        _table.update(_FUSED | (_BY_PROGRAM if available() else {}))
    return _table[activation]


ACTIVATIONS: dict[str, Activation] = {
    row.name: row
    for row in (
        Activation("none", "", _same, _same, _same_gradient, is_analytic=True),
        Activation("relu", "result", torch.relu, torch.relu_, lambda g, y: _aten.threshold_backward.default(g, y, 0)),
        Activation(
            "gelu",
            "input",
            torch.nn.functional.gelu,
            _aten.gelu_.default,
            _aten.gelu_backward.default,
        ),
        Activation(
            "gelu_tanh",
            "input",
            lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
            lambda x: _aten.gelu_.default(x, approximate="tanh"),
            lambda g, x: _aten.gelu_backward.default(g, x, approximate="tanh"),
        ),
        Activation(
            "silu",
            "input",
            _silu,
            lambda x: torch.nn.functional.silu(x, inplace=True),
            _silu_derivative,
            is_analytic=True,
        ),
        Activation(
            "sigmoid",
            "result",
            torch.sigmoid,
            torch.sigmoid_,
            _aten.sigmoid_backward.default,
            is_analytic=True,
        ),
    )
}

# What type checkers know of the names that users give, aliases among them.
ActivationName: TypeAlias = Literal["none", "relu", "gelu", "silu", "sigmoid", "swish", "identity"]
Approximation: TypeAlias = Literal["none", "tanh"]

_PUBLIC: dict[tuple[str | None, str], str] = {(None, "none"): "none"} | {
    (name, "none"): name for name in ("none", "relu", "gelu", "silu", "sigmoid")
}
_PUBLIC[("gelu", "tanh")] = "gelu_tanh"
_ALIASES = {"swish": "silu", "identity": "none"}


# torch's own modules and functions of the same formulas; options of theirs are read where they are met.
_NAMED = {
    functools.reduce(getattr, path.split("."), torch): None if name == "none" else name
    for name, paths in TORCH_ACTIVATIONS.items()
    for path in paths
}
_MODULES: dict[type, str | None] = {one: name for one, name in _NAMED.items() if isinstance(one, type)}
_FORWARDS = {kind: vars(kind)["forward"] for kind in _MODULES}
_FUNCTIONS: dict[Any, str | None] = {one: name for one, name in _NAMED.items() if not isinstance(one, type)}


_OPTIONS = {"approximate", "inplace"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_bare(module: Any) -> bool:
    """Whether nobody would notice that a module's own call is left out."""
    table = module.__dict__
    if any(table[name] for name in _HOOKS) or table.get("_compiled_call_impl") is not None:
        return False
    return "forward" not in table and "_call_impl" not in table


def name_activation(activation: Any, approximate: str = "none") -> tuple[Any, str]:
    """Return name and approximation of an activation given as one of torch's modules or functions.

    Whatever else is returned as it came.

    Raises
    ------
    InvalidProblemError
        If a module has hooks or code of its own, or an approximation, and another one is asked for.
    """
    own = None
    if type(activation) is functools.partial and not activation.args and activation.keywords.keys() <= _OPTIONS:
        own = activation.keywords.get("approximate")
        activation = activation.func
    if type(activation) in _MODULES:
        kind = type(activation)
        if not is_bare(activation) or kind.forward is not _FORWARDS[kind]:
            raise InvalidProblemError(
                f"activation: got a {kind.__name__} with hooks or a changed forward, which a fused layer would not "
                "run; apply it to the layer's result"
            )
        own = getattr(activation, "approximate", own)
        name = _MODULES[kind]
    elif isinstance(activation, Hashable) and activation in _FUNCTIONS:
        name = _FUNCTIONS[activation]
    else:
        return activation, approximate
    if own is not None and approximate not in ("none", own):
        raise InvalidProblemError(
            f"approximate={approximate!r}, but the activation was given with approximate={own!r}; omit approximate="
        )
    return name, approximate if own is None else own


def find_activation(activation: Any, approximate: str = "none") -> Activation:
    """Return the row of an activation as users name it, or give it as a module or function of torch's.

    Raises
    ------
    InvalidProblemError
        If there is no such activation, or it has no such approximation.
    """
    key = (_ALIASES.get(activation, activation) if isinstance(activation, str) else activation, approximate)
    try:
        return ACTIVATIONS[_PUBLIC[key]]
    except (KeyError, TypeError):
        pass
    named = name_activation(activation, approximate)
    if named[0] is not activation:
        return find_activation(*named)
    if isinstance(activation, torch.nn.Module):
        raise InvalidProblemError(
            f"activation: got {type(activation).__name__}, which is none of {', '.join(x.__name__ for x in _MODULES)}; "
            "apply it to the layer's result, or give a function decorated with @rocpy.epilogue"
        )
    if isinstance(activation, type):
        raise InvalidProblemError(
            f"activation: got the class {activation.__name__}; pass an instance, {activation.__name__}()"
        )
    if callable(activation):
        name = getattr(activation, "__name__", type(activation).__name__)
        called = f"{name}(x)" if name.isidentifier() else "f(x)"
        raise InvalidProblemError(
            f"activation: {name} is a plain function; decorate it with @rocpy.epilogue, or, where it is another "
            f"package's, pass rocpy.epilogue(lambda x: {called})"
        )
    if not isinstance(key[0], str | None) or (key[0], "none") not in _PUBLIC:
        names = [name for name, approximate in _PUBLIC if approximate == "none"]
        raise InvalidProblemError(
            f"activation: got {activation!r}, expected one of {', '.join(map(repr, names))}"
            f"{_meant(activation, filter(None, names))}"
        )
    raise InvalidProblemError(
        f"approximate: got {approximate!r}, expected 'none', or 'tanh' with activation='gelu' (here: {activation!r})"
    )


def _meant(activation: Any, names: Iterable[str]) -> str:
    """Return what was probably meant by an activation that there is not, as a layer takes it."""
    written = activation.lower() if isinstance(activation, str) else ""
    if written in OTHER_NAMES:
        form = "tanh" if OTHER_NAMES[written] == "gelu" else "none"
        return f"; did you mean activation='gelu' with approximate={form!r}?"
    return "" if written in OTHER_FUNCTIONS else did_you_mean(activation, names)
