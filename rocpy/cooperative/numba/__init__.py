# SPDX-License-Identifier: MIT
"""What kernels name, as types and code of Numba's: the same for each target; primitives have the CPU's code."""
