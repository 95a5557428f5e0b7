# SPDX-License-Identifier: MIT
"""Kernels on AMD GPUs: compiled to code objects with no GPU, launched through HIP, and linked by numba-hip."""
