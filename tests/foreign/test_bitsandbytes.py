# SPDX-License-Identifier: MIT
"""bitsandbytes' library for ROCm, as PyPI's wheel has it, on the stand-in ROCm tree: `make foreign`, for each card."""

import ctypes
import importlib.metadata
import importlib.util
import os
from statistics import NormalDist

import ml_dtypes
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes: not installed (make foreign)"
)

TYPES = {"fp32": np.dtype("float32"), "fp16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16)}
BLOCK = 64


class Device:
    """HIP's memory and bitsandbytes' functions, called as a C program calls them."""

    def __init__(self):
        self.hip = ctypes.CDLL("libamdhip64.so")
        # The package itself would import torch.
        release = os.environ.get("ROCPY_HOST_ABI", "7.2").replace(".", "")
        file = importlib.metadata.distribution("bitsandbytes").locate_file(
            f"bitsandbytes/libbitsandbytes_rocm{release}.so"
        )
        self.library = ctypes.CDLL(str(file))
        self.library.get_context.restype = ctypes.c_void_p
        self.buffers = []

    def checked(self, name, *arguments):
        status = getattr(self.hip, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    def put(self, array):
        """Copy an array to the device and return its address there."""
        array = np.ascontiguousarray(array)
        address = ctypes.c_void_p()
        self.checked("hipMalloc", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self.buffers.append(address)
        self.checked("hipMemcpy", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), 1)
        return address

    def take(self, address, shape, dtype):
        """Copy an array of the device back, once all launched work is done."""
        array = np.empty(shape, dtype)
        self.checked("hipDeviceSynchronize")
        self.checked("hipMemcpy", ctypes.c_void_p(array.ctypes.data), address, ctypes.c_size_t(array.nbytes), 2)
        return array

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)


@pytest.fixture
def device():
    made = Device()
    yield made
    for address in made.buffers:
        made.checked("hipFree", address)


def nf4():
    """The sixteen values of NF4: quantiles of the normal distribution, eight of them positive, with zero."""
    normal = NormalDist()
    edge = 0.9677083
    upper = [normal.inv_cdf(p) for p in np.linspace(edge, 0.5, 9)[:-1]]
    lower = [-normal.inv_cdf(p) for p in np.linspace(edge, 0.5, 8)[:-1]]
    return np.sort(np.array([*upper, 0.0, *lower])) / max(upper)


def quantized(values):
    """Values as codes of NF4, two in a byte, the first in its upper half; and the largest magnitude of each block."""
    blocks = values.reshape(-1, BLOCK).astype(np.float64)
    largest = np.abs(blocks).max(axis=1)
    codes = np.abs(blocks[..., None] / largest[:, None, None] - nf4()).argmin(axis=2).ravel()
    return (codes[::2] << 4 | codes[1::2]).astype(np.uint8), largest.astype(np.float32)


def dequantized(packed, largest):
    codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1, BLOCK)
    return nf4()[codes] * largest[:, None].astype(np.float64)


def test_int8_product(device, rng, measured):
    tokens, inputs, outputs = 32, 64, 48
    measured(f"{tokens}x{inputs} by {inputs}x{outputs}")
    x = rng.integers(-127, 128, (tokens, inputs), dtype=np.int8)
    w = rng.integers(-127, 128, (outputs, inputs), dtype=np.int8)
    out = device.put(np.zeros((tokens, outputs), np.int32))
    context = ctypes.c_void_p(device.library.get_context())
    status = device.call(
        "cigemmlt_32", context, inputs, tokens, outputs, device.put(w), device.put(x), out, None, inputs, inputs,
        outputs, None,
    )  # fmt: skip
    assert status == 0
    np.testing.assert_array_equal(device.take(out, (tokens, outputs), np.int32), x.astype(np.int32) @ w.T)


