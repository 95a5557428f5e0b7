# SPDX-License-Identifier: MIT
"""The process group of torch's backend, on threads: every collective, types that RCCL lacks, order, futures, errors."""

import datetime as dt
import time
import warnings

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

from rocpy import rccl
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError, UnsupportedError

pytestmark = pytest.mark.torch


def options(dist, kind, **settings):
    made = (
        getattr(dist, f"{kind}Options")()
        if hasattr(dist, f"{kind}Options")
        else getattr(dist.distributed_c10d, f"{kind}Options")()
    )
    for name, value in settings.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def dist(torch):
    import torch.distributed

    return torch.distributed


def test_reductions(torch, dist):
    def body(group, rank):
        x = torch.arange(6.0).reshape(2, 3) + rank
        group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        assert x.tolist() == (torch.arange(6.0).reshape(2, 3) * 3 + 3).tolist()
        many = [torch.full((2,), float(rank)), torch.full((3, 1), rank + 1.0)]
        group.allreduce_coalesced(many, options(dist, "Allreduce", reduceOp=dist.ReduceOp.MAX)).wait()
        assert [t.flatten().tolist() for t in many] == [[2.0, 2.0], [3.0, 3.0, 3.0]]
        y = torch.full((4,), float(rank + 1))
        group.reduce([y], options(dist, "Reduce", reduceOp=dist.ReduceOp.PRODUCT, rootRank=1)).wait()
        assert y.tolist() == [6.0] * 4 if rank == 1 else y.tolist() == [rank + 1.0] * 4
        part = torch.zeros(2)
        group._reduce_scatter_base(part, torch.arange(6.0), options(dist, "ReduceScatter")).wait()
        assert part.tolist() == [6.0 * rank, 6.0 * rank + 3]
        uneven = torch.zeros(rank + 1)
        group.reduce_scatter([uneven], [[torch.ones(r + 1) for r in range(3)]], options(dist, "ReduceScatter")).wait()
        assert uneven.tolist() == [3.0] * (rank + 1)
        scaled = torch.ones(2)
        factor = dist._make_nccl_premul_sum(0.5 + rank)
        group.allreduce([scaled], options(dist, "Allreduce", reduceOp=factor)).wait()
        return scaled.tolist()

    assert good(on_groups(3, body)) == [[4.5, 4.5]] * 3


