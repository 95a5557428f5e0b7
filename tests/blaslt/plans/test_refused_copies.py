# SPDX-License-Identifier: MIT
"""Copies that options or a capture forbid: the message names what works instead, and a capture goes on."""

import re

import numpy as np
import pytest
from presented import skip_composed, skip_without

import rocpy
from rocpy.errors import UnsupportedError

F = np.float32
HOST = rocpy.platform.current().host_memory
on_host = pytest.mark.skipif(not HOST, reason="operands in CPU memory are refused in a capture")


def ones(*shape):
    return np.ones(shape, F)


def columns(array):
    return np.asfortranarray(array)


def reversed_rows(*shape):
    return ones(*shape)[::-1]


# A call, what its message says, and what is changed as it says.
LAYOUTS = {
    "a broadcast": (
        {"a": np.broadcast_to(ones(8), (4, 8))},
        "a with contiguous rows or columns that neither overlap",
        {"a": ones(4, 8)},
    ),
    "a backwards": (
        {"a": reversed_rows(4, 8)},
        "a with contiguous rows or columns that neither overlap nor run",
        {"a": ones(4, 8)},
    ),
    "b in steps": ({"b": ones(8, 12)[:, ::2]}, "b with contiguous rows or columns", {"b": columns(ones(8, 6))}),
    "c of one row": ({"c": ones(6)}, "c of the result's full shape, row-major", {"c": ones(4, 6)}),
    "c of one row in two axes": ({"c": ones(1, 6)}, "c of the result's full shape, row-major", {"c": ones(4, 6)}),
    "c in columns": ({"c": columns(ones(4, 6))}, "c of the result's full shape, row-major", {"c": ones(4, 6)}),
    "c in rows beside out in columns": (
        {"c": ones(4, 6), "out": columns(ones(4, 6))},
        "c of the result's full shape, column-major",
        {"c": columns(ones(4, 6))},
    ),
    "aux in columns": (
        {"epilogue": "drelu", "aux": columns(ones(4, 6))},
        "pass aux row-major",
        {"aux": ones(4, 6)},
    ),
    "bias in steps": (
        {"epilogue": "bias", "bias": ones(12)[::2]},
        "pass a contiguous, aligned bias",
        {"bias": ones(6)},
    ),
    "out in steps": ({"out": ones(4, 12)[:, ::2]}, "pass out= row-major", {"out": ones(4, 6)}),
    "out in columns": (
        {"epilogue": "bias", "bias": ones(6), "out": columns(ones(4, 6))},
        "pass out= row-major",
        {"out": ones(4, 6)},
    ),
    "bias per row": (
        {"epilogue": "bias", "bias": ones(4, 1), "out": ones(4, 6)},
        "pass a column-major out=",
        {"out": columns(ones(4, 6))},
    ),
    "bias per row, no out": (
        {"epilogue": "bias", "bias": ones(4, 1)},
        "pass a column-major out=",
        {"out": columns(ones(4, 6))},
    ),
    "bias per row with aux": (
        {"epilogue": "relu_aux_bias", "bias": ones(4, 1)},
        "multiply b.T by a.T with a bias of length M",
        {"a": ones(8, 6).T, "b": ones(4, 8).T, "bias": ones(4)},
    ),
}


def call(name, changed, **more):
    arguments = {"a": ones(4, 8), "b": ones(8, 6), **LAYOUTS[name][0], **more}
    if changed:
        arguments |= LAYOUTS[name][2]
    return rocpy.matmul(arguments.pop("a"), arguments.pop("b"), **arguments)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_refused_copy_names_the_layout_that_is_taken(name):
    with pytest.raises(UnsupportedError, match=re.escape(LAYOUTS[name][1])):
        call(name, changed=False, options={"copies": "error"})
    call(name, changed=True, options={"copies": "error"})


@on_host
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_capture_refuses_the_copy_and_takes_the_layout_that_is_named(name):
    skip_composed("float32", epilogue=LAYOUTS[name][0].get("epilogue"))
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            with pytest.raises(UnsupportedError, match=re.escape(LAYOUTS[name][1])):
                call(name, changed=False, stream=stream)
            result = call(name, changed=True, stream=stream)
        graph.launch()
        stream.synchronize()
        graph.close()
    assert (result[0] if isinstance(result, tuple) else result).min() >= 1


PLANNED = [name for name, (before, _, _) in LAYOUTS.items() if "out" not in before and "bias per row" not in name]


@on_host
@pytest.mark.parametrize("name", PLANNED)
def test_a_captured_execution_names_the_layout_that_is_taken(name):
    before, words, after = LAYOUTS[name]
    skip_composed("float32", epilogue=before.get("epilogue"))
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            for changes in (before, before | after):
                arguments = {"a": ones(4, 8), "b": ones(8, 6), **changes}
                with rocpy.Matmul(arguments.pop("a"), arguments.pop("b"), **arguments) as mm:
                    if changes is before:
                        with pytest.raises(UnsupportedError, match=re.escape(words)):
                            mm.execute(stream=stream)
                    else:
                        mm.execute(stream=stream)
        graph.close()


