# SPDX-License-Identifier: MIT
"""What torch asks of the backend beside plain collectives: one-sided splits, bits, sparse sums, coalescing, forks."""

import datetime as dt
import itertools
import os
import subprocess
import sys
import threading

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

from rocpy import rccl
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

pytestmark = pytest.mark.torch


def options(dist, kind, **fields):
    made = getattr(dist, f"{kind}Options")()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def dist(torch):
    import torch.distributed

    return torch.distributed


@pytest.mark.parametrize("who", ["none", "inputs", "outputs", "one rank", "other rank"])
def test_splits_that_only_some_say(torch, dist, who):
    def body(group, rank):
        size = group.size()
        equal = [2] * size
        says_in = who in ("inputs", "both") or (who == "one rank" and rank == 0) or (who == "other rank" and rank == 1)
        says_out = who == "outputs" or (who == "one rank" and rank == 2)
        x = torch.arange(2.0 * size * 3).reshape(2 * size, 3) + 100 * rank
        out = torch.zeros(2 * size, 3)
        group.alltoall_base(
            out, x, equal if says_out else [], equal if says_in else [], options(dist, "AllToAll")
        ).wait()
        # The group lives on.
        total = torch.ones(1)
        group.allreduce([total], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        return out[:, 0].tolist(), total.item()

    for rank, (column, total) in enumerate(good(on_groups(3, body))):
        assert column == [100.0 * r + 3 * (2 * rank + i) for r in range(3) for i in range(2)]
        assert total == 3.0


def test_uneven_splits_on_one_side(torch, dist):
    # Each rank gives 1 row to rank 0 and 3 to rank 1: rank 0 takes 1 of each, as an equal cut says, and rank 1 takes 3.
    def body(group, rank):
        x = torch.arange(4.0).reshape(4, 1) + 10 * rank
        out = torch.zeros(2 if rank == 0 else 6, 1)
        group.alltoall_base(out, x, [], [1, 3], options(dist, "AllToAll")).wait()
        return out.flatten().tolist()

    assert good(on_groups(2, body)) == [[0.0, 10.0], [1.0, 2.0, 3.0, 11.0, 12.0, 13.0]]


@pytest.mark.parametrize(
    ("out_shape", "in_shape", "takes", "sends"),
    [((3, 2), (2, 2), [], []), ((2, 2), (3, 2), [], []), ((2, 3), (2, 2), [], []), ((2, 2), (2, 2), [3, -1], [])],
)
def test_splits_that_do_not_fit_are_refused(torch, dist, out_shape, in_shape, takes, sends):
    def body(group, rank):
        with pytest.raises(InvalidProblemError, match="rows|first axis"):
            group.alltoall_base(torch.zeros(out_shape), torch.zeros(in_shape), takes, sends, options(dist, "AllToAll"))
        group.barrier().wait()
        return "alive"

    assert good(on_groups(2, body)) == ["alive"] * 2


@pytest.mark.parametrize("name", ["bool", "uint8", "int16", "int32", "int64"])
def test_bitwise_operators(torch, dist, name):
    import numpy as np

    size, dtype = 3, getattr(torch, name)
    functions = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}

    def of(rank, count):
        bits = np.random.default_rng(rank).integers(0, 2 if name == "bool" else 100, count)
        return torch.from_numpy(bits).to(dtype)

    def expected(operator, count):
        return functions[operator].reduce([of(rank, count).numpy() for rank in range(size)])

    def body(group, rank):
        wrong = []
        for operator in functions:
            op = getattr(dist.ReduceOp, operator)

            def check(what, found, wanted, operator=operator):
                wrong.extend([(operator, what)] if found.numpy().tolist() != wanted.tolist() else [])

            for count in (0, 1, 1_500_000 if name == "uint8" and operator == "BXOR" else 1001):
                x = of(rank, count)
                group.allreduce([x], options(dist, "Allreduce", reduceOp=op)).wait()
                check(f"all_reduce {count}", x, expected(operator, count))
            y = of(rank, 7)
            group.reduce([y], options(dist, "Reduce", reduceOp=op, rootRank=2)).wait()
            check("reduce", y, expected(operator, 7) if rank == 2 else of(rank, 7).numpy())
            part = torch.zeros(4, dtype=dtype)
            group._reduce_scatter_base(part, of(rank, 12), options(dist, "ReduceScatter", reduceOp=op)).wait()
            check("reduce_scatter", part, expected(operator, 12)[4 * rank : 4 * rank + 4])
            uneven = torch.zeros(rank, dtype=dtype)
            parts = list(of(rank, 3).split([0, 1, 2]))
            group.reduce_scatter([uneven], [parts], options(dist, "ReduceScatter", reduceOp=op)).wait()
            check("uneven", uneven, expected(operator, 3)[sum(range(rank)) : sum(range(rank + 1))])
            strided = of(rank, 12).view(3, 4).t()
            group.allreduce([strided], options(dist, "Allreduce", reduceOp=op)).wait()
            check("strided", strided.t().flatten(), expected(operator, 12))
        return wrong

    assert good(on_groups(size, body)) == [[]] * size


