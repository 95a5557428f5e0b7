# SPDX-License-Identifier: MIT
"""Explanation: how a product would be computed, or each launch of a grouped one; plain data to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocpy._messages.html import facts, table
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.problem import Problem

__all__ = ["Explanation", "GroupedExplanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a product would be computed; its ``str`` is meant to be read.

    Parameters
    ----------
    platform, device
        Where it runs.
    problem
        The validated problem.
    algorithm
        The algorithm that ``rocpy.matmul`` uses, ``None`` for an empty result.
    candidates
        Number of algorithms from which it was chosen.
    source
        Where the choice came from: ``"heuristic"``, ``"reproducible"`` under ``options(reproducible=)``, ``"tuned"``
        with the measured time as the algorithm's ``elapsed_ms``, ``"pinned"`` by ``algorithm=``, or
        ``"nothing to compute"``.
    copies
        Operands that are copied first, because the library cannot use their layout, byte order or alignment or its
        device cannot access them; ``"result"``: the result is computed in column-major order, for a bias per row, and
        copied to row-major order.
    packed
        Whether b is a packed :class:`rocpy.Weight`.
    unfused
        Why the product is not fused and what is done instead; empty if it is fused.
    absent
        For a custom epilogue: the lowerings that are not possible, each with the reason.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> how = rocpy.explain(np.ones((8, 8)), np.ones((8, 8)), epilogue="relu")
    >>> how.source, how.copies, how.packed
    ('heuristic', (), False)
    """

    platform: str
    device: str
    problem: Problem
    algorithm: Algorithm | Any  # and not `| None`: few programs explain an empty result, and each would have to ask
    candidates: int
    source: str
    copies: tuple[str, ...]
    packed: bool
    unfused: str = ""
    absent: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """Return problem, algorithm and source on one line."""
        algorithm = "nothing to compute" if self.algorithm is None else self.algorithm
        return f"<Explanation of {self.problem}: {algorithm}>"

    def _repr_html_(self) -> str:
        return facts("rocpy.explain", str(self))

    def __str__(self) -> str:
        """Return one line for each fact."""
        algorithm = self.algorithm
        lines = [f"problem    {self.problem}", f"platform   {self.platform} ({self.device})"]
        if algorithm is not None:
            lines += [
                (
                    f"algorithm  {algorithm.name or 'unnamed'} (id {algorithm.id}), "
                    f"number {algorithm.rank + 1} of {self.candidates}"
                ),
                f"lowering   {algorithm.lowering}",
                f"workspace  {algorithm.workspace_bytes} bytes",
            ]
        if self.unfused:
            lines.append(f"because    {self.unfused}")
        lines += [f"not        {strategy}: {reason}" for strategy, reason in self.absent]
        measured = "" if algorithm is None or algorithm.elapsed_ms is None else f", {algorithm.elapsed_ms:.4g} ms"
        lines.append(f"chosen by  {self.source}{measured}")
        if self.packed:
            lines.append("weights    packed for the platform")
        if self.copies:
            lines.append(f"copies     {', '.join(self.copies)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class GroupedExplanation:
    """How a grouped product would be computed; its ``str`` is meant to be read.

    Parameters
    ----------
    runs
        For each launch: the first group, the number of groups in its batch, and the explanation of that product. Groups
        without elements in the result are omitted.
    copies
        Operands that are copied first for all groups.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> tokens, experts = np.ones((5, 2), np.float32), np.ones((3, 2, 2), np.float32)
    >>> how = rocpy.explain(tokens, experts, offsets=[0, 2, 4, 5])
    >>> [(first, count) for first, count, _ in how.runs]
    [(0, 2), (2, 1)]
    """

    runs: tuple[tuple[int, int, Explanation], ...]
    copies: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return how many launches there are, on one line."""
        return f"<GroupedExplanation of {len(self.runs)} launches>"

    def _repr_html_(self) -> str:
        rows = [
            (f"{first} to {first + count - 1}" if count > 1 else first, one.problem, one.algorithm, one.source)
            for first, count, one in self.runs
        ]
        return table("rocpy.explain", ("groups", "problem", "algorithm", "chosen by"), rows)

    def __str__(self) -> str:
        """Return the explanations one after the other, each under the groups that it is of."""
        parts = []
        for first, count, one in self.runs:
            groups = f"group {first}" if count == 1 else f"groups {first} to {first + count - 1}, one batch"
            parts.append(f"{groups}\n" + "\n".join(f"  {line}" for line in str(one).splitlines()))
        if self.copies:
            parts.append(f"copies of the whole: {', '.join(self.copies)}")
        return "\n".join(parts) or "no groups with elements"
