# SPDX-License-Identifier: MIT
"""Operands that get other memory while a plan keeps them: an execution reads what they are then, or refuses by name."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.testing import Case, make_operands
from rocpy.testing.cases import EPILOGUES
from rocpy.testing.runner import check_outputs, dtype_of, keywords, reference, to_numpy, to_torch


def owned(array):
    return np.array(array, order="C")


def resized(array, fresh):
    """Give an ndarray other memory, with other values."""
    shape = array.shape
    array.resize(array.size + 5000, refcheck=False)
    blocker = np.empty(array.size)  # what lies behind it cannot grow in place
    array.resize(shape, refcheck=False)
    array[...] = fresh
    del blocker


def given_data(tensor, fresh):
    tensor.data = to_torch(owned(fresh)).clone()


def set_(tensor, fresh):
    tensor.set_(to_torch(owned(fresh)).clone())


WAYS = {
    "numpy-resize": (owned, resized),
    "torch-data": (lambda x: to_torch(owned(x)), given_data),
    "torch-set_": (lambda x: to_torch(owned(x)), set_),
}


pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="operands are copied to the device when they are given"
)


@pytest.fixture(params=WAYS)
def way(request, torch):
    """How arrays are made of numpy's, and how one gets other memory with other values."""
    return WAYS[request.param]


def check(case, arrays, outputs):
    for name, found in check_outputs(reference(case, arrays), outputs, dtype_of(case.result_dtype)).items():
        assert found.ok, f"{name}: {found.message}"


def check_moves(case, way, rng, **more):
    """Every array of a plan moves, one after the other and all at once; each execution must see it."""
    make, move = way
    arrays = make_operands(case, rng)
    kept = {name: make(value) for name, value in arrays.items()}
    rest = {name: value for name, value in kept.items() if name not in ("a", "b", "c")}
    with rocpy.Matmul(kept["a"], kept["b"], kept.get("c"), **rest, **keywords(case), **more) as mm:
        check(case, arrays, mm.execute())
        for names in [*([name] for name in kept), list(kept)]:
            fresh = make_operands(case, rng)
            for name in names:
                arrays[name] = fresh[name]
                move(kept[name], fresh[name])
            check(case, arrays, mm.execute())
        mm.reset_operands(a=kept["a"])
        check(case, arrays, mm.execute())


@pytest.mark.torch
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_operand_of_every_epilogue_may_move(epilogue, way, rng):
    check_moves(Case(9, 14, 11, epilogue=epilogue, alpha=0.5, beta=-1.0), way, rng)


@pytest.mark.torch
@pytest.mark.parametrize("epilogue", ["gelu_erf_bias", "dsilu_bgrad", "drelu_bgrad"])
def test_composed_products(epilogue, way, rng, without_programs):
    case = Case(9, 14, 11, epilogue=epilogue, beta=0.5, bias="column" if epilogue.endswith("_bias") else "row")
    check_moves(case, way, rng)


@pytest.mark.torch
@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 7, 1), (5, 1, 3)])
def test_sizes_0_and_1(m, n, k, way, rng):
    check_moves(Case(m, n, k, epilogue="relu_bias", beta=1.0), way, rng)


@pytest.mark.torch
@pytest.mark.parametrize("scale", ["scalar", "vector"])
def test_scales(scale, way, rng):
    case = Case(8, 16, 32, "float8_e4m3fn", "float32", scale=scale)
    make, _ = way
    if make is owned:
        check_moves(case, way, rng)
        return
    # torch has an 8-bit type of its own, which set_ takes as bytes only.
    check_moves(case, (make, given_data), rng)


def test_a_number_and_a_vector_of_scales(rng):
    a, b = (rng.integers(-3, 4, shape).astype(dtype_of("float8_e4m3fn")) for shape in ((4, 32), (32, 5)))
    number, vector = np.array(2.0, np.float32), np.ones(5, np.float32)
    with rocpy.Matmul(a, b, scale_a=number, scale_b=vector, dtype="float32") as mm:
        mm.execute()
        number[...] = 0.5
        vector[:] = 4.0
        np.testing.assert_array_equal(mm.execute(), 2.0 * (a.astype(float) @ b.astype(float)))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn"])
def test_scales_by_blocks(name, rng):
    def draw():
        a = rocpy.quantize_mx(rng.standard_normal((4, 64)), name)
        return (*a, *rocpy.quantize_mx(rng.standard_normal((64, 5)), name, axis=-2))

    a, scale_a, b, scale_b = (owned(x) for x in draw())
    with rocpy.Matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32") as mm:
        for move in (resized, np.copyto):
            for array, fresh in zip((a, scale_a, b, scale_b), draw(), strict=True):
                move(array, fresh)
                wide = rocpy.dequantize_mx(a, scale_a, "float64")
                exact = wide @ rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
                np.testing.assert_allclose(mm.execute(), exact, rtol=1e-5, atol=1e-4)