@pytest.mark.parametrize("name", ["int16", "uint16"])
def test_sixteen_bits_wrap(torch, dist, name):
    import numpy as np

    given = [np.random.default_rng(rank).integers(0, 30000, 300).astype(name) for rank in range(3)]
    functions = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}

    def body(group, rank):
        found = []
        for operator in functions:
            x = torch.from_numpy(given[rank].copy())
            group.allreduce([x], options(dist, "Allreduce", reduceOp=getattr(dist.ReduceOp, operator))).wait()
            found.append(x.numpy().tolist())
        return found, group._get_sequence_number_for_group()

    expected = [function.reduce(given, dtype=name).tolist() for function in functions.values()]
    assert good(on_groups(3, body)) == [(expected, 4)] * 3


def test_what_has_no_reduction_is_named_before_anybody_waits(torch, dist):
    def body(group, rank):
        sums = options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)
        for tensor, said in [
            (torch.ones(2).to(torch.float8_e4m3fnuz), "sum of torch.float8_e4m3fnuz.*to torch.float32"),
            (torch.ones(2, device="meta"), "meta device.*torch.empty_like"),
            (torch.eye(2).to_mkldnn(), "layout.*to_dense"),
            (torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "nested tensor"),
            (torch.nn.parameter.UninitializedParameter(requires_grad=False), "not initialized"),
        ]:
            with pytest.raises((UnsupportedError, InvalidOperandError), match=said):
                group.allreduce([tensor], sums)
        copied = torch.full((2,), float(rank)).to(torch.float8_e4m3fnuz)
        group.broadcast([copied], options(dist, "Broadcast", rootRank=1)).wait()
        return copied.float().tolist()

    assert good(on_groups(2, body)) == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("dtype", ["bool", "int16", "complex64"])
def test_no_elements_of_a_type_that_rccl_lacks(torch, dist, dtype):
    def body(group, rank):
        # As numpy's empty arrays come: with a stride of 0.
        x = torch.empty(0, dtype=getattr(torch, dtype)).as_strided((0,), (0,))
        group.broadcast([x], options(dist, "Broadcast", rootRank=0)).wait()
        group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        return x.numel()

    assert good(on_groups(2, body)) == [0, 0]


def test_bitwise_operators_of_floats_are_refused_before_anybody_waits(torch, dist):
    def body(group, rank):
        for dtype in (torch.float32, torch.complex64):
            with pytest.raises(UnsupportedError, match="integers and booleans"):
                group.allreduce([torch.ones(1, dtype=dtype)], options(dist, "Allreduce", reduceOp=dist.ReduceOp.BOR))
        group.barrier().wait()
        return True

    assert good(on_groups(2, body)) == [True] * 2


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "complex64"])
def test_sparse_sums(torch, dist, dtype):
    kind = getattr(torch, dtype)

    def of(rank):
        # Rank 0 has nothing, rank 1 an element twice, rank 2 another row.
        if rank == 0:
            return torch.sparse_coo_tensor(
                torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 2), (5, 2), check_invariants=True
            ).to(kind)
        index = [[1, 1]] if rank == 1 else [[1, 4, 0]]
        values = torch.full((len(index[0]), 2), float(rank)).to(kind)
        return torch.sparse_coo_tensor(torch.tensor(index), values, (5, 2), check_invariants=True)

    def body(group, rank):
        x = of(rank)
        group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        with pytest.raises(UnsupportedError, match="sparse"):
            group.allreduce([of(rank)], options(dist, "Allreduce", reduceOp=dist.ReduceOp.MAX))
        return x.is_sparse, x.to_dense().to(torch.complex64).real.tolist()

    expected = sum(of(rank).to_dense().to(torch.complex64) for rank in range(3)).real.tolist()
    assert good(on_groups(3, body)) == [(True, expected)] * 3