def test_types_that_rccl_lacks(torch, dist):
    def body(group, rank):
        sums = options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)
        truth = torch.tensor([rank == 0, False])
        group.allreduce([truth], sums).wait()
        small = torch.tensor([100, -3], dtype=torch.int16)
        group.allreduce([small], sums).wait()
        complexes = torch.tensor([1 + 2j, rank * 1j])
        group.allreduce([complexes], sums).wait()
        strided = torch.zeros(3, 4).t()
        group.allreduce([strided], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        filled = torch.ones(4, 6)[:, ::2]
        group.allreduce([filled], sums).wait()
        told = torch.full((3,), rank, dtype=torch.int16)
        group.broadcast([told], options(dist, "Broadcast", rootRank=1)).wait()
        empty = torch.zeros(0)
        group.allreduce([empty], sums).wait()
        scalar = torch.tensor(2.0)
        group.allreduce([scalar], sums).wait()
        assert strided.shape == (4, 3)
        assert filled.unique().tolist() == [2.0]
        return truth.tolist(), small.tolist(), complexes.tolist(), told.tolist(), scalar.item()

    assert good(on_groups(2, body)) == [([True, False], [200, -6], [2 + 4j, 1j], [1, 1, 1], 4.0)] * 2


def test_copies(torch, dist):
    def body(group, rank):
        size = group.size()
        x = torch.full((2, 2), float(rank))
        whole = torch.zeros(2 * size, 2)
        group._allgather_base(whole, x, options(dist, "Allgather")).wait()
        assert whole[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        parts = [torch.zeros(r + 1) for r in range(size)]
        group.allgather([parts], [torch.full((rank + 1,), float(rank))], options(dist, "Allgather")).wait()
        assert [part.tolist() for part in parts] == [[0.0], [1.0, 1.0], [2.0, 2.0, 2.0]]
        lists = [[torch.zeros(1), torch.zeros(2)] for _ in range(size)]
        group.allgather_coalesced(lists, [torch.full((1,), rank + 0.5), torch.full((2,), float(rank))]).wait()
        assert [[t.tolist() for t in parts] for parts in lists] == [[[r + 0.5], [r, r]] for r in range(size)]
        outs = [torch.zeros(size), torch.zeros(2 * size)]
        group.allgather_into_tensor_coalesced(outs, [torch.ones(1) * rank, torch.ones(2)]).wait()
        assert outs[0].tolist() == [0.0, 1.0, 2.0]
        gathered = [[torch.zeros(2) for _ in range(size)]] if rank == 1 else []
        group.gather(gathered, [torch.full((2,), float(rank))], options(dist, "Gather", rootRank=1)).wait()
        assert rank != 1 or [t[0].item() for t in gathered[0]] == [0.0, 1.0, 2.0]
        given = [[torch.full((2,), 10.0 + r) for r in range(size)]] if rank == 0 else []
        mine = torch.zeros(2)
        group.scatter([mine], given, options(dist, "Scatter", rootRank=0)).wait()
        assert mine.tolist() == [10.0 + rank] * 2
        traded = torch.zeros(size, dtype=torch.int64)
        group.alltoall_base(traded, torch.arange(size) + 10 * rank, [], [], options(dist, "AllToAll")).wait()
        assert traded.tolist() == [10 * r + rank for r in range(size)]
        # Rank r sends d + 1 elements to rank d.
        sizes, total = [d + 1 for d in range(size)], sum(range(size + 1))
        uneven = torch.zeros(size * (rank + 1))
        group.alltoall_base(
            uneven, torch.full((total,), float(rank)), [rank + 1] * size, sizes, options(dist, "AllToAll")
        ).wait()
        assert uneven.tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
        outputs = [torch.zeros(2) for _ in range(size)]
        group.alltoall(outputs, [torch.full((2,), 10.0 * rank + d) for d in range(size)]).wait()
        group.barrier().wait()
        return [t[0].item() for t in outputs]

    assert good(on_groups(3, body)) == [[r, 10.0 + r, 20.0 + r] for r in range(3)]


def test_work_that_goes_on_keeps_its_order(torch, dist):
    def body(group, rank):
        asynchronous = options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM, asyncOp=True)
        x = torch.ones(1000)
        works = [group.allreduce([x], asynchronous) for _ in range(5)]
        # One that is waited for comes after those that go on.
        group.allreduce([x], options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM)).wait()
        assert all(work.is_completed() and work.is_success() and work.exception() is None for work in works)
        assert x[0].item() == 2.0**6
        future = group.allreduce([x], asynchronous).get_future()
        told = future.then(lambda done: done.value()[0][0].item())
        assert told.wait() == 2.0**7
        last = group.allreduce([x], asynchronous)
        assert last.get_future() is last.get_future()
        assert last.wait(dt.timedelta(seconds=20))
        assert last.result()[0] is x
        return x[0].item()

    assert good(on_groups(2, body)) == [2.0**8] * 2


def test_sends_wait_for_nobody_but_their_receive(torch):
    def body(group, rank):
        peer = 1 - rank
        big, received = torch.full((300_000,), float(rank)), torch.zeros(300_000)
        # Both send first, more than fits between them; collectives go on meanwhile.
        sent = group.send([big], peer, 0)
        other = group.send([torch.full((2,), 10.0 + rank)], peer, 5)
        group.barrier().wait()
        tagged = torch.zeros(2)
        got = group.recv([tagged], peer, 5)
        got.wait()
        group.recv([received], peer, 0).wait()
        sent.wait()
        other.wait()
        with pytest.raises(InvalidProblemError, match="another rank"):
            group.send([big], rank, 0)
        with pytest.raises(UnsupportedError, match="src"):
            group.recv_anysource([big], 0)
        return received[-1].item(), tagged.tolist(), got._source_rank()

    assert good(on_groups(2, body)) == [(1.0, [11.0, 11.0], 1), (0.0, [10.0, 10.0], 0)]


def test_what_is_refused(torch, dist):
    def body(group, rank):
        with pytest.raises(InvalidProblemError, match="1 times the 2"):
            group._reduce_scatter_base(torch.zeros(2), torch.zeros(3))
        with pytest.raises(InvalidProblemError, match="expected 1 times"):
            group._allgather_base(torch.zeros(2), torch.zeros(3))
        with pytest.raises(InvalidOperandError, match="to_dense"):
            group.broadcast([torch.eye(2).to_sparse()], options(dist, "Broadcast"))
        with pytest.raises(UnsupportedError, match="AVG of int16"):
            group.allreduce(
                [torch.ones(1, dtype=torch.int16)], options(dist, "Allreduce", reduceOp=dist.ReduceOp.AVG)
            ).wait()
        group.shutdown()
        with pytest.raises(RocpyError, match="shut down"):
            group.barrier()
        return group.getBackendName(), group.size()

    assert good(on_groups(1, body)) == [("rocpy", 1)]


