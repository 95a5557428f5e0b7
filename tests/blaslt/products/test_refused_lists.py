# SPDX-License-Identifier: MIT
"""Groups of which one is refused: no other group's result has been written then."""

import numpy as np
import pytest
from presented import skip_composed

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError, UnsupportedError

F = np.float32
HOST = rocpy.platform.current().host_memory
COPIES = {"copies": "error"}


def filled(*shapes, dtype=F):
    return [np.full(shape, 7, dtype) for shape in shapes]


def ones(*shape):
    return np.ones(shape, F)


def blocks(m, n):
    """Operands with a scale for each 32 elements of K = 32, and the scales."""
    a, scale_a = rocpy.quantize_mx(ones(m, 32), "float8_e4m3fn")
    b, scale_b = rocpy.quantize_mx(ones(32, n), "float8_e4m3fn", axis=-2)
    return a, b, scale_a, scale_b


def of_blocks(change):
    (a, b, scale_a, scale_b), (c, d, scale_c, scale_d) = blocks(2, 4), blocks(3, 5)
    operands = {"a": [a, c], "b": [b, d], "scale_a": [scale_a, scale_c], "scale_b": [scale_b, scale_d]}
    change(operands)
    return operands


def int8(*shape):
    return np.ones(shape, np.int8)


