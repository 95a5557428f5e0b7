# SPDX-License-Identifier: MIT
"""What a call costs when the product is next to nothing, beside torch, numpy and nvmath-python."""

import sys
from functools import partial

from harness import Entry, Groups, Session, main
from peers import normal, nvmath_with, shape_name, to_torch, torch_with

import rocpy


@rocpy.epilogue
def own_gelu_bias(x, bias):
    return (x + bias).gelu(approximate="tanh")


def groups(*, quick: bool) -> Groups:
    for extent in (4,) if quick else (4, 32):
        shape = (extent, extent, extent)
        for library in ("torch", "numpy"):
            yield f"{shape_name(shape)} {library}", partial(one, shape=shape, library=library)


def one(session: Session, shape: tuple[int, int, int], library: str) -> None:
    m, n, k = shape
    torch = torch_with(session) if library == "torch" else None
    if library == "torch" and torch is None:
        return
    a, b, bias, out = normal("a", m, k), normal("b", k, n), normal("bias", n), normal("out", m, n)
    names = {"rocpy": rocpy, "torch": torch}
    if torch is not None:
        a, b, bias, out = (to_torch(torch, array) for array in (a, b, bias, out))
        names |= {"linear": torch.nn.functional.linear, "gelu": torch.nn.functional.gelu, "bt": b.T.contiguous()}
    weight = rocpy.Weight(b, bias=bias)
    plain, fused = rocpy.Matmul(a, b), rocpy.Matmul(a, b, epilogue="gelu_bias", bias=bias)
    plain.plan()
    fused.plan()
    names |= {
        "own": own_gelu_bias,
        "a": a,
        "b": b,
        "bias": bias,
        "out": out,
        "weight": weight,
        "plain": plain,
        "fused": fused,
    }
    entries = [
        Entry(f"{library} a @ b", "a @ b", names),
        Entry("rocpy matmul", "rocpy.matmul(a, b)", names),
        Entry("rocpy matmul gelu_bias", 'rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias)', names),
        Entry("rocpy matmul own gelu_bias", "rocpy.matmul(a, b, epilogue=own, epilogue_inputs={'bias': bias})", names),
        Entry("rocpy matmul Weight gelu_bias", 'rocpy.matmul(a, weight, epilogue="gelu_bias")', names),
        Entry("rocpy matmul out=", "rocpy.matmul(a, b, out=out)", names),
        Entry("rocpy execute", "plain.execute()", names),
        Entry("rocpy execute gelu_bias", "fused.execute()", names),
        Entry("rocpy execute out=", "plain.execute(out=out)", names),
    ]
    if torch is not None:
        entries.insert(1, Entry("torch gelu(linear)", 'gelu(linear(a, bt, bias), approximate="tanh")', names))
    nvmath = nvmath_with(session)
    if nvmath is not None:
        planned = nvmath.planned(a, b)
        names |= {"nvmath": nvmath.linalg, "cpu": nvmath.execution, "planned": planned}
        entries.append(Entry("nvmath matmul", "nvmath.matmul(a, b, execution=cpu)", names))
        entries.append(Entry("nvmath execute", "planned.execute()", names))
    session.compare(
        f"{shape_name(shape)} float32, {library} operands",
        entries,
        against=f"{library} a @ b",
        flops=2.0 * m * n * k,
        shape=shape,
        library=library,
    )
    plain.close()
    fused.close()


if __name__ == "__main__":
    sys.exit(main("overhead", groups))
