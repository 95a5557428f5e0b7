# SPDX-License-Identifier: MIT
"""What a bias holds is decided when a product is traced, and neither by a device's part nor by an exported program."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.jax

DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
BEGIN = """
import itertools
import jax, jax.numpy as jnp, numpy as np
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from rocpy.jax import matmul
rng = np.random.default_rng(0)
def draw(*shape):
    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32))
def near(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), found, expected)
def both(f):
    def run(a, b, bias):
        value, pull = jax.vjp(f, a, b, bias)
        return value, pull(value)
    return run
"""

# Shapes of a, b and bias for which the shape of a device's part has two readings.
SHAPES = [
    ((4, 2, 3), (3, 1), (2, 1)),
    ((4, 2, 3), (3, 2), (4, 2)),
    ((1, 4, 4, 3), (3, 2), (4, 2)),
]


@pytest.mark.parametrize("mesh", ["Auto", pytest.param("Explicit", marks=pytest.mark.slow)])
def test_on_several_devices(mesh, run_python):
    """For each axis of each operand that is cut, with each kind of mesh: the values and gradients of one device."""
    run_python(
        BEGIN
        + f"shapes, kind = {SHAPES!r}, AxisType.{mesh}\n"
        + """
mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
for number, each in enumerate(shapes):
    epilogue = ("bias", "relu_bias", "gelu_bias")[number % 3]
    operands = [draw(*shape) for shape in each]
    run = both(lambda a, b, bias: matmul(a, b, epilogue=epilogue, bias=bias))
    expected, run = run(*operands), jax.jit(run)
    for which, shape in enumerate(each):
        for axis in (axis for axis, extent in enumerate(shape) if extent % 2 == 0):
            spec = P(*("x" if own == axis else None for own in range(len(shape))))
            put = [jax.device_put(x, NamedSharding(mesh, spec if i == which else P())) for i, x in enumerate(operands)]
            near(run(*put), expected)
""",
        **DEVICES,
    )


# Of 1 and 2, some equal and some not.
ALL_EXTENTS = "itertools.product((1, 2), repeat=3)"
FEW_EXTENTS = "((1, 1, 1), (2, 2, 2), (1, 2, 2), (2, 2, 1))"


@pytest.mark.parametrize(
    "each", [FEW_EXTENTS, pytest.param(ALL_EXTENTS, marks=pytest.mark.slow)], ids=["few extents", "all extents"]
)
def test_in_exported_programs(each, run_python):
    """For extents that coincide when the program runs: values and gradients of the meaning that was traced."""
    run_python(
        BEGIN
        + f"each_extents = {each}\n"
        + """
known = [export.DisabledSafetyCheck.custom_call("rocpy_matmul")]
for shapes, one_per_row in ((("b, m, 3", "3, n", "m, 1"), True), (("p, b, m, 3", "3, n", "b, n"), False)):
    scope = export.SymbolicScope()
    symbols = [jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), np.float32) for text in shapes]
    ours = both(lambda a, b, bias: matmul(a, b, epilogue="gelu_bias", bias=bias))
    theirs = jax.jit(both(lambda a, b, bias: jax.nn.gelu(a @ b + (bias if one_per_row else bias[..., None, :]))))
    program = export.export(jax.jit(ours), disabled_checks=known)(*symbols)
    for extents in each_extents:
        value = dict(zip("bmn", extents), p=2)
        operands = [draw(*(value.get(one.strip()) or int(one) for one in text.split(","))) for text in shapes]
        near(program.call(*operands), theirs(*operands))
"""
    )


def test_under_vmap(run_python):
    """The new batch axis and a batch axis of extents 1 and M make no bias of another meaning."""
    run_python(
        BEGIN
        + """
for extents in itertools.product((1, 2), repeat=3):
    b, m, n = extents
    x, w = draw(2, b, m, 3), draw(3, n)
    for bias, theirs in ((draw(m, 1), lambda y, bias: y + bias), (draw(n), lambda y, bias: y + bias)):
        if bias.shape == (b, n):
            continue
        for mapped in (None, 0):
            given = bias if mapped is None else jnp.stack([bias, 2 * bias])
            found = jax.vmap(lambda x, bias: matmul(x, w, epilogue="bias", bias=bias), (0, mapped))(x, given)
            near(found, jax.vmap(lambda x, bias: theirs(x @ w, bias), (0, mapped))(x, given))
"""
    )
