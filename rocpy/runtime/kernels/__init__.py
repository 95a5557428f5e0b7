# SPDX-License-Identifier: MIT
"""Kernels from source: how they are compiled and kept, their arguments, and modules of code that a device runs."""
