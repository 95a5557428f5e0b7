# SPDX-License-Identifier: MIT
"""Tensors that get other memory, and arrays that are resized, while a pending collective or a Buffer uses theirs."""

import ctypes

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy.runtime.kernels.arguments import pack

pytestmark = pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="a GPU's calls are not of CPU memory")

COUNT = 1000
REPLACE = {
    "data": lambda torch, tensor: setattr(tensor, "data", torch.zeros(1)),
    "set_": lambda torch, tensor: tensor.set_(torch.zeros(1)),
}
# A call of rank r on x, the rows of its result, and what is in them if x is r + 1 everywhere.
CALLS = {
    "all_reduce": (lambda comm, x, out: comm.all_reduce(x, out=out, block=False), 1, 3),
    "in place": (lambda comm, x, _out: comm.all_reduce(x, out=x, block=False), 0, 3),
    "all_gather": (lambda comm, x, out: comm.all_gather(x, out=out, block=False), 2, [1, 2]),
    "broadcast": (lambda comm, x, out: comm.broadcast(x, root=1, out=out, block=False), 1, 2),
}


@pytest.fixture
def comms():
    made = rccl.Communicator.init_all(2)
    yield made
    for comm in made:
        comm.abort()  # both are this thread's, and closing one waits for the other


@pytest.mark.torch
@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("name", CALLS)
def test_a_pending_collective(name, how, comms, torch):
    call, rows, expected = CALLS[name]
    works, kept, others = [], [], []
    for comm in comms:
        x = torch.full((COUNT,), comm.rank + 1.0)
        out = torch.zeros((rows, COUNT) if rows > 1 else (COUNT,))
        if comm.rank == 0:  # the other's is written where nobody else has it
            kept.append((x if name == "in place" else out).detach())
        works.append(call(comm, x, out))
        for tensor in (x, out):
            REPLACE[how](torch, tensor)
        others += [torch.full((COUNT,), -1.0) for _ in range(20)]
    for work in works:
        work.wait()
    values = torch.tensor(expected, dtype=torch.float32)
    assert torch.equal(kept[0], values[..., None].expand(kept[0].shape))
    assert all((each == -1).all() for each in others)


@pytest.mark.torch
@pytest.mark.parametrize("how", REPLACE)
def test_a_buffer(how, torch):
    tensor = torch.full((COUNT,), 5.0)
    buffer = rocpy.Buffer.from_dlpack(tensor)
    REPLACE[how](torch, tensor)
    others = [torch.full((COUNT,), -1.0) for _ in range(20)]
    assert (buffer.to_numpy() == 5).all()
    buffer.fill(0)
    assert all((each == -1).all() for each in others)


@pytest.mark.torch
@pytest.mark.parametrize("how", REPLACE)
def test_an_argument_of_a_kernel(how, torch):
    tensor = torch.full((COUNT,), 5.0)
    (address,), owners = pack([tensor])
    REPLACE[how](torch, tensor)
    others = [torch.full((COUNT,), -1.0) for _ in range(20)]
    values = (ctypes.c_float * COUNT).from_address(int.from_bytes(address, "little"))
    assert set(values) == {5.0}
    del owners, others


class Runs:
    """A number, or an array, that runs code of the caller's when it is read."""

    def __init__(self, code, array=None):
        self.code, self.array = code, array
        if array is not None:
            self.shape, self.dtype = array.shape, array.dtype

    def __float__(self):
        self.code()
        return 1.0

    def __dlpack__(self, **keywords):
        self.code()
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (1, 0)


ARGUMENTS = {
    "alpha": lambda code: {"alpha": Runs(code)},
    "beta": lambda code: {"c": np.ones((500, 8), np.float32), "beta": Runs(code)},
    "clamp": lambda code: {"epilogue": "clamp", "clamp": (Runs(code), 5.0)},
    "out": lambda code: {"out": Runs(code, np.zeros((500, 8), np.float32))},
}


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_argument_that_resizes_an_operand(argument, planned):
    def call(code):
        a, b = np.ones((500, 500), np.float32), np.ones((500, 8), np.float32)
        arguments = ARGUMENTS[argument](lambda: code(a))
        if not planned:
            return rocpy.matmul(a, b, **arguments)
        out = arguments.pop("out", None)
        return rocpy.Matmul(a, b, **arguments).execute(out=out)

    assert np.asarray(getattr(call(lambda _: None), "array", 500)).shape in ((), (500, 8))
    # Where the product is composed, a is read after the number, with its other shape.
    with pytest.raises((rocpy.InvalidOperandError, rocpy.InvalidProblemError), match=r"^a( and b)?: "):
        call(lambda a: a.resize((4, 4), refcheck=False))


def test_numpy_does_not_resize_what_is_used(comms):
    array, out = np.ones(COUNT), np.zeros(COUNT)
    buffer = rocpy.Buffer.from_dlpack(array)
    work = comms[0].all_reduce(out, out=out, block=False)
    for each in (array, out):
        with pytest.raises(ValueError, match="cannot resize"):
            each.resize(2 * COUNT, refcheck=False)
    comms[1].all_reduce(np.ones(COUNT), block=False).wait()
    work.wait()
    assert (out == buffer.to_numpy()).all()
