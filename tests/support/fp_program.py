# SPDX-License-Identifier: MIT
"""A program that computes with every part of rocpy that works on the CPU, and tells the bits of what it got.

Its operands are the same in every floating-point environment. As a script it sets the environment that it is given,
before the first import of numpy and rocpy or after, and prints the digests as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import fp_environment


def bits_of(value: Any) -> bytes:
    """Return the bits of arrays, of tensors, and of dicts and tuples of them."""
    import numpy as np

    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"".join(bits_of(value[name]) for name in sorted(value))
    if isinstance(value, (tuple, list)):
        return b"".join(map(bits_of, value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return bytes(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return np.ascontiguousarray(value).tobytes()


def words(count: int, dtype: str, seed: int = 0) -> Any:
    """Return finite floats of both signs whose exponents are spread over 24 powers of two, made of their bits."""
    import numpy as np

    drawn = np.random.default_rng(seed).integers(0, 2**63, count, dtype=np.uint64)
    if dtype == "float64":
        exponent = (drawn >> np.uint64(52)) % np.uint64(24) + np.uint64(1023 - 12)
        sign = (drawn & np.uint64(1)) << np.uint64(63)
        drawn_words = sign | exponent << np.uint64(52) | drawn & np.uint64(2**52 - 2)
        return drawn_words.view(np.float64)
    narrow = drawn.astype(np.uint32)
    drawn_words = (narrow & np.uint32(1)) << np.uint32(31) | (narrow >> np.uint32(23)) % np.uint32(24) + np.uint32(
        127 - 12
    ) << (np.uint32(23))
    return (drawn_words | narrow & np.uint32(2**23 - 2)).view(np.float32)


def matrices(m: int, k: int, n: int, dtype: str, power: int = 0) -> tuple[Any, Any]:
    """Return operands; ``power`` is subtracted from every exponent, exactly."""
    import numpy as np

    operands = []
    for seed, shape in enumerate(((m, k), (k, n))):
        values = words(m * k if seed == 0 else k * n, dtype, seed)
        integers, shift = (np.uint64, 52) if dtype == "float64" else (np.uint32, 23)
        operands.append((values.view(integers) - integers(power << shift)).view(values.dtype).reshape(shape))
    return operands[0], operands[1]


def products() -> Iterator[tuple[str, Any]]:
    """The case list."""
    import rocpy
    from rocpy.testing.cases import cases
    from rocpy.testing.runner import keywords, make_operands

    for number, case in enumerate(cases("quick")):
        if case.dtype.startswith("complex") and not rocpy.blaslt.supported(case.dtype):
            continue
        if case.m * case.n * case.k <= 2**15 and number % 4 == 0:
            operands = make_operands(case)
            a, b = operands.pop("a"), operands.pop("b")
            yield case.name, partial(rocpy.matmul, a, b, **operands, **keywords(case))


def small_numbers() -> Iterator[tuple[str, Any]]:
    """Products whose sums are subnormal numbers, by every way to ask for them."""
    import numpy as np

    import rocpy

    @rocpy.epilogue
    def scaled(x, factor):
        return np.maximum(x * factor, x * 0.25)

    for dtype, power in (("float32", 64), ("float64", 500)):
        a, b = matrices(65, 70, 66, dtype, power)
        bias = matrices(1, 66, 1, dtype, 2 * power if dtype == "float64" else power)[0][0]
        for epilogue in ("default", "relu_bias", "gelu_bias", "gelu_erf_bias", "bgradb"):
            more = {"bias": bias} if "bias" in epilogue else {}
            yield f"{dtype} {epilogue}", partial(rocpy.matmul, a, b, epilogue=epilogue, **more)
        own = {"epilogue": scaled, "epilogue_inputs": {"factor": bias}}
        yield f"{dtype} alpha", partial(rocpy.matmul, a, b, alpha=2.0**-20 / 3)
        yield f"{dtype} weight", partial(weighed, a, b)
        yield f"{dtype} custom", partial(rocpy.matmul, a, b, **own)
        yield f"{dtype} reference", partial(scaled.evaluate, a[:, :66], factor=bias)
        yield f"{dtype} grouped", partial(rocpy.grouped_matmul, [a, a[:3]], [b, b])
        yield f"{dtype} planned", partial(planned, a, b)
        yield f"{dtype} on a stream", partial(streamed, a, b)
        yield f"{dtype} reproducible", partial(rocpy.matmul, a, b, options={"reproducible": True})
    a, b = matrices(40, 33, 20, "float64")
    # float32's subnormal numbers lie between 2 ** -149 and 2 ** -126.
    yield "cast", partial(rocpy.matmul, a, b, alpha=2.0**-140, out=np.empty((40, 20), np.float32))
    # The C library raises the exceptions of casts to float16 in the x87 unit.
    for power in (-24, 30):
        out = np.empty((40, 20), np.float16)
        yield f"cast to float16 {power}", partial(rocpy.matmul, a, b, alpha=2.0**-power / 3, out=out)
    yield "autotune", partial(autotuned, *matrices(65, 70, 66, "float32", 64))


def scalars() -> Iterator[tuple[str, Any]]:
    """Products with a subnormal number of numpy's, in each argument that is a number."""
    import ml_dtypes
    import numpy as np

    import rocpy
    from rocpy.compat.nvmath.linalg import advanced

    factor, x, one = np.float32(1e-39), np.full((2, 2), 1e38, np.float32), np.eye(2, dtype=np.float32)
    product = partial(rocpy.matmul, x, one)
    yield "alpha", partial(product, alpha=factor)
    yield "alpha of bfloat16", partial(product, alpha=ml_dtypes.bfloat16(1e-39))
    yield "beta", partial(product, x, alpha=0.0, beta=factor)
    yield "clamp", partial(rocpy.matmul, 0 * one, one, epilogue="clamp", clamp=(factor, 1.0))
    yield "alpha of nvmath", partial(advanced.matmul, x, one, alpha=factor)
    yield "input", partial(product, epilogue=rocpy.epilogue(lambda x, k: x * k), epilogue_inputs={"k": factor})
    for name, number in (("number", factor), ("array", np.array(factor))):
        yield f"constant {name}", lambda k=number: product(epilogue=rocpy.epilogue(lambda x: x * k))
    yield "default", lambda: product(epilogue=rocpy.epilogue(lambda x, k=factor: x * k))
    bounded = partial(rocpy.epilogues.scale_clamp_cast, "float8_e5m2", high=1.0)
    yield "lowest value", lambda: str(bounded(factor).expression).encode()
    for eight in (np.int8, ml_dtypes.float8_e4m3fn):
        a = np.full((2, 2), 100).astype(eight)
        name, large = np.dtype(eight).name, {"scale_b": 1e5, "dtype": "float32"}
        yield f"scale_a of {name}", partial(rocpy.matmul, a, a, scale_a=factor, **large)
        yield f"scale_a of a group of {name}", partial(rocpy.grouped_matmul, [a], [a], scale_a=factor, **large)
        yield f"scale of a Weight of {name}", partial(weighed, a, a, scale=factor, scale_a=1e5, dtype="float32")
    asked = {"scale_a": 1e34, "scale_b": 1.0, "scale_d": factor, "dtype": "float8_e4m3fn"}
    yield "scale_d", partial(rocpy.matmul, a, a, **asked)
    torch = sys.modules.get("torch")
    if torch is not None:
        import rocpy.torch

        left, right = torch.from_numpy(x).requires_grad_(), torch.from_numpy(one)
        own = {"epilogue": rocpy.epilogue(lambda x, k: x * k), "epilogue_inputs": {"k": factor}}
        yield "alpha of a recorded product", partial(rocpy.matmul, left, right, alpha=factor)
        yield "input of a recorded product", partial(rocpy.matmul, left, right, **own)


