# SPDX-License-Identifier: MIT
"""jax for the tests of its layer, imported by the test that needs it and with 64-bit types."""

from __future__ import annotations

import pytest


@pytest.fixture
def jax():
    """The jax module with float64 turned on; the test is marked jax, so it is skipped where there is none."""
    import jax

    with jax.enable_x64(True):
        yield jax


@pytest.fixture
def matmul(jax):
    """rocpy.jax.matmul."""
    from rocpy.jax import matmul

    return matmul
