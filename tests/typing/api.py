# SPDX-License-Identifier: MIT
"""The public API as a typed program uses it: mypy (strictly) and basedpyright read this file, nothing runs it."""

from typing import Any, TypeAlias, assert_type

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
    assert_type(mm, rocpy.Matmul[npt.NDArray[Any]])
    assert_type(mm.execute(), npt.NDArray[Any])
    assert_type(mm.plan(), list[Algorithm])
    assert_type(mm.problem, Problem)
    assert_type(mm.plan()[0].elapsed_ms, float | None)
    mm.reset_operands(a=x)
    mm.execute()

assert_type(rocpy.platform.current().is_emulated, bool)
assert_type(rocpy.plan_cache.info(), dict[str, int])

with rocpy.Stream() as stream:
    rocpy.matmul(x, x.T, stream=stream)

# The result is an array of a's framework; an epilogue that gives more makes it a pair.
Array: TypeAlias = npt.NDArray[Any]
assert_type(rocpy.matmul(x, x.T), Array)
assert_type(rocpy.matmul(x, weight, epilogue="gelu_bias", dtype="float32"), Array)
assert_type(rocpy.matmul(x, x.T, epilogue="gelu_aux"), tuple[Array, dict[str, Array]])
assert_type(rocpy.matmul(x, x.T, algorithm=0, options={"copies": "error"}, autotune=False), Array)
assert_type(rocpy.matmul(x, x.T, algorithm="direct", dtype=np.dtype("float32")), Array)


class Foreign:
    """An array of another framework, which has DLPack."""

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None) -> object:
        """Return the capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where it is."""
        return 1, 0


assert_type(rocpy.matmul(Foreign(), Foreign()), Foreign)
assert_type(rocpy.matmul(Foreign(), x, epilogue="relu_aux"), tuple[Foreign, dict[str, Foreign]])

assert_type(rocpy.Matmul(x, x.T, epilogue="gelu_aux", bias=None).execute(), tuple[Array, dict[str, Array]])
assert_type(rocpy.Matmul(Foreign(), x, beta=0.5).execute(), Foreign)
assert_type(rocpy.Matmul(Foreign(), x, epilogue="relu_aux").execute(), tuple[Foreign, dict[str, Foreign]])
planned: rocpy.Matmul[Array] = rocpy.Matmul(x, weight)

error: Exception = rocpy.InvalidProblemError("message")

# Mistakes that a type checker finds; an ignored error that is none any more is an error itself.
rocpy.matmul("text", x)  # type: ignore[call-overload]
rocpy.matmul(x, [[1.0]])  # type: ignore[call-overload]
rocpy.matmul(x, x, epilogue="gelu_bais")  # type: ignore[call-overload]
rocpy.matmul(x, x, epilogue=lambda y: y)  # type: ignore[call-overload]
rocpy.matmul(x, x, epilog="relu")  # type: ignore[call-overload]
rocpy.matmul(x, x, dtype="flaot32")  # type: ignore[call-overload]
rocpy.matmul(x, x, compute="tf23")  # type: ignore[call-overload]
rocpy.matmul(x, x, options={"copys": "error"})  # type: ignore[call-overload]
rocpy.matmul(x, x, clamp=(0.0, 1.0, 2.0))  # type: ignore[arg-type]
rocpy.matmul(x, x, algorithm=1.5)  # type: ignore[call-overload]
rocpy.matmul(x, x, stream="0")  # type: ignore[call-overload]
rocpy.matmul(x, x, epilogue="gelu_aux").sum()  # type: ignore[attr-defined]
rocpy.options(copies="eror")  # type: ignore[arg-type]
rocpy.options(reproducable=True)  # type: ignore[call-arg]
rocpy.Options(dynamic="n")  # type: ignore[arg-type]
rocpy.Weight(x, layout="nt")  # type: ignore[arg-type]
rocpy.Matmul(x, x, epilogue="rellu")  # type: ignore[call-overload]
rocpy.Matmul(x, x).execute(x)  # type: ignore[call-arg]
rocpy.Matmul(x, x).autotune(iterations=5)  # type: ignore[call-arg]
