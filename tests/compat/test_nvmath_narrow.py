# SPDX-License-Identifier: MIT
"""Programs with 8-bit floats and with complex numbers, as one writes them for nvmath-python."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.compat import nvmath
from rocpy.testing.runner import to_numpy

advanced = nvmath.linalg.advanced
Epilog = advanced.MatmulEpilog
Type = nvmath.CudaDataType


class Numpy:
    """8-bit arrays by ml_dtypes."""

    name = "numpy"

    def __init__(self):
        self.rng = np.random.default_rng(11)

    def narrow(self, values, dtype):
        return values.astype(getattr(ml_dtypes, dtype))

    def make(self, *shape, dtype="float8_e4m3fn", column=False):
        values = self.rng.uniform(-2, 2, shape).astype(np.float32)
        narrow = self.narrow(np.ascontiguousarray(np.swapaxes(values, -1, -2)) if column else values, dtype)
        return narrow.swapaxes(-1, -2) if column else narrow

    def wide(self, array):
        return np.asarray(array).astype(np.float64)

    def scalar(self, value):
        return np.array([value], np.float32)


class Torch(Numpy):
    """8-bit tensors of torch."""

    name = "torch"

    def narrow(self, values, dtype):
        import torch

        return torch.from_numpy(values.copy()).to(getattr(torch, dtype))

    def wide(self, array):
        return array.double().numpy()

    def scalar(self, value):
        import torch

        return torch.tensor([value])


@pytest.fixture(params=[Numpy, pytest.param(Torch, marks=pytest.mark.torch)], ids=["numpy", "torch"])
def package(request):
    return request.param()


@pytest.fixture
def operands(package):
    return package.make(32, 48), package.make(48, 64, column=True)


def close(package, found, expected, tolerance):
    np.testing.assert_allclose(package.wide(found), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


# Half a step of each result type, relative.
HALF_STEP = {"float8_e4m3fn": 2**-4, "bfloat16": 2**-8, "float16": 2**-11, "float32": 1e-5}


def test_17_a_product_of_8_bit_floats_gives_its_own_type(package, operands):
    a, b = operands
    exact = package.wide(a) @ package.wide(b)
    result = advanced.matmul(a, b, quantization_scales={"a": 1.0, "b": 1.0, "d": 0.25})
    assert str(result.dtype).endswith("float8_e4m3fn")
    close(package, result, 0.25 * exact, 1.1 * HALF_STEP["float8_e4m3fn"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("second", ["float8_e4m3fn", "float8_e5m2"])
def test_18_other_result_types(package, dtype, second):
    a, b = package.make(32, 48), package.make(48, 64, dtype=second, column=True)
    number = {"bfloat16": Type.CUDA_R_16BF, "float16": Type.CUDA_R_16F, "float32": Type.CUDA_R_32F}[dtype]
    result = advanced.matmul(a, b, quantization_scales={"a": 2.0, "b": 0.5}, options={"result_type": number})
    assert str(result.dtype).endswith(dtype)
    close(package, result, package.wide(a) @ package.wide(b), HALF_STEP[dtype])


def test_19_reset_of_operands_and_scales(package, operands):
    a, b = operands
    exact = package.wide(a) @ package.wide(b)
    options = {"result_type": Type.CUDA_R_32F}
    with advanced.Matmul(a, b, quantization_scales={"a": 1.0, "b": 1.0}, options=options) as mm:
        mm.plan()
        close(package, mm.execute(), exact, 1e-5)
        mm.reset_operands(quantization_scales={"a": 3.0})
        close(package, mm.execute(), 3 * exact, 1e-5)
        a2 = package.make(32, 48)
        mm.reset_operands(a=a2, quantization_scales=advanced.MatmulQuantizationScales(b=0.5))
        close(package, mm.execute(), 1.5 * package.wide(a2) @ package.wide(b), 1e-5)


@pytest.mark.parametrize("scales", [{}, {"a": 1.0}])
def test_released_scales_are_passed_again(package, operands, scales):
    a, b = operands
    options = {"result_type": Type.CUDA_R_32F}
    with advanced.Matmul(a, b, quantization_scales={"a": 2.0, "b": 3.0}, options=options) as mm:
        mm.plan()
        mm.release_operands()
        with pytest.raises((RuntimeError, ValueError), match=r"quantization_scales.*\bb\b"):
            mm.reset_operands(a, b, quantization_scales=scales or None)
        mm.reset_operands(a, b, quantization_scales={"a": 1.0, "b": 0.5})
        close(package, mm.execute(), 0.5 * package.wide(a) @ package.wide(b), 1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_numbers_of_numpys_are_scales_of_any_package(package, operands, kind):
    a, b = operands
    scales = {"a": kind(2), "b": 1.0}
    result = advanced.matmul(a, b, quantization_scales=scales, options={"result_type": np.int64(Type.CUDA_R_32F)})
    close(package, result, 2 * package.wide(a) @ package.wide(b), 1e-5)


@pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="what lies in CPU memory is copied to the device when it is given"
)
def test_20_a_scale_changed_in_place(package, operands):
    a, b = operands
    scale = package.scalar(1.0)
    with advanced.Matmul(
        a, b, quantization_scales={"a": scale, "b": 1.0}, options={"result_type": Type.CUDA_R_32F}
    ) as mm:
        mm.plan()
        mm.execute()
        scale[:] = 4.0
        close(package, mm.execute(), 4 * package.wide(a) @ package.wide(b), 1e-5)


def test_21_22_the_largest_magnitude_and_the_next_scale(package, operands):
    a, b = operands
    exact = package.wide(a) @ package.wide(b)
    scales = advanced.MatmulQuantizationScales(a=1.0, b=1.0, d=package.scalar(0.125))
    with advanced.Matmul(a, b, quantization_scales=scales, options={"result_amax": True}) as mm:
        mm.plan()
        auxiliary = mm.execute()[1]
        amax = auxiliary["result_amax"]
        assert tuple(amax.shape) == (1,)
        assert float(amax[0]) == pytest.approx(np.abs(exact).max(), rel=1e-5)
        following = 448.0 / float(amax[0])
        mm.reset_operands(quantization_scales={"d": package.scalar(following)})
        result = mm.execute()[0]
        close(package, result, exact * following, 1.1 * HALF_STEP["float8_e4m3fn"])
        assert np.abs(package.wide(result)).max() == 448.0


@pytest.mark.parametrize("epilog", ["RELU", "GELU"])
def test_23_epilogs(package, operands, epilog):
    a, b = operands
    exact = package.wide(a) @ package.wide(b)
    result = advanced.matmul(
        a, b, quantization_scales={"a": 1.0, "b": 1.0}, options={"result_type": Type.CUDA_R_32F}, epilog=Epilog[epilog]
    )
    gelu = 0.5 * exact * (1 + np.tanh(np.sqrt(2 / np.pi) * (exact + 0.044715 * exact**3)))
    close(package, result, np.maximum(exact, 0) if epilog == "RELU" else gelu, 1e-5)


def test_23_a_bias(package, operands):
    a, b = operands
    bias = package.make(32, dtype="bfloat16")
    result = advanced.matmul(
        a, b, quantization_scales={"a": 1.0, "b": 1.0}, options={"result_type": Type.CUDA_R_16BF},
        epilog=Epilog.RELU_BIAS, epilog_inputs={"bias": bias},
    )  # fmt: skip
    expected = np.maximum(package.wide(a) @ package.wide(b) + package.wide(bias)[:, None], 0)
    close(package, result, expected, HALF_STEP["bfloat16"])


def test_24_an_auxiliary_output(package, operands):
    a, b = operands
    _, auxiliary = advanced.matmul(
        a, b, quantization_scales={"a": 1.0, "b": 1.0}, options={"result_type": Type.CUDA_R_16BF},
        epilog=Epilog.GELU_AUX,
    )  # fmt: skip
    assert tuple(auxiliary["gelu_aux"].shape) == (32, 64)
    close(package, auxiliary["gelu_aux"], package.wide(a) @ package.wide(b), HALF_STEP["bfloat16"])


@pytest.mark.parametrize("scales", [None, {"a": 1.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}])
def test_scales_that_are_missing_or_too_many_are_named(package, operands, scales):
    with pytest.raises(ValueError, match="quantization_scales"):
        advanced.matmul(*operands, quantization_scales=scales)


@pytest.mark.parametrize("wrong", [np.ones(2, np.float32), np.ones(1, np.float64), "1", [1.0]])
def test_a_wrong_scale_is_refused(wrong):
    package = Numpy()
    a, b = package.make(32, 48), package.make(48, 64, column=True)
    with pytest.raises((ValueError, TypeError), match="quantization_scales"):
        advanced.matmul(a, b, quantization_scales={"a": wrong, "b": 1.0, "d": 1.0})


# ---- complex ----


def complex_pair(dtype):
    skip_without(dtype)
    rng = np.random.default_rng(5)
    return [(rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(dtype) for s in ((6, 8), (8, 5), (6, 5))]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_01_complex(dtype):
    a, b, c = complex_pair(dtype)
    tolerance = 1e-5 if dtype == "complex64" else 1e-13
    result = advanced.matmul(a, b, c, alpha=0.3 + 0.9j, beta=1j)
    np.testing.assert_allclose(result, (0.3 + 0.9j) * (a @ b) + 1j * c, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("marks", [(1, 0), (0, 1), (1, 1)])
def test_conjugates_by_qualifiers(marks):
    a, b, _ = complex_pair("complex64")
    qualifiers = np.zeros(3, advanced.matrix_qualifiers_dtype)
    qualifiers["is_conjugate"][:2] = marks
    expected = (a.conj() if marks[0] else a) @ (b.conj() if marks[1] else b)
    for _ in range(2):
        np.testing.assert_allclose(advanced.matmul(a, b, qualifiers=qualifiers), expected, rtol=1e-5, atol=1e-5)
    with advanced.Matmul(a, b, qualifiers=qualifiers) as mm:
        mm.plan()
        mm.execute()
        a *= 2
        np.testing.assert_allclose(mm.execute(), 2 * expected, rtol=1e-5, atol=1e-5)


@pytest.mark.torch
def test_lazy_conjugates_of_torch_and_qualifiers_cancel(torch):
    a, b = (torch.from_numpy(array) for array in complex_pair("complex64")[:2])
    qualifiers = np.zeros(3, advanced.matrix_qualifiers_dtype)
    qualifiers["is_conjugate"][0] = 1
    torch.testing.assert_close(advanced.matmul(a.conj(), b), a.conj() @ b)
    torch.testing.assert_close(advanced.matmul(a, b, qualifiers=qualifiers), a.conj() @ b)
    for _ in range(2):
        torch.testing.assert_close(advanced.matmul(a.conj(), b, qualifiers=qualifiers), a @ b)


def test_flops_count_batches_and_complex_products():
    a, b, _ = complex_pair("complex64")
    mm = advanced.Matmul(np.stack([a, a, a]), b)
    assert mm.flop_count == 3 * 8 * 6 * 8 * 5
    mm.free()
    assert to_numpy(nvmath.linalg.matmul(a, b)).dtype == np.complex64