def test_what_is_copied_when_it_is_read_is_read_at_each_execution(rng):
    x = rng.standard_normal((4, 6)).astype(">f8")  # of the other byte order
    y = np.ndarray((6, 5), np.float64, bytearray(6 * 5 * 8 + 1), offset=1)  # not aligned
    with rocpy.Matmul(x, y, epilogue="relu") as mm:
        for _ in range(2):
            x[:], y[:] = rng.standard_normal((4, 6)), rng.standard_normal((6, 5))
            np.testing.assert_allclose(mm.execute(), np.maximum(x @ y, 0), rtol=1e-12, atol=1e-12)


def test_a_subclass_of_ndarray(rng):
    class Mine(np.ndarray):
        pass

    x = Mine((4, 6))
    x[...] = rng.standard_normal((4, 6))
    y = rng.standard_normal((6, 5))
    with rocpy.Matmul(x, y) as mm:
        mm.execute()
        resized(x, rng.standard_normal((4, 6)))
        np.testing.assert_allclose(mm.execute(), np.asarray(x) @ y, rtol=1e-12, atol=1e-12)


# What a test makes of an operand, and a word of the message.
CHANGES = {
    "shape": (lambda t, torch: setattr(t, "data", torch.ones(2, 3, dtype=t.dtype)), "(2, 3)"),
    "axes": (lambda t, torch: setattr(t, "data", t.data.flatten()), "shape (16,)"),
    "strides": (lambda t, torch: setattr(t, "data", t.data.t()), "strides (1, 4)"),
    "set_": (lambda t, torch: t.set_(t.data.t()), "strides (1, 4)"),
    "resize_": (lambda t, torch: t.resize_(8, 8), "(8, 8)"),
}


@pytest.mark.torch
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "aux"])
def test_other_shapes_and_layouts_are_refused_by_name(name, how, torch):
    change, word = CHANGES[how]
    epilogue = {"bias": "bias", "aux": "drelu"}.get(name)
    given = {key: torch.ones(4, 4) for key in {"a", "b", name} - {"bias"}}
    if name == "bias":
        given["bias"] = torch.ones(4)
    with rocpy.Matmul(given.pop("a"), given.pop("b"), epilogue=epilogue, **given) as mm:
        mm.execute()
        array = mm.operand_arrays[name]
        if name == "bias":
            change, word = (lambda t, torch: setattr(t, "data", torch.ones(5))), "(5,)"
        before = array.detach()
        change(array, torch)
        with pytest.raises(rocpy.errors.InvalidOperandError, match=f"^{name}: had .*reset_operands") as told:
            mm.execute()
        assert word in str(told.value)
        with pytest.raises(rocpy.errors.InvalidOperandError, match=f"^{name}: "):
            mm.plan()
        array.data = before  # as it was: usable again
        mm.execute()


def resized_storage(tensor, fresh, torch):
    """Give the storage itself other memory, as sharded parameters do, and back its size."""
    bytes_before = tensor.untyped_storage().nbytes()
    tensor.untyped_storage().resize_(1 << 16)
    tensor.untyped_storage().resize_(bytes_before)
    tensor.copy_(fresh)


def swapped(tensor, fresh, torch):
    torch.utils.swap_tensors(tensor, fresh.clone())


def given_data_twice(tensor, fresh, torch):
    tensor.data = torch.zeros(100)
    tensor.data = fresh.clone()


def set_in_another_place(tensor, fresh, torch):
    whole = torch.zeros(1000)
    tensor.set_(whole.untyped_storage(), 300, tensor.shape, tensor.stride())
    tensor.copy_(fresh)


CHANGES_IN_TORCH = [resized_storage, swapped, given_data_twice, set_in_another_place]


@pytest.mark.torch
@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6), (2, 1, 2, 4, 6)])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("change", CHANGES_IN_TORCH)
def test_tensors_that_move_in_every_way(change, direct, shape, parameter, torch):
    from rocpy._producers.torch_tensors import shortcuts

    rocpy.matmul(torch.ones(1, 1), torch.ones(1, 1))
    assert shortcuts(direct) == (direct,) * 3
    make = (lambda x: torch.nn.Parameter(x, requires_grad=False)) if parameter else (lambda x: x)
    try:
        a, b = make(torch.randn(shape)), make(torch.randn(6, 5))
        with rocpy.Matmul(a, b) as mm:
            for _ in range(3):
                torch.testing.assert_close(mm.execute(), a @ b)
                for tensor in (a, b):
                    change(tensor, make(torch.randn(tensor.shape)), torch)
                    torch.testing.assert_close(mm.execute(), a @ b)
    finally:
        shortcuts(True)


