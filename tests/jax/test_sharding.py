# SPDX-License-Identifier: MIT
"""Products cut over devices: in jax.shard_map with gradients, and by jax.jit, as jax's own products are cut."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.jax

DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
BEGIN = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from rocpy.jax import matmul
assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), ("d",))
rng = np.random.default_rng(0)
def draw(*shape):
    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32))
def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))
def near(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, expected)
"""


@pytest.mark.parametrize("epilogue", ["default", pytest.param("gelu_bias", marks=pytest.mark.slow)])
def test_gradients_in_shard_map(epilogue, run_python):
    """A replicated weight and bias get the sum of their gradients over the axis, from inside and from outside."""
    run_python(
        BEGIN
        + f"epilogue = {epilogue!r}\n"
        + """
x, w, bias = draw(8, 6), draw(6, 5), draw(5)
def ours(x, w, bias):
    return matmul(x, w, epilogue=epilogue, bias=bias if "bias" in epilogue else None) + 0 * bias
def theirs(x, w, bias):
    return jax.nn.gelu(x @ w + bias) if "bias" in epilogue else x @ w + 0 * bias
results = []
for product in (theirs, ours):
    def loss(w, bias, x):
        local = lambda x, w, bias: jax.lax.psum((product(x, w, bias) ** 2).sum(), "d")
        return jax.shard_map(local, mesh=mesh, in_specs=(P("d", None), P(), P()), out_specs=P())(x, w, bias)
    def inner(x, w, bias):
        return jax.grad(lambda w, bias: (product(x, w, bias) ** 2).sum(), argnums=(0, 1))(w, bias)
    outside = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(w, bias, x)
    inside = jax.shard_map(inner, mesh=mesh, in_specs=(P("d", None), P(), P()), out_specs=P())(x, w, bias)
    columns = jax.shard_map(product, mesh=mesh, in_specs=(P(), P(None, None), P()), out_specs=P())(x, w, bias)
    unchecked = jax.shard_map(
        product, mesh=mesh, in_specs=(P("d", None), P(), P()), out_specs=P("d", None), check_vma=False
    )(x, w, bias)
    results.append((outside, inside, columns, unchecked))
near(results[1], results[0])
""",
        **DEVICES,
    )


CUTS = [
    ("d", None, None, None),
    (None, None, None, "d"),
    (None, "d", "d", None),
    ("d", None, None, "d"),
    (None, "d", None, None),
    (None, None, "d", None),
]


def test_jit_cuts_as_jax_does(run_python):
    """The result is cut as that of jax's own product, with no more collectives, for each cut and several epilogues."""
    run_python(
        BEGIN
        + f"cuts = {CUTS!r}\n"
        + """
kinds = ("all-gather(", "all-to-all(", "collective-permute(", "all-reduce(")
def result_and_counts(function, *arguments):
    compiled = jax.jit(function).lower(*arguments).compile()
    text = compiled.as_text()
    return compiled(*arguments), [text.count(kind) for kind in kinds]
a, b, bias, c = draw(8, 12), draw(12, 16), draw(16), draw(8, 16)
products = [
    (lambda a, b: matmul(a, b), lambda a, b: a @ b),
    (lambda a, b: matmul(a, b, epilogue="gelu_bias", bias=bias), lambda a, b: jax.nn.gelu(a @ b + bias)),
    (lambda a, b: matmul(a, b, c, alpha=2.0, beta=0.5, epilogue="relu"), lambda a, b: jax.nn.relu(2 * a @ b + 0.5 * c)),
    (lambda a, b: matmul(a, b, epilogue="gelu_aux")[1]["gelu_aux"], lambda a, b: a @ b),
]
for cut in cuts:
    x, w = put(a, *cut[:2]), put(b, *cut[2:])
    for ours, theirs in products:
        (found, mine), (expected, jaxs) = result_and_counts(ours, x, w), result_and_counts(theirs, x, w)
        near(found, expected)
        if cut != (
            "d", None, None, "d"
        ):  # one axis of the mesh for two of the result: whichever is kept
            assert found.sharding.is_equivalent_to(expected.sharding, 2), (cut, found.sharding, expected.sharding)
            assert sum(mine) <= sum(jaxs) and mine[0] <= jaxs[0], (cut, mine, jaxs)
""",
        **DEVICES,
    )


