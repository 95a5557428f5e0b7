# SPDX-License-Identifier: MIT
"""An input of a custom epilogue whose memory cannot be read is refused by the name that it was passed under."""

from types import SimpleNamespace

import numpy as np
import pytest

import rocpy

A = np.ones((4, 4), np.float32)
# By the operand of the library's own product that the input becomes, or none.
EPILOGUES = {
    "c": ((4, 4), lambda y, u: y + u),
    "bias": ((4,), lambda y, u: y + u),
    "bias per row": ((4, 1), lambda y, u: y + u),
    "input": ((4, 4), lambda y, u: np.tanh(y) * u),
}
MESSAGE = r"^epilogue_inputs\['u'\]: "


@pytest.fixture(params=EPILOGUES)
def shape_and_epilogue(request):
    shape, function = EPILOGUES[request.param]
    return shape, rocpy.epilogue(function)


def uses(epilogue, a, readable, unreadable):
    """Return the calls that take an input which cannot be read from the start."""
    inputs = {"u": unreadable}

    def reset():
        with rocpy.Matmul(a, a, epilogue=epilogue, epilogue_inputs={"u": readable}) as mm:
            mm.execute()
            mm.reset_operands(epilogue_inputs=inputs)

    return (
        lambda: rocpy.matmul(a, a, epilogue=epilogue, epilogue_inputs=inputs),
        lambda: rocpy.Matmul(a, a, epilogue=epilogue, epilogue_inputs=inputs),
        lambda: rocpy.explain(a, a, epilogue=epilogue, epilogue_inputs=inputs),
        reset,
    )


def test_a_masked_array(shape_and_epilogue):
    shape, epilogue = shape_and_epilogue
    plain = np.ones(shape, np.float32)
    for use in uses(epilogue, A, plain, np.ma.masked_array(plain, plain > 2)):
        with pytest.raises(rocpy.InvalidOperandError, match=MESSAGE + "a masked array"):
            use()


@pytest.mark.torch
def test_a_tensor_without_storage(torch, shape_and_epilogue):
    shape, epilogue = shape_and_epilogue
    a, emptied = torch.ones(4, 4), torch.ones(shape)
    rocpy.matmul(a, a, epilogue=epilogue, epilogue_inputs={"u": emptied})  # so that there is a plan for such tensors
    emptied.untyped_storage().resize_(0)
    for use in uses(epilogue, a, torch.ones(shape), emptied):
        with pytest.raises(rocpy.InvalidOperandError, match=MESSAGE + r"torch.Tensor of .* null"):
            use()


@pytest.mark.torch
@pytest.mark.parametrize("executed", [False, True])
def test_a_tensor_that_loses_its_storage(torch, shape_and_epilogue, executed):
    shape, epilogue = shape_and_epilogue
    a, u = torch.ones(4, 4), torch.ones(shape)
    with rocpy.Matmul(a, a, epilogue=epilogue, epilogue_inputs={"u": u}) as mm:
        if executed:
            mm.execute()
        u.untyped_storage().resize_(0)
        with pytest.raises(rocpy.InvalidOperandError, match=MESSAGE + r"torch.Tensor of .* null"):
            mm.execute()
        u.untyped_storage().resize_(u.numel() * 4)
        u.fill_(1.0)
        expected = epilogue.evaluate((a @ a).numpy(), u=u.numpy())
        np.testing.assert_allclose(mm.execute().numpy(), expected, rtol=1e-6)


@pytest.mark.torch
def test_truth_values_of_torch(torch):
    epilogue = rocpy.epilogue(lambda y, keep: np.where(keep, y, 0))
    a, keep = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.bool)
    with rocpy.Matmul(a, a, epilogue=epilogue, epilogue_inputs={"keep": keep}) as mm:
        np.testing.assert_array_equal(mm.execute().numpy(), np.full((4, 4), 4.0))
        keep.untyped_storage().resize_(0)
        with pytest.raises(rocpy.InvalidOperandError, match=r"^epilogue_inputs\['keep'\]: torch.Tensor"):
            mm.execute()


def test_a_device_interface_of_memory_that_is_on_no_device(shape_and_epilogue):
    shape, epilogue = shape_and_epilogue
    plain = np.ones(shape, np.float32)
    device = SimpleNamespace(__cuda_array_interface__=plain.__array_interface__)
    for use in uses(epilogue, A, plain, device):
        with pytest.raises(rocpy.InvalidOperandError, match=MESSAGE + ".* HIP does not know its address"):
            use()
