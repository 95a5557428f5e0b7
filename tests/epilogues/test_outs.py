# SPDX-License-Identifier: MIT
"""Arrays for the results of an epilogue of the user's: checked as the out of any product, whatever computes it."""

import re

import numpy as np
import pytest

import rocpy

A = np.arange(12, dtype=np.float32).reshape(4, 3) - 5.5
B = np.arange(15, dtype=np.float32).reshape(3, 5) - 7.5
X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
FUNCTIONS = {
    "native": lambda x, s: np.maximum(x + s, 0),
    "one tile program": lambda x, s: np.tanh(x) * 2.5 + s,
    "unfused": lambda x, s: (np.tanh(x) + s).astype(np.float64).astype(np.float32),
}


def two(x, s):
    return x * 2, x + s


def memory(*shape, dtype=np.float32):
    return np.full(shape, 7, dtype)


def read_only():
    array = memory(4, 5)
    array.flags.writeable = False
    return array


def strided(*strides):
    return np.lib.stride_tricks.as_strided(memory(80), (4, 5), strides)


# What is refused, as what, and where copies are forbidden alone.
REFUSED = {
    "read-only": (read_only, r"{}: numpy.ndarray, .* is read-only", False),
    "repeated": (lambda: strided(0, 4), "{}: .* has elements that share memory", False),
    "overlapping": (lambda: strided(8, 4), "{}: .* axes that interleave", False),
    "big-endian": (lambda: memory(4, 5, dtype=">f4"), "{}: .* cannot be written in place", False),
    "unaligned": (
        lambda: memory(81, dtype=np.uint8)[1:].view(np.float32).reshape(4, 5),
        "{}: .* cannot be written in place",
        False,
    ),
    "int32": (lambda: memory(4, 5, dtype=np.int32), "{} is int32, and the result is float32", False),
    "uint8": (lambda: memory(4, 5, dtype=np.uint8), "{} is uint8, and the result is float32", False),
    "shape": (lambda: memory(5, 4), r"{}: shape \(5, 4\), but the result has shape \(4, 5\)", False),
    "list": (lambda: X.tolist(), "out: got a list|{}: got list", False),
    "float64": (lambda: memory(4, 5, dtype=np.float64), "{} is float64 and the result is .*copies='error'", True),
    "columns apart": (lambda: memory(4, 10)[:, ::2], "{}: .* library cannot take this layout.*copies='error'", True),
}  # fmt: skip


def run(planned, function, out, **options):
    arguments = {"epilogue": rocpy.epilogue(function), "epilogue_inputs": {"s": X}, "options": options}
    if not planned:
        return rocpy.matmul(A, B, out=out, **arguments)
    with rocpy.Matmul(A, B, **arguments) as mm:
        return mm.execute(out=out)


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_by_every_lowering(case, planned):
    make, message, copies = REFUSED[case]
    options = {"copies": "error"} if copies else {}
    for function in FUNCTIONS.values():
        out = make()
        with pytest.raises(rocpy.RocpyError, match=message.format("out")):
            run(planned, function, out, **options)
        np.testing.assert_array_equal(out, make())
    for position in range(2):
        outs = [memory(4, 5), memory(4, 5)]
        outs[position] = make()
        with pytest.raises(rocpy.RocpyError, match=message.format(re.escape(f"out[{position}]"))):
            run(planned, two, tuple(outs), **options)
        assert (outs[1 - position] == 7).all()  # nothing is written before all are checked


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
def test_operands_are_no_out(name, planned):
    square, eye = memory(4, 4), np.eye(4, dtype=np.float32)
    a, b = (square, eye) if name == "a" else (eye, square)
    for function in FUNCTIONS.values():
        call = {"epilogue": rocpy.epilogue(function), "epilogue_inputs": {"s": X[:, :4]}}
        with pytest.raises(rocpy.InvalidOperandError, match=f"out shares memory with {name}"):
            rocpy.Matmul(a, b, **call).execute(out=square) if planned else rocpy.matmul(a, b, out=square, **call)
    assert (square == 7).all()


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: memory(4, 5, dtype=np.float64),
        lambda: memory(4, 5, dtype=np.float16),
        lambda: memory(4, 5, dtype=np.complex64),
        lambda: memory(4, 10)[:, ::2],
        lambda: memory(5, 4).T,
        lambda: memory(4, 5)[::-1],
        lambda: memoryview(memory(4, 5)),
    ],
)
def test_any_other_layout_or_wider_kind_is_written(make, planned):
    for function in FUNCTIONS.values():
        expected, out = run(planned, function, None), make()
        assert run(planned, function, out) is out
        np.testing.assert_array_equal(np.asarray(out), expected.astype(np.asarray(out).dtype))
    expected, outs = run(planned, two, None), (make(), make())
    for seen, out, wanted in zip(run(planned, two, outs), outs, expected, strict=True):
        assert seen is out
        np.testing.assert_array_equal(np.asarray(out), wanted.astype(np.asarray(out).dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64])
def test_integers_beyond_those_of_out_become_the_nearest(dtype):
    out, exact = memory(2, 2, dtype=dtype), np.array([[40000, -40000], [100, 0]])
    eye = np.eye(2, dtype=np.float32)
    rocpy.matmul(exact.astype(np.float32), eye, epilogue=rocpy.epilogue(lambda x: x.astype(np.int32)), out=out)
    limits = np.iinfo(dtype)
    np.testing.assert_array_equal(out, exact.clip(limits.min, limits.max))


@pytest.mark.torch
def test_tensors_that_cannot_be_written_are_refused(torch):
    a, b, x = (torch.from_numpy(one.copy()) for one in (A, B, X))
    with torch.inference_mode():
        inference = torch.zeros(4, 5)
    refused = {
        "elements that share memory": torch.zeros(1, 5).expand(4, 5),
        "axes that interleave": torch.zeros(80).as_strided((4, 5), (2, 1)),
        "out is int32": torch.zeros(4, 5, dtype=torch.int32),
        "inference": inference,
        "cannot be written in place": torch.zeros(4, 5, dtype=torch.complex64).conj().imag,
    }
    for function in FUNCTIONS.values():
        for message, out in refused.items():
            with pytest.raises(rocpy.RocpyError, match=message):
                rocpy.matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"s": x}, out=out)
            assert not out.any()