def test_a_step_of_data_parallel_training_gathers_nothing(run_python):
    run_python(
        BEGIN
        + """
x, w, bias = put(draw(16, 8), "d", None), put(draw(8, 12)), put(draw(12))
def ours(w, bias, x):
    return (matmul(x, w, epilogue="gelu_bias", bias=bias) ** 2).sum()
def theirs(w, bias, x):
    return (jax.nn.gelu(x @ w + bias) ** 2).sum()
results, texts = [], []
for loss in (theirs, ours):
    step = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    results.append(step(w, bias, x))
    texts.append(step.lower(w, bias, x).compile().as_text())
near(results[1], results[0])
for found, expected in zip(results[1], results[0]):
    assert found.sharding.is_equivalent_to(expected.sharding, found.ndim)
assert "all-gather(" not in texts[0] and "all-gather(" not in texts[1]
""",
        **DEVICES,
    )


def test_batches_transposes_and_broadcasts(run_python):
    run_python(
        BEGIN
        + """
from rocpy.jax._call import Spec
from rocpy.jax._gradients import product
a, b = draw(4, 8, 12), draw(4, 12, 16)
for left, right in ((("d", None, None), ("d", None, None)), ((None, "d", None), (None, None, None)),
                    ((None, None, "d"), (None, "d", None))):
    near(jax.jit(matmul)(put(a, *left), put(b, *right)), a @ b)
near(jax.jit(matmul)(put(a, "d", None, None), put(b[0], None, "d")), a @ b[0])
near(jax.jit(matmul)(put(a[:1], None, "d", None), put(b, "d", None, None)), a[:1] @ b)
near(jax.jit(matmul)(put(a[0], None, "d"), put(b[0, :, 0], "d")), a[0] @ b[0, :, 0])
near(jax.jit(matmul)(put(a[0, 0], "d"), put(b[0], "d", None)), a[0, 0] @ b[0])
one = draw(1)
for left, right in ((a[0], b[0, :, 0]), (a[0, 0], b[0, :, 0])):
    run = jax.jit(lambda a, b: matmul(a, b, epilogue="relu_bias", bias=one))
    near(run(put(left, *(None,) * (left.ndim - 1), "d"), put(right, "d")), jax.nn.relu(left @ right + one[0]))
near(jax.jit(jax.vmap(matmul))(put(a, "d", None, None), put(b, "d", None, None)), a @ b)
flipped = Spec(transpose_a=True, transpose_b=True)
at, bt = jnp.swapaxes(a[0], 0, 1), jnp.swapaxes(b[0], 0, 1)
for left, right in ((("d", None), (None, "d")), ((None, "d"), (None, None)), ((None, None), ("d", None))):
    run = jax.jit(lambda a, b: product(flipped, a, b, None, None, None)[0])
    near(run(put(at, *left), put(bt, *right)), a[0] @ b[0])
sums = jax.jit(lambda a, b: matmul(a, b, epilogue="bgradb"))(put(a[0], None, "d"), put(b[0], "d", None))
near((sums[0], sums[1]["bgradb"]), (a[0] @ b[0], b[0].sum(0)))
sums = jax.jit(lambda a, b: matmul(a, b, epilogue="bgrada"))(put(a[0], "d", None), put(b[0], None, None))
near((sums[0], sums[1]["bgrada"]), (a[0] @ b[0], a[0].sum(1)))
""",
        **DEVICES,
    )


