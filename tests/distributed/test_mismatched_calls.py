# SPDX-License-Identifier: MIT
"""Ranks of torch's backend whose tensors or operators differ: every rank raises, and is shown what was called."""

import warnings

import pytest
from torch_ranks import on_groups

from rocpy.errors import CollectiveMismatchError, RemoteError

pytestmark = pytest.mark.torch


def all_reduce(group, torch, operator, values, dtype):
    """All-reduce values, by the names of the operator and of their type."""
    import torch.distributed as dist

    opts = dist.AllreduceOptions()
    opts.reduceOp = getattr(dist.ReduceOp, operator)
    x = torch.tensor(values, dtype=getattr(torch, dtype))
    group.allreduce([x], opts).wait()
    return x.tolist()


def all_reduce_sparse(group, torch, values, dtype):
    x = torch.tensor(values, dtype=getattr(torch, dtype)).to_sparse()
    group.allreduce([x]).wait()


def reduce(group, torch, operator, values, dtype):
    import torch.distributed as dist

    opts = dist.ReduceOptions()
    opts.reduceOp, opts.rootRank = getattr(dist.ReduceOp, operator), 1
    group.reduce([torch.tensor(values, dtype=getattr(torch, dtype))], opts).wait()


def reduce_scatter(group, torch, operator, values, dtype):
    import torch.distributed as dist

    opts = dist.ReduceScatterOptions()
    opts.reduceOp = getattr(dist.ReduceOp, operator)
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.reduce_scatter_single(source.new_zeros(len(values) // 2), source, opts).wait()


def reduce_scatter_list(group, torch, operator, values, dtype):
    import torch.distributed as dist

    opts = dist.ReduceScatterOptions()
    opts.reduceOp = getattr(dist.ReduceOp, operator)
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.reduce_scatter([source.new_zeros(len(values))], [[source, source]], opts).wait()


def broadcast(group, torch, values, dtype):
    import torch.distributed as dist

    opts = dist.BroadcastOptions()
    opts.rootRank, opts.rootTensor = 0, 0
    group.broadcast([torch.tensor(values, dtype=getattr(torch, dtype))], opts).wait()


def all_gather(group, torch, values, dtype):
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.allgather([[torch.zeros_like(source) for _ in range(2)]], [source]).wait()


def all_gather_uneven(group, torch, values, dtype):
    source = torch.tensor(values[: len(values) - group.rank()], dtype=getattr(torch, dtype))
    group.allgather([[source.new_zeros(len(values) - rank) for rank in range(2)]], [source]).wait()


def all_gather_single(group, torch, values, dtype):
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.all_gather_single(source.new_zeros(2 * len(values)), source).wait()


def gather(group, torch, values, dtype):
    import torch.distributed as dist

    opts = dist.GatherOptions()
    opts.rootRank = 0
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.gather([[torch.zeros_like(source) for _ in range(2)]] if group.rank() == 0 else [], [source], opts).wait()


def scatter(group, torch, values, dtype):
    import torch.distributed as dist

    opts = dist.ScatterOptions()
    opts.rootRank = 0
    target = torch.tensor(values, dtype=getattr(torch, dtype))
    group.scatter([target], [[target.clone() for _ in range(2)]] if group.rank() == 0 else [], opts).wait()


def all_to_all(group, torch, values, dtype):
    source = torch.tensor(values, dtype=getattr(torch, dtype))
    group.all_to_all_single(torch.zeros_like(source), source).wait()


def barrier(group, torch):
    group.barrier().wait()


# Of each rank: a call and its arguments, and how it is shown.
CASES = {
    "bitwise operators": (
        (all_reduce, "BXOR", [3, 3], "int32", "all_reduce(count=2, dtype=int32, op=bxor)"),
        (all_reduce, "BAND", [3, 3], "int32", "all_reduce(count=2, dtype=int32, op=band)"),
    ),
    "bitwise, elements of other sizes": (
        (all_reduce, "BXOR", [5, 5], "int64", "all_reduce(count=2, dtype=int64, op=bxor)"),
        (all_reduce, "BXOR", [3, 3, 3, 3], "int32", "all_reduce(count=4, dtype=int32, op=bxor)"),
    ),
    "bitwise, signs": (
        (all_reduce, "BOR", [1], "int16", "all_reduce(count=1, dtype=int16, op=bor)"),
        (all_reduce, "BOR", [1], "uint16", "all_reduce(count=1, dtype=uint16, op=bor)"),
    ),
    "bitwise, booleans": (
        (all_reduce, "BXOR", [True], "bool", "all_reduce(count=1, dtype=bool, op=bxor)"),
        (all_reduce, "BAND", [True], "bool", "all_reduce(count=1, dtype=bool, op=band)"),
    ),
    "bitwise, no elements on one rank": (
        (all_reduce, "BXOR", [], "int32", "all_reduce(count=0, dtype=int32, op=bxor)"),
        (all_reduce, "BXOR", [1], "int32", "all_reduce(count=1, dtype=int32, op=bxor)"),
    ),
    "bitwise and not": (
        (all_reduce, "BAND", [1], "uint8", "all_reduce(count=1, dtype=uint8, op=band)"),
        (all_reduce, "MIN", [1], "uint8", "all_reduce(count=1, dtype=uint8, op=min)"),
    ),
    "a gather of bytes, and a bitwise operator": (
        (all_reduce, "BAND", [1], "uint8", "all_reduce(count=1, dtype=uint8, op=band)"),
        (all_gather, [1], "uint8", "all_gather(count=1, dtype=uint8)"),
    ),
    "a widened type": (
        (all_reduce, "SUM", [100_000], "int32", "all_reduce(count=1, dtype=int32, op=sum)"),
        (all_reduce, "SUM", [30_000], "int16", "all_reduce(count=1, dtype=int16, op=sum)"),
    ),
    "two widened types": (
        (all_reduce, "MAX", [3], "uint16", "all_reduce(count=1, dtype=uint16, op=max)"),
        (all_reduce, "MAX", [3], "int16", "all_reduce(count=1, dtype=int16, op=max)"),
    ),
    "pairs of floats": (
        (all_reduce, "SUM", [1, 1], "complex64", "all_reduce(count=2, dtype=complex64, op=sum)"),
        (all_reduce, "SUM", [1, 1, 1, 1], "float32", "all_reduce(count=4, dtype=float32, op=sum)"),
    ),
    "bytes and booleans": (
        (all_reduce, "MAX", [7, 0], "uint8", "all_reduce(count=2, dtype=uint8, op=max)"),
        (all_reduce, "SUM", [True, False], "bool", "all_reduce(count=2, dtype=bool, op=sum)"),
    ),
    "operators that are one of booleans": (
        (all_reduce, "MAX", [True], "bool", "all_reduce(count=1, dtype=bool, op=max)"),
        (all_reduce, "SUM", [True], "bool", "all_reduce(count=1, dtype=bool, op=sum)"),
    ),
    "sparse": (
        (all_reduce_sparse, [0, 1], "uint8", "all_reduce(sparse, dtype=uint8, op=sum)"),
        (all_reduce_sparse, [0, 1], "int8", "all_reduce(sparse, dtype=int8, op=sum)"),
    ),
    "reduce": (
        (reduce, "SUM", [1], "int16", "reduce(count=1, dtype=int16, op=sum, root=1)"),
        (reduce, "SUM", [1], "int32", "reduce(count=1, dtype=int32, op=sum, root=1)"),
    ),
    "reduce, bitwise": (
        (reduce, "BOR", [1], "int32", "reduce(count=1, dtype=int32, op=bor, root=1)"),
        (reduce, "BXOR", [1], "int32", "reduce(count=1, dtype=int32, op=bxor, root=1)"),
    ),
    "reduce_scatter": (
        (reduce_scatter, "SUM", [1, 2], "complex64", "reduce_scatter(count=1, dtype=complex64, op=sum)"),
        (reduce_scatter, "SUM", [1, 2, 3, 4], "float32", "reduce_scatter(count=2, dtype=float32, op=sum)"),
    ),
    "reduce_scatter, bitwise": (
        (reduce_scatter, "BXOR", [1, 2], "int64", "reduce_scatter(count=1, dtype=int64, op=bxor)"),
        (reduce_scatter, "BXOR", [1, 2, 3, 4], "int32", "reduce_scatter(count=2, dtype=int32, op=bxor)"),
    ),
    "reduce_scatter of lists": (
        (reduce_scatter_list, "BOR", [1, 2], "int16", "reduce(count=2, dtype=int16, op=bor, root=0)"),
        (reduce_scatter_list, "BOR", [1, 2], "uint16", "reduce(count=2, dtype=uint16, op=bor, root=0)"),
    ),
    "broadcast": (
        (broadcast, [-1, 5], "int16", "broadcast(count=2, dtype=int16, root=0)"),
        (broadcast, [0, 0, 0, 0], "uint8", "broadcast(count=4, dtype=uint8, root=0)"),
    ),
    "all_gather": (
        (all_gather, [65535, 1], "uint16", "all_gather(count=2, dtype=uint16)"),
        (all_gather, [-1, 1], "int16", "all_gather(count=2, dtype=int16)"),
    ),
    "all_gather of parts that differ in size": (
        (all_gather_uneven, [1, 2], "uint16", "broadcast(count=2, dtype=uint16, root=0)"),
        (all_gather_uneven, [1, 2], "int16", "broadcast(count=2, dtype=int16, root=0)"),
    ),
    "all_gather into one tensor": (
        (all_gather_single, [7, 7], "uint8", "all_gather(count=2, dtype=uint8)"),
        (all_gather_single, [True, True], "bool", "all_gather(count=2, dtype=bool)"),
    ),
    "gather": (
        (gather, [7], "uint8", "gather(count=1, dtype=uint8, root=0)"),
        (gather, [True], "bool", "gather(count=1, dtype=bool, root=0)"),
    ),
    "scatter": (
        (scatter, [1], "int16", "scatter(count=1, dtype=int16, root=0)"),
        (scatter, [1], "uint16", "scatter(count=1, dtype=uint16, root=0)"),
    ),
    "all_to_all": (
        (all_to_all, [1, 1], "int16", "all_to_all_v(rows of 1 elements, dtype=int16)"),
        (all_to_all, [1, 1, 1, 1], "uint8", "all_to_all_v(rows of 1 elements, dtype=uint8)"),
    ),
    "a barrier, and the all-reduce of which it is made": (
        (barrier, "barrier()"),
        (all_reduce, "MAX", [0], "uint8", "all_reduce(count=1, dtype=uint8, op=max)"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_rank_is_shown_what_was_called(torch, name):
    calls = CASES[name]

    def body(group, rank):
        group.barrier().wait()
        call, *arguments, _ = calls[rank]
        try:
            answer = call(group, torch, *arguments)
        except CollectiveMismatchError as error:
            return tuple(text.rsplit(", number", 1)[0] for text in error.signatures)
        finally:
            group.abort()
        return answer

    assert on_groups(2, body) == [tuple(arguments[-1] for arguments in calls)] * 2


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (([True, False], "bool"), ([0, 0], "uint8")),
        (([1, 2, 3, 4], "uint8"), ([0, 0], "int16")),
        (([1], "int16"), ([1], "uint16")),
    ],
)
def test_a_receive_of_another_type_is_shown_both_calls(torch, sent, received):
    def body(group, rank):
        values, dtype = (sent, received)[rank]
        x = torch.tensor(values, dtype=getattr(torch, dtype))
        try:
            (group.send if rank == 0 else group.recv)([x], 1 - rank).wait()
        except CollectiveMismatchError as error:
            return error.signatures
        except RemoteError:
            pass  # the sender, if the receiver was sooner
        finally:
            group.abort()
        return None

    expected = [
        f"{call}(count={len(values)}, dtype={dtype})"
        for call, (values, dtype) in zip(("send", "recv"), (sent, received), strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert on_groups(2, body) == [None, tuple(expected)]


def test_a_description_does_not_outlast_its_call(torch):
    from rocpy.torch.process_group import calls

    def body(group, rank):
        assert all_reduce(group, torch, "BXOR", [1 + rank], "int16") == [3]
        # Rank 0 makes a described call that is refused before it is given to RCCL.
        if rank == 0:
            with pytest.raises(ValueError, match="root"):
                calls.broadcast(group.communicator, torch.ones(1, dtype=torch.int16), 2, {})
        return group.communicator.all_reduce(torch.ones(1)).tolist()

    assert on_groups(2, body) == [[2.0]] * 2
