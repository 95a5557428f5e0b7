# SPDX-License-Identifier: MIT
"""The rules of the source tree, as functions of path and text; test_layout.py runs them and shows that each bites."""

from layout_rules import (
    declarations,
    documents,
    folder_layers,
    house,
    native,
    native_functions,
    python_layers,
    structure,
)
from layout_rules.tree import RULES, Rule, read_tree

__all__ = [
    "RULES",
    "Rule",
    "declarations",
    "documents",
    "folder_layers",
    "house",
    "native",
    "native_functions",
    "python_layers",
    "read_tree",
    "structure",
]
