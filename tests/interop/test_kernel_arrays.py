# SPDX-License-Identifier: MIT
"""Arrays that come to kernels by DLPack: in the types that only ml_dtypes has, too."""

import numpy as np
import pytest

import rocpy
from rocpy import cooperative as coop

pytestmark = pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="a Buffer is a GPU's memory there")


@coop.jit
def copy_first(x, out):
    out[0] = x[0]


def test_bfloat16_buffers():
    x, out = rocpy.Buffer(1, "bfloat16"), rocpy.Buffer(1, "bfloat16")
    x.copy_from(np.full(1, 1.5, x.dtype))
    copy_first[1, 1](x, out)
    assert out.to_numpy() == 1.5


@pytest.mark.jax
def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    x, out = jnp.full(1, 1.5, "bfloat16"), rocpy.Buffer(1, "bfloat16")
    copy_first[1, 1](x, out)
    assert out.to_numpy() == 1.5
    x.delete()
    with pytest.raises(rocpy.InvalidOperandError, match="kernel copy_first: x was deleted or donated"):
        copy_first[1, 1](x, out)
