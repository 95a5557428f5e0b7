# SPDX-License-Identifier: MIT
"""Products for jax that compile and train: inside ``jax.jit``, with gradients, vectorised, exported."""

from rocpy.jax._functions import matmul

__all__ = ["matmul"]
