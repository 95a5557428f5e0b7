# SPDX-License-Identifier: MIT
"""The public API as a typed program uses it: mypy (strictly) and basedpyright read this file, nothing runs it."""

from array import array
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, assert_type

import numpy as np
import numpy.typing as npt

import rocpy
from rocpy import cooperative, rccl
from rocpy.blaslt import Algorithm, Explanation, GroupedExplanation, Problem, supported

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
for algorithm in (0, "direct", {"id": 1}, planned.plan()[0]):
    assert_type(planned.execute(algorithm=algorithm), Array)

# Members are as good as names; amax gives a pair; an epilogue of the user's may give several results.
Pair: TypeAlias = tuple[Array, dict[str, Array]]
assert_type(rocpy.matmul(x, x.T, epilogue=rocpy.Epilogue.RELU), Array)
assert_type(rocpy.matmul(x, x.T, epilogue=rocpy.Epilogue.GELU_AUX), Pair)
assert_type(rocpy.Matmul(x, x.T, epilogue=rocpy.Epilogue.GELU_AUX).execute(), Pair)
assert_type(rocpy.matmul(x, x.T, amax=True), Pair)
assert_type(rocpy.Matmul(x, x.T, epilogue="relu", amax=True).execute(), Pair)


@rocpy.epilogue
def shifted(y: Any, shift: Any) -> Any:
    """Add an array to the product."""
    return y + shift


assert_type(rocpy.matmul(x, x.T, epilogue=shifted, epilogue_inputs={"shift": x}), Array | Any)
assert_type(rocpy.Matmul(x, x.T, epilogue=shifted, epilogue_inputs={"shift": x}).execute(), Array | Any)


def with_variables(epilogue: rocpy.Epilogue, amax: bool) -> None:
    """Say what is known of a product whose epilogue is known only when it runs."""
    assert_type(rocpy.matmul(x, x.T, epilogue=epilogue, amax=amax), Array | Any)
    assert_type(rocpy.matmul(Foreign(), x, epilogue=epilogue), Foreign | Any)


assert_type(rocpy.grouped_matmul([x, x], [x.T, x.T]), list[Array])
assert_type(rocpy.grouped_matmul([x], x.T), list[Array])
assert_type(rocpy.grouped_matmul(x, [x.T, weight]), list[Array])
assert_type(rocpy.grouped_matmul([x], [x.T], epilogue="gelu_aux"), tuple[list[Array], dict[str, list[Array]]])
assert_type(rocpy.grouped_matmul(x, x, offsets=[1, 2], epilogue=rocpy.Epilogue.RELU), Array)
assert_type(rocpy.grouped_matmul(x, x, offsets=[1, 2], epilogue="silu_aux"), Pair)

assert_type(rocpy.explain(x, x.T, epilogue="relu", algorithm=0), Explanation)
assert_type(rocpy.explain([x], [x.T]), GroupedExplanation)
assert_type(rocpy.explain(x, x, offsets=[1, 2]), GroupedExplanation)
print(supported("float32", dtype=np.dtype("float32"), epilogue="relu", layout="nt", scale_a="vector").reasons)
print(rocpy.Buffer((2, 3), "uint16", location="managed").dtype, rocpy.Buffer(16, np.int8), cooperative.jit)

Floats: TypeAlias = npt.NDArray[np.float32]


# Numbers of numpy and of Python's numeric types; memory without a framework, whose product is numpy's.
assert_type(rocpy.matmul(x, x.T, alpha=np.float32(2), beta=Fraction(1, 2), c=x), Array)
assert_type(rocpy.matmul(x, x.T, alpha=Decimal(2), algorithm=np.int64(0)), Array)
assert_type(rocpy.matmul(x, x.T, alpha=2j, epilogue="clamp", clamp=[0, 1]), Array)
assert_type(rocpy.Matmul(x, x.T, alpha=np.float32(2), epilogue="clamp", clamp=(np.float32(0), 1)).execute(), Array)
assert_type(rocpy.grouped_matmul([x], [x.T], alpha=np.float32(2), epilogue="clamp", clamp=[0, 1]), list[Array])
assert_type(rocpy.matmul(memoryview(b""), array("f"), epilogue="relu_aux"), Pair)
assert_type(rocpy.matmul(x.__dlpack__(), x), Array)
assert_type(rocpy.Matmul(memoryview(b""), x).execute(), Array)
assert_type(rocpy.grouped_matmul([array("f")], [x]), list[Array])
print(rocpy.explain(x, x.T, alpha=np.float32(2)).algorithm.lowering)


