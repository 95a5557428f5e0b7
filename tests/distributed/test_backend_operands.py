# SPDX-License-Identifier: MIT
"""Operands of torch's backend: inputs in the memory of results, strides of one element, subclasses, shared elements."""

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

from rocpy.errors import InvalidArgumentError, InvalidOperandError, InvalidProblemError

pytestmark = pytest.mark.torch


def options(kind, **fields):
    import torch.distributed as dist

    made = getattr(dist.distributed_c10d, f"{kind}Options")()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# ---- inputs in the memory of results: what each gives, and the same of separate memory ----


def same_list(torch, group, rank, size, count):
    blocks = [torch.full((count,), 10.0 * rank + i) for i in range(size)]
    group.alltoall(blocks, blocks).wait()
    return [block.unique().tolist() for block in blocks], [[10.0 * i + rank] for i in range(size)]


def reversed_list(torch, group, rank, size, count):
    blocks = [torch.full((count,), 10.0 * rank + i) for i in range(size)]
    group.alltoall(blocks[::-1], blocks).wait()
    return [block.unique().tolist() for block in blocks[::-1]], [[10.0 * i + rank] for i in range(size)]


def rotated_chunks(torch, group, rank, size, count):
    chunks = list(torch.arange(10.0 * rank, 10.0 * rank + size).repeat_interleave(count).chunk(size))
    outputs = chunks[1:] + chunks[:1]
    group.alltoall(outputs, chunks).wait()
    return [block.unique().tolist() for block in outputs], [[10.0 * i + rank] for i in range(size)]


def one_tensor(torch, group, rank, size, count):
    x = torch.arange(10.0 * rank, 10.0 * rank + size).repeat_interleave(count)
    group.all_to_all_single(x, x).wait()
    return [part.unique().tolist() for part in x.chunk(size)], [[10.0 * i + rank] for i in range(size)]


def part_of_another_rank(torch, group, rank, size, count):
    parts = [torch.full((count,), 10.0 * (rank + 1)) for _ in range(size)]
    output = parts[(rank + 1) % size]
    group.reduce_scatter([output], [parts]).wait()
    return output.unique().tolist(), [10.0 * sum(range(size + 1))]


def chunk_of_another_rank(torch, group, rank, size, count):
    x = torch.full((size * count,), 10.0 * (rank + 1))
    output = x.chunk(size)[(rank + 1) % size]
    group.reduce_scatter_single(output, x).wait()
    return output.unique().tolist(), [10.0 * sum(range(size + 1))]


def gathered_over_its_input(torch, group, rank, size, count):
    whole = torch.full((size * count,), float(rank))
    group.all_gather_single(whole, whole.chunk(size)[(rank + 1) % size]).wait()
    return [part.unique().tolist() for part in whole.chunk(size)], [[float(i)] for i in range(size)]


def gathered_parts_over_their_input(torch, group, rank, size, count):
    source = torch.full((count + rank,), float(rank))
    parts = [torch.zeros(count + i) for i in range(size)]
    parts[0] = source[:count] if rank else source
    group.allgather([parts], [source]).wait()
    return [part.unique().tolist() for part in parts], [[float(i)] for i in range(size)]


OVERLAPPING = (
    *(same_list, reversed_list, rotated_chunks, one_tensor, part_of_another_rank, chunk_of_another_rank),
    *(gathered_over_its_input, gathered_parts_over_their_input),
)


@pytest.mark.parametrize("call", OVERLAPPING, ids=lambda call: call.__name__)
def test_an_input_may_be_in_the_memory_of_a_result(torch, call):
    answers = good(on_groups(2, lambda group, rank: call(torch, group, rank, 2, 100_000)))
    assert [seen for seen, _ in answers] == [expected for _, expected in answers]


# ---- calls on two ranks that write `make(...)`, of one element; each gives what it wrote, and its value ----