def test_gradient_epilogues_gather_nothing(run_python):
    """What reads aux, sums rows or has eight bits: parts of sums are added up, as in jax's own functions."""
    run_python(
        BEGIN
        + """
kinds = ("all-gather(", "all-to-all(", "collective-permute(")
def gathers(function, *arguments):
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return sum(text.count(kind) for kind in kinds)
a, b, aux = draw(8, 12), draw(12, 16), draw(8, 16)
_, pull = jax.vjp(lambda x: jax.nn.gelu(x, approximate=True), aux)
for left, right in (((None, "d"), ("d", None)), (("d", None), (None, None)), ((None, None), (None, "d"))):
    x, w = put(a, *left), put(b, *right)
    pre = put(aux, left[0], right[1])
    run = lambda a, b, aux: matmul(a, b, epilogue="dgelu", aux=aux)
    near(jax.jit(run)(x, w, pre), pull(a @ b)[0])
    assert gathers(run, x, w, pre) == 0, (left, right)
    run = lambda a, b, aux: matmul(a, b, epilogue="dgelu_bgrad", aux=aux)
    y, extra = jax.jit(run)(x, w, pre)
    near((y, extra["bgrad"]), (pull(a @ b)[0], pull(a @ b)[0].sum(0)))
    assert gathers(run, x, w, pre) == 0, (left, right)
narrow = jnp.asarray(rng.integers(-9, 9, (8, 12)), jnp.int8), jnp.asarray(rng.integers(-9, 9, (12, 16)), jnp.int8)
run = lambda a, b: matmul(a, b, dtype="int32")
for left, right in (((None, "d"), ("d", None)), (("d", None), (None, None))):
    x, w = put(narrow[0], *left), put(narrow[1], *right)
    np.testing.assert_array_equal(jax.jit(run)(x, w), np.asarray(narrow[0], np.int32) @ np.asarray(narrow[1], np.int32))
    assert gathers(run, x, w) == 0
    scaled = lambda a, b: matmul(a, b, dtype="int32", scale_a=0.5, scale_b=0.25)  # its parts are not rounded
    np.testing.assert_array_equal(jax.jit(scaled)(x, w), scaled(*narrow))
""",
        **DEVICES,
    )


EXPLICIT = """
from jax.sharding import AxisType
mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
def text_of(function, *arguments):
    return jax.jit(function).lower(*arguments).compile().as_text()
"""


EXPLICIT_CUTS = {
    "rows and columns": (("x", None), (None, "y")),
    "inner extent": (("y", "x"), (None, None)),
    "rows": (("x", None), (None, None)),
    "columns": ((None, None), (None, "y")),
    "rows twice": ((("x", "y"), None), (None, None)),
}


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(x, marks=[] if x in ("rows and columns", "inner extent") else pytest.mark.slow)
        for x in EXPLICIT_CUTS
    ],
)
def test_meshes_of_explicit_axes(run_python, cut):
    """The types of results and gradients say how they are cut, as those of jax do; nothing is gathered."""
    run_python(
        BEGIN
        + EXPLICIT
        + f"left, right = {EXPLICIT_CUTS[cut]!r}\n"
        + """
a, b, bias = draw(8, 12), draw(12, 16), draw(16)
x, w = put(a, *left), put(b, *right)
def ours(a, b, bias):
    return matmul(a, b, epilogue="gelu_bias", bias=bias)
def theirs(a, b, bias):
    return jax.nn.gelu(a @ b + bias)
def both(product):
    value = lambda *operands: (lambda y: ((y**2).sum(), y))(product(*operands))
    return jax.jit(jax.grad(value, argnums=(0, 1, 2), has_aux=True))
found, expected = both(ours)(x, w, bias), both(theirs)(x, w, bias)
near(found, expected)
shown = lambda tree: jax.tree.map(lambda x: str(jax.typeof(x)), tree)
assert shown(found) == shown(expected), (shown(found), shown(expected))
assert "all-gather(" not in text_of(ours, x, w, bias)
y = matmul(x, w, epilogue="gelu_aux")[1]["gelu_aux"]
near(y, a @ b)
assert str(jax.typeof(y)) == str(jax.typeof(x @ w))
""",
        **DEVICES,
    )


def test_sums_batches_and_refusals_on_explicit_axes(run_python):
    run_python(
        BEGIN
        + EXPLICIT
        + """
import rocpy
a, b, batch = draw(8, 12), draw(12, 16), draw(4, 8, 12)
with jax.set_mesh(mesh):
    # Both have a part of the inner extent: jax asks how the sum is cut, and rocpy adds the parts up.
    near(jax.jit(matmul)(put(a, None, "x"), put(b, "x", None)), a @ b)
    left = put(batch, "x", None, None)
    def value(a, b):
        y = matmul(a, b)
        return (y**2).sum(), y
    grads, y = jax.jit(jax.grad(value, argnums=(0, 1), has_aux=True))(left, put(b))
    near(y, batch @ b)
    assert jax.typeof(y).sharding.spec == P("x", None, None)
    near(grads, jax.grad(lambda a, b: ((a @ b) ** 2).sum(), argnums=(0, 1))(batch, b))
    try:
        matmul(put(a, "x", None), put(b, None, "x"))
        raise AssertionError("kept one axis twice")
    except rocpy.InvalidProblemError as error:
        assert "reshard" in str(error) and str(error).startswith("b"), error
""",
        **DEVICES,
    )
