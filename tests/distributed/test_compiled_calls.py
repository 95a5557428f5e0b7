# SPDX-License-Identifier: MIT
"""Collectives of torch's backend in functions that torch compiles: the compiler leaves them as they are."""

import pytest

from rocpy.errors import InvalidProblemError

pytestmark = [
    pytest.mark.torch,
    # The compiler's own words about torch.distributed.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def dist(torch):
    """A default group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()
    torch._dynamo.reset()


def gather(dist, x):
    parts = [x + 1]
    dist.gather(x, parts, 0)
    return parts[0]


def all_gather(dist, x):
    parts = [x + 1]
    dist.all_gather(parts, x)
    return parts[0]


def all_to_all(dist, x):
    parts = [x + 1]
    dist.all_to_all(parts, [x])
    return parts[0]


def all_to_all_single(dist, x):
    y = x + 1
    dist.all_to_all_single(y, x)
    return y


def reduce_scatter(dist, x):
    y = x + 1
    dist.reduce_scatter(y, [x])
    return y


def scatter(dist, x):
    y = x + 1
    dist.scatter(y, [x], 0)
    return y


def in_place(name, *arguments, **settings):
    def call(dist, x):
        work = getattr(dist, name)(x, *arguments, **settings)
        if work is not None:
            work.wait()
        return x

    call.__name__ = "_".join([name, *settings])
    return call


def barrier(dist, x):
    dist.barrier()
    return x


CALLS = (
    *(in_place("broadcast", 0), in_place("reduce", 0), in_place("all_reduce"), in_place("all_reduce", async_op=True)),
    *(gather, all_gather, all_to_all, all_to_all_single, reduce_scatter, scatter, barrier),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_compiled_function_calls_collectives(torch, dist, call):
    compiled = torch.compile(lambda x: call(dist, x * 2) + 1, backend="eager")
    for value in (1.0, 2.0):
        assert compiled(torch.full((2,), value)).tolist() == [2 * value + 1] * 2


@pytest.mark.parametrize("name", ["send", "recv", "isend", "irecv"])
def test_a_compiled_transfer_reaches_the_backend(torch, dist, name):
    compiled = torch.compile(lambda x: getattr(dist, name)(x * 2, 0), backend="eager")
    with pytest.raises((InvalidProblemError, ValueError), match="peer|rank"):  # this rank has no other
        compiled(torch.ones(2))


def test_a_compiled_ddp_module_takes_several_steps(torch, dist):
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4, bias=False))
    compiled = torch.compile(module, backend="eager")
    for _ in range(3):
        module.zero_grad()
        compiled(torch.ones(2, 4)).sum().backward()
        assert module.module.weight.grad.unique().tolist() == [2.0]