def all_reduce(group, rank, make, operator="SUM"):
    import torch.distributed as dist

    x = make(1 + rank)
    group.allreduce([x], options("Allreduce", reduceOp=getattr(dist.ReduceOp, operator))).wait()
    return x, {"SUM": 3, "BOR": 3, "BXOR": 3, "BAND": 0}[operator]


def reduce(group, rank, make):
    import torch.distributed as dist

    x = make(1 + rank)
    group.reduce([x], options("Reduce", reduceOp=dist.ReduceOp.SUM, rootRank=1)).wait()
    return x, 3 if rank == 1 else 1


def reduce_scatter(group, rank, make):
    import torch

    x = make(0)
    group.reduce_scatter_single(x, torch.tensor([1, 2], dtype=x.dtype).repeat_interleave(x.numel())).wait()
    return x, 2 * (rank + 1)


def reduce_scatter_list(group, rank, make):
    x = make(0)
    group.reduce_scatter([x], [[make(1), make(2)]]).wait()
    return x, 2 * (rank + 1)


def broadcast(group, rank, make):
    x = make(1 + rank)
    group.broadcast([x], options("Broadcast", rootRank=1, rootTensor=0)).wait()
    return x, 2


def all_gather(group, rank, make):
    parts = [make(0), make(0)]
    group.allgather([parts], [make(1 + rank)]).wait()
    return parts[1], 2


def all_gather_single(group, rank, make):
    import torch

    x = make(1 + rank)
    whole = torch.zeros(2, dtype=x.dtype)
    group.all_gather_single(whole, x).wait()
    return whole[1], 2


def all_to_all(group, rank, make):
    parts = [make(0), make(0)]
    group.alltoall(parts, [make(1 + rank), make(1 + rank)]).wait()
    return parts[1], 2


def gather(group, rank, make):
    targets = [make(0), make(0)]
    group.gather([targets] if rank == 0 else [], [make(1 + rank)], options("Gather", rootRank=0)).wait()
    return targets[1], 2 if rank == 0 else 0


def scatter(group, rank, make):
    x = make(0)
    group.scatter([x], [[make(1), make(2)]] if rank == 0 else [], options("Scatter", rootRank=0)).wait()
    return x, 1 + rank


def transfer(group, rank, make):
    x = make(2 * (1 - rank))
    (group.send if rank == 0 else group.recv)([x], 1 - rank, 0).wait()
    return x, 2


MOVES = (broadcast, all_gather, all_gather_single, all_to_all, gather, scatter, transfer)
SUMS = (all_reduce, reduce, reduce_scatter, reduce_scatter_list)


def check_calls(torch, calls, make):
    def body(group, rank):
        wrong = []
        for call in calls:
            x, expected = call(group, rank, make)
            if (seen := x.detach().flatten().tolist()) != [expected]:
                wrong.append((call.__name__, seen, expected))
        return wrong

    assert good(on_groups(2, body)) == [[], []]


def strided(torch, dtype):
    """Return how to make a tensor of one element whose stride is that of a column."""

    def make(value):
        column = torch.full((1, 4), value, dtype=dtype)[:, 0]
        assert column.stride() == (4,)
        return column

    return make


@pytest.mark.parametrize("name", ["float32", "int16", "uint16", "complex64", "int32"])
def test_one_element_may_have_any_stride(torch, name):
    check_calls(torch, [*MOVES, *SUMS], strided(torch, getattr(torch, name)))


@pytest.mark.parametrize("operator", ["BAND", "BOR", "BXOR"])
@pytest.mark.parametrize("name", ["uint8", "int16", "int32", "int64"])
def test_bitwise_operators_of_one_strided_element(torch, name, operator):
    def call(group, rank, make):
        return all_reduce(group, rank, make, operator)

    check_calls(torch, [call], strided(torch, getattr(torch, name)))


def subclass(torch, dtype):
    class Own(torch.Tensor):
        pass

    return lambda value: torch.full((1,), value, dtype=dtype).as_subclass(Own)


def parameter(torch, dtype):
    return lambda value: torch.nn.Parameter(torch.full((1,), value, dtype=dtype), requires_grad=dtype.is_floating_point)


