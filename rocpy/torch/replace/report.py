# SPDX-License-Identifier: MIT
"""The report of replace_linear: a table, JSON, and undo."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocpy._messages.html import table as html_table

__all__ = ["Experts", "Fused", "Left", "ReplaceReport", "Replaced"]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A linear layer that rocpy now computes."""

    name: str
    in_features: int
    out_features: int
    bias: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class Experts:
    """A module of experts that rocpy now computes with grouped products.

    ``share`` is their share of the model's parameters, in percent.
    """

    name: str
    experts: int
    in_features: int
    hidden_features: int
    bias: bool
    dtype: str
    share: float


@dataclass(frozen=True, slots=True)
class Fused:
    """A layer that is computed together with the activation that follows it.

    ``inside`` states whether the activation is an epilogue of the product, without and with a gradient; otherwise
    torch's function overwrites the product's result.
    """

    block: str
    layer: str
    activation: str
    computes: str
    inside: bool


@dataclass(frozen=True, slots=True)
class Left:
    """Something that was left unchanged, and why."""

    name: str
    kind: str
    reason: str


@dataclass(eq=False)
class ReplaceReport:
    """The result of :func:`rocpy.torch.replace_linear`.

    Parameters
    ----------
    replaced
        Layers that rocpy computes.
    fused
        Those of them that are fused with their activation.
    experts
        Modules of experts that rocpy computes, each with its share of the model's parameters.
    not_replaced
        Modules with a matrix product that were left unchanged.
    not_fused
        Blocks, or layers of an ``nn.Sequential``, whose activation is computed separately.
    notes
        Features that no longer work, or work differently, with the changed model.
    """

    replaced: list[Replaced] = field(default_factory=list)
    fused: list[Fused] = field(default_factory=list)
    experts: list[Experts] = field(default_factory=list)
    not_replaced: list[Left] = field(default_factory=list)
    not_fused: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # Functions of modules, with the modules as arguments: copies and pickles of a report have copies of those.
    _restore: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Restore the modules: the same objects, with the current values of their parameters.

        A second call has no effect. A deep copy or pickle of a report has copies of the modules, those of the model's
        where both are copied together, and restores them.
        """
        steps, self._restore = self._restore, []
        for restore in reversed(steps):
            restore()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        rows = {
            key: [{name: getattr(row, name) for name in row.__slots__} for row in getattr(self, key)]
            for key in ("replaced", "fused", "experts", "not_replaced", "not_fused")
        }
        return rows | {"notes": list(self.notes)}

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as a JSON document."""
        return json.dumps(self.to_dict(), indent=indent)

    def __repr__(self) -> str:
        return self._summary() + _table(self._rows()) + "".join(f"\n  note: {note}" for note in self.notes)

    def _repr_html_(self) -> str:
        rows = [(*row, count if count > 1 else None) for row, count in _grouped(self._rows()).items()]
        notes = "".join(f"; {note}" for note in self.notes)
        return html_table(self._summary() + notes, ("layer", "", "", "times"), rows)

    def _summary(self) -> str:
        heads = [f"{len(self.replaced)} linear layers replaced, {len(self.fused)} of them fused with their activation"]
        if self.experts:
            share = sum(row.share for row in self.experts)
            heads.append(f"{len(self.experts)} modules of experts replaced, {share:.0f} % of the parameters")
        if self.not_replaced:
            heads.append(f"{len(self.not_replaced)} not replaced")
        if self.not_fused:
            heads.append(f"{len(self.not_fused)} not fused")
        return "; ".join(heads)

    def _rows(self) -> list[tuple[str, str, str]]:
        fused = {(row.layer): row for row in self.fused}
        rows = []
        for row in self.replaced:
            text = f"{row.in_features} to {row.out_features}{', bias' if row.bias else ''}, {row.dtype}"
            with_it = fused.get(row.name)
            does = "replaced" if with_it is None else f"fused with {with_it.activation} ({with_it.computes})"
            rows.append((row.name, does, text))
        for one in self.experts:
            text = f"{one.experts} experts, {one.in_features} to {one.hidden_features} to {one.in_features}"
            text += f"{', bias' if one.bias else ''}, {one.dtype}"
            rows.append((one.name or "(the model)", "replaced", text))
        rows += [(row.name or "(the model)", "not replaced", f"{row.kind}: {row.reason}") for row in self.not_replaced]
        rows += [(row.name or "(the model)", "not fused", f"{row.kind}: {row.reason}") for row in self.not_fused]
        return rows


def _grouped(rows: list[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    """Return the rows with their count: those of numbered layers that are alike are one."""
    grouped: dict[tuple[str, str, str], int] = {}
    for row in rows:
        name, does, details = (re.sub(r"(?<=\.)\d+(?=\.)", "*", cell) for cell in row)
        key = name, does, details
        grouped[key] = grouped.get(key, 0) + 1
    return grouped


def _table(rows: list[tuple[str, str, str]]) -> str:
    """Return the rows as lines."""
    grouped = _grouped(rows)
    if not grouped:
        return ""
    widths = [max(len(key[column]) for key in grouped) for column in range(2)]
    lines = [
        f"  {count:4d} x  {key[0]:{widths[0]}}  {key[1]:{widths[1]}}  {key[2]}".rstrip()
        for key, count in grouped.items()
    ]
    return "\n" + "\n".join(lines)
