# SPDX-License-Identifier: MIT
"""What kernels need beside rocpy, and how to install it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocpy._messages.distribution import install_command
from rocpy.errors import UnsupportedError


@contextlib.contextmanager
def importing_numba() -> Iterator[None]:
    """Import what imports Numba; an error says how to install it where it is not."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {"numba", "llvmlite"}:
            raise
        raise UnsupportedError(
            f"kernels are compiled by Numba, which is not installed ({error}): {install_command('cooperative')}"
        ) from None