def weighed(a: Any, b: Any, scale: Any = None, **more: Any) -> Any:
    """Pack and multiply."""
    import rocpy

    return rocpy.matmul(a, rocpy.Weight(b, scale=scale), **more)


def planned(a: Any, b: Any) -> Any:
    """Plan and multiply."""
    import rocpy

    with rocpy.Matmul(a, b) as product:
        product.plan()
        return product.execute()


def autotuned(a: Any, b: Any) -> Any:
    """Measure the algorithms; none is found to be wrong."""
    import rocpy

    with rocpy.Matmul(a, b) as product:
        report = product.autotune(budget_ms=5.0)
        assert not any("wrong" in trial.dropped for trial in report.trials)
        return product.execute(algorithm=product.algorithms[0])


def streamed(a: Any, b: Any) -> Any:
    """Multiply on a stream, whose later products its worker computes."""
    import rocpy

    stream = rocpy.Stream()
    results = [rocpy.matmul(a, b, stream=stream) for _ in range(4)]
    stream.synchronize()
    return results


def narrow_numbers() -> Iterator[tuple[str, Any]]:
    """Quantization and its inverse, of numpy's arrays and of torch's, small and large."""
    import numpy as np

    import rocpy

    for dtype in ("float32", "float64"):
        x = words(128 * 96, dtype, 3).reshape(128, 96)
        for library in (np, *([sys.modules["torch"]] if "torch" in sys.modules else [])):
            name = f"{dtype} {library.__name__}"
            small, large = (library.asarray(values) for values in (x, np.tile(x, (8, 4))))
            for target in ("float8_e4m3fn", "float8_e5m2", "int8"):
                for axis in (None, -1):
                    yield f"quantize {name} {target} {axis}", partial(rocpy.quantize, large, target, axis)
                yield f"round trip {name} {target}", partial(round_trip, small, target)
            for target in ("float8_e4m3fn", "float4_e2m1fn"):
                yield f"mx {name} {target}", partial(rocpy.quantize_mx, large, target)


