# SPDX-License-Identifier: MIT
"""The handler that jax's ROCm plugin calls, driven by frames made here on the platform's own device and streams."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import evaluate
from rocpy.testing.runner import check_outputs

pytestmark = pytest.mark.jax

COMMON = {
    "has_c": False, "has_bias": False, "has_aux": False, "transpose_a": False, "transpose_b": False, "compute": "",
    "alpha": 1.0, "beta": 0.0, "options": "",
}  # fmt: skip


class Device:
    """Arrays on the device, and the handler called on a stream of it."""

    def __init__(self, stream):
        from jax_frames.call_frame import Caller

        from rocpy.jax import _handler

        self.stream = stream
        self.call = Caller(_handler.ROCM_HANDLER, stream.handle)
        self.buffers = []

    def put(self, array):
        made = rocpy.Buffer(array.shape, array.dtype)
        made.copy_from(array)
        self.buffers.append(made)
        return made, (made.handle, array.shape, array.dtype.name)

    def run(self, operands, results, /, **attributes):
        """Return the results of a call, or its error."""
        given = [self.put(x)[1] for x in operands]
        places = [self.put(np.full(shape, 77, dtype)) for shape, dtype in results]
        error = self.call(given, [place for _, place in places], **{**COMMON, **attributes})
        if error:
            return error
        self.stream.synchronize()
        return [made.to_numpy() for made, _ in places]


@pytest.fixture
def device(jax):
    with rocpy.Stream() as stream:
        yield Device(stream)


@pytest.fixture
def operands(rng):
    return [rng.standard_normal(shape, dtype=np.float32) for shape in ((9, 5), (5, 7))]


def check(expected, *found):
    outputs = found[0] if len(found) == 1 else (found[0], dict(zip(expected.aux, found[1:], strict=True)))
    for name, one in check_outputs(expected, outputs, np.float32).items():
        assert one.ok, f"{name}: {one.message}"


def test_it_says_what_it_was_built_for(device):
    assert device.call.metadata() == (0, 3)


def test_products_on_a_stream(device, operands, fresh_plan_cache):
    for _ in range(3):
        (d,) = device.run(operands, [((9, 7), np.float32)], epilogue="relu")
        check(evaluate(*operands, epilogue="relu"), d)
    info = rocpy.plan_cache.info()
    assert info["size"] == 1
    assert info["hits"] >= 3


def test_two_results(device, operands):
    both = [((9, 7), np.float32)] * 2
    check(evaluate(*operands, epilogue="gelu_aux"), *device.run(operands, both, epilogue="gelu_aux"))
    sums = [((9, 7), np.float32), ((7,), np.float32)]
    check(evaluate(*operands, epilogue="bgradb"), *device.run(operands, sums, epilogue="bgradb"))


def test_transposed_operands_are_read_as_they_lie(device, operands):
    a, b = operands
    given = [np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)]
    check(
        evaluate(a, b),
        *device.run(given, [((9, 7), np.float32)], epilogue="default", transpose_a=True, transpose_b=True),
    )


@pytest.mark.usefixtures("without_programs")
def test_what_is_composed_is_composed_on_the_device(device, operands):
    check(evaluate(*operands, epilogue="gelu_erf"), *device.run(operands, [((9, 7), np.float32)], epilogue="gelu_erf"))
    error = device.run(
        [np.ascontiguousarray(operands[0].T), operands[1]],
        [((9, 7), np.float32)],
        epilogue="gelu_erf",
        transpose_a=True,
    )
    assert error[0] == 12  # UNIMPLEMENTED
    assert "UnsupportedError" in error[1]


@pytest.mark.parametrize(
    ("attributes", "result", "message"),
    [
        ({"epilogue": "no"}, (9, 7), "epilogue that this version"),
        ({"epilogue": "default", "later": 1}, (9, 7), "attribute that this version"),
        ({"epilogue": "default", "alpha": 1}, (9, 7), "attribute that this version"),
        ({"epilogue": "default", "compute": "float16"}, (9, 7), "attribute that this version"),
        ({"epilogue": "default", "has_c": 0}, (9, 7), "attribute that this version"),
        ({"epilogue": "default", "has_c": True}, (9, 7), "fewer arrays"),
        ({"epilogue": "default"}, (7, 9), "shapes and types of this product|out: shape"),
        ({"epilogue": "bias"}, (9, 7), "InvalidProblemError: epilogue 'bias' needs bias="),
        ({"epilogue": "default", "options": '{"copies": 1}'}, (9, 7), "InvalidProblemError: option copies"),
    ],
)
def test_frames_that_are_none_of_ours(attributes, result, message, device, operands):
    import re

    code, text = device.run(operands, [(result, np.float32)], **attributes)
    assert code == 3  # INVALID_ARGUMENT
    assert re.search(message, text), text


def test_an_array_that_no_attribute_names(device, operands):
    code, text = device.run([*operands, operands[0]], [((9, 7), np.float32)], epilogue="default")
    assert code == 3
    assert "more arrays" in text
