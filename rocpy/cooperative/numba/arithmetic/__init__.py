# SPDX-License-Identifier: MIT
"""Arithmetic of kernels where Numba's is not numpy's: types of operands, and code of what Numba leaves undefined."""
