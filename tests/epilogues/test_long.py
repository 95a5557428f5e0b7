# SPDX-License-Identifier: MIT
"""Epilogues of hundreds of steps: traced, kept as JSON, written down by every lowering, and run."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.blaslt import supported
from rocpy.epilogues import CustomEpilogue
from rocpy.epilogues.expressions.resolve import resolve
from rocpy.epilogues.lowering.hip import kernel_source
from rocpy.epilogues.lowering.tile import encode
from rocpy.epilogues.lowering.triton_source import kernel_text

KINDS = {
    "sum": lambda x, y, step: x * 0.75 + y * (step % 3),
    "function": lambda x, y, step: np.tanh(x) + y,
    "bounds": lambda x, y, step: np.maximum(x, y * 0.5) - 0.25 * (step % 5),
}


def chain(steps: int, kind: str) -> CustomEpilogue:
    """Return an epilogue each of whose steps reads the one before."""

    def chained(x, y):
        for step in range(steps):
            x = KINDS[kind](x, y, step)
        return x

    return rocpy.epilogue(chained)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_long_epilogue_runs(steps, kind, rng):
    epilogue = chain(steps, kind)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 6)))
    y = rng.standard_normal((5, 6)).astype(np.float32)
    found = rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"y": y})
    wanted = epilogue.evaluate((a.astype(np.float64) @ b), y=y.astype(np.float64))
    # Each step shrinks what the steps before it erred by, or passes it on.
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * steps)
    assert supported("float32", epilogue=epilogue)
    assert CustomEpilogue.from_json(epilogue.to_json()) == epilogue
    assert rocpy.explain(a, b, epilogue=epilogue, epilogue_inputs={"y": y}).algorithm is not None


@pytest.mark.parametrize("kind", KINDS)
def test_every_lowering_writes_a_long_epilogue_down(kind):
    resolved = resolve(chain(3000, kind).expression, "float32", {"y": ("float32", 2)})
    assert len(encode(resolved).instructions) > 3000
    assert kernel_source(resolved).source.count("float v") > 3000
    assert str(kernel_text(resolved, "float32", "nn", {"y": "full"})).count("v") > 3000
