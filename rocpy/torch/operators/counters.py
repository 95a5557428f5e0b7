# SPDX-License-Identifier: MIT
"""Counts of the products that rocpy.torch computed, for programs and tests that check this."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields
from typing import Self

import torch
from torch import Tensor

__all__ = ["Counters", "count", "count_gradients", "counters", "watched"]

# The counters that are open, and whether there are any: read at each product, so a list that is never replaced.
watched: list[Counters] = []
_lock = threading.Lock()


@dataclass(eq=False)
class Counters:
    """Counts of what was computed while it was open; a context manager.

    Parameters
    ----------
    layers
        Forward products of linear layers.
    activations
        Those of them with an activation.
    fused
        Those of them whose activation was an epilogue of the product; for the others, counted by :attr:`fallbacks`,
        torch's function was applied to the result.
    packed
        Those of the layers' products that read a packed weight.
    matmuls
        Products of ``rocpy.matmul`` computed by torch operators, including gradients that torch compiled or recorded
        for a second derivative.
    grouped
        Grouped products: two for each call of a model's experts, and those of their gradients.
    gradients
        All other products of gradients.
    fused_gradients
        Those of them that included an activation's derivative or a bias gradient.
    """

    layers: int = 0
    activations: int = 0
    fused: int = 0
    packed: int = 0
    matmuls: int = 0
    grouped: int = 0
    gradients: int = 0
    fused_gradients: int = 0

    @property
    def products(self) -> int:
        """Total number of products."""
        return self.layers + self.matmuls + self.grouped + self.gradients

    @property
    def fallbacks(self) -> int:
        """Number of activations that torch computed after the product."""
        return self.activations - self.fused

    def reset(self) -> None:
        """Reset all counts to 0."""
        with _lock:
            for field in fields(self):
                setattr(self, field.name, 0)

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self) | {"products": self.products, "fallbacks": self.fallbacks}

    def __enter__(self) -> Self:
        self.reset()
        with _lock:
            watched.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        with _lock:
            watched[:] = [other for other in watched if other is not self]


def count(**added: int) -> None:
    """Add to every counter that is open."""
    with _lock:
        for one in watched:
            for name, number in added.items():
                setattr(one, name, getattr(one, name) + number)


def count_gradients(d: Tensor, **added: int) -> None:
    """Add products of a gradient where they run at once; where they are traced or recorded, the operators count."""
    if type(d) is Tensor and not torch.is_grad_enabled():
        count(**added)


def counters() -> Counters:
    """Return counters of the products that run while they are active, in all threads.

    Returns
    -------
    Counters
        A context manager that counts from the beginning of its block to the end. Counters may be nested.

    Notes
    -----
    Products that torch's compiler or autograd runs are counted when they run: those of a compiled graph when it is
    called, those of a gradient when ``backward`` computes it.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> layer = rt.Linear(4, 8, activation="relu")
    >>> with rt.counters() as counts:
    ...     layer(torch.ones(2, 4)).sum().backward()
    >>> counts.layers, counts.fused, counts.gradients
    (1, 1, 1)
    """
    return Counters()
