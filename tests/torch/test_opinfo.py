# SPDX-License-Identifier: MIT
"""torch's own samples of its products, in every type: results and gradients against torch's in a wider type."""

from __future__ import annotations

import pytest
from presented import skip_without

import rocpy
from rocpy.errors import RocpyError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
pytest.importorskip("expecttest", reason="torch.testing's internal modules import it")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  (imports what may be absent)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]


def rows(addend, a, b, *, beta=1, alpha=1):
    return rocpy.matmul(a, b, addend, alpha=alpha, beta=beta)


OURS = {
    "nn.functional.linear": rt.linear,
    "addmm": rows,
    "baddbmm": rows,
    "bmm": rocpy.matmul,
    "mm": rocpy.matmul,
    "matmul": rocpy.matmul,
    "__rmatmul__": lambda a, b: rocpy.matmul(b, a),
}
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64]
QUICK = (torch.float64, torch.bfloat16, torch.complex128)
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
TOLERANCE = {
    torch.float64: 1e-12,
    torch.complex128: 1e-12,
    torch.float32: 1e-5,
    torch.complex64: 1e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
ENTRIES = [entry for entry in op_db if entry.name in OURS and entry.variant_test_name in ("", "decomposed")]
every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.full_name)


def leaves(tensors):
    return [x for x in tensors if isinstance(x, torch.Tensor)]


def converted(value, dtype):
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def gradients(function, tensors, arguments, keywords, seed):
    y = function(*arguments, **keywords)
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if y.is_complex() else torch.float64
    grad = torch.randn(y.shape, dtype=wide, generator=generator).to(y.dtype)
    return y, torch.autograd.grad(y, tensors, grad, allow_unused=True)


@every_entry
@pytest.mark.parametrize(
    "dtype", [pytest.param(x, marks=[] if x in QUICK else [pytest.mark.slow]) for x in TYPES], ids=str
)
def test_results_and_gradients(entry, dtype):
    skip_without(dtype)
    seen = 0
    for seed, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=True)):
        arguments, keywords = [sample.input, *sample.args], sample.kwargs
        wide = [converted(x, WIDER.get(dtype, dtype)) for x in arguments]
        wide_keywords = {name: converted(x, WIDER.get(dtype, dtype)) for name, x in keywords.items()}
        found, ours = gradients(OURS[entry.name], leaves([*arguments, *keywords.values()]), arguments, keywords, seed)
        wanted, theirs = gradients(entry.op, leaves([*wide, *wide_keywords.values()]), wide, wide_keywords, seed)
        assert found.dtype == dtype
        limits = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype] * 100, "check_dtype": False}
        torch.testing.assert_close(found, wanted, **limits)
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) is (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, **limits)
        seen += 1
    assert seen > 0


@every_entry
def test_other_types_are_refused_by_name(entry):
    # int8 is a type of products, with int32 results.
    others = set(entry.supported_dtypes("cpu")) - set(TYPES) - {torch.int8}
    assert others
    for dtype in others:
        sample = next(x for x in entry.sample_inputs("cpu", dtype) if x.input.numel())
        with pytest.raises(RocpyError, match=str(dtype).removeprefix("torch.")):
            OURS[entry.name](sample.input, *sample.args, **sample.kwargs)
