# SPDX-License-Identifier: MIT
"""explain: says, without computing anything, what matmul would do."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import Case, make_operands
from rocpy.testing.runner import keywords


def explain(case, **more):
    arrays = make_operands(case)
    positional = [arrays.pop(key) for key in ("a", "b", "c") if key in arrays]
    return rocpy.explain(*positional, **arrays, **keywords(case), **more)


def copied(names, epilogue="default"):
    """What is copied: these operands, and on a device with memory of its own every array that lies in the CPU's."""
    if rocpy.platform.current().host_memory:
        return names
    row = rocpy.blaslt.EPILOGUES[epilogue]
    return ("a", "b", *(("bias",) if row.bias else ()), *(("aux",) if row.aux == "load" else ()))


@pytest.mark.parametrize("epilogue", ["default", "gelu_bias", "gelu_aux_bias", "dgelu_bgrad", "clamp"])
def test_it_tells_platform_algorithm_and_choice(epilogue):
    found = explain(Case(64, 96, 128, epilogue=epilogue))
    text = str(found)
    lowering = rocpy.blaslt.supported("float32", epilogue=epilogue).lowering
    for part in (found.platform, found.algorithm.name, lowering, epilogue, "heuristic", "workspace"):
        assert part in text
    assert found.platform == rocpy.platform.current().name
    assert found.candidates >= 1
    assert found.copies == copied((), epilogue)
    assert not found.packed
    assert "at 0x" not in repr(found)


def test_it_names_what_the_function_form_takes():
    case = Case(200, 96, 300)
    arrays = make_operands(case)
    found = explain(case)
    np.testing.assert_array_equal(
        rocpy.matmul(arrays["a"], arrays["b"]), rocpy.matmul(arrays["a"], arrays["b"], algorithm=found.algorithm)
    )


def test_copies_are_named():
    assert explain(Case(8, 9, 10, layout="xn")).copies == copied(("a",))
    assert explain(Case(8, 9, 10, layout="nr")).copies == copied(("b",))
    assert explain(Case(8, 9, 10, layout="tq")).copies == copied(())


def test_packed_weights_are_named():
    case = Case(8, 9, 10, epilogue="relu_bias")
    arrays = make_operands(case)
    found = rocpy.explain(arrays["a"], rocpy.Weight(arrays["b"], bias=arrays["bias"]), epilogue="relu_bias")
    if rocpy.platform.current().is_emulated:
        assert found.packed
        assert "packed" in str(found)


def test_empty_results_have_nothing_to_explain():
    found = rocpy.explain(np.empty((0, 4), dtype=np.float32), np.empty((4, 5), dtype=np.float32))
    assert found.algorithm is None
    assert "nothing" in str(found)


def test_it_raises_what_matmul_raises():
    a = np.ones((3, 4), dtype=np.float32)
    with pytest.raises(rocpy.InvalidProblemError, match="must be equal"):
        rocpy.explain(a, a)


EIGHT = np.ones((4, 6), np.int8)


@pytest.mark.parametrize("factor", [0.5, -0.5, float("inf"), 2**31])
@pytest.mark.parametrize(
    ("product", "operands", "keywords"),
    [
        (rocpy.matmul, (EIGHT, EIGHT.T), {}),
        (rocpy.matmul, (EIGHT, EIGHT.T), {"epilogue": "relu_aux"}),
        (rocpy.matmul, (EIGHT[:0], EIGHT.T), {}),
        (rocpy.matmul, (EIGHT, EIGHT.T), {"epilogue": rocpy.epilogue(lambda x, r: x + r), "epilogue_inputs": {"r": 1}}),
        (rocpy.grouped_matmul, ([EIGHT], [EIGHT.T]), {}),
        (rocpy.grouped_matmul, (EIGHT, EIGHT.T[None]), {"offsets": [0, 4]}),
    ],
    ids=["one", "composed", "empty", "custom", "list", "groups"],
)
def test_factors_of_integers(product, operands, keywords, factor):
    messages = []
    for function in (product, rocpy.explain):
        with pytest.raises(rocpy.InvalidProblemError, match="^alpha = .*scaled by 32-bit integers") as caught:
            function(*operands, alpha=factor, **keywords)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("epilogue", ["default", "relu_aux"])
def test_factors_of_a_planned_product_of_integers(epilogue):
    refused = pytest.raises(rocpy.InvalidProblemError, match="alpha = 0.5; an integer result")
    with rocpy.Matmul(EIGHT, EIGHT.T, alpha=0.5, epilogue=epilogue) as product:
        with refused:
            product.plan()
        product.reset_operands(alpha=2)
        before = product.execute()
        with refused:
            product.reset_operands(alpha=0.5)
        np.testing.assert_equal(product.execute(), before)


@pytest.mark.parametrize("rows", [4, 0])
def test_factors_of_integers_with_scales(rows):
    """Their products are scaled in float32, and rounded to integers."""
    more = {"alpha": 0.5, "scale_a": 1.0, "dtype": "int32"}
    assert rocpy.explain(EIGHT[:rows], EIGHT.T, **more).problem.dtype == "int32"
    with rocpy.Matmul(EIGHT[:rows], EIGHT.T, **more) as product:
        np.testing.assert_equal(product.execute(), rocpy.matmul(EIGHT[:rows], EIGHT.T, **more))


def test_groups_have_no_addend():
    for operands, more in ((([EIGHT], [EIGHT.T]), {}), ((EIGHT, EIGHT.T[None]), {"offsets": [0, 4]})):
        with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
            rocpy.explain(*operands, c=EIGHT, **more)


def test_it_refuses_what_options_forbid(without_programs):
    a = np.ones((3, 4), dtype=np.float32)
    with pytest.raises(rocpy.UnsupportedError, match="gelu_erf"):
        rocpy.explain(a, a.T, epilogue="gelu_erf", options={"fallback": "error"})


def test_operands_are_neither_read_nor_written():
    case = Case(8, 9, 10, epilogue="gelu_bias", beta=1.0)
    arrays = make_operands(case)
    before = {key: value.copy() for key, value in arrays.items()}
    a, b, c, bias = (arrays[key] for key in ("a", "b", "c", "bias"))
    rocpy.explain(a, b, c, bias=bias, **keywords(case))
    for key, value in before.items():
        np.testing.assert_array_equal(arrays[key], value)


@pytest.mark.parametrize("epilogue", ["default", "dgelu_erf"])
def test_the_algorithm_that_the_call_names(epilogue):
    x = np.ones((64, 64), np.float32)
    keywords = {"epilogue": epilogue} | ({"aux": x} if epilogue != "default" else {})
    with rocpy.Matmul(x, x, **keywords) as planned:
        last = planned.plan()[-1]
    how = rocpy.explain(x, x, algorithm=last, **keywords)
    assert (how.algorithm.id, how.algorithm.name, how.source) == (last.id, last.name, "pinned")
    assert rocpy.explain(x, x, algorithm=last.to_dict(), **keywords).algorithm.id == last.id
    for call in (rocpy.matmul, rocpy.explain):
        with pytest.raises(rocpy.RocpyError, match="algorithm"):
            call(x, x, algorithm={"id": 12345678, "name": "none", "library": "", "arch": ""}, **keywords)


def test_whether_the_call_is_tuned():
    x = np.ones((8, 8), np.float32)
    assert rocpy.explain(x, x, autotune=False).source == "heuristic"
    for call in (rocpy.matmul, rocpy.explain):
        with pytest.raises(rocpy.InvalidProblemError, match="^autotune: got 'x'"):
            call(x, x, autotune="x")
