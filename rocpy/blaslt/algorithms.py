# SPDX-License-Identifier: MIT
"""An algorithm as the platform offered it for one problem."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Algorithm"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute a problem, from the heuristic of ``hipblasLtMatmulAlgoGetHeuristic``.

    Parameters
    ----------
    id
        Solution index: it means something only for one build of one library on one architecture.
    name
        Name of the kernel, or ``""`` where the platform does not tell.
    workspace_bytes
        Scratch memory that it needs, in bytes.
    waves
        Predicted waves over the device; 0 where the library does not say.
    lowering
        How the epilogue is reached; ``"native"``: by the library's own kernel.
    elapsed_ms
        Measured time in milliseconds, ``None`` until measured.
    rank
        Place in the heuristic's order, 0 first.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a = np.ones((64, 64), np.float32)
    >>> with rocpy.Matmul(a, a) as mm:
    ...     best = mm.plan()[0]
    >>> best.lowering, best.elapsed_ms
    ('native', None)
    """

    id: int
    name: str
    workspace_bytes: int
    waves: float
    lowering: str = "native"
    elapsed_ms: float | None = None
    rank: int = 0

    def __str__(self) -> str:
        """Return name, id and workspace on one line."""
        return f"{self.name or 'algorithm'} #{self.id}, workspace {self.workspace_bytes} bytes, {self.lowering}"