def round_trip(x: Any, target: str) -> Any:
    """Quantize and go back."""
    import rocpy

    return rocpy.dequantize(*rocpy.quantize(x, target))


def composed_numbers() -> Iterator[tuple[str, Any]]:
    """Epilogues that the framework's own operations apply, of arrays that torch shares among threads."""
    import numpy as np

    import rocpy

    a = words(256 * 32, "float32", 7).reshape(256, 32)
    values, scales = rocpy.quantize_mx(a, "float8_e4m3fn")
    other, more = rocpy.quantize_mx(words(32 * 256, "float32", 8).reshape(32, 256), "float8_e4m3fn", axis=0)
    asked = {"dtype": "float32", "alpha": 2.0**-140, "amax": True}
    yield "amax of MX", partial(rocpy.matmul, values, other, scale_a=scales, scale_b=more, **asked)
    torch = sys.modules.get("torch")
    if torch is not None:
        left, right, *exponents = (torch.from_numpy(x.view(np.uint8)) for x in (values, other, scales, more))
        eight = torch.float8_e4m3fn
        asked.update(scale_a=exponents[0], scale_b=exponents[1])
        yield "amax of MX by torch", partial(rocpy.matmul, left.view(eight), right.view(eight), **asked)


def layers() -> Iterator[tuple[str, Any]]:
    """Torch's layers and their gradients, whose activations are torch's functions in part."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    import rocpy.torch as rt

    third = rocpy_epilogue()
    for power in (0, 40):
        x, weight = (torch.from_numpy(value) for value in matrices(300, 48, 64, "float32", power))
        grad = torch.from_numpy(words(300 * 64, "float32", 5).reshape(300, 64))
        for activation in (None, "relu", "gelu", "silu", "sigmoid", third):
            name = activation if isinstance(activation, str | None) else "custom"
            for bias in (None, torch.from_numpy(words(64, "float32", 6))):
                layer = partial(rt.linear, activation=activation)
                yield f"linear {name} {bias is not None} {power}", partial(trained, layer, grad, x, weight.mT, bias)
            epilogue = partial(rt.matmul, epilogue=activation, alpha=1 / 3)
            yield f"matmul {name} {power}", partial(trained, epilogue, grad, x, weight)
        for kind in (rt.MLP, rt.GatedMLP):
            block = kind(48, 64, bias=False)
            for parameter in block.parameters():
                parameter.data = torch.from_numpy(words(parameter.numel(), "float32", 7)).reshape(parameter.shape)
            with torch.no_grad():
                result = block(x)
            yield f"{kind.__name__} {power}", partial(trained_block, block, torch.ones_like(result), x)


def rocpy_epilogue() -> Any:
    """Return an epilogue whose gradient is a product of inexact numbers."""
    import numpy as np

    import rocpy

    return rocpy.epilogue(lambda x: np.sqrt(np.abs(x) + 0.3) * 0.7)


def trained(function: Any, grad: Any, *operands: Any) -> Any:
    """Return a function's result and the gradients of its operands."""
    leaves = [value if value is None else value.detach().clone().requires_grad_() for value in operands]
    result = function(*leaves)
    result.backward(grad)
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf is not None)]


