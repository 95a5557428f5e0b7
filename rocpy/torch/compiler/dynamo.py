# SPDX-License-Identifier: MIT
"""What torch's compiler must know of rocpy.matmul: that it may look into the operators behind it."""

from __future__ import annotations

from typing import Any

import torch

from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.grouped.function import grouped_matmul
from rocpy.torch.operators.dispatch import dispatched_grouped, dispatched_matmul

__all__ = ["register"]

# Not `custom.binding`, which operators call while they are traced.
_RUN_AS_THEY_ARE = (
    "rocpy.blaslt.arrays",
    "rocpy.blaslt.composed",
    "rocpy.blaslt.custom.launch",
    "rocpy.blaslt.custom.plan",
    "rocpy.blaslt.custom.strategies",
    "rocpy.blaslt.front.planned",
    "rocpy.blaslt.selection",
    "rocpy.rccl",
    "rocpy.runtime",
    "rocpy.torch.layers.gate_rows",
    "rocpy.torch.process_group",
    "rocpy.tuning",
)


def register() -> None:
    """Let torch.compile trace rocpy's products as the Python functions that call the operators."""
    from torch._dynamo import trace_rules
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables import PolyfilledFunctionVariable
    from torch._dynamo.variables.builder import VariableBuilder

    # What a product does in Python when it runs, after a graph that was cut before it, is nothing to compile.
    for package in _RUN_AS_THEY_ARE:
        trace_rules.add(package)
    # Where the compiler looks for the Python form of another package's compiled function.
    matmul.__python_implementation__ = dispatched_matmul  # type: ignore[attr-defined]
    grouped_matmul.__python_implementation__ = dispatched_grouped  # type: ignore[attr-defined]

    def build(builder: Any, value: Any) -> Any:
        return PolyfilledFunctionVariable(value, source=builder.source, **builder.install_guards(GuardBuilder.ID_MATCH))

    for function in (matmul, grouped_matmul):
        try:
            VariableBuilder._id_dispatch()[id(function)] = build
        except AttributeError:
            # Another torch: its public way, which passes tensors and plain values only.
            torch.compiler.allow_in_graph(function)