def test_rows_as_int8(device, rng, measured):
    rows, columns = 6, 80
    measured(f"float16 {rows}x{columns}")
    x = rng.standard_normal((rows, columns)).astype(np.float16)
    out, scales = device.put(np.zeros((rows, columns), np.int8)), device.put(np.zeros(rows, np.float32))
    device.call("cint8_vector_quant", device.put(x), out, scales, ctypes.c_float(0), rows, columns, None)
    largest = np.abs(x.astype(np.float64)).max(axis=1)
    np.testing.assert_allclose(device.take(scales, (rows,), np.float32), largest, rtol=1e-6)
    got = device.take(out, (rows, columns), np.int8)
    assert np.abs(got - x.astype(np.float64) * 127 / largest[:, None]).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_become_4_bit_and_come_back(device, rng, measured, kind):
    count = 16 * BLOCK
    measured(f"{count} numbers in blocks of {BLOCK}")
    values = rng.standard_normal(count).astype(TYPES[kind])
    packed, largest = device.put(np.zeros(count // 2, np.uint8)), device.put(np.zeros(count // BLOCK, np.float32))
    device.call(f"cquantize_blockwise_{kind}_nf4", None, device.put(values), largest, packed, BLOCK, count)
    codes, scales = device.take(packed, (count // 2,), np.uint8), device.take(largest, (count // BLOCK,), np.float32)
    expected, expected_scales = quantized(values)
    np.testing.assert_array_equal(scales, expected_scales)
    np.testing.assert_array_equal(codes, expected)
    back = device.put(np.zeros(count, TYPES[kind]))
    device.call(f"cdequantize_blockwise_{kind}_nf4", None, packed, largest, back, BLOCK, count, None)
    units = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3}
    np.testing.assert_allclose(
        device.take(back, (count // BLOCK, BLOCK), TYPES[kind]).astype(np.float64), dequantized(codes, scales),
        rtol=units[kind], atol=1e-7,
    )  # fmt: skip


def weights(rng, outputs, inputs):
    packed, largest = quantized(rng.standard_normal(outputs * inputs))
    return packed, largest, dequantized(packed, largest).reshape(outputs, inputs)


@pytest.mark.parametrize("kind", TYPES)
def test_a_vector_by_4_bit_weights(device, rng, measured, kind):
    outputs, inputs = 24, 256
    measured(f"1x{inputs} by {inputs}x{outputs}")
    packed, largest, plain = weights(rng, outputs, inputs)
    x = rng.standard_normal(inputs).astype(TYPES[kind])
    out = device.put(np.zeros(outputs, TYPES[kind]))
    device.call(
        f"cgemm_4bit_inference_naive_{kind}", outputs, 1, inputs, device.put(x), device.put(packed),
        device.put(largest), device.put(nf4().astype(np.float32)), out, outputs, inputs // 2, outputs, BLOCK, None,
    )  # fmt: skip
    agree(device.take(out, (outputs,), TYPES[kind]), x[None], plain, kind)


@pytest.mark.parametrize("tokens", [3, 40])
@pytest.mark.parametrize("kind", TYPES)
def test_rows_by_4_bit_weights(device, rng, measured, kind, tokens):
    outputs, inputs = 32, 128
    measured(f"{tokens}x{inputs} by {inputs}x{outputs}")
    packed, largest, plain = weights(rng, outputs, inputs)
    x = rng.standard_normal((tokens, inputs)).astype(TYPES[kind])
    out = device.put(np.zeros((tokens, outputs), TYPES[kind]))
    bias = rng.standard_normal(outputs).astype(TYPES[kind])
    device.call(
        f"cgemm_4bit_{kind}", device.put(x), device.put(packed), device.put(largest), None, None, None, out,
        device.put(bias), tokens, outputs, inputs, BLOCK, 2, None,
    )  # fmt: skip
    agree(device.take(out, (tokens, outputs), TYPES[kind]), x, plain, kind, bias.astype(np.float64))


def agree(got, x, plain, kind, bias=0.0):
    """Compare with the product in float64, within what weights rounded to the type of x may differ in."""
    x = x.astype(np.float64)
    unit = {"fp32": 2.0**-22, "fp16": 2.0**-9, "bf16": 2.0**-6}[kind]
    bound = unit * (np.abs(x) @ np.abs(plain.T) + np.abs(bias))
    assert np.all(np.abs(got.astype(np.float64) - (x @ plain.T + bias)) <= bound)