def inference(torch, dtype):
    def make(value):
        with torch.inference_mode():
            return torch.full((1,), value, dtype=dtype)

    return make


@pytest.mark.parametrize("name", ["float32", "int16", "complex64", "uint8"])
@pytest.mark.parametrize("kind", [subclass, parameter, inference])
def test_tensors_with_memory_are_taken_whatever_their_class(torch, name, kind):
    with torch.no_grad():
        check_calls(torch, [*MOVES, *SUMS], kind(torch, getattr(torch, name)))


@pytest.mark.parametrize("name", ["float32", "int16", "bool"])
@pytest.mark.parametrize("call", [*MOVES, *SUMS], ids=lambda call: call.__name__)
def test_tensors_that_wrap_others_are_refused_before_the_call(torch, name, call):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.ones(1, dtype=getattr(torch, name)))

    def body(group, rank):
        with pytest.raises(InvalidOperandError, match="fake tensor"):
            call(group, rank, lambda value: fake)
        group.barrier().wait()

    good(on_groups(2, body))


@pytest.mark.parametrize("name", ["float32", "int16"])
@pytest.mark.parametrize("call", [*SUMS, broadcast, all_gather, all_to_all, scatter], ids=lambda call: call.__name__)
def test_results_whose_elements_share_memory_are_refused_before_the_call(torch, name, call):
    def body(group, rank):
        with pytest.raises(InvalidOperandError, match=r"(tensor|output|list\[0\]): shape \(4,\) with strides \(0,\)"):
            call(group, rank, lambda value: torch.full((1,), value, dtype=getattr(torch, name)).expand(4))
        group.barrier().wait()

    good(on_groups(2, body))


def test_a_receive_and_the_root_of_a_gather_name_the_result(torch):
    def body(group, rank):
        expanded = torch.ones(1).expand(4)
        with pytest.raises(InvalidOperandError, match=r"tensor: shape \(4,\)"):
            group.recv([expanded], 1 - rank, 0)
        with pytest.raises(InvalidOperandError, match=r"gather_list\[1\]: shape \(4,\)"):
            group.gather([[torch.ones(4), expanded]], [torch.ones(4)], options("Gather", rootRank=rank))
        # What is only read may be expanded.
        parts = [torch.zeros(4), torch.zeros(4)]
        group.allgather([parts], [expanded]).wait()
        return [part.tolist() for part in parts]

    assert good(on_groups(2, body)) == [[[1.0] * 4] * 2] * 2


def test_a_part_of_its_own_that_differs_is_refused_before_the_call(torch):
    def body(group, rank):
        for rows, splits in (((4, 6), (None, None)), ((3, 3), ([1, 2], [2, 1]))):
            output, source = map(torch.zeros, rows)
            with pytest.raises(
                InvalidProblemError, match=f"output: . rows for what this rank, {rank}, sends to itself"
            ):
                group.all_to_all_single(output, source, *splits)
        group.barrier().wait()

    good(on_groups(2, body))


def test_a_rank_that_there_is_not_has_torchs_name(torch):
    def body(group, rank):
        x = torch.ones(2)
        for name, call in {
            "src": lambda: group.broadcast([x], options("Broadcast", rootRank=7)),
            "dst": lambda: group.reduce([x], options("Reduce", rootRank=7)),
        }.items():
            with pytest.raises(InvalidArgumentError, match=f"^{name}: got 7, expected a rank from 0 to 0$"):
                call()
        with pytest.raises(InvalidArgumentError, match="^dst: got 7"):
            group.gather([[x]], [x], options("Gather", rootRank=7))
        with pytest.raises(InvalidArgumentError, match="^src: got 7"):
            group.scatter([x], [[x]], options("Scatter", rootRank=7))
        with pytest.raises(InvalidOperandError, match=r"torch.empty_like\(tensor, device='cpu'\)"):
            group.allreduce([x.to("meta")])

    good(on_groups(1, body))
