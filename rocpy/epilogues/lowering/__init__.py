# SPDX-License-Identifier: MIT
"""Lowerings of an expression: the library's own epilogues, tile programs, HIP kernels and Triton kernels."""
