# SPDX-License-Identifier: MIT
"""jax's arrays outside of its transformations: rocpy.matmul gives what it gives for numpy's, on a's device."""

import numpy as np
import pytest

import rocpy

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

pytestmark = pytest.mark.jax

A = np.full((1, 4096), 127, "i1")
A[0, 0] = 126
B = np.full((4096, 1), 127, "i1")
ONE = np.ones((1, 1), "i4")
# Their exact sum, 66064257, is no float32, in which jax computes without 64-bit types.
WHOLE = {
    "relu_aux": {},
    "relu_aux_bias": {"bias": ONE[0]},
    "clamp": {"clamp": (0, 2**24 + 1)},
    "clamp_aux": {"clamp": (0, 2**30)},
    "drelu": {"aux": ONE},
    "drelu_bgrad": {"aux": ONE},
    "bgrada": {},
    "bgradb": {},
    "default": {"dtype": "int32", "scale_a": 1.0, "scale_b": 1.0},
}


def as_jax(arguments):
    return {name: jnp.asarray(one) if isinstance(one, np.ndarray) else one for name, one in arguments.items()}


def executed(a, b, **arguments):
    with rocpy.Matmul(a, b, **arguments) as product:
        return product.execute()


def check(found, wanted):
    ours, numpys = jax.tree.leaves(found), jax.tree.leaves(wanted)
    for one, other in zip(ours, numpys, strict=True):
        assert isinstance(one, jax.Array)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.parametrize("epilogue", WHOLE)
@pytest.mark.parametrize("form", [rocpy.matmul, executed], ids=["matmul", "Matmul"])
def test_integers_are_exact(epilogue, form):
    """What is composed is computed by numpy, in float64; jax would warn and use float32."""
    arguments = WHOLE[epilogue]
    found = form(jnp.asarray(A), jnp.asarray(B), epilogue=epilogue, **as_jax(arguments))
    check(found, rocpy.matmul(A, B, epilogue=epilogue, **arguments))


def test_integers_with_an_addend_in_groups_and_without_elements():
    a, b = jnp.asarray(A), jnp.asarray(B)
    clamped = {"epilogue": "clamp", "clamp": (0, 2**30)}
    check(rocpy.matmul(a, b, jnp.asarray(ONE), **clamped), rocpy.matmul(A, B, ONE, **clamped))
    check(rocpy.grouped_matmul([a], [b], **clamped), rocpy.grouped_matmul([A], [B], **clamped))
    wanted = rocpy.grouped_matmul(A, B[None], offsets=[0, 1], **clamped)
    check(rocpy.grouped_matmul(a, b[None], offsets=[0, 1], **clamped), wanted)
    check(rocpy.matmul(a[:0], b, epilogue="bgradb"), rocpy.matmul(A[:0], B, epilogue="bgradb"))


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("form", [rocpy.matmul, executed], ids=["matmul", "Matmul"])
def test_types_that_numpy_lacks(kind, form):
    """Copied, composed and in Weights."""
    a, b, c, bias = (jnp.ones(shape, kind) for shape in ((2, 16), (16, 4), (1, 4), (4,)))
    arrays = [np.asarray(one) for one in (a, b, c, bias)]
    dtype = {"dtype": "bfloat16"} | ({"scale_a": 1.0, "scale_b": 1.0} if kind != "bfloat16" else {})
    wide = jnp.bfloat16
    added = form(a, b, c=c.astype(wide), **dtype)
    check(added, rocpy.matmul(arrays[0], arrays[1], arrays[2].astype(wide), **dtype))
    check(form(a, b, epilogue="gelu_erf", **dtype), rocpy.matmul(*arrays[:2], epilogue="gelu_erf", **dtype))
    weight = rocpy.Weight(b, bias=bias.astype(wide))
    wanted = rocpy.matmul(*arrays[:2], epilogue="bias", bias=arrays[3].astype(wide), **dtype)
    check(form(a, weight, epilogue="bias", **dtype), wanted)


@pytest.mark.parametrize("form", [rocpy.matmul, executed], ids=["matmul", "Matmul"])
def test_a_custom_epilogue_computes_in_the_types_that_it_names(form):
    ones = jnp.ones((1, 2))
    exact = rocpy.epilogue(lambda x: ((x.astype("float64") + 2.0**-40) * 2.0**40 - 2.0**41).astype("float32"))
    check(form(ones, ones.T, epilogue=exact), np.ones((1, 1), np.float32))
    wide = rocpy.epilogue(lambda x: x.astype("float64"))
    with pytest.raises(rocpy.UnsupportedError, match=r"float64.*jax_enable_x64.*pass another dtype="):
        form(ones, ones.T, epilogue=wide)


def test_the_result_is_on_the_device_of_a(run_python):
    run_python(
        """
import jax, numpy as np, pytest, rocpy
here, there = (jax.device_put(np.ones((2, 2), np.float32), device) for device in jax.devices())
def executed(a, b, **arguments):
    with rocpy.Matmul(a, b, **arguments) as product:
        return product.execute()
for form in (rocpy.matmul, executed):
    for epilogue in ("default", "gelu_erf"):
        assert form(there, there, epilogue=epilogue).devices() == {jax.devices()[1]}
with pytest.raises(rocpy.InvalidOperandError, match="b is on CPU memory of device 1 and a on CPU memory;"):
    rocpy.matmul(here, there)
mesh = jax.sharding.Mesh(jax.devices(), ("x",))
for spec in (jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec()):
    spread = jax.device_put(here, jax.sharding.NamedSharding(mesh, spec))
    for form in (rocpy.matmul, rocpy.Matmul, rocpy.explain):
        with pytest.raises(rocpy.InvalidOperandError, match="^a: .*; rocpy.jax.matmul takes arrays of several devices"):
            form(spread, here)
    assert (rocpy.matmul(jax.device_put(spread, jax.devices()[0]), here) == 2).all()
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
