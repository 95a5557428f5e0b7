# SPDX-License-Identifier: MIT
"""Collectives of torch's backend, whoever calls them: under torch's modes, in a callback, in a forked child."""

import datetime as dt
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

from rocpy.errors import UnsupportedError

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]


@pytest.fixture
def dist(torch):
    import torch.distributed

    return torch.distributed


def options(dist, kind, is_asynchronous, **fields):
    made = getattr(dist.distributed_c10d, f"{kind}Options")()
    for name, value in (*fields.items(), ("asyncOp", is_asynchronous)):
        if hasattr(made, name):
            setattr(made, name, value)
    return made


# ---- the collectives: called with the group, a rank, how tensors are made, and whether the call goes on ----


def all_reduce(dist, group, rank, make, goes_on):
    x = make([1.0, 2.0])
    group.allreduce([x], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
    return x.tolist() == [2.0, 4.0]


def strided(dist, group, rank, make, goes_on):
    x = make([[1.0, 2.0], [3.0, 4.0]])[:, ::2]
    group.allreduce([x], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
    return x.tolist() == [[2.0], [6.0]]


def widened(dist, group, rank, make, goes_on):
    import torch

    x = make([1, 2], torch.int16)
    group.allreduce([x], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
    return x.tolist() == [2, 4]


def bitwise(dist, group, rank, make, goes_on):
    import torch

    x = make([1 + rank], torch.int32)
    group.allreduce([x], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.BOR)).wait()
    return x.tolist() == [3]


def sparse(dist, group, rank, make, goes_on):
    x = make([0.0, 1.0 + rank]).to_sparse()
    group.allreduce([x], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
    return x.to_dense().tolist() == [0.0, 3.0]


def reduce(dist, group, rank, make, goes_on):
    x = make([1.0])
    group.reduce([x], options(dist, "Reduce", goes_on, reduceOp=dist.ReduceOp.SUM, rootRank=1)).wait()
    return x.tolist() == [1.0 + rank]


def broadcast(dist, group, rank, make, goes_on):
    x = make([float(rank)])
    group.broadcast([x], options(dist, "Broadcast", goes_on, rootRank=1)).wait()
    return x.tolist() == [1.0]


def all_gather(dist, group, rank, make, goes_on):
    parts = [make([0.0]), make([0.0])]
    group.allgather([parts], [make([float(rank)])], options(dist, "Allgather", goes_on)).wait()
    return [part.tolist() for part in parts] == [[0.0], [1.0]]


def gather(dist, group, rank, make, goes_on):
    targets = [[make([0.0]), make([0.0])]] if rank == 0 else []
    group.gather(targets, [make([float(rank)])], options(dist, "Gather", goes_on, rootRank=0)).wait()
    return rank == 1 or [part.tolist() for part in targets[0]] == [[0.0], [1.0]]


def scatter(dist, group, rank, make, goes_on):
    x = make([9.0])
    parts = [[make([0.0]), make([1.0])]] if rank == 0 else []
    group.scatter([x], parts, options(dist, "Scatter", goes_on, rootRank=0)).wait()
    return x.tolist() == [float(rank)]


def reduce_scatter(dist, group, rank, make, goes_on):
    x = make([0.0])
    parts = make([1.0, 2.0])
    group._reduce_scatter_base(x, parts, options(dist, "ReduceScatter", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
    return x.tolist() == [2.0 * (rank + 1)]


def all_to_all(dist, group, rank, make, goes_on):
    x = make([0.0, 0.0])
    group.alltoall_base(x, make([1.0, 2.0]), [], [], options(dist, "AllToAll", goes_on)).wait()
    return x.tolist() == [1.0 + rank] * 2


def transfer(dist, group, rank, make, goes_on):
    x = make([[1.0, 2.0], [3.0, 4.0]] if rank == 0 else [[0.0, 0.0], [0.0, 0.0]])[:, ::2]
    (group.send if rank == 0 else group.recv)([x], 1 - rank, 0).wait()
    return x.tolist() == [[1.0], [3.0]]


def barrier(dist, group, rank, make, goes_on):
    return group.barrier(options(dist, "Barrier", goes_on)).wait()


COLLECTIVES = (
    *(all_reduce, strided, widened, bitwise, sparse, reduce, broadcast, all_gather, gather, scatter),
    *(reduce_scatter, all_to_all, transfer, barrier),
)


def dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return Watching()


def function_mode():
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return Watching()


def flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)


MODES = {
    "autocast": lambda torch: torch.autocast("cpu", dtype=torch.bfloat16),
    "a dispatch mode": lambda torch: dispatch_mode(),
    "a flop counter": lambda torch: flop_counter(),
    "a function mode": lambda torch: function_mode(),
    "a default device": lambda torch: torch.device("meta"),
    "inference mode": lambda torch: torch.inference_mode(),
    "no grad": lambda torch: torch.no_grad(),
}


@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
@pytest.mark.parametrize("mode", MODES)
def test_collectives_under_torchs_modes(torch, dist, mode, goes_on):
    def body(group, rank):
        def make(values, dtype=torch.float32):
            return torch.tensor(values, dtype=dtype, device="cpu")

        with MODES[mode](torch):
            return [call.__name__ for call in COLLECTIVES if not call(dist, group, rank, make, goes_on)]

    assert good(on_groups(2, body)) == [[], []]


@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
def test_what_is_coalesced_in_inference_mode(torch, dist, goes_on):
    def body(group, rank):
        with torch.inference_mode():
            x, y = torch.ones(2), torch.ones(3)
            group._start_coalescing(torch.device("cpu"))
            for tensor in (x, y):
                group.allreduce([tensor], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM))
            group._end_coalescing(torch.device("cpu")).wait()
            return x.tolist() + y.tolist()

    assert good(on_groups(2, body)) == [[2.0] * 5] * 2


def test_an_exception_ends_a_block_of_coalesced_calls(torch, dist):
    cpu = torch.device("cpu")

    def body(group, rank):
        root = options(dist, "Broadcast", False, rootRank=1)

        def fail():
            with dist._coalescing_manager(group, device=cpu):
                assert group.broadcast([torch.ones(2)], root) is None
                raise KeyError("user")

        with pytest.raises(KeyError):
            fail()
        dist.distributed_c10d._world.pg_coalesce_state.pop(group)  # torch's own record of the block, which stays
        x, y = (torch.full((size,), float(rank)) for size in (2, 3))
        assert group.broadcast([x], root).wait()
        with dist._coalescing_manager(group, device=cpu):
            assert group.broadcast([y], root) is None
        return x.tolist() + y.tolist()

    assert good(on_groups(2, body)) == [[1.0] * 5] * 2


def test_a_block_of_coalesced_calls_is_of_one_thread(torch, dist):
    def body(group, rank):
        group._start_coalescing(torch.device("cpu"))
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lambda: group.allreduce([torch.ones(2)]).wait()).result()
        return group._end_coalescing(torch.device("cpu")).result()

    assert good(on_groups(1, body)) == [[]]


@pytest.mark.parametrize("goes_on", [False, True], ids=["waits", "goes on"])
def test_a_trace_does_not_lose_a_collective(torch, dist, goes_on):
    from torch.fx.experimental.proxy_tensor import make_fx

    def body(group, rank):
        def reduced(x):
            y = torch.ones(2)
            group.allreduce([y], options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM)).wait()
            return x + y

        def received(x):
            y = torch.ones(2)
            group.recv([y], 1 - rank, 0).wait()
            return x + y

        for function in (reduced, received) if rank == 0 else ():  # torch traces on one thread at a time
            with pytest.raises(UnsupportedError, match="make_fx"):
                make_fx(function)(torch.ones(2))
            with pytest.raises(UnsupportedError, match=r"jit\.trace"):
                torch.jit.trace(function, torch.ones(2))
        return "refused"

    assert good(on_groups(2, body)) == ["refused"] * 2


# ---- callbacks ----


def waits_by_itself(group, asynchronous, waiting, x):
    group.allreduce([x], waiting).wait()


def waits_for_a_work(group, asynchronous, waiting, x):
    group.allreduce([x], asynchronous).wait()


def waits_for_a_future(group, asynchronous, waiting, x):
    group.allreduce([x], asynchronous).get_future().wait()


def waits_in_its_callback(group, asynchronous, waiting, x):
    def inner(_):
        group.allreduce([torch_of(x).zeros(1)], asynchronous).get_future().wait()

    group.allreduce([x], asynchronous).get_future().then(inner).wait()


def torch_of(x):
    return sys.modules[type(x).__module__]


WAITS = (waits_by_itself, waits_for_a_work, waits_for_a_future, waits_in_its_callback)


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
def test_a_callback_waits_for_another_collective(torch, dist, wait):
    def body(group, rank):
        asynchronous, waiting = (
            options(dist, "Allreduce", goes_on, reduceOp=dist.ReduceOp.SUM) for goes_on in (True, False)
        )
        x, y = torch.ones(2), torch.ones(2)

        def callback(done):
            wait(group, asynchronous, waiting, y)
            return done.value()[0].tolist() + y.tolist()

        return group.allreduce([x], asynchronous).get_future().then(callback).wait()

    assert good(on_groups(2, body)) == [[2.0] * 4] * 2


def test_a_callback_waits_for_a_future_that_was_asked_for_before(torch, dist):
    from rocpy.torch.process_group.lanes import LaneWork

    def body(group, rank):
        asynchronous = options(dist, "Allreduce", True, reduceOp=dist.ReduceOp.SUM)
        x, y, gate = torch.ones(2), torch.ones(2), threading.Event()
        group._main.run(lambda comm, how: gate.wait(10), LaneWork([]), 20.0, is_asynchronous=True)
        futures = [group.allreduce([tensor], asynchronous).get_future() for tensor in (x, y)]
        told = futures[0].then(lambda done: futures[1].wait()[0].tolist())
        gate.set()
        return told.wait()

    assert good(on_groups(2, body)) == [[2.0, 2.0]] * 2


def test_futures_are_completed_in_the_order_of_the_calls(torch, dist):
    def body(group, rank):
        asynchronous = options(dist, "Allreduce", True, reduceOp=dist.ReduceOp.SUM)
        seen, threads = [], set()
        tensors = [torch.ones(1000) for _ in range(30)]
        works = [group.allreduce([x], asynchronous) for x in tensors]

        def note(i):
            seen.append(i)
            threads.add(threading.current_thread().name)

        # Of those that had ended before, at once.
        futures = [work.get_future().then(lambda _, i=i: note(i)) for i, work in enumerate(works)]
        for work, future in zip(works, futures, strict=True):
            work.wait()
            assert work.get_future().done()
            future.wait()
        assert not any(name.startswith("rocpy collectives") for name in threads)
        return seen

    for seen in good(on_groups(2, body)):
        assert seen == list(range(30))


def test_who_has_waited_may_read_the_future(torch, dist):
    def body(group, rank):
        for _ in range(50):
            work = group.allreduce([torch.ones(1)], options(dist, "Allreduce", True, reduceOp=dist.ReduceOp.SUM))
            future = work.get_future()
            assert work.wait(dt.timedelta(seconds=20))
            assert future.value()[0].item() == 2.0
        return "read"

    assert good(on_groups(2, body)) == ["read"] * 2


@pytest.mark.parametrize("how", ["a work", "what is coalesced"])
def test_a_wait_ends_where_nothing_moves(torch, dist, monkeypatch, how):
    from rocpy.rccl import CollectiveTimeoutError
    from rocpy.torch.process_group import lanes

    monkeypatch.setattr(lanes, "SLACK_S", 0.1)

    def body(group, rank):
        asynchronous = options(dist, "Allreduce", True, timeout=dt.timedelta(seconds=0.2))
        gate, x = threading.Event(), torch.ones(2)
        group._main.run(lambda comm, how: gate.wait(10), lanes.LaneWork([]), 0.2, is_asynchronous=True)
        if how == "a work":
            work = group.allreduce([x], asynchronous)
        else:
            group._start_coalescing(torch.device("cpu"))
            group.allreduce([x], asynchronous)
            work = group._end_coalescing(torch.device("cpu"))
        with pytest.raises(CollectiveTimeoutError, match="neither did any before it"):
            work.wait()
        gate.set()
        return work.wait(dt.timedelta(seconds=10))

    assert good(on_groups(1, body)) == [True]


def test_a_wait_goes_on_while_others_move(torch, dist, monkeypatch):
    from rocpy.torch.process_group import lanes

    monkeypatch.setattr(lanes, "SLACK_S", 0.2)

    def body(group, rank):
        for _ in range(10):  # together longer than one may stand still
            group._main.run(lambda comm, how: time.sleep(0.1), lanes.LaneWork([]), 0.1, is_asynchronous=True)
        work = group.allreduce([torch.ones(2)], options(dist, "Allreduce", True))
        return work.wait()

    assert good(on_groups(1, body)) == [True]


# ---- forks ----

FORKED = """
import datetime, os, signal, sys, threading
import torch, torch.distributed as dist
from rocpy.errors import ClosedError
began, let_go = threading.Event(), threading.Event()
dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1, timeout=datetime.timedelta(seconds=3))
x = torch.ones(2)
dist.all_reduce(x, async_op=True).wait()
group = dist.group.WORLD
{before}
for call in {calls!r}:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            exec(call)
        except ClosedError as error:
            assert "fork" in str(error), error
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, (call, status)
let_go.set()
dist.all_reduce(x)
dist.destroy_process_group()
"""
# A job that has begun and one behind it, as the fork finds them.
GOING_ON = """
def job(comm, how):
    began.set()
    let_go.wait(60)
from rocpy.torch.process_group.lanes import LaneWork
work = group._main.run(job, LaneWork([]), 3.0, is_asynchronous=True)
began.wait(10)
"""
CALLS = [
    "dist.all_reduce(x)",
    "dist.all_reduce(x, async_op=True).wait()",
    "dist.all_reduce(x, async_op=True).get_future().wait()",
    "dist.barrier()",
    "group._own_size = 2; group.send([x], 1, 0).wait()",
    "group._own_size = 2; group.recv([x], 1, 0).wait()",
]


def test_a_forked_child_is_refused_its_parents_group(torch):
    run_forked(FORKED.format(before="", calls=CALLS))


def test_a_forked_child_is_refused_what_its_parent_is_at(torch):
    """Its parent's group, and the operation that has begun."""
    run_forked(FORKED.format(before=GOING_ON, calls=[*CALLS, "work.wait()"]))


def run_forked(program):
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