@pytest.mark.torch
@pytest.mark.parametrize("axes", range(2, 7))
def test_axes_that_are_exchanged_in_place_are_refused(axes, torch):
    shape = (2,) * (axes - 2) + (4, 4)
    a = torch.randn(shape)
    with rocpy.Matmul(a, torch.randn(4, 4)) as mm:
        mm.execute()
        for one in range(axes):
            for other in range(one + 1, axes):
                a.transpose_(one, other)
                with pytest.raises(rocpy.errors.InvalidOperandError, match="^a: had"):
                    mm.execute()
                a.transpose_(one, other)
                mm.execute()


@pytest.mark.torch
def test_other_types_and_scales_are_refused(torch):
    a = torch.ones(4, 4)
    with rocpy.Matmul(a, torch.ones(4, 4)) as mm:
        a.data = torch.ones(4, 4, dtype=torch.float64)
        with pytest.raises(rocpy.errors.InvalidOperandError, match="^a: had .*float32.*float64"):
            mm.execute()
    x = np.ones((4, 4), np.float32)
    with rocpy.Matmul(x, x.copy()) as mm:
        x.resize((5, 5), refcheck=False)
        with pytest.raises(rocpy.errors.InvalidOperandError, match=r"^a: had shape \(4, 4\).*\(5, 5\)"):
            mm.execute()
    scale = np.ones(4, np.float32)
    eight = np.ones((4, 16), dtype_of("float8_e4m3fn"))
    with rocpy.Matmul(eight, eight.T, scale_a=scale, scale_b=1.0, dtype="float32") as mm:
        mm.execute()
        scale.resize(8, refcheck=False)
        with pytest.raises(rocpy.errors.InvalidOperandError, match=r"^scale_a: had shape \(4,\).*\(8,\)"):
            mm.execute()


@pytest.mark.torch
def test_conjugates(torch):
    skip_without("complex128")
    a, b = torch.randn(3, 4, dtype=torch.complex128), torch.randn(4, 5, dtype=torch.complex128)
    with rocpy.Matmul(a.conj(), b) as mm:
        torch.testing.assert_close(mm.execute(), a.conj() @ b)
        mm.reset_operands(a=a)
        torch.testing.assert_close(mm.execute(), a @ b)
        mm.reset_operands(a=a.conj(), b=b.conj())
        torch.testing.assert_close(mm.execute(), a.conj() @ b.conj())
        mm.reset_operands(b=b)
        a.data = torch.randn(3, 4, dtype=torch.complex128)
        torch.testing.assert_close(mm.execute(), mm.operand_arrays["a"] @ b)


EXPRESSIONS = {
    "native": lambda x, bias: (x + bias).relu(),
    "fused": lambda x, bias: (x * bias).tanh() * bias,
    "two results": lambda x, bias: (x, (x + bias).tanh()),
}