def trained_block(block: Any, grad: Any, x: Any) -> Any:
    """Return a block's result and gradients."""
    block.zero_grad()
    return trained(block, grad, x) + [parameter.grad for parameter in block.parameters()]


def collectives() -> Iterator[tuple[str, Any]]:
    """Reductions of the communicator, on threads that are made in the caller's environment."""
    import ml_dtypes
    import numpy as np

    from rocpy import distributed

    def reduced(dtype: Any, op: str, power: int) -> Any:
        def body(comm: Any) -> Any:
            x = (words(5000, "float32", comm.rank).view(np.uint32) - np.uint32(power << 23)).view(np.float32)
            if dtype != np.float32:  # the upper half of its bits
                x = (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(dtype)
            return comm.all_reduce(x, op=op), comm.reduce_scatter(x[:4998].reshape(3, -1), op=op)

        return b"".join(bits_of(result) for result in distributed.run_threads(body, 3))

    for dtype in (np.float32, ml_dtypes.bfloat16):
        for op in ("sum", "avg"):
            for power in (0, 115):
                yield f"all_reduce {np.dtype(dtype).name} {op} {power}", partial(reduced, dtype, op, power)


def kernels() -> Iterator[tuple[str, Any]]:
    """Cooperative kernels on the CPU."""
    import numpy as np

    from rocpy import cooperative as coop

    for power in (0, 114):
        x = (words(40 * 300, "float32", 9).view(np.uint32) - np.uint32(power << 23)).view(np.float32).reshape(40, 300)
        yield f"row_sum {power}", partial(coop.row_sum, x, threads=64)


PARTS = (products, small_numbers, scalars, narrow_numbers, composed_numbers, layers, collectives, kernels)


def calls(*parts: Any) -> dict[str, Any]:
    """Return the functions of a program by their names."""
    return {f"{part.__name__}: {name}": call for part in parts or PARTS for name, call in part()}


def digests(chosen: dict[str, Any]) -> dict[str, str]:
    """Run a program; return the digest of each result's bits."""
    return {name: hashlib.sha256(bits_of(call())).hexdigest()[:16] for name, call in chosen.items()}


def main(name: str, when: str, with_torch: str) -> None:
    """Run the program in an environment that is set before the imports, or after them and before the first product."""
    default = fp_environment.read()
    if when == "before" and name:
        fp_environment.write(fp_environment.ENVIRONMENTS[name])
    if with_torch == "torch":
        __import__("torch")
        environment = fp_environment.read()
        fp_environment.write(default)  # backward imports this at its first call, and the import divides by zero
        __import__("torch.fx.experimental.symbolic_shapes")
        fp_environment.write(environment)
    import rocpy  # noqa: F401

    if when == "after" and name:
        fp_environment.write(fp_environment.ENVIRONMENTS[name])
    before = fp_environment.read()
    seen = digests(calls(small_numbers, narrow_numbers, composed_numbers, layers, collectives))
    json.dump({"digests": seen, "before": before, "after": fp_environment.read()}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
