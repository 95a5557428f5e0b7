# SPDX-License-Identifier: MIT
"""Products for jax, with support for ``jax.jit``, gradients, ``jax.vmap`` and ``jax.export``."""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.jax import _required as _required
from rocpy.jax._functions import matmul

__all__ = ["matmul"]

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())