def increment(counts: Array) -> None:
    """Call each atomic operation, in a kernel."""
    cooperative.atomic.add(counts, 0, 1)
    cooperative.atomic.max(counts, (0, 1), 1)
    cooperative.atomic.cas(counts, 0, 1, 2)
    cooperative.atomic.ad(counts, 0, 1)  # type: ignore[attr-defined]
    cooperative.atomic.add(counts, 0)  # type: ignore[call-arg]


def divide(comm: rccl.Communicator, color: int | None) -> None:
    """A rank that names its part is in one."""
    with comm.split(0) as part:
        assert_type(part, rccl.Communicator)
    assert_type(comm.split(color), rccl.Communicator | None)


def exchange(comm: rccl.Communicator, parts: rocpy.Buffer, block: bool) -> None:
    """Collectives return arrays of the kind that they get, or a Work of one."""
    assert_type(comm.all_reduce(x, op="max"), Floats)
    assert_type(comm.all_reduce(x, op=comm.premul_sum(0.5, "float32"), out=x), Floats)
    assert_type(comm.all_reduce(parts, block=False), rccl.Work[rocpy.Buffer])
    assert_type(comm.all_reduce(parts, block=False).wait(), rocpy.Buffer)
    assert_type(comm.all_gather(Foreign(), block=block), Foreign | rccl.Work[Foreign])
    assert_type(comm.reduce(x, root=1), Floats | None)
    assert_type(comm.gather(x), Floats | None)
    assert_type(comm.scatter(out=parts), rocpy.Buffer)
    assert_type(comm.broadcast(x), Floats)
    assert_type(comm.reduce_scatter(x), Floats)
    assert_type(comm.all_to_all(x), Floats)
    assert_type(comm.all_to_all_v(x, [1, 1]), Floats)
    assert_type(comm.recv(x, 0), Floats)
    comm.send(x, 0)
    work = comm.send(x, 0, block=False)
    assert_type(work, rccl.Work[None])
    assert_type(comm.trace()[-1], dict[str, Any])


def carry(comm: rccl.CarriedCommunicator) -> None:
    """So do those that another transport carries."""
    assert_type(comm.all_reduce(Foreign()), Foreign)
    assert_type(comm.gather(Foreign()), Foreign | None)


version: str = rocpy.__version__
assert_type(rocpy.compat.nccl.__version__, str)
print(rocpy.compat.nvmath.linalg.advanced, rocpy.testing.compare, rocpy.typing.ArrayLike)

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
rocpy.Matmul(x, x).execute(algorithm=1.5)  # type: ignore[arg-type]
rocpy.Matmul(x, x).plan(algorithms=[1.5])  # type: ignore[list-item]
rocpy.Matmul(x, x).pin(1.5)  # type: ignore[arg-type]
rocpy.grouped_matmul([x], [x], epilogue="gelu_bais")  # type: ignore[call-overload]
rocpy.grouped_matmul([x], [x], epilogue="drelu")  # type: ignore[call-overload]
rocpy.grouped_matmul([x], [x], epilogue="gelu_aux").append(x)  # type: ignore[attr-defined]
rocpy.explain(x, x, epilogue="relo")  # type: ignore[call-overload]
rocpy.explain(x, x, dtype="flaot32")  # type: ignore[call-overload]
print(rocpy.explain(x, x).algorithms)  # type: ignore[attr-defined]
rocpy.quantize(x, dtype="float8_e4m3")  # type: ignore[arg-type]
rocpy.quantize_mx(x, "int8")  # type: ignore[arg-type]
rocpy.dequantize(x, x, dtype="flaot32")  # type: ignore[arg-type]
rocpy.Buffer(16, dtype="flot")  # type: ignore[arg-type]
rocpy.Buffer(16, location="hots")  # type: ignore[arg-type]
rocpy.platform.use("cuda")  # type: ignore[arg-type]
supported("float31")  # type: ignore[arg-type]
supported("float32", epilogue="relo")  # type: ignore[arg-type]
supported("float32", layout="mm")  # type: ignore[arg-type]
rocpy.blaslt.suported("float32")  # type: ignore[attr-defined]
rocpy.Matmull(x, x)  # type: ignore[attr-defined]
print(rocpy.compat.ncl)  # type: ignore[attr-defined]
print(rocpy.compat.nvmath.fft)  # type: ignore[attr-defined]


def exchange_wrongly(comm: rccl.Communicator) -> None:
    """Mistakes with collectives."""
    comm.all_reduce(x, op="sun")  # type: ignore[call-overload]
    comm.reduce_scatter(x, operation="sum")  # type: ignore[call-overload]
    comm.all_reduce("text")  # type: ignore[call-overload]
    comm.all_reduce(x, block=False).sum()  # type: ignore[attr-defined]
    comm.window(x, flags="symetric")  # type: ignore[arg-type]
    comm.empty(3, "flot")  # type: ignore[arg-type]
