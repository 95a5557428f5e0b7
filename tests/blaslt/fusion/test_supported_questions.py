# SPDX-License-Identifier: MIT
"""supported() against the call itself, over random questions: yes where it computes, no where it raises."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import rocpy
from rocpy import dtypes
from rocpy.blaslt import supported
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.product_types import FAMILIES, bias_types, find_family
from rocpy.errors import InvalidProblemError, UnsupportedError

QUESTIONS = 250


def question(draw: random.Random) -> tuple[str, str, dict[str, Any]]:
    """Return the types of a question and its keyword arguments; some of them fit no product."""
    family = draw.choice(FAMILIES)
    a = draw.choice(family.operands)
    b = draw.choice(family.operands) if draw.random() < 0.3 else a
    asked: dict[str, Any] = {
        "m": draw.choice([0, 1, 3, 8]),
        "n": draw.choice([0, 1, 4, 8]),
        "k": draw.choice([0, 5, 32, 64] if family.name == "MX" else [0, 1, 5, 32]),
        "batch": draw.choice([(), (), (2,), (2, 3), (0,)]),
        "layout": draw.choice(["nn", "nt", "tn", "tt"]),
        "epilogue": draw.choice([None, *EPILOGUES]),
        "dtype": draw.choice([None, *family.results, "float32"]),
        "bias": draw.choice([None, None, "column", "float32", "bfloat16"]),
    }
    if family.name == "MX":
        asked.update(scale_a="block32", scale_b="block32")
    elif draw.random() < (0.8 if family.scales else 0.1):
        asked.update({name: draw.choice(["scalar", "vector"]) for name in ("scale_a", "scale_b")})
    if draw.random() < 0.1:
        asked.pop("scale_a", None)
    for name, share in (("c", 0.3), ("scale_c", 0.15), ("scale_d", 0.15), ("amax", 0.2)):
        asked[name] = draw.random() < share
    options = {
        "copies": draw.choice([None, "error"]),
        "fallback": draw.choice([None, "error"]),
        "reproducible": draw.choice([None, None, True, "batch"]),
    }
    asked["options"] = {name: value for name, value in options.items() if value is not None}
    return a, b, asked


def matrix(shape: tuple[int, ...], name: str, letter: str = "n") -> np.ndarray:
    made = (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape).astype(dtypes.lookup(name).numpy)
    return made if letter == "n" else np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2)


def call(a: str, b: str, asked: dict[str, Any], make: Any) -> None:
    """Compute what was asked about; what rocpy refuses is raised."""
    m, n, k, batch, row = asked["m"], asked["n"], asked["k"], asked["batch"], EPILOGUES[asked["epilogue"] or "default"]
    given: dict[str, Any] = {}
    for name, line, blocks in (
        ("scale_a", (m, 1), (*batch, m, k // 32)),
        ("scale_b", (1, n), (*batch, k // 32, n)),
    ):
        if name in asked:
            given[name] = {
                "scalar": 1.5,
                "vector": np.full(line, 1.5, np.float32),
                "block32": np.full(blocks, 127, np.uint8),
            }[asked[name]]
    given |= {name: 2.0 for name in ("scale_c", "scale_d") if asked[name]}
    given |= {"amax": True} if asked["amax"] else {}
    family = find_family(a, b, asked.get("scale_a") == "block32")
    result = asked["dtype"] or family.results[0]
    if asked["c"]:
        given["c"] = matrix((*batch, m, n), result)
    if row.bias:
        scaled = any(name in asked for name in ("scale_a", "scale_b"))
        own = asked["bias"] if asked["bias"] not in (None, "column") else bias_types(family, result, scaled)[0]
        given["bias"] = matrix((m, 1) if asked["bias"] == "column" else (n,), own)
    if row.aux == "load":
        given["aux"] = matrix((*batch, m, n), result)
    if row.clamp:
        given["clamp"] = (0.0, 1.0)
    left = matrix((*batch, m, k), a, asked["layout"][0])
    right = matrix((*batch, k, n), b, asked["layout"][1])
    make(left, right, epilogue=row.name, dtype=asked["dtype"], options=asked["options"], **given)


def refusal_of(a: str, b: str, asked: dict[str, Any], make: Any) -> Exception | None:
    """Return what the call raises because there is no such product."""
    try:
        call(a, b, asked, make)
    except (InvalidProblemError, UnsupportedError) as error:
        return error
    return None


def planned(a, b, **arguments):
    """Compute as a plan does."""
    with rocpy.Matmul(a, b, **arguments) as product:
        product.execute()


@pytest.mark.parametrize("make", [rocpy.matmul, planned], ids=["function", "plan"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 16))])
def test_answers_are_those_of_the_call(seed, make):
    if not rocpy.platform.current().host_memory:
        pytest.skip("copies to the device are not asked about")
    draw = random.Random(seed)
    answered = []
    for _ in range(QUESTIONS):
        a, b, asked = question(draw)
        # Of four bits torch's are packed as the library reads them, and numpy's are not.
        if "copies" in asked["options"] and "float4_e2m1fn" in (a, b):
            continue
        answer = supported(a, b, **asked)
        try:
            find_family(a, b, asked.get("scale_a") == "block32")
        except (InvalidProblemError, UnsupportedError):
            assert not answer
            continue
        refusal = refusal_of(a, b, asked, make)
        assert bool(answer) == (refusal is None), f"{a} {b} {asked}: {answer}, and the call: {refusal}"
        answered.append(bool(answer))
    assert 0.2 < sum(answered) / len(answered) < 0.8


@pytest.mark.parametrize("make", [rocpy.matmul, planned], ids=["function", "plan"])
@pytest.mark.parametrize("layout", ["nn", "tn", "nt"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float6_e2m3fn"])
@pytest.mark.parametrize(("m", "n", "batch"), [(0, 4, ()), (3, 0, ()), (0, 0, ()), (3, 0, (2,)), (3, 4, (0,))])
def test_forbidden_copies_of_blocks_are_answered_for_empty_results(m, n, batch, name, layout, make):
    if not rocpy.platform.current().host_memory:
        pytest.skip("copies to the device are not asked about")
    asked: dict[str, Any] = {"m": m, "n": n, "k": 32, "batch": batch, "layout": layout, "epilogue": None}
    asked |= {"dtype": None, "bias": None, "scale_a": "block32", "scale_b": "block32", "c": False, "scale_c": False}
    asked |= {"scale_d": False, "amax": False, "options": {"copies": "error"}}
    refusal = refusal_of(name, name, asked, make)
    answer = supported(name, name, **asked)
    assert bool(answer) == (refusal is None), f"{answer}, and the call: {refusal}"