@on_host
@pytest.mark.parametrize("name", ["a backwards", "b in steps"])
def test_a_captured_list_names_the_group_and_the_layout(name):
    before, words, _ = LAYOUTS[name]
    groups = {"a": [ones(4, 8), before.get("a", ones(4, 8))], "b": [ones(8, 6), before.get("b", ones(8, 6))]}
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            with pytest.raises(UnsupportedError, match=re.escape(words)) as refused:
                rocpy.grouped_matmul(groups["a"], groups["b"], stream=stream)
            rocpy.grouped_matmul(groups["a"][:1], groups["b"][:1], stream=stream)
        graph.close()
    assert f"{name[0]} must be copied" in str(refused.value)
    assert str(refused.value).endswith("(group 1)")


@pytest.mark.torch
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_lazy_conjugate_that_is_copied_is_to_be_resolved(torch, side):
    skip_without("complex64")
    pair = {"a": torch.ones(4, 4, dtype=torch.complex64), "b": torch.ones(4, 4, dtype=torch.complex64)}
    lazy = pair | {side: pair[side].conj()}
    with pytest.raises(UnsupportedError, match=rf"pass {side}\.resolve_conj\(\)"):
        rocpy.matmul(lazy["a"], lazy["b"], options={"copies": "error"})
    lazy[side] = lazy[side].resolve_conj()
    rocpy.matmul(lazy["a"], lazy["b"], options={"copies": "error"})


# ---- scales ----


def refused_and_taken(operands, changes, words):
    """Refuse a call in a capture, and take it after the changes that the message names."""
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            for changed in ({}, changes):
                arguments = {**operands, **changed, "dtype": "float32", "stream": stream}
                a, b = arguments.pop("a"), arguments.pop("b")
                if changed:
                    result = rocpy.matmul(a, b, **arguments)
                    continue
                with pytest.raises(UnsupportedError, match=re.escape(words)):
                    rocpy.matmul(a, b, **arguments)
                with rocpy.Matmul(a, b, **arguments) as mm, pytest.raises(UnsupportedError, match=re.escape(words)):
                    mm.execute()
        graph.launch()
        stream.synchronize()
        graph.close()
    return result


@on_host
@pytest.mark.parametrize("side", ["a", "b"])
def test_one_scale_beside_a_vector_is_to_be_a_number(side):
    a, scale_a = rocpy.quantize(ones(16, 64), axis=None if side == "a" else -1)
    b, scale_b = rocpy.quantize(ones(64, 32), axis=None if side == "b" else -2)
    operands = {"a": a, "b": columns(b), "scale_a": scale_a, "scale_b": scale_b}
    name = f"scale_{side}"
    result = refused_and_taken(operands, {name: float(operands[name])}, f"pass float({name}), or one for each")
    np.testing.assert_allclose(result, 64, rtol=0.1)


@on_host
def test_blocks_of_b_are_to_lie_along_k():
    skip_composed("float8_e4m3fn", dtype="float32", scale_a="block32", scale_b="block32")
    a, scale_a = rocpy.quantize_mx(ones(4, 64), "float8_e4m3fn")
    b, scale_b = rocpy.quantize_mx(ones(64, 6), "float8_e4m3fn", axis=-2)
    operands = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    words = "pass b and its scales contiguous along K"
    along_k = {"b": columns(b), "scale_b": columns(scale_b)}
    np.testing.assert_array_equal(refused_and_taken(operands, along_k, words), np.full((4, 6), 64))
    weight = {"b": rocpy.Weight(b, scale=scale_b), "scale_b": None}
    np.testing.assert_array_equal(refused_and_taken(operands, weight, words), np.full((4, 6), 64))
    refused_and_taken({**operands, "b": along_k["b"]}, along_k, words)


# ---- what a graph cannot contain ----


COMPOSED = rocpy.epilogue(lambda y, r: y + r.astype("float64"))
PAIR = rocpy.epilogue(lambda y: (y * 2, y + 1))


def captured(action):
    """Run an action while a stream is captured, and a product after it; returns how many nodes the graph has."""
    x = ones(4, 4)
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            action(stream)
            result = rocpy.matmul(x, x, stream=stream)
        graph.launch()
        stream.synchronize()
        count = graph.node_count
        graph.close()
    assert (result == 4).all()
    return count


def by_function(stream):
    rocpy.matmul(ones(4, 4), ones(4, 4), epilogue=COMPOSED, epilogue_inputs={"r": ones(4, 4)}, stream=stream)


def planned(stream):
    x = ones(4, 4)
    with rocpy.Matmul(x, x, epilogue=COMPOSED, epilogue_inputs={"r": x}) as mm:
        mm.execute(stream=stream)


def planned_on_the_stream(stream):
    x = ones(4, 4)
    with rocpy.Matmul(x, x, epilogue=COMPOSED, epilogue_inputs={"r": x}, stream=stream) as mm:
        mm.plan()
        mm.execute()


