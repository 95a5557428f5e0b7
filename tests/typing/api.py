# SPDX-License-Identifier: MIT
"""The public API as a typed program uses it: mypy reads this file in strict mode, nothing runs it."""

from typing import assert_type

import numpy as np
import numpy.typing as npt

import rocpy
from rocpy.blaslt import Algorithm, Problem

x: npt.NDArray[np.float32] = np.ones((2, 3), dtype=np.float32)
bias: npt.NDArray[np.float32] = np.ones(2, dtype=np.float32)

d = rocpy.matmul(x, x.T, epilogue=rocpy.Epilogue.GELU_BIAS, bias=bias, options=rocpy.options(copies="error"))
weight = rocpy.Weight(x, bias=bias, layout="nk")
assert_type(weight.shape, tuple[int, int])
print(rocpy.explain(x, weight))

with rocpy.Matmul(x, x.T, epilogue="relu") as mm:
    assert_type(mm, rocpy.Matmul)
    assert_type(mm.plan(), list[Algorithm])
    assert_type(mm.problem, Problem)
    assert_type(mm.plan()[0].elapsed_ms, float | None)
    mm.reset_operands(a=x)
    mm.execute()

assert_type(rocpy.platform.current().is_emulated, bool)
assert_type(rocpy.plan_cache.info(), dict[str, int])

with rocpy.Stream() as stream:
    rocpy.matmul(x, x.T, stream=stream)

error: Exception = rocpy.InvalidProblemError("message")
rocpy.matmul("text", x)  # type: ignore[arg-type]