def misfits(torch, rank):
    """Lists of tensors that do not go with the other operand: where, how, and what the error names."""

    def ones(*sizes, dtype=torch.float32):
        return [torch.ones(size, dtype=dtype) for size in sizes]

    own = [4, 4]
    own[rank] = 5
    yield "scatter", ones(3, 5), r"scatter_list\[0\]: 3 elements.*expected 4 .*output"
    yield "scatter", ones(4, 5), r"scatter_list\[1\]: 5 elements"
    yield "scatter", ones(4, 4, dtype=torch.float64), r"scatter_list\[0\]: .*float64, expected 4 of torch.float32"
    yield "scatter", ones(4), "scatter_list: 1 tensors, expected 2"
    yield "scatter", ones(4, 4, 4), "scatter_list: 3 tensors, expected 2"
    yield "scatter", [], "scatter_list: 0 tensors, expected 2"
    yield "gather", ones(4, 3), r"gather_list\[1\]: 3 elements.*expected 4"
    yield "gather", ones(4, 4, dtype=torch.int32), r"gather_list\[0\]: .*int32"
    yield "gather", ones(4), "gather_list: 1 tensors"
    yield "gather", [], "gather_list: 0 tensors"
    yield "reduce_scatter", ones(*own), rf"input_list\[{rank}\]: 5 elements.*expected 4 .*output"
    yield "reduce_scatter", ones(4), "input_list: 1 tensors"
    yield "reduce_scatter", ones(4, 4, dtype=torch.float64), "input_list.*float64"
    yield "all_gather", ones(*own), rf"tensor_list\[{rank}\]: 5 elements"
    yield "all_gather", ones(4, 4, 4), "tensor_list: 3 tensors"
    yield "all_gather", ones(4, 4, dtype=torch.int16), "tensor_list.*int16"
    yield "all_to_all", ones(*own), rf"output_tensor_list\[{rank}\]: 5 elements.*expected 4 .*input_tensor_list"
    yield "all_to_all", ones(4), "output_tensor_list: 1 tensors"
    yield "all_to_all", ones(4, 4, dtype=torch.int16), "output_tensor_list.*int16"
    yield "sent", ones(4), "input_tensor_list: 1 tensors"
    yield "sent", [*ones(4), *ones(4, dtype=torch.int16)], "input_tensor_list.*int16"


def test_lists_that_do_not_fit_are_refused_before_anybody_waits(torch, dist):
    def body(group, rank):
        x = torch.ones(4)
        calls = {
            "scatter": lambda parts: group.scatter([x], [parts], options(dist, "Scatter", rootRank=rank)),
            "gather": lambda parts: group.gather([parts], [x], options(dist, "Gather", rootRank=rank)),
            "reduce_scatter": lambda parts: group.reduce_scatter([x], [parts], options(dist, "ReduceScatter")),
            "all_gather": lambda parts: group.allgather([parts], [x], options(dist, "Allgather")),
            "all_to_all": lambda parts: group.alltoall(parts, [x, x], options(dist, "AllToAll")),
            "sent": lambda parts: group.alltoall([x, x], parts, options(dist, "AllToAll")),
        }
        for name, parts, message in misfits(torch, rank):
            with pytest.raises(InvalidProblemError, match=message):
                calls[name](parts)
        with pytest.raises(InvalidProblemError, match="2 for 1 inputs"):
            group.allgather_into_tensor_coalesced([x, x], [x])
        with pytest.raises(InvalidProblemError, match="2 for 1 inputs"):
            group.allgather_coalesced([[x, x], [x, x]], [x])
        group.barrier().wait()
        return x.tolist()

    assert good(on_groups(2, body)) == [[1.0] * 4] * 2


def test_a_late_rank_is_named(torch, dist):
    def body(group, rank):
        group.barrier().wait()
        if rank == 1:
            time.sleep(1.0)
            return None
        soon = options(dist, "Allreduce", reduceOp=dist.ReduceOp.SUM, asyncOp=True, timeout=dt.timedelta(seconds=0.2))
        work = group.allreduce([torch.ones(2)], soon)
        with pytest.raises(rccl.CollectiveTimeoutError) as late:
            work.wait()
        assert isinstance(work.exception(), rccl.CollectiveTimeoutError)
        with pytest.raises(rccl.CollectiveTimeoutError, match="rank 1"):
            work.get_future().wait()
        group.abort()
        return late.value.waiting_for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rank 1's group does not end well
        assert on_groups(2, body)[0] == (1,)