@pytest.mark.parametrize("is_leaf", [False, True], ids=["plain", "needs a gradient"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sparse_sums_of_real_views_are_those_of_the_complex_tensors(torch, dist, dtype, goes_on, is_leaf):
    def body(group, rank):
        values = torch.tensor([1 + 1j, 1.0]) * (rank + 1)
        x = torch.sparse_coo_tensor([[rank, 2]], values.to(getattr(torch, dtype)), (3,), check_invariants=True)
        x.requires_grad_(is_leaf)
        view = torch.view_as_real(x)  # as dist.all_reduce passes it
        group.allreduce([view], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM, asyncOp=goes_on)).wait()
        assert torch.view_as_real(x).detach().to_dense().equal(view.detach().to_dense())
        return x.detach().to_dense().tolist(), x.is_coalesced()

    assert good(on_groups(2, body)) == [([1 + 1j, 2 + 2j, 3 + 0j], True)] * 2


@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("mode", [False, True], ids=["called outside", "called inside"])
def test_sparse_sums_of_inference_tensors(torch, dist, mode, dtype, goes_on):
    def body(group, rank):
        with torch.inference_mode():
            values = torch.ones(2, dtype=getattr(torch, dtype))
            x = torch.sparse_coo_tensor([[rank, rank]], values, (3,), check_invariants=True)
        with torch.inference_mode(mode):
            group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM, asyncOp=goes_on)).wait()
        return x.to_dense().tolist()

    assert good(on_groups(2, body)) == [[2, 2, 0]] * 2


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
def test_sparse_tensors_that_torch_does_not_sum_are_refused(torch, dist):
    def sparse(dtype):
        return torch.sparse_coo_tensor([[0, 0]], torch.ones(2).to(dtype), (3,), check_invariants=True)

    with torch.inference_mode():
        x = torch.view_as_real(sparse(torch.complex64))
    unsummed = [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64, torch.complex32]

    def body(group, rank):
        summing = options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)
        for dtype in unsummed:
            with pytest.raises(UnsupportedError, match=f"tensor: a sparse tensor of {dtype}.*convert it"):
                group.allreduce([sparse(dtype)], summing)
        for mode in (True, False):
            with torch.inference_mode(mode), pytest.raises(InvalidOperandError, match="view of a complex one.*clone"):
                group.allreduce([x], summing)
        group.allreduce([x.clone()], summing).wait()
        return True

    assert good(on_groups(1, body)) == [True]


@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
@pytest.mark.parametrize(("name", "small"), [("float32", 2.0**-140), ("float64", 2.0**-1060), ("bfloat16", 2.0**-130)])
def test_sparse_sums_keep_subnormal_numbers(torch, dist, name, small, goes_on):
    def body(group, rank):
        values = torch.tensor([small], dtype=torch.float64).to(getattr(torch, name))
        torch.set_flush_denormal(True)
        try:
            x = torch.sparse_coo_tensor(torch.tensor([[1]]), values, (3,), check_invariants=True)
            group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM, asyncOp=goes_on)).wait()
            values = x.coalesce().values()
        finally:
            torch.set_flush_denormal(False)
        return values.double().tolist()

    assert good(on_groups(2, body)) == [[2 * small]] * 2


@pytest.mark.parametrize(("name", "large", "sum_"), [("bfloat16", 256.0, 258.0), ("float16", 2048.0, 2050.0)])
@pytest.mark.parametrize("is_sparse", [True, False], ids=["sparse", "dense"])
def test_sums_of_16_bits_are_rounded_once(torch, dist, name, large, sum_, is_sparse):
    def body(group, rank):
        x = torch.full((1,), large if rank == 0 else 1.0, dtype=getattr(torch, name))
        x = x.to_sparse() if is_sparse else x
        group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        return x.to_dense().tolist()

    assert good(on_groups(3, body)) == [[sum_]] * 3


def test_sparse_tensors_of_different_shapes_are_told_on_all(torch, dist):
    def body(group, rank):
        x = torch.eye(2 + rank).to_sparse()
        with pytest.raises(InvalidProblemError, match="differ in shape"):
            group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        group.barrier().wait()
        return True

    assert good(on_groups(2, body)) == [True] * 2