@pytest.mark.torch
@pytest.mark.parametrize("platform", ["with programs", "without programs"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_epilogues_of_the_user(expression, platform, way, rng, request):
    if platform == "without programs":
        request.getfixturevalue("without_programs")
    make, move = way
    function = rocpy.epilogue(EXPRESSIONS[expression])

    def exact(a, b, bias):
        x = a @ b
        if expression == "native":
            return (np.maximum(x + bias, 0),)
        return (np.tanh(x * bias) * bias,) if expression == "fused" else (x, np.tanh(x + bias))

    def draw():
        return {"a": rng.standard_normal((6, 7)), "b": rng.standard_normal((7, 8)), "bias": rng.standard_normal(8)}

    arrays = draw()
    kept = {name: make(value) for name, value in arrays.items()}
    with rocpy.Matmul(kept["a"], kept["b"], epilogue=function, epilogue_inputs={"bias": kept["bias"]}) as mm:
        for names in [[], ["a"], ["b"], ["bias"], ["a", "b", "bias"]]:
            fresh = draw()
            for name in names:
                arrays[name] = fresh[name]
                move(kept[name], fresh[name])
            for one in mm.plan():
                found = mm.execute(algorithm=one)
                found = found if isinstance(found, tuple) else (found,)
                for result, wanted in zip(found, exact(**arrays), strict=True):
                    np.testing.assert_allclose(to_numpy(result), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.torch
def test_inputs_of_other_shapes_are_refused(torch):
    @rocpy.epilogue
    def gated(x, gate):
        return x.tanh() * gate

    a, b, gate = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    with rocpy.Matmul(a, b, epilogue=gated, epilogue_inputs={"gate": gate}) as mm:
        mm.execute()
        gate.data = torch.randn(5)
        with pytest.raises(rocpy.errors.InvalidOperandError, match=r"^epilogue_inputs\['gate'\]: had shape \(3, 5\)"):
            mm.execute()
        gate.data = torch.zeros(3, 5)
        assert not mm.execute().any()
        a.data = torch.randn(2, 4)
        with pytest.raises(rocpy.errors.InvalidOperandError, match="^a: had"):
            mm.execute()


@pytest.mark.torch
@pytest.mark.parametrize("column_major", [False, True])
def test_nvmath_products(column_major, way, rng, torch):
    from rocpy.compat.nvmath.linalg.advanced import Matmul, MatmulEpilog

    make, move = way
    a, b, c, bias = (rng.standard_normal(shape) for shape in ((6, 7), (7, 8), (6, 8), (6,)))
    kept = [make(x) for x in (a, b, c, bias)]
    more = {"epilog": MatmulEpilog.BIAS, "epilog_inputs": {"bias": kept[3]}} if column_major else {}
    with Matmul(*kept[:3], beta=0.5) as mm:
        mm.plan(**more)
        mm.execute()
        for place in range(4):
            fresh = rng.standard_normal(kept[place].shape)
            move(kept[place], fresh)
            now = [to_numpy(x).copy() for x in kept]
            wanted = now[0] @ now[1] + 0.5 * now[2] + (now[3][:, None] if column_major else 0)
            np.testing.assert_allclose(to_numpy(mm.execute()), wanted, rtol=1e-12, atol=1e-12)
        move(kept[1], rng.standard_normal((7, 9))) if make is not owned else kept[1].resize((7, 9), refcheck=False)
        with pytest.raises((ValueError, TypeError), match="^b: had "):
            mm.execute()


@pytest.mark.torch
def test_nvmath_products_of_any_matrices(way, rng):
    from rocpy.compat import nvmath

    make, move = way
    a, b = make(rng.standard_normal((6, 7))), make(rng.standard_normal((7, 8)))
    with nvmath.linalg.Matmul(a, b) as mm:
        mm.plan()
        mm.execute()
        move(a, rng.standard_normal((6, 7)))
        move(b, rng.standard_normal((7, 8)))
        np.testing.assert_allclose(to_numpy(mm.execute()), to_numpy(a) @ to_numpy(b), rtol=1e-12, atol=1e-12)


def slow_product(torch):
    """Operands of a product that takes a while, and its result."""
    a, b = torch.ones(600, 700), torch.ones(700, 800)
    return a, b, torch.full((600, 800), 700.0)


@pytest.mark.torch
@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("rounds", range(5))
def test_memory_that_a_stream_reads_stays(planned, rounds, torch):
    stream = rocpy.Stream()
    a, b, wanted = slow_product(torch)
    out = torch.empty(600, 800)
    kept = out.detach()
    if planned:
        with rocpy.Matmul(a, b) as mm:
            mm.execute(out=out, stream=stream)
    else:
        rocpy.matmul(a, b, out=out, stream=stream)
    for tensor in (a, b, out):
        tensor.data = torch.zeros(1)
    others = [torch.full((600, 800), -1.0) for _ in range(4)]
    stream.synchronize()
    torch.testing.assert_close(kept, wanted)
    del others


def test_an_array_that_a_stream_reads_is_not_resized():
    stream = rocpy.Stream()
    a, b = np.ones((600, 700), np.float32), np.ones((700, 800), np.float32)
    result = rocpy.matmul(a, b, stream=stream)
    with contextlib.suppress(ValueError):  # numpy's: it is referenced
        a.resize((1, 1), refcheck=False)
    stream.synchronize()
    np.testing.assert_array_equal(result, 700.0)


@pytest.mark.torch
def test_a_graph_keeps_the_memory_that_it_was_captured_with(torch):
    stream = rocpy.Stream()
    a, b = torch.ones(20, 30), torch.ones(30, 40)
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        with stream.capture() as graph:
            result = mm.execute(stream=stream)
    a.data, b.data = torch.zeros(1), torch.zeros(1)
    others = [torch.full((30, 40), -1.0) for _ in range(8)]
    graph.launch(stream)
    stream.synchronize()
    torch.testing.assert_close(result, torch.full((20, 40), 30.0))
    del others
