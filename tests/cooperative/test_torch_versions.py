# SPDX-License-Identifier: MIT
"""A kernel that writes to a tensor raises its version, by which autograd notices; one that reads it does not."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def raised(kernel, *arguments, threads=4):
    """Return whether each of the tensors among the arguments, and in tuples, has another version after a launch."""
    tensors = [each for one in arguments for each in (one if isinstance(one, tuple) else (one,))]
    tensors = [each for each in tensors if isinstance(each, torch.Tensor)]
    before = [each._version for each in tensors]
    kernel[1, threads](*arguments)
    return [each._version > old for each, old in zip(tensors, before, strict=True)]


def ones(*shape, dtype=torch.float64):
    return torch.ones(shape or (4,), dtype=dtype)


@coop.jit
def fill(x, o):
    o[coop.threadIdx.x] = x[coop.threadIdx.x] + 1


def test_autograd_notices_what_a_kernel_wrote():
    x = torch.ones(4, requires_grad=True)
    z = x * 1
    w = z * z
    fill[1, 4](torch.full((4,), 9.0), z.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()


def test_a_graph_survives_a_kernel_that_reads():
    x = torch.ones(4, requires_grad=True)
    z = x * 1
    w = z * z
    fill[1, 4](z.detach(), torch.zeros(4))
    w.sum().backward()
    assert x.grad.tolist() == [2] * 4


def change(a, i):
    a[i] += 1


def look(a, i):
    return a[i]


def part(a):
    return a[1:]


def either(a, b, c):
    return a if c else b


def of_first(pair, i):
    change(pair[0], i)


def kernels():  # noqa: C901 - one function each
    """Give kernels of x and o, of which o alone is written."""

    @coop.jit
    def slices(x, o):
        row = o[1:][:2]
        row[0] = x[1:][0]

    @coop.jit
    def whole(x, o):
        o[:] = x

    @coop.jit
    def in_place(x, o):
        o += x

    @coop.jit
    def new_arrays(x, o):
        y = x + 1
        y[0] = 3
        z = x.copy()
        z[1] = 4
        o[0] = y[0] + z[1] + np.sum(x) + x.sum() + len(x) + x.shape[0]

    @coop.jit
    def atomic(x, o):
        coop.atomic.add(o, 0, x[coop.threadIdx.x])

    @coop.jit
    def called(x, o):
        change(o, 0)
        o[1] = look(x, 1)

    @coop.jit
    def returned(x, o):
        y = part(o)
        y[0] = part(x)[0]

    @coop.jit
    def chosen(x, o):
        y = o if x[0] > 0 else o[1:]
        y[0] = 1

    @coop.jit
    def primitives(x, o):
        own = coop.ThreadData(1, np.float64)
        coop.load(coop.this_block(), x, own)
        own[0] = coop.sum(coop.this_block(), own[0], all=True)
        coop.store(coop.this_block(), o, own)

    @coop.jit
    def runs(x, o):
        coop.run_length_decode_into(coop.this_block(), o, x[coop.threadIdx.x], 1)

    @coop.jit
    def ufuncs(x, o):
        np.add(x, x, o)

    @coop.jit
    def loops(x, o):
        for i, each in enumerate(x):
            o[i] = each

    @coop.jit
    def viewed(x, o):
        o.reshape((2, 2))[0, 1] = x.reshape((2, 2))[1, 1]
        o.T[0] = x.T[0]

    @coop.jit
    def packed(x, o):
        both = x, (o, x)
        both[1][0][0] = both[0][0]
        _, (y, _) = both
        y[1] = 1

    @coop.jit
    def copied(x, o):
        np.diag(x)[0] = 1
        x.astype(np.float32)[0] = np.append(x, x)[0] = 1
        np.triu(x.reshape((2, 2)))[0, 0] = 1
        o[0] = x[0]

    return [
        slices,
        whole,
        in_place,
        new_arrays,
        atomic,
        called,
        returned,
        chosen,
        primitives,
        runs,
        ufuncs,
        loops,
        viewed,
        packed,
        copied,
    ]


@pytest.mark.parametrize(
    "kernel",
    # numpy's functions of whole arrays take seconds to compile.
    [pytest.param(each, marks=pytest.mark.slow if each.name == "copied" else [], id=each.name) for each in kernels()],
)
def test_only_what_is_written_is_raised(kernel):
    assert raised(kernel, ones(), ones()) == [False, True]


def test_prefixes_may_write_to_their_state():
    def carry(state, total):
        state[0] += total
        return state[0] - total

    @coop.jit
    def kernel(x, state, o):
        i = coop.threadIdx.x
        o[i] = coop.inclusive_sum(coop.this_block(), x[i], prefix=carry, state=state)

    assert raised(kernel, ones(), ones(), ones()) == [False, True, True]


def test_members_of_tuples_are_told_apart():
    @coop.jit
    def kernel(pair, both):
        x, o = pair
        o[0] = x[0]
        of_first(both, 0)

    assert raised(kernel, (ones(), ones()), (ones(), ones())) == [False, True, True, False]


def test_what_is_not_known_counts_as_written():
    @coop.jit
    def kernel(x, o, n):
        pair = (x, o)
        pair[n][0] = 1

    assert raised(kernel, ones(), ones(), 1) == [True, True]

    @coop.jit
    def one_of(x, o, c):
        either(x, o, c[0] > 0)[0] = 1

    assert raised(one_of, ones(), ones(), ones()) == [True, True, False]


@pytest.mark.parametrize("options", [{"debug": True}, {"float": "float32"}, {"warp_size": 32}])
def test_in_every_mode(options):
    assert raised(coop.jit(**options)(fill.function), ones(), ones()) == [False, True]


def test_code_from_the_disk_knows_what_it_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for hits in (0, 1):
        kernel = coop.jit(cache=True)(fill.function)
        assert raised(kernel, ones(), ones()) == [False, True]
        assert kernel.launcher.cache_hits == hits


def test_a_kernel_that_fails_has_written():
    @coop.jit(debug=True)
    def kernel(x, o):
        o[0] = 1
        o[1] = x[9]

    x, o = ones(), ones()
    with pytest.raises(KernelIndexError):
        kernel[1, 1](x, o)
    assert (x._version, o._version) == (0, 1)


def test_tensors_that_have_no_version_or_another_type():
    with torch.inference_mode():
        inference = ones()
    fill[1, 4](ones(), inference)
    assert inference.tolist() == [2] * 4

    class Derived(torch.Tensor):
        pass

    assert raised(fill, ones(), ones().as_subclass(Derived)) == [False, True]
    assert raised(fill, ones(dtype=torch.bfloat16), ones(dtype=torch.bfloat16)) == [False, True]


def test_predefined_kernels_raise_what_they_fill():
    x, out = ones(2, 3), ones(2)
    coop.row_sum(x, out=out)
    assert (x._version, out._version) == (0, 1)
