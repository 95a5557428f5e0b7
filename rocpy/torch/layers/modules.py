# SPDX-License-Identifier: MIT
"""Layers: torch.nn.Linear with its activation inside the product, and the feed-forward blocks made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn.modules import module as _module

from rocpy.blaslt.model.epilogues import is_custom, refuse_inputs
from rocpy.blaslt.model.options import guarantees_rows
from rocpy.epilogues import CustomEpilogue
from rocpy.errors import InvalidProblemError
from rocpy.torch.layers import packing
from rocpy.torch.layers.custom import check_layer_epilogue, custom_layer, overridden_layer
from rocpy.torch.layers.functions import run_linear, takes_layer
from rocpy.torch.layers.gate_rows import gate_by_rows
from rocpy.torch.layers.gate_state import Projection, join_gate, projections, refuse_assignment, split_gate
from rocpy.torch.layers.overrides import linear_is_overridden
from rocpy.torch.operators.activations import (
    Activation,
    ActivationName,
    Approximation,
    find_activation,
    is_bare,
    name_activation,
)
from rocpy.torch.operators.blocks import gated, run_mlp
from rocpy.torch.operators.custom_blocks import custom_mlp, takes
from rocpy.torch.operators.shapes import refuse_composing
from rocpy.torch.operators.sharding import lacks_lists

__all__ = ["MLP", "GatedMLP", "Linear", "calls_are_hooked", "run_layer"]


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """``torch.nn.Linear`` with an activation, computed by rocpy, with the same parameters and names.

    Parameters
    ----------
    in_features, out_features
        K and N.
    bias
        Whether there is one.
    activation
        ``None``, ``"relu"``, ``"gelu"``, ``"silu"`` or ``"sigmoid"``, or torch's module or function for one of them,
        which the layer stores by its name; or an epilogue created by :func:`rocpy.epilogue`, as for
        :func:`rocpy.torch.linear`, whose inputs are passed to the call by name.
    approximate
        For GELU, as in torch: ``"none"`` is the erf form, ``"tanh"`` its approximation.
    pack
        Whether the layer keeps a packed copy of its weight in eval mode, when no gradient is recorded, if the platform
        packs weights. This takes the weight's memory a second time, and requires calling :meth:`repack` after a write
        that torch does not report: through ``weight.data``, a numpy view, a pointer or the storage, or by a collective
        of another backend than rocpy's. ``ROCPY_DEBUG=1`` detects such writes. Writes to the parameter itself, its
        replacement or that of its storage, and optimizer steps, including fused ones, are detected. :func:`freeze`
        enables this for a whole model.
    device, dtype
        Device and dtype of the parameters.

    Notes
    -----
    State dicts are interchangeable with those of ``torch.nn.Linear``. ``activation`` and ``approximate`` can be
    assigned; an activation sets both, except that ``"gelu"`` keeps the approximation.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> layer = rt.Linear(4, 8, activation="gelu", approximate="tanh")
    >>> layer
    Linear(in_features=4, out_features=8, bias=True, activation=gelu, approximate=tanh)
    >>> layer(torch.ones(2, 4)).shape
    torch.Size([2, 8])
    >>> import rocpy
    >>> capped = rt.Linear(4, 8, activation=rocpy.epilogue(lambda x, residual: torch.tanh(x) + residual))
    >>> capped(torch.ones(2, 4), residual=torch.ones(2, 8)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: ActivationName | Callable[..., Tensor] | CustomEpilogue | None = None,
        *,
        approximate: Approximation = "none",
        pack: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        _set_activation(self, *name_activation(activation, approximate))
        self.pack = pack

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("activation", "approximate"):
            _set_activation(self, *_assigned(self, name, value))
        else:
            super().__setattr__(name, value)

    if TYPE_CHECKING:  # torch's own is a callable of anything

        def __call__(self, input: Tensor, **epilogue_inputs: Any) -> Tensor: ...  # noqa: A002, D102

    def forward(self, input: Tensor, **epilogue_inputs: Any) -> Tensor:  # noqa: A002  (torch's name for it)
        """Return ``activation(input @ weight.T + bias)``."""
        if type(epilogue_inputs) is not dict:  # a symbol, where torch.fx traces the layer by itself
            epilogue_inputs = {}
        overridden = linear_is_overridden(input)
        if self._row is None:
            custom = overridden_layer if overridden else custom_layer
            result: Tensor = custom(self, input, epilogue_inputs)
            return result
        if epilogue_inputs:
            refuse_inputs(self.activation)
        if overridden:
            before: Tensor = super().forward(input)
            return self._row.function(before) if self._row.saves else before
        # Straight from the table, which is where attribute access ends up, slowly; a parametrized weight is not in it.
        table = self._parameters
        weight = table["weight"] if "weight" in table else self.weight  # noqa: SIM401
        bias = table["bias"] if "bias" in table else self.bias  # noqa: SIM401
        if self.pack and not self.training:
            packed = packing.product(self, input, weight, bias, self._row)
            if packed is not None:
                return packed
        return run_linear(input, weight, bias, self._row)

    def repack(self) -> None:
        """Discard the packed weight, after a write that torch did not report; the next call packs it again."""
        packing.forget(self)

    def train(self, mode: bool = True) -> Self:
        """Set the mode as ``torch.nn.Module`` does; training mode frees the packed weight and undoes `freeze`."""
        super().train(mode)
        if mode:
            packing.unfreeze(self)
        return self

    def extra_repr(self) -> str:
        """Return the parameters as ``torch.nn.Linear`` does, and the activation."""
        text = super().extra_repr()
        if self.activation is not None:
            name = getattr(self.activation, "name", self.activation)
            text += f", activation={name}"
        if self.approximate != "none":
            text += f", approximate={self.approximate}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in (packing.ATTRIBUTE, "_row"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._row = _row_of(self.activation, self.approximate)


def _assigned(layer: Any, name: str, value: Any) -> tuple[Any, str]:
    """Return what activation and approximation of a layer are once one of them is assigned."""
    if name == "approximate":
        return layer.activation, value
    named, form = name_activation(value)
    # The name of GELU keeps the layer's approximation; torch's modules and functions have their own, others none.
    return named, layer.approximate if named is value and isinstance(value, str) and value == "gelu" else form


def _set_activation(layer: Linear, activation: Any, approximate: str) -> None:
    """Store a layer's activation, once it is known to be one."""
    row = _row_of(activation, approximate)
    layer.__dict__.update(activation=activation, approximate=approximate, _row=row)


def _row_of(activation: Any, approximate: str) -> Activation | None:
    """Return the row of an activation by name; ``None`` for an epilogue of the user's."""
    if activation is not None and not isinstance(activation, str) and is_custom(activation):
        check_layer_epilogue(activation, approximate)
        return None
    return find_activation(activation, approximate)


class MLP(torch.nn.Module):  # type: ignore[misc]
    """Two linear layers with an activation, whose gradient is fused into the second layer's gradient product.

    Parameters
    ----------
    in_features, hidden_features
        Sizes of the input and of the hidden layer.
    out_features
        ``in_features`` by default.
    activation, approximate
        As for :class:`Linear`; an epilogue that halves the columns is refused.
    bias, pack, device, dtype
        As for :class:`Linear`, for both layers.

    Notes
    -----
    The layers are ``fc1`` and ``fc2``. They are called separately if a hook, a parametrization or a replacement module
    must observe them.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> mlp = rt.MLP(4, 16, activation="gelu", approximate="tanh")
    >>> mlp(torch.ones(2, 4)).shape, sorted(mlp.state_dict())
    (torch.Size([2, 4]), ['fc1.bias', 'fc1.weight', 'fc2.bias', 'fc2.weight'])
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        activation: ActivationName | Callable[..., Tensor] | CustomEpilogue | None = "gelu",
        *,
        approximate: Approximation = "none",
        bias: bool = True,
        pack: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        out_features = in_features if out_features is None else out_features
        common = {"pack": pack, "device": device, "dtype": dtype}
        self.fc1 = Linear(in_features, hidden_features, bias, activation, approximate=approximate, **common)
        if self.fc1._row is None and self.fc1.activation.expression.halved:
            raise InvalidProblemError(
                f"activation: epilogue {self.fc1.activation.name!r} halves the columns, and the second layer takes all "
                "of them; use two rocpy.torch.Linear, the second with half as many inputs as the first has outputs"
            )
        self.fc2 = Linear(hidden_features, out_features, bias, **common)

    if TYPE_CHECKING:

        def __call__(self, input: Tensor, **epilogue_inputs: Any) -> Tensor: ...  # noqa: A002, D102

    def forward(self, input: Tensor, **epilogue_inputs: Any) -> Tensor:  # noqa: A002  (torch's name for it)
        """Return ``fc2(fc1(input, **epilogue_inputs))``."""
        if type(epilogue_inputs) is not dict:
            epilogue_inputs = {}
        first, second = self.fc1, self.fc2
        one_by_one = epilogue_inputs or linear_is_overridden(input) or calls_are_hooked()
        exact = type(first) is type(second) is Linear and not one_by_one
        # Frozen layers have their weights packed each by itself.
        if exact and not (first.pack and not first.training) and is_bare(first) and is_bare(second):
            layers = first.weight, first.bias, second.weight, second.bias
            simple = second.activation is None and takes_layer(*layers[:2]) and takes_layer(*layers[2:])
            if simple and first._row is not None:
                return run_mlp(input, *layers, first._row)
            # torch.jit.trace compares its graph with one that it makes without gradients.
            recorded = torch.is_grad_enabled() or torch.jit.is_tracing()
            if simple and recorded and takes(first.activation) and not lacks_lists((input, *layers)):
                return custom_mlp(input, *layers, first.activation)
        return second(first(input, **epilogue_inputs))


def run_layer(layer: Linear, x: Tensor, row: Activation) -> Tensor:
    """Compute a layer that has no activation of its own with the one that follows it."""
    weight, bias = layer.weight, layer.bias
    if layer.pack and not layer.training:
        packed = packing.product(layer, x, weight, bias, row)
        if packed is not None:
            return packed
    return run_linear(x, weight, bias, row)


def calls_are_hooked() -> bool:
    """Whether there are hooks of all modules."""
    return bool(
        _module._global_forward_hooks
        or _module._global_forward_pre_hooks
        or _module._global_backward_hooks
        or _module._global_backward_pre_hooks
    )


class GatedMLP(torch.nn.Module):  # type: ignore[misc]
    """``down(activation(gate(x)) * up(x))`` with gate and up in one product, as in Llama, Qwen and Gemma.

    Parameters
    ----------
    hidden_size, intermediate_size
        Sizes of the input and output, and of the intermediate layer.
    activation, approximate
        Activation of the gate, as for :class:`Linear`.
    bias, pack, device, dtype
        As for :class:`Linear`.

    Notes
    -----
    Its state dict has the names of those models: ``gate_proj.weight``, ``up_proj.weight`` and ``down_proj.weight``. The
    module itself stores gate and up as ``gate_up_proj``, so that an optimizer sees one parameter for both, and its
    state has that name. ``torch.func.functional_call`` takes ``dict(module.named_parameters())``, not the state dict.
    ``gate_proj`` and ``up_proj`` have views of that parameter as ``weight`` and ``bias``, which can be written to, but
    not assigned. Replacing a view changes nothing in the block: assignments to ``.data``,
    ``torch.utils.swap_tensors``, pruning and parametrizations need ``gate_up_proj``, which is a layer.

    Under torch's tensor parallelism, ``gate_up_proj`` takes ``ColwiseParallel(use_local_output=False)``.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> mlp = rt.GatedMLP(4, 6)
    >>> mlp(torch.ones(2, 4)).shape, sorted(mlp.state_dict())
    (torch.Size([2, 4]), ['down_proj.weight', 'gate_proj.weight', 'up_proj.weight'])
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: ActivationName | Callable[..., Tensor] | None = "silu",
        *,
        approximate: Approximation = "none",
        bias: bool = False,
        pack: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        common = {"pack": pack, "device": device, "dtype": dtype}
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        _set_gate(self, *name_activation(activation, approximate))
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size, bias, **common)
        self.down_proj = Linear(intermediate_size, hidden_size, bias, **common)
        self.register_state_dict_post_hook(split_gate)
        self.register_load_state_dict_pre_hook(join_gate)

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...  # noqa: A002, D102

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("activation", "approximate"):
            _set_gate(self, *_assigned(self, name, value))
        elif name in ("gate_proj", "up_proj"):
            refuse_assignment(name)
        else:
            super().__setattr__(name, value)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name for it)
        """Return ``down(activation(gate(input)) * up(input))``."""
        row = find_activation(self.activation, self.approximate)
        if guarantees_rows():
            return self.down_proj(self._gate_by_rows(input, row))
        return self.down_proj(self._gate(input, row))

    @property
    def gate_proj(self) -> Projection:
        """The weight and bias of the gate, as views."""
        return projections(self)[0]

    @property
    def up_proj(self) -> Projection:
        """The weight and bias of the up projection, as views."""
        return projections(self)[1]

    def _gate(self, x: Tensor, row: Activation) -> Tensor:
        both = self.gate_up_proj(x)
        # Symbols of torch.fx and traced sizes have no value to compare.
        width = both.shape[-1] if isinstance(both, Tensor) else None
        if type(width) is int and width != 2 * self.intermediate_size:
            raise InvalidProblemError(
                f"gate_up_proj: its result has {width} columns, but gate and up have {self.intermediate_size} each; if "
                "ColwiseParallel shards it, pass use_local_output=False, since a rank's own columns are not halves of "
                "gate and up"
            )
        return gated(both, row)

    def _gate_by_rows(self, x: Tensor, row: Activation) -> Tensor:
        layer = self.gate_up_proj
        one_by_one = linear_is_overridden(x) or calls_are_hooked()
        if type(layer) is Linear and layer.activation is None and is_bare(layer) and not one_by_one:
            weight, bias = layer.weight, layer.bias
            if takes_layer(weight, bias):
                return gate_by_rows(x, weight, bias, row)
        refuse_composing(row.name, row.is_exact, "of a gate whose layer is replaced or observed,", "omit the option")
        return self._gate(x, row)

    def extra_repr(self) -> str:
        """Return the gate's activation."""
        return f"activation={self.activation}" + (
            "" if self.approximate == "none" else f", approximate={self.approximate}"
        )


def _set_gate(layer: GatedMLP, activation: Any, approximate: str) -> None:
    """Store a gate's activation, once it is known to be one."""
    if not isinstance(activation, str | None):
        name = getattr(activation, "__name__", type(activation).__name__)
        raise InvalidProblemError(
            f"activation: got {name}, which a gate cannot use; pass a name or torch's module or function for one, "
            "or compute the gate with rocpy.torch.matmul"
        )
    find_activation(activation, approximate)
    layer.__dict__.update(activation=activation, approximate=approximate)