# What is passed, and what is refused of the second group.
REFUSED = {
    "a copy": {"a": [ones(2, 3), ones(2, 6)[:, ::2]], "b": [ones(3, 4)] * 2, "options": COPIES},
    "a copy in a list of other sizes": {
        "a": [ones(2, 3), ones(5, 8)[:, ::2]],
        "b": [ones(3, 4), ones(4, 1)],
        "options": COPIES,
    },
    "a broadcast operand": {
        "a": [ones(2, 3), np.broadcast_to(ones(3), (2, 3))],
        "b": [ones(3, 4)] * 2,
        "options": COPIES,
    },
    "a cast": {
        "a": [ones(2, 3)] * 2,
        "b": [ones(3, 4)] * 2,
        "options": COPIES,
        "out": [ones(2, 4), np.ones((2, 4))],
    },
    "an out in another order": {
        "a": [ones(2, 3)] * 2,
        "b": [ones(3, 4)] * 2,
        "options": COPIES,
        "out": [ones(2, 4), ones(2, 8)[:, ::2]],
    },
    "a bias per row": {
        "a": [ones(2, 3)] * 2,
        "b": [ones(3, 4)] * 2,
        "epilogue": "bias",
        "bias": [ones(4), ones(2, 1)],
        "options": COPIES,
    },
    "a composition": {
        "a": [ones(2, 3), int8(2, 6)[:, ::2]],
        "b": [ones(3, 4), int8(3, 4)],
        "scale_a": [None, 0.5],
        "scale_b": [None, 0.5],
        "out": [ones(2, 4), int8(2, 4)],
        "options": {"fallback": "error"},
    },
    "an out of another shape": {
        "a": [ones(2, 3), ones(2, 6)[:, ::2]],
        "b": [ones(3, 4)] * 2,
        "out": [ones(2, 4), ones(3, 4)],
    },
    "blocks of another shape": of_blocks(lambda x: x["scale_b"].__setitem__(1, x["scale_b"][0])),
    "blocks in another order": {
        **of_blocks(lambda x: x["b"].__setitem__(1, np.ascontiguousarray(x["b"][1]))),
        "options": COPIES,
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_result_of_a_refused_list_is_written(name):
    arguments = dict(REFUSED[name])
    a, b, out = arguments.pop("a"), arguments.pop("b"), arguments.pop("out", None)
    if out is None:
        out = [np.empty((x.shape[0], y.shape[1]), F) for x, y in zip(a, b, strict=True)]
    before = [x.copy() for x in out]
    with pytest.raises(RocpyError, match=r" \(group \d\)$"):
        rocpy.grouped_matmul(a, b, out=out, **arguments)
    for now, then in zip(out, before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("stream", [None, "a stream"])
@pytest.mark.parametrize("epilogue", ["default", "gelu_erf", "gelu_aux", "bias"])
def test_lists_of_which_some_are_computed_by_themselves_are_written(epilogue, stream, rng):
    normal = [rng.standard_normal(shape, dtype=F) for shape in ((2, 3), (2, 6), (3, 4), (3, 4))]
    a, b = [normal[0], normal[1][:, ::2]], normal[2:]
    arguments = {"epilogue": epilogue}
    if epilogue == "bias":
        arguments["bias"] = [ones(4), ones(2, 1)]
    wanted = rocpy.grouped_matmul([np.ascontiguousarray(x) for x in a], b, **arguments)
    out = [np.empty((2, 4), F), np.empty((2, 8), F)[:, ::2]]
    with rocpy.Stream() as own:
        arguments["stream"] = None if stream is None else own
        results = rocpy.grouped_matmul(a, b, out=out, **arguments)
        own.synchronize()
    for one, array, right in zip(
        *((results[0], out, wanted[0]) if epilogue == "gelu_aux" else (results, out, wanted)), strict=True
    ):
        assert one is array
        np.testing.assert_array_equal(one, right)
    if epilogue == "gelu_aux":
        for one, right in zip(results[1]["gelu_aux"], wanted[1]["gelu_aux"], strict=True):
            np.testing.assert_array_equal(one, right)


@pytest.mark.torch
def test_no_result_of_a_refused_list_of_tensors_is_written(torch):
    a, b = [torch.ones(2, 3), torch.ones(2, 6)[:, ::2]], [torch.ones(3, 4)] * 2
    out = [torch.full((2, 4), 7.0) for _ in range(2)]
    with pytest.raises(UnsupportedError, match="forbids the copy"):
        rocpy.grouped_matmul(a, b, out=out, options=COPIES)
    assert all((one == 7).all() for one in out)


@pytest.mark.skipif(not HOST, reason="results are computed aside: an out may be another group's operand")
@pytest.mark.parametrize("own", [0, 1])
def test_an_out_that_is_an_operand_of_blocks_is_refused(own):
    (a, b, scale_a, scale_b), (c, d, scale_c, scale_d) = blocks(2, 4), blocks(2, 4)
    within = np.empty(64, np.uint8).view(c.dtype).reshape(2, 32)
    within[:] = c
    out = [np.empty((2, 4), F), np.empty((2, 4), F)]
    out[own] = within.view(F)[:1].reshape(2, 4)
    with pytest.raises(InvalidOperandError, match="share"):
        rocpy.grouped_matmul([a, within], [b, d], scale_a=[scale_a, scale_c], scale_b=[scale_b, scale_d], out=out)


@pytest.mark.skipif(not HOST, reason="operands in CPU memory are refused in a capture")
def test_lists_of_blocks_are_captured():
    skip_composed("float8_e4m3fn", dtype="float32", scale_a="block32", scale_b="block32")
    (a, b, scale_a, scale_b), (c, d, scale_c, scale_d) = (
        (x[0], np.asfortranarray(x[1]), x[2], np.asfortranarray(x[3])) for x in (blocks(2, 4), blocks(3, 5))
    )
    out = filled((2, 4), (3, 5))
    scales = {"scale_a": [scale_a, scale_c], "scale_b": [scale_b, scale_d]}
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            rocpy.grouped_matmul([a, c], [b, d], **scales, out=out, stream=stream)
        assert all((one == 7).all() for one in out)
        graph.launch()
        stream.synchronize()
        graph.close()
    assert all((one == 32).all() for one in out)


@pytest.mark.usefixtures("without_programs")
def test_no_result_of_groups_with_offsets_is_written_where_one_fails(monkeypatch):
    from rocpy.blaslt.grouped import group_slices

    calls, product = [], group_slices.matmul

    def second_fails(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 2:
            raise InvalidProblemError("no such group")
        return product(*arguments, **keywords)

    monkeypatch.setattr(group_slices, "matmul", second_fails)
    out = np.full((5, 4), 7, F)
    with pytest.raises(InvalidProblemError, match="no such group"):
        rocpy.grouped_matmul(ones(5, 3), ones(2, 3, 4), offsets=[0, 2, 5], epilogue="gelu_erf", out=out)
    assert (out == 7).all()
