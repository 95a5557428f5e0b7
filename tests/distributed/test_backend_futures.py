# SPDX-License-Identifier: MIT
"""Futures of torch's backend: those that DDP's hooks in C++ read, and those that Python reads."""

import pytest

from rocpy.errors import CollectiveTimeoutError

pytestmark = pytest.mark.torch


@pytest.fixture
def dist(torch):
    """A default group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("hook", ["FP16_COMPRESS", "ALLREDUCE", None])
def test_ddp_averages_gradients_with_its_own_hooks(torch, dist, hook, dtype):
    network = torch.nn.Linear(4, 3, bias=False, dtype=getattr(torch, dtype))
    module = torch.nn.parallel.DistributedDataParallel(network)
    if hook is not None:
        module._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, hook))
    for _ in range(3):
        module.zero_grad()
        module(torch.ones(2, 4, dtype=network.weight.dtype)).sum().backward()
        assert network.weight.grad.tolist() == [[2.0] * 4] * 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_python_reads_the_tensors(torch, dist, dtype, goes_on):
    x = torch.ones(2, dtype=getattr(torch, dtype))
    opts = dist.AllreduceOptions()
    opts.asyncOp = goes_on
    future = dist.group.WORLD.allreduce([x], opts).get_future()
    assert future.wait()[0] is x
    assert future.then(lambda done: done.value()[0].sum().item()).wait() == 2.0


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_future_of_cpp_waits_for_the_operation_and_fails_with_it(torch, is_early, fails):
    from rocpy.torch.process_group.futures import future_of_list
    from rocpy.torch.process_group.lanes import LaneWork

    x = torch.ones(2, dtype=torch.float16)
    work = LaneWork([x])
    if not is_early:
        work.finish(CollectiveTimeoutError("late") if fails else None)
    future = future_of_list(work)
    if is_early:
        assert not future.done()
        work.finish(CollectiveTimeoutError("late") if fails else None)
    if fails:
        with pytest.raises(RuntimeError, match="the collective failed"):
            future.wait()
    else:
        assert future.wait()[0] is x