def into_out(stream):
    rocpy.matmul(ones(4, 4), ones(4, 4), epilogue=PAIR, out=(ones(4, 4), None), stream=stream)


def into_the_other_out(stream):
    rocpy.matmul(ones(4, 4), ones(4, 4), epilogue=PAIR, out=(None, ones(4, 4)), stream=stream)


def builtin(stream):
    a = np.ones((4, 4), np.int8)
    rocpy.matmul(a, a, epilogue="bgrada", dtype="int8", stream=stream)


def scaled(stream):
    a = np.ones((4, 4), np.int8)
    rocpy.matmul(a, a, scale_a=0.5, scale_b=0.5, dtype="int8", stream=stream)


@on_host
@pytest.mark.parametrize("refused", [by_function, planned, planned_on_the_stream, builtin, scaled])
def test_a_composed_product_is_refused_and_the_capture_goes_on(refused):
    def action(stream):
        with pytest.raises(UnsupportedError, match="it is being captured into a graph, and .* is composed"):
            refused(stream)

    assert captured(action) == 1


@on_host
@pytest.mark.parametrize("refused", [into_out, into_the_other_out])
def test_out_of_a_custom_epilogue_is_refused_and_the_capture_goes_on(refused):
    def action(stream):
        with pytest.raises(
            UnsupportedError, match="captured into a graph, and results .* are copied to out=.*omit out="
        ):
            refused(stream)

    assert captured(action) == 1


@on_host
@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_no_product_is_tuned_while_another_stream_is_captured(mode):
    x = ones(4, 4)
    with rocpy.Stream(nonblocking=True) as stream, rocpy.Matmul(x, x) as mm:
        with stream.capture(mode) as graph:
            with pytest.raises(UnsupportedError, match="tune before the capture"):
                mm.autotune(budget_ms=5)
            with rocpy.tuning.enable(budget_ms=5):
                assert (rocpy.matmul(ones(3, 4), x) == 4).all()
            rocpy.matmul(x, x, stream=stream)
        graph.launch()
        stream.synchronize()
        graph.close()
        assert mm.autotune(budget_ms=5).trials


@on_host
def test_two_results_are_written_after_the_stream_has_computed_them(rng):
    a, b = rng.standard_normal((300, 300)).astype(F), rng.standard_normal((300, 300)).astype(F)
    wanted = rocpy.matmul(a, b, epilogue=PAIR)
    out = np.zeros((300, 300), F)
    with rocpy.Stream() as stream:
        first, second = rocpy.matmul(a, b, epilogue=PAIR, out=(None, out), stream=stream)
        stream.synchronize()
    assert second is out
    np.testing.assert_array_equal(first, wanted[0])
    np.testing.assert_array_equal(second, wanted[1])


def by_function(a, b, out, **keywords):
    rocpy.matmul(a, b, out=out, **keywords)


def by_list(a, b, out, **keywords):
    rocpy.grouped_matmul([a], [b], out=[out], **keywords)


def by_offsets(a, b, out, **keywords):
    rocpy.grouped_matmul(a, b[None], out=out, offsets=[0, len(a)], **keywords)


@on_host
@pytest.mark.parametrize("product", [by_function, by_list, by_offsets])
def test_an_out_of_another_type_is_to_be_of_the_results(product):
    a, b, wide = ones(4, 8), ones(8, 6), np.zeros((4, 6))
    with pytest.raises(UnsupportedError, match="out is float64 and the result is float32.*; pass out= of float32"):
        product(a, b, wide, options={"copies": "error"})
    with rocpy.Stream(nonblocking=True) as stream, stream.capture() as graph:
        with pytest.raises(UnsupportedError, match="must be copied to out.*; pass out= of float32, the result's type"):
            product(a, b, wide, stream=stream)
        product(a, b, wide.astype(F), stream=stream)
    graph.close()


@pytest.mark.parametrize("function", [rocpy.grouped_matmul, rocpy.explain])
def test_copies_of_groups_are_refused_with_their_layout(function):
    with pytest.raises(UnsupportedError, match=r"^a: shape \(4, 8\), strides \(8, -1\), float32: "):
        function(ones(4, 8)[:, ::-1], ones(1, 8, 6), offsets=[0, 4], options={"copies": "error"})


@on_host
def test_a_planned_bias_per_row_beside_a_stored_matrix_is_to_be_swapped():
    with rocpy.Stream(nonblocking=True) as stream, stream.capture() as graph:
        for epilogue, advice in (("bias", "call rocpy.matmul with a column-major out=, or"), ("gelu_aux_bias", "")):
            with (
                rocpy.Matmul(ones(4, 8), ones(8, 6), epilogue=epilogue, bias=ones(4, 1), stream=stream) as planned,
                pytest.raises(UnsupportedError, match=f"cannot contain; {advice} ?multiply b.T by a.T"),
            ):
                planned.execute()
    graph.close()
