# SPDX-License-Identifier: MIT
"""LLVM's types that code of kernels is written with, and the name of AMD's GPUs as a target."""

from __future__ import annotations

from llvmlite import ir

VOID, I1, I8, I16, I32, I64 = ir.VoidType(), *(ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
BYTES = I8.as_pointer()
TRIPLE = "amdgcn-amd-amdhsa"
