# SPDX-License-Identifier: MIT
"""What still breaks the rules of the structure: lists that only become shorter, and end empty."""

# Modules that import each other.
CIRCLES: frozenset[str] = frozenset()
# Folders of more source files than a folder may have.
LARGE_FOLDERS: frozenset[str] = frozenset()
# Functions of more lines than a function may have.
LONG_FUNCTIONS: frozenset[str] = frozenset(
    {
        "rocpy/blaslt/front/call.pyx:product",
        "rocpy/blaslt/native/plan.pyx:execute",
    }
)
# Functions of more positional parameters than a function may have.
LONG_SIGNATURES: frozenset[str] = frozenset(
    {
        "rocpy/blaslt/custom/fused.py:fused_product",
        "rocpy/blaslt/custom/tile.pyx:__cinit__",
        "rocpy/blaslt/custom/tile.pyx:staged_product",
        "rocpy/blaslt/custom/triton_kernel.py:run",
        "rocpy/blaslt/engine/launch.pyx:execute",
        "rocpy/blaslt/front/call.pyx:product",
    }
)
# Files that test a type by its name.
NAMED_TYPES: frozenset[str] = frozenset()