def test_a_monitored_barrier_names_who_is_missing(torch, dist):
    is_over = threading.Event()

    def with_a_late_rank(group, rank):
        group.monitored_barrier()
        if rank == 1:
            assert is_over.wait(60)
            group.abort()
            return None
        try:
            with pytest.raises(rccl.CollectiveTimeoutError, match="monitored_barrier|waiting for") as late:
                group.monitored_barrier(dt.timedelta(seconds=0.2), wait_all_ranks=True)
        finally:
            is_over.set()
        group.abort()
        return late.value.waiting_for

    assert on_groups(2, with_a_late_rank)[0] == (1,)


PROGRAM = """
import sys, warnings
import torch
import torch.distributed as dist

warnings.simplefilter("error")
dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
pg = dist.group.WORLD
cpu = torch.device("cpu")
backend = pg._get_backend(cpu)
assert backend.name() == "rocpy" and not backend.supports_splitting and not backend.supports_tensor_alloc(cpu)
assert torch.device("cpu") in pg._device_types
with dist._coalescing_manager():
    x, y = torch.ones(2), torch.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(y)
with dist._coalescing_manager(async_ops=True) as manager:
    dist.all_reduce(x)
manager.wait()
with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
    dist.broadcast(x, 0)
    dist.barrier()
    parts = [torch.zeros(2)]
    dist.all_gather(parts, x)
manager.wait()
assert parts[0].tolist() == [1.0, 1.0]
with dist._coalescing_manager(device=cpu):
    dist.broadcast(x, 0)
try:
    dist.monitored_barrier()
except ValueError as error:
    assert "GLOO" in str(error)
try:
    dist.recv(x)
except NotImplementedError as error:
    assert "src" in str(error)
# Operators of torch's own layers.
from torch.distributed._functional_collectives import all_reduce
assert all_reduce(torch.ones(2), "sum", pg).tolist() == [1.0, 1.0]
print("done")
"""


def test_what_torch_asks_of_a_backend(torch):
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


EXIT = """
import time
import torch, torch.distributed as dist
dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
work = dist.all_reduce(torch.ones(2), async_op=True)

def linger(_):
    for _ in range(600):
        time.sleep(0.001)

work.get_future().then(linger)
print("done", flush=True)
"""


def test_a_program_ends_while_a_callback_runs(torch):
    # A thread that the end of the interpreter finds in a callback of torch's would take the process with it.
    done = subprocess.run([sys.executable, "-P", "-c", EXIT], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_what_is_coalesced_may_send_before_it_receives(torch):
    def body(group, rank):
        peer = 1 - rank
        big, received = torch.full((300_000,), float(rank)), torch.zeros(300_000)
        group._start_coalescing(torch.device("cpu"))
        assert group.send([big], peer, 0) is None
        assert group.recv([received], peer, 0) is None
        work = group._end_coalescing(torch.device("cpu"))
        assert work.wait()
        with pytest.raises(RuntimeError, match="without"):
            group._end_coalescing(torch.device("cpu"))
        group._start_coalescing(torch.device("cpu"))
        assert group._end_coalescing(torch.device("cpu")).wait()
        return received.unique().tolist()

    assert good(on_groups(2, body)) == [[1.0], [0.0]]


FORKING = """
import os, sys
{make}
child = os.fork()
if child == 0:
    {child}
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
{after}
print("parent done", flush=True)
"""
GROUP = """
import torch, torch.distributed as dist
dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x, async_op=True).wait()
"""
COMMUNICATOR = """
import numpy as np
from rocpy import rccl
comm = rccl.Communicator.init(1, 0, rccl.UniqueId.make())
comm.all_reduce(np.ones(3))
"""


OWNERS = {
    "group": (GROUP, "dist.all_reduce(x)\ndist.destroy_process_group()"),
    "communicator": (COMMUNICATOR, "comm.all_reduce(np.ones(3))\ncomm.close()"),
}
WAYS = ["sys.exit(0)", "os._exit(0)", "comm = dist = None; sys.exit(0)"]


@pytest.mark.parametrize(
    ("owner", "way"),
    [
        # Each of a group imports torch.
        pytest.param(owner, way, marks=pytest.mark.slow if owner == "group" and way != WAYS[0] else [])
        for owner, way in itertools.product(OWNERS, WAYS)
    ],
)
def test_a_forked_child_that_exits_says_nothing(torch, owner, way):
    make, after = OWNERS[owner]
    program = FORKING.format(make=make, after=after, child=way)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "always"},
    )
    assert (done.returncode, done.stdout) == (0, "parent done\n"), done.stderr
    for word in ("rocpy", "Error", "dropped", "Traceback"):
        assert word not in done.stderr, done.stderr
