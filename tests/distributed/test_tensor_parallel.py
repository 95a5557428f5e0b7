# SPDX-License-Identifier: MIT
"""Layers cut over ranks: equal to the whole layer, gradients too; chunks overlap; each event of the order is needed."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import distributed, rccl
from rocpy.distributed import _overlap
from rocpy.errors import InvalidOperandError, InvalidProblemError


def integers(rng, *shape):
    """Small integers, whose products and sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def parts(ranks):
    """An input, a weight and a bias whose K is eight times the number of ranks."""
    rng = np.random.default_rng(5)
    return integers(rng, 12, 8 * ranks), integers(rng, 8 * ranks, 10), integers(rng, 10)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("chunks", [1, 3, None])
def test_products_with_collectives_are_exact(ranks, chunks):
    x, w, bias = parts(ranks)
    whole = x @ w

    def body(comm):
        mine = slice(8 * comm.rank, 8 * comm.rank + 8)
        rows = slice(12 // ranks * comm.rank, 12 // ranks * (comm.rank + 1))
        by_rank = np.ascontiguousarray(x[:, mine]), np.ascontiguousarray(w[mine])
        summed = distributed.matmul_all_reduce(*by_rank, bias, comm=comm, chunks=chunks)
        scattered = distributed.matmul_reduce_scatter(*by_rank, comm=comm, chunks=chunks)
        full, gathered = distributed.all_gather_matmul(
            np.ascontiguousarray(x[rows]), w, bias, comm=comm, chunks=chunks, gathered=True
        )
        return (
            (summed == whole + bias).all(),
            (scattered == whole[rows]).all(),
            (full == whole + bias).all(),
            (gathered == x).all(),
        )

    assert distributed.run_threads(body, ranks) == [(True,) * 4] * ranks


def test_a_bias_without_the_platforms_function_is_added_once(monkeypatch):
    monkeypatch.setattr(_overlap, "reduces_with_bias", lambda: False)
    x, w, bias = parts(2)

    def body(comm):
        mine = slice(8 * comm.rank, 8 * comm.rank + 8)
        y = distributed.matmul_all_reduce(x[:, mine].copy(), w[mine].copy(), bias, comm=comm, chunks=2)
        return (y == x @ w + bias).all()

    assert distributed.run_threads(body, 2) == [True, True]


def whole_mlp(torch, tensors):
    x, w1, b1, w2, b2 = (tensor.clone().requires_grad_() for tensor in tensors)
    y = torch.nn.functional.linear(torch.relu(torch.nn.functional.linear(x, w1, b1)), w2, b2)
    (y * y).sum().backward()
    return y.detach(), [tensor.grad for tensor in (x, w1, b1, w2, b2)]


@pytest.mark.torch
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_gradients_are_the_whole_layers(torch, sequence_parallel):
    ranks, rng = 2, np.random.default_rng(7)
    shapes = ((6, 4), (8, 4), (8,), (5, 8), (5,))
    tensors = [torch.from_numpy(rng.integers(-2, 3, shape).astype(np.float64)) for shape in shapes]
    expected, grads = whole_mlp(torch, tensors)
    torch.set_num_threads(1)

    def body(comm):
        inner, rows = slice(4 * comm.rank, 4 * comm.rank + 4), slice(3 * comm.rank, 3 * comm.rank + 3)
        x, w1, b1, w2, b2 = tensors
        mine = [x[rows] if sequence_parallel else x, w1[inner], b1[inner], w2[:, inner], b2]
        x, w1, b1, w2, b2 = (tensor.clone().requires_grad_() for tensor in mine)
        settings = {"comm": comm, "sequence_parallel": sequence_parallel, "chunks": 2}
        hidden = torch.relu(distributed.column_linear(x, w1, b1, **settings))
        y = distributed.row_linear(hidden, w2, b2, **settings)
        (y * y).sum().backward()
        wanted = [
            grads[0][rows] if sequence_parallel else grads[0],
            grads[1][inner],
            grads[2][inner],
            grads[3][:, inner],
            grads[4],
        ]
        # Integers throughout: sums are exact in any order.
        assert torch.equal(y.detach(), expected[rows] if sequence_parallel else expected)
        return [torch.equal(tensor.grad, grad) for tensor, grad in zip((x, w1, b1, w2, b2), wanted, strict=True)]

    assert distributed.run_threads(body, ranks) == [[True] * 5] * ranks


@pytest.mark.torch
def test_leading_axes_stay(torch):
    def body(comm):
        x, w = torch.ones(2, 3, 4, requires_grad=True), torch.ones(6, 4)
        y = distributed.column_linear(x, w, comm=comm)
        y.sum().backward()
        return tuple(y.shape), tuple(distributed.row_linear(x.detach(), w, comm=comm).shape), x.grad.unique().tolist()

    assert distributed.run_threads(body, 2) == [((2, 3, 6), (2, 3, 6), [12.0])] * 2


def test_a_collective_runs_beside_the_next_product(monkeypatch):
    """Rank 0's second product is given when its first collective runs, and rank 1 comes to that when it is done."""
    ranks, spans, came = 2, {}, []
    x, w, _ = parts(ranks)
    product = _overlap.Run.product

    def first_collective(comm):
        return next((call for call in comm.trace() if call["op"] == "all_reduce"), {"begin_s": None})

    def later(self, chunk, *operands):
        while (self.comm.rank, chunk) == (0, 1) and first_collective(self.comm)["begin_s"] is None:
            time.sleep(0.001)
        product(self, chunk, *operands)

    monkeypatch.setattr(_overlap.Run, "product", later)

    def body(comm):
        mine = slice(8 * comm.rank, 8 * comm.rank + 8)
        operands = x[:, mine].copy(), w[mine].copy()
        if comm.rank == 1:
            while 0 not in spans or not spans[0].is_done("product", 1):
                time.sleep(0.001)
            came.append(time.monotonic())
            return (distributed.matmul_all_reduce(*operands, comm=comm, chunks=3) == x @ w).all(), None, None
        with distributed.overlap_trace() as found:
            spans[0] = found
            y = distributed.matmul_all_reduce(*operands, comm=comm, chunks=3)
        return (y == x @ w).all(), found.overlapping(), first_collective(comm)

    results = distributed.run_threads(body, ranks, timeout_s=60.0)
    assert [good for good, _, _ in results] == [True, True]
    # The second product lies within the first collective: it was given after its beginning, and done before its end.
    assert 0 in results[0][1]
    assert results[0][2]["begin_s"] < came[0] < results[0][2]["end_s"]


# For each chunk, what comes first in it is held back on rank 0 by a product of tens of milliseconds on a stream of its
# own; then once more with the event left out that keeps the second back. Prints how many results are wrong either way.
STRESSED = """
import numpy as np
import rocpy
from rocpy import distributed
from rocpy.distributed import _overlap

gathers = name == "all_gather_matmul"
kind = "collective" if gathers else "product"
follow, first = _overlap.StreamPair.follow, getattr(_overlap.Run, kind)
state = {"held": None, "skipped": None}
seen, gates = {}, []
large = np.ones((1200, 1200), np.float32)

def some(self, later, earlier):
    seen[id(self)] = seen.get(id(self), -1) + 1
    if seen[id(self)] != state["skipped"]:
        follow(self, later, earlier)

def slow(self, chunk, *rest, **settings):
    if self.comm.rank == 0 and chunk == state["held"]:
        gate = rocpy.Stream(self.comm.device_index, nonblocking=True)
        rocpy.matmul(large, large, stream=gate)
        getattr(self.streams, kind).wait(gate.record())
        gates.append(gate)
    first(self, chunk, *rest, **settings)

_overlap.StreamPair.follow = some
setattr(_overlap.Run, kind, slow)
rng = np.random.default_rng(1)
x, w = rng.integers(1, 9, (2, 12, 16)).astype(np.float32), rng.integers(1, 9, (2, 16, 6)).astype(np.float32)
expected = np.concatenate(x) @ w[0] if gathers else sum(a @ b for a, b in zip(x, w))

def run(comm):
    wanted = np.split(expected, 2)[comm.rank] if name == "matmul_reduce_scatter" else expected
    counts = []
    for held in range(3):
        for skipped in (None, held):
            wrong = 0
            for _ in range(1 if skipped is None else 4):  # a loaded machine may hold the others back too
                comm.barrier()
                state.update(held=held, skipped=skipped)
                seen.pop(id(_overlap.streams_of(comm)), None)
                comm.barrier()
                y = getattr(distributed, name)(x[comm.rank] + held, w[0 if gathers else comm.rank], comm=comm, chunks=3)
                more = held * (w[0].sum(0) if gathers else w.sum((0, 1)))
                wrong += int((y != wanted + more).any())
            counts.append(int(wrong != 0))
    return counts

first_counts, second_counts = distributed.run_threads(run, 2)
print([a or b for a, b in zip(first_counts, second_counts)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul_all_reduce", "matmul_reduce_scatter", "all_gather_matmul"])
def test_each_event_is_needed(run_python, name):
    done = run_python(f"name = {name!r}\n{STRESSED}", timeout_s=200, ROCPY_HOST_STRESS="11", ROCPY_NUM_THREADS="1")
    assert json.loads(done.stdout) == [0, 1] * 3


def test_what_is_refused():
    def body(comm):
        x, w = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
        with pytest.raises(InvalidProblemError, match="cannot be multiplied"):
            distributed.matmul_all_reduce(x, w.T, comm=comm)
        with pytest.raises(InvalidProblemError, match="3 rows cannot be split"):
            distributed.matmul_reduce_scatter(x, w, comm=comm)
        with pytest.raises(InvalidProblemError, match="chunks"):
            distributed.all_gather_matmul(x, w, comm=comm, chunks=0)
        with pytest.raises(InvalidProblemError, match="cannot be applied to x"):
            distributed.row_linear(x, w, comm=comm)
        with pytest.raises(InvalidProblemError, match="expected a matrix"):
            distributed.column_linear(x[None], w.T, comm=comm, sequence_parallel=True)
        with pytest.raises(InvalidOperandError, match="torch tensor or a numpy array"):
            distributed.matmul_all_reduce(memoryview(x), w, comm=comm)

    distributed.run_threads(body, 2)


def raising(comm, rank):
    if comm.rank == rank:
        raise KeyError("mine")
    comm.barrier()


def total(comm, x):
    return comm.all_reduce(x).tolist()


@pytest.mark.parametrize("run", [distributed.run_threads, distributed.run_processes])
def test_ranks_of_this_machine(run):
    assert run(total, 2, np.ones(2)) == [[2.0, 2.0]] * 2
    with pytest.raises(KeyError, match="mine"):
        distributed.run_threads(raising, 2, 1)
    with pytest.raises(rccl.InvalidArgumentError, match="nranks"):
        run(total, 0)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(0, 20), st.integers(1, 9), st.integers(1, 9), st.integers(1, 6))
def test_random_shapes(ranks, rows, k, n, chunks):
    rng = np.random.default_rng(0)
    x, w = integers(rng, rows * ranks, k * ranks), integers(rng, k * ranks, n)

    def body(comm):
        mine, own = slice(k * comm.rank, k * comm.rank + k), slice(rows * comm.rank, rows * (comm.rank + 1))
        given_x, given_w = np.ascontiguousarray(x[:, mine]), np.ascontiguousarray(w[mine])
        y = distributed.matmul_all_reduce(given_x, given_w, comm=comm, chunks=chunks)
        z = distributed.matmul_reduce_scatter(given_x, given_w, comm=comm, chunks=chunks)
        v = distributed.all_gather_matmul(np.ascontiguousarray(x[own]), w, comm=comm, chunks=chunks)
        return (y == x @ w).all() and (z == (x @ w)[own]).all() and (v == x @ w).all()

    assert all(distributed.run_threads(body, ranks))
