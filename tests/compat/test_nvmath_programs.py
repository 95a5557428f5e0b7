# SPDX-License-Identifier: MIT
"""Programs as one writes them for nvmath-python, a topic each, with only the import changed; checked in float64."""

from __future__ import annotations

import io
import logging
import pickle

import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath
from rocpy.testing import evaluate
from rocpy.testing.runner import check_outputs, to_numpy

advanced = nvmath.linalg.advanced
Epilog = advanced.MatmulEpilog


class Numpy:
    """Arrays of numpy."""

    name = "numpy"

    def __init__(self):
        self.rng = np.random.default_rng(7)

    def rand(self, *shape, dtype="float32"):
        return self.rng.uniform(-2, 2, shape).astype(dtype)

    def column(self, *shape):
        return self.rand(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)

    def is_mine(self, array):
        return isinstance(array, np.ndarray)


class Torch(Numpy):
    """Tensors of torch."""

    name = "torch"

    def rand(self, *shape, dtype="float32"):
        import torch

        return torch.from_numpy(super().rand(*shape)).to(getattr(torch, dtype))

    def is_mine(self, array):
        import torch

        return isinstance(array, torch.Tensor)


@pytest.fixture(params=[Numpy, pytest.param(Torch, marks=pytest.mark.torch)], ids=["numpy", "torch"])
def package(request):
    return request.param()


def turned(array):
    return None if array is None else np.swapaxes(to_numpy(array), -1, -2)


def check(result, a, b, c=None, *, bias=None, **options):
    """Compare a result with the oracle of the transposed product, whose last axis is nvmath's M."""
    bias = None if bias is None else to_numpy(bias).reshape(*to_numpy(bias).shape[: -2 if bias.ndim > 1 else -1], -1)
    expected = evaluate(turned(b), turned(a), turned(c), bias=bias, **options)
    outputs = turned(result)
    found = check_outputs(expected, outputs, outputs.dtype)["result"]
    assert found.ok, found.message


