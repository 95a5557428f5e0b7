# SPDX-License-Identifier: MIT
"""Kernels on the CPU: compiled to machine code, kept on disk, run by the fiber runtime."""
