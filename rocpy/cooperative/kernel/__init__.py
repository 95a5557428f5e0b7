# SPDX-License-Identifier: MIT
"""Kernels as objects, their arguments, limits and errors, and what runs them; nothing here needs Numba."""
