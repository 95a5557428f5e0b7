# SPDX-License-Identifier: MIT
"""Layers: torch.nn.Linear with its activation inside the product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocpy.torch import _packed
from rocpy.torch._functions import run_linear
from rocpy.torch._lowering import find_activation

__all__ = ["Linear"]


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """``torch.nn.Linear`` with an activation, computed by rocpy; parameters and their names are the same.

    Parameters
    ----------
    in_features, out_features
        K and N.
    bias
        Whether there is one.
    activation
        ``None``, ``"relu"``, ``"gelu"``, ``"silu"`` or ``"sigmoid"``.
    approximate
        Of GELU, as in torch: ``"none"`` is the error function, ``"tanh"`` its approximation.
    pack
        Whether a layer in eval mode, where no gradient is recorded, keeps its weight packed for the platform, where the
        platform packs. It takes the weight's memory a second time. A change of the weight is noticed by its version
        counter; after writing through ``.data``, call :meth:`repack`.
    device, dtype
        Of the parameters.

    Notes
    -----
    State dicts load from and into ``torch.nn.Linear``.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> layer = rt.Linear(4, 8, activation="gelu", approximate="tanh")
    >>> layer
    Linear(in_features=4, out_features=8, bias=True, activation=gelu, approximate=tanh)
    >>> layer(torch.ones(2, 4)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str | None = None,
        *,
        approximate: str = "none",
        pack: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._row = find_activation(activation, approximate)
        self.activation = activation
        self.approximate = approximate
        self.pack = pack

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name for it)
        """Return ``activation(input @ weight.T + bias)``."""
        weight, bias = self.weight, self.bias
        if self.pack and not self.training and not torch.is_grad_enabled():
            packed = _packed.product(self, input, weight, bias, self._row)
            if packed is not None:
                return packed
        return run_linear(input, weight, bias, self._row)

    def repack(self) -> None:
        """Forget the packed weight, after a write that its version counter did not see."""
        _packed.forget(self)

    def extra_repr(self) -> str:
        """Return the parameters as ``torch.nn.Linear`` does, and the activation."""
        text = super().extra_repr()
        if self.activation is not None:
            text += f", activation={self.activation}"
        if self.approximate != "none":
            text += f", approximate={self.approximate}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in (_packed.ATTRIBUTE, "_row"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._row = find_activation(self.activation, self.approximate)