def compare(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(to_numpy(found).astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def product(a, b):
    return to_numpy(a).astype(np.float64) @ to_numpy(b).astype(np.float64)


def test_01_a_product_of_each_package(package):
    a, b = package.rand(12, 8), package.rand(8, 5)
    result = nvmath.linalg.advanced.matmul(a, b)
    assert package.is_mine(result)
    assert tuple(result.shape) == (12, 5)
    compare(result, product(a, b))


def test_02_options_as_object_and_as_dict(package):
    a, b = package.rand(12, 8), package.rand(8, 5)
    options = advanced.MatmulOptions(
        compute_type=advanced.MatmulComputeType.COMPUTE_32F_FAST_TF32, memory_limit="1 MiB"
    )
    compare(advanced.matmul(a, b, options=options), product(a, b), 2e-2)
    compare(
        advanced.matmul(a, b, options={"compute_type": 68, "scale_type": nvmath.CudaDataType.CUDA_R_32F}), product(a, b)
    )


@pytest.mark.parametrize("how", ["global", "user"])
def test_03_logging(package, how, caplog):
    a, b = package.rand(4, 8), package.rand(8, 5)
    logger = logging.getLogger("matmul of mine") if how == "user" else None
    with caplog.at_level(logging.INFO):
        advanced.matmul(a, b, options={"logger": logger})
    assert any("plan" in record.getMessage() for record in caplog.records)
    assert {record.name for record in caplog.records} - {"rocpy"} == {"matmul of mine" if how == "user" else "root"}


def test_04_stateful(package):
    a, b = package.rand(2, 12, 8), package.rand(2, 8, 5)
    with advanced.Matmul(a, b) as mm:
        mm.plan()
        result = mm.execute()
    compare(result, product(a, b))


def test_05_stateful_reset(package):
    a, b, c = package.rand(12, 8), package.rand(8, 5), package.rand(12, 5)
    mm = advanced.Matmul(a, b, c, alpha=2.0, beta=0.5)
    mm.plan()
    compare(mm.execute(), 2 * product(a, b) + 0.5 * to_numpy(c))
    a2, c2 = package.rand(12, 8), package.rand(12, 5)
    mm.reset_operands(a=a2, c=c2, beta=-1.0)
    compare(mm.execute(), 2 * product(a2, b) - to_numpy(c2))
    mm.reset_operands_unchecked(alpha=1.0)
    compare(mm.execute(), product(a2, b) - to_numpy(c2))
    mm.free()


@pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="what lies in CPU memory is copied to the device when it is given"
)
def test_05_stateful_values_changed_in_place(package):
    a, b = package.rand(12, 8), package.rand(8, 5)
    with advanced.Matmul(a, b) as mm:
        mm.plan()
        mm.execute()
        a[:] = 3.0
        compare(mm.execute(), product(a, b))


def test_06_gemm(package):
    a, b, c = package.rand(12, 8), package.rand(8, 5), package.rand(12, 5)
    compare(advanced.matmul(a, b, c=c, alpha=1.23, beta=0.74), 1.23 * product(a, b) + 0.74 * to_numpy(c))


@pytest.mark.parametrize("batched", ["a", "b", "ab"])
def test_07_batches(package, batched):
    a = package.rand(*((3, 2) if "a" in batched else ()), 6, 8)
    b = package.rand(*((3, 2) if "b" in batched else ()), 8, 5)
    result = advanced.matmul(a, b)
    assert tuple(result.shape) == (3, 2, 6, 5)
    compare(result, product(a, b))


@pytest.mark.parametrize("shape", [(3, 6, 5), (6, 5), (6, 1), (3, 6, 1)])
def test_08_batches_with_c(package, shape):
    a, b, c = package.rand(3, 6, 8), package.rand(8, 5), package.rand(*shape)
    compare(advanced.matmul(a, b, c, beta=2.0), product(a, b) + 2 * to_numpy(c))


@pytest.mark.parametrize("bias_shape", [(6,), (6, 1)])
@pytest.mark.parametrize("epilog", ["BIAS", "GELU_BIAS", "RELU_BIAS"])
def test_09_epilogs_with_bias_along_m(package, epilog, bias_shape):
    a, b, bias = package.rand(6, 8), package.rand(8, 5), package.rand(*bias_shape)
    result = advanced.matmul(a, b, epilog=Epilog[epilog], epilog_inputs={"bias": bias})
    check(result, a, b, bias=bias, epilogue=epilog.lower())
    strides = result.stride() if package.name == "torch" else tuple(s // result.itemsize for s in result.strides)
    assert strides == (1, 6)


def test_09_a_bias_per_batch_entry(package):
    a, b, bias = package.rand(3, 6, 8), package.rand(3, 8, 5), package.rand(3, 6, 1)
    check(advanced.matmul(a, b, epilog=Epilog.BIAS, epilog_inputs={"bias": bias}), a, b, epilogue="bias", bias=bias)


@pytest.mark.parametrize("m", [6, 8, 16, 130, 300])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_10_relu_and_its_gradient_through_the_mask(package, m, batch):
    a, b, g = package.rand(*batch, m, 8), package.rand(8, 5), package.rand(*batch, m, 9)
    result, auxiliary = advanced.matmul(a, b, epilog=Epilog.RELU_AUX)
    check(result, a, b, epilogue="relu")
    mask = auxiliary["relu_aux"]
    rows = 16 * ((m + 127) // 128)
    assert tuple(mask.shape) == (*batch, rows, 5)
    assert str(mask.dtype).endswith("uint8")
    bits = np.unpackbits(np.swapaxes(to_numpy(mask), -1, -2).copy(), axis=-1, bitorder="little")
    np.testing.assert_array_equal(bits[..., :m], np.swapaxes(to_numpy(result) > 0, -1, -2))
    assert not bits[..., m:].any()
    w = package.rand(9, 5)
    gradient = advanced.matmul(g, w, epilog=Epilog.DRELU, epilog_inputs={"relu_aux": mask})
    compare(gradient, np.where(to_numpy(result) > 0, product(g, w), 0))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("bias", [False, True])
def test_10_gelu_and_its_gradient(package, batch, bias):
    a, b, g, w = package.rand(*batch, 13, 8), package.rand(8, 5), package.rand(*batch, 13, 9), package.rand(9, 5)
    inputs = {"bias": package.rand(13)} if bias else {}
    epilog = Epilog.GELU_AUX_BIAS if bias else Epilog.GELU_AUX
    result, auxiliary = advanced.matmul(a, b, epilog=epilog, epilog_inputs=inputs)
    before = product(a, b) + (to_numpy(inputs["bias"])[:, None] if bias else 0)
    kept = auxiliary["gelu_aux"]
    assert tuple(kept.shape) == (*batch, 16, 5)
    compare(kept[..., :13, :], before)
    check(result, a, b, **inputs, epilogue="gelu_bias" if bias else "gelu")
    gradient = advanced.matmul(g, w, epilog=Epilog.DGELU, epilog_inputs={"gelu_aux": kept})
    check(gradient, g, w, epilogue="dgelu", aux=turned(kept[..., :13, :]))


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("kind", ["relu", "gelu"])
def test_11_gradients_of_the_bias(package, batch, kind):
    a, b, g, w = package.rand(*batch, 6, 8), package.rand(8, 5), package.rand(*batch, 6, 9), package.rand(9, 5)
    name = f"{kind}_aux"
    _, auxiliary = advanced.matmul(a, b, epilog=Epilog[name.upper()])
    epilog = Epilog[f"D{kind.upper()}_BGRAD"]
    result, gradients = advanced.matmul(g, w, epilog=epilog, epilog_inputs={name: auxiliary[name]})
    sums = gradients[f"d{kind}_bgrad"]
    assert tuple(sums.shape) == ((*batch, 6, 1) if batch else (6,))
    compare(sums.reshape(*batch, 6), to_numpy(result).astype(np.float64).sum(-1), 1e-3)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("order", ["row", "column"])
def test_12_sums_of_the_operands(package, batch, order):
    make = package.rand if order == "row" else package.column
    a, b = make(*batch, 6, 8), make(*batch, 8, 5)
    result, sums = advanced.matmul(a, b, epilog=Epilog.BGRADA)
    compare(result, product(a, b))
    assert tuple(sums["bgrada"].shape) == ((*batch, 6, 1) if batch else (6,))
    compare(sums["bgrada"].reshape(*batch, 6), to_numpy(a).astype(np.float64).sum(-1))
    result, sums = advanced.matmul(a, b, epilog=Epilog.BGRADB)
    compare(result, product(a, b))
    assert tuple(sums["bgradb"].shape) == ((*batch, 5, 1) if batch else (5,))
    compare(sums["bgradb"].reshape(*batch, 5), to_numpy(b).astype(np.float64).sum(-2))


def test_13_stateful_epilog_reset(package):
    a, b, bias = package.rand(6, 8), package.rand(8, 5), package.rand(6)
    with advanced.Matmul(a, b) as mm:
        mm.plan(epilog=Epilog.RELU_BIAS, epilog_inputs={"bias": bias})
        check(mm.execute(), a, b, bias=bias, epilogue="relu_bias")
        other = package.rand(6)
        mm.reset_operands(epilog_inputs={"bias": other})
        check(mm.execute(), a, b, bias=other, epilogue="relu_bias")
        a2 = package.rand(6, 8)
        mm.reset_operands(a=a2)
        check(mm.execute(), a2, b, bias=other, epilogue="relu_bias")


def test_14_autotune(package):
    a, b = package.rand(64, 48), package.rand(48, 56)
    with advanced.Matmul(a, b) as mm:
        found = mm.plan(preferences=advanced.MatmulPlanPreferences(limit=8))
        mm.autotune(iterations=3)
        assert {one.algorithm_id for one in mm.algorithms} == {one.algorithm_id for one in found}
        mm.autotune(iterations=2, prune=1)
        assert len(mm.algorithms) == 1
        compare(mm.execute(), product(a, b))


def test_15_manual_tuning(package):
    a, b = package.rand(64, 48), package.rand(48, 56)
    with advanced.Matmul(a, b) as mm:
        for algorithm in mm.plan(preferences={"limit": 4}):
            assert algorithm.algorithm_id in mm.applicable_algorithm_ids(limit=32)
            compare(mm.execute(algorithm=algorithm), product(a, b))


def test_16_algorithms_used_again(package, tmp_path):
    a, b = package.rand(64, 48), package.rand(48, 56)
    with advanced.Matmul(a, b) as mm:
        mm.plan()
        mm.autotune(iterations=1)
        best = mm.algorithms[-1]
        pickled = pickle.dumps(mm.algorithms)
        np.save(tmp_path / "best.npy", best.as_numpy(), allow_pickle=False)
    restored = advanced.Algorithm.from_numpy(np.load(tmp_path / "best.npy", allow_pickle=False))
    assert restored == best
    with advanced.Matmul(a, b) as mm:
        assert mm.plan(algorithms=pickle.loads(pickled)) == list(pickle.loads(pickled))
        assert mm.plan(algorithms=[restored]) == [best]
        compare(mm.execute(), product(a, b))
    compare(advanced.matmul(a, b, algorithm=restored), product(a, b))


def test_30_the_result_in_place(package):
    a, b, c = package.rand(6, 8), package.rand(8, 5), package.rand(6, 5)
    before = to_numpy(c).astype(np.float64)
    result = advanced.matmul(a, b, c, beta=1.5, options={"inplace": True})
    assert result is c
    compare(c, product(a, b) + 1.5 * before)


@pytest.mark.parametrize("order", ["row", "column"])
def test_31_in_place_with_an_epilog(package, order):
    a, b, bias = package.rand(6, 8), package.rand(8, 5), package.rand(6)
    c = (package.rand if order == "row" else package.column)(6, 5)
    before = to_numpy(c).copy()
    options = advanced.MatmulOptions(inplace=True)
    result = advanced.matmul(a, b, c, beta=1.0, epilog=Epilog.RELU_BIAS, epilog_inputs={"bias": bias}, options=options)
    assert result is c
    check(c, a, b, before, bias=bias, beta=1.0, epilogue="relu_bias")


def test_32_in_place_stateful_reset(package):
    a, b, c = package.rand(6, 8), package.rand(8, 5), package.rand(6, 5)
    with advanced.Matmul(a, b, c, beta=1.0, options={"inplace": True}) as mm:
        mm.plan()
        mm.autotune(iterations=2)
        before = to_numpy(c).astype(np.float64)
        assert mm.execute() is c
        compare(c, product(a, b) + before)
        c2 = package.rand(6, 5)
        before = to_numpy(c2).astype(np.float64)
        mm.reset_operands(c=c2)
        assert mm.execute() is c2
        compare(c2, product(a, b) + before)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(package, dtype):
    a, b = package.rand(6, 8, dtype=dtype), package.rand(8, 5, dtype=dtype)
    compare(advanced.matmul(a, b), product(a, b), 2e-2 if dtype == "float16" else 1e-12)
    if dtype == "float16":
        wide = advanced.matmul(a, b, options={"result_type": nvmath.CudaDataType.CUDA_R_32F})
        assert str(wide.dtype).endswith("float32")
        compare(wide, product(a, b))


@pytest.mark.torch
def test_bfloat16():
    a, b = Torch().rand(6, 8, dtype="bfloat16"), Torch().rand(8, 5, dtype="bfloat16")
    compare(advanced.matmul(a, b).float(), a.double().numpy() @ b.double().numpy(), 5e-2)


def test_a_stream_of_ones_own(package):
    import rocpy

    a, b = package.rand(64, 48), package.rand(48, 56)
    with rocpy.Stream() as stream, advanced.Matmul(a, b, stream=stream) as mm:
        mm.plan(stream=stream)
        compare(mm.execute(stream=stream), product(a, b))


def test_a_c_of_one_axis_is_a_column(package):
    a, b, c = package.rand(3, 6, 8), package.rand(8, 5), package.rand(6)
    expected = product(a, b) + 2 * to_numpy(c)[:, None]
    compare(advanced.matmul(a, b, c, beta=2.0), expected)
    with advanced.Matmul(a, b, c, beta=1.0) as mm:
        mm.plan()
        mm.reset_operands(c=2 * c)
        compare(mm.execute(), expected)


# ---- nvmath.linalg ----


def test_generic_product_and_its_options(package):
    a, b, c = package.rand(6, 8), package.rand(8, 5), package.rand(6, 5)
    compare(nvmath.linalg.matmul(a, b), product(a, b))
    for execution in ("cpu", "cuda", nvmath.linalg.ExecutionCPU(num_threads=2), nvmath.linalg.ExecutionCUDA()):
        compare(
            nvmath.linalg.matmul(a, b, c, alpha=2.0, beta=0.5, execution=execution),
            2 * product(a, b) + 0.5 * to_numpy(c),
        )
    options = nvmath.linalg.MatmulOptions(inplace=True, logger=logging.getLogger("quiet"))
    before = to_numpy(c).astype(np.float64)
    assert nvmath.linalg.matmul(a, b, c, beta=1.0, options=options) is c
    compare(c, product(a, b) + before)


def test_generic_stateful(package):
    a, b = package.rand(3, 6, 8), package.rand(8, 5)
    with nvmath.linalg.Matmul(a, b) as mm:
        assert mm.plan() is None
        mm.plan()
        compare(mm.execute(), product(a, b))
        mm.reset_operands(b=2 * b)
        compare(mm.execute_unchecked(), 2 * product(a, b))


def test_generic_sequences(package):
    a = [package.rand(6, 8), package.rand(3, 8), package.rand(1, 8)]
    b = [package.rand(8, 5)]
    results = nvmath.linalg.matmul(a, b, alpha=[1.0, 2.0, 3.0])
    for scale, left, result in zip((1, 2, 3), a, results, strict=True):
        compare(result, scale * product(left, b[0]))


def test_a_network_and_its_gradients_by_hand(package):
    """Forward with RELU_AUX_BIAS, backward with DRELU_BGRAD: the gradients that central differences give."""
    x, w1, b1, w2 = package.rand(8, 10), package.rand(7, 8), package.rand(7), package.rand(4, 7)
    hidden, kept = advanced.matmul(w1, x, epilog=Epilog.RELU_AUX_BIAS, epilog_inputs={"bias": b1})
    y = advanced.matmul(w2, hidden)
    back, grads = advanced.matmul(w2.T, y, epilog=Epilog.DRELU_BGRAD, epilog_inputs={"relu_aux": kept["relu_aux"]})
    w1_gradient = to_numpy(advanced.matmul(back, x.T))

    def loss(weights, shift):
        inner = np.maximum(weights @ to_numpy(x).astype(np.float64) + shift[:, None], 0)
        return 0.5 * ((to_numpy(w2).astype(np.float64) @ inner) ** 2).sum()

    weights, shift = to_numpy(w1).astype(np.float64), to_numpy(b1).astype(np.float64)
    for index in ((0, 0), (3, 5), (6, 7)):
        step = np.zeros_like(weights)
        step[index] = 1e-5
        slope = (loss(weights + step, shift) - loss(weights - step, shift)) / 2e-5
        assert w1_gradient[index] == pytest.approx(slope, rel=1e-3, abs=1e-3)
    for index in (0, 4):
        step = np.zeros_like(shift)
        step[index] = 1e-5
        slope = (loss(weights, shift + step) - loss(weights, shift - step)) / 2e-5
        assert to_numpy(grads["drelu_bgrad"])[index] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_saved_algorithms_survive_a_file_object():
    a, b = Numpy().rand(8, 8), Numpy().rand(8, 8)
    with advanced.Matmul(a, b) as mm:
        (best, *_) = mm.plan()
    stream = io.BytesIO()
    np.save(stream, best.as_numpy(), allow_pickle=False)
    stream.seek(0)
    assert advanced.Algorithm.from_numpy(np.load(stream, allow_pickle=False)).algorithm_id == best.algorithm_id
