# SPDX-License-Identifier: MIT
"""What still breaks the rules of the structure: lists that only become shorter, and end empty."""

# Modules that import each other.
CIRCLES: frozenset[str] = frozenset(
    {
        "rocpy._operand",
        "rocpy._torch_operand",
        "rocpy.epilogues._trace",
        "rocpy.epilogues._vocabulary",
        "rocpy.runtime.graph",
        "rocpy.runtime.stream",
    }
)
# Folders of more source files than a folder may have.
LARGE_FOLDERS: frozenset[str] = frozenset(
    {
        "csrc/core",
        "csrc/platforms/host",
        "csrc/platforms/host/amdgpu",
        "csrc/platforms/host/gemm",
        "rocpy",
        "rocpy/blaslt",
        "rocpy/rccl",
        "rocpy/torch",
    }
)
# Functions of more lines than a function may have.
LONG_FUNCTIONS: frozenset[str] = frozenset(
    {
        "rocpy/blaslt/_grouped.pyx:packed",
        "rocpy/blaslt/_launch.pyx:build",
        "rocpy/blaslt/call.pyx:product",
        "rocpy/blaslt/grouped.pyx:listed",
        "rocpy/blaslt/lowering.py:lower",
        "rocpy/blaslt/plan.pyx:execute",
        "rocpy/rccl/communicator.pyx:run",
    }
)
# Functions of more positional parameters than a function may have.
LONG_SIGNATURES: frozenset[str] = frozenset(
    {
        "rocpy/_dlpack.pyx:export_capsule",
        "rocpy/blaslt/_copies.py:copied_product",
        "rocpy/blaslt/_custom_fused.py:fused_product",
        "rocpy/blaslt/_custom_triton.py:run",
        "rocpy/blaslt/_fallback.py:unfused_product",
        "rocpy/blaslt/_group_plans.pyx:find",
        "rocpy/blaslt/_grouped.pyx:packed",
        "rocpy/blaslt/_launch.pyx:execute",
        "rocpy/blaslt/_support.py:_problem",
        "rocpy/blaslt/_tile.pyx:__cinit__",
        "rocpy/blaslt/_tile.pyx:staged_product",
        "rocpy/blaslt/call.pyx:product",
        "rocpy/blaslt/grouped.pyx:listed",
        "rocpy/rccl/_memory.pyx:trade",
        "rocpy/rccl/communicator.pyx:run",
        "rocpy/testing/_emulator.pyx:run",
        "rocpy/torch/_dispatch.py:_dispatched_custom",
        "rocpy/torch/_epilogues.py:_kernel",
        "rocpy/torch/_grouped.py:grouped_with_epilogue",
        "rocpy/torch/_products.py:_kernel",
        "rocpy/torch/_shapes.py:check_product",
        "rocpy/torch/_vmap.py:_product",
        "rocpy/tuning/_verification.py:_entry",
    }
)
# Files that test a type by its name.
NAMED_TYPES: frozenset[str] = frozenset()
