# SPDX-License-Identifier: MIT
"""What `group` returns: one block at a time, again afterwards, as a decorator, copied and weakly referred to."""

import asyncio
import contextlib
import contextvars
import copy
import functools
import pickle
import threading
import weakref

import numpy as np
import pytest
from failing_memory import each_failure

import rocpy
from rocpy import rccl
from rocpy.compat import nccl
from rocpy.rccl.engine.open_group import current_group

GROUPS = [rccl.group, nccl.group]
pytestmark = pytest.mark.parametrize("group", GROUPS, ids=["rccl", "compat"])
X = np.ones(4, np.float32)


@pytest.fixture
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as made:
        yield made


def enter_inside(opened):
    with opened:
        pass


def enter_in_another_thread(opened):
    raised = []

    def enter():
        try:
            with opened:
                pass
        except rccl.InvalidUsageError as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    raise raised[0]


@pytest.mark.parametrize("enter", [enter_inside, enter_in_another_thread])
def test_an_open_group_is_not_entered_again_and_goes_on(comm, group, enter):
    opened, y = group(), np.zeros_like(X)
    with opened:
        comm.all_reduce(X, out=y)
        with pytest.raises(rccl.InvalidUsageError, match=r"its block has not ended; call group\(\) for each block"):
            enter(opened)
        assert not y.any()
    assert y.tolist() == X.tolist()
    assert comm.all_reduce(X).tolist() == X.tolist()


def test_a_group_that_has_ended_is_entered_again(comm, group):
    opened = group()
    for _ in range(2):
        y = np.zeros_like(X)
        with opened:
            comm.all_reduce(X, out=y)
        assert y.tolist() == X.tolist()


def test_a_decorated_function_has_a_group_of_its_own_in_each_call(comm, group):
    @group()
    def summed(depth, *, out):
        """Sum."""
        comm.all_reduce(X, out=out[depth])
        if depth:
            summed(depth - 1, out=out)
        assert not out.any()
        return depth

    assert (summed.__name__, summed.__doc__) == ("summed", "Sum.")
    out = np.zeros((3, 4), np.float32)
    assert summed(2, out=out) == 2
    assert out.tolist() == [X.tolist()] * 3

    @group()
    def raising(out):
        comm.all_reduce(X, out=out)
        raise KeyError

    y = np.zeros_like(X)
    with pytest.raises(KeyError):
        raising(y)
    assert not y.any()
    assert comm.all_reduce(X).tolist() == X.tolist()


@pytest.mark.parametrize("of", [copy.copy, copy.deepcopy, lambda opened: pickle.loads(pickle.dumps(opened))])
def test_a_copy_is_another_group(comm, group, of):
    opened, y = group(), np.zeros_like(X)
    with opened:
        with of(opened):
            comm.all_reduce(X, out=y)
        assert not y.any()  # an inner group is part of the outer one
    assert y.tolist() == X.tolist()


def test_groups_are_weakly_referred_to(comm, group):
    opened = group()
    assert weakref.ref(opened)() is opened


async def coroutine():
    return None


def generator():
    yield


@pytest.mark.parametrize("function", [coroutine, generator, functools.partial(coroutine)])
def test_a_function_whose_body_runs_after_the_call_is_not_decorated(group, function):
    with pytest.raises(rccl.InvalidUsageError, match=r"after its call has returned; use `with group\(\)` inside it"):
        group()(function)


@pytest.mark.parametrize("what", [5, None, dict, staticmethod(len)])
def test_what_is_no_function_is_not_decorated(group, what):
    with pytest.raises(rccl.InvalidUsageError, match="group: decorates a function, not"):
        group()(what)


async def swapped(comm, group, turns, fails=False):
    """Send to oneself in a group whose block waits for other tasks."""
    received = np.zeros_like(X)
    for _ in range(turns):
        await asyncio.sleep(0)
    with group():
        comm.send(X, 0)
        await asyncio.sleep(0.005 * turns)
        comm.recv(received, 0)
        if fails:
            raise KeyError
    return received.tolist()


def test_tasks_have_groups_of_their_own(comm, group):
    async def call_meanwhile():
        await asyncio.sleep(0)
        return comm.all_reduce(X).tolist()

    async def main(other):
        calls = (
            swapped(comm, group, 1, fails=True),
            swapped(other, group, 3),
            swapped(comm, group, 2),
            call_meanwhile(),
        )
        return await asyncio.gather(*calls, return_exceptions=True)

    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=1) as other:
        failure, *results = asyncio.run(main(other))
    assert isinstance(failure, KeyError)
    assert results == [X.tolist()] * 3


def test_a_task_that_is_started_in_a_block_is_in_its_group(comm, group):
    async def call(y):
        comm.all_reduce(X, out=y)

    async def main(y):
        with group():
            await asyncio.gather(call(y[0]), call(y[1]))
            assert not y.any()

    y = np.zeros((2, 4), np.float32)
    asyncio.run(main(y))
    assert y.tolist() == [X.tolist()] * 2


def leave_outer_first(group, calls):
    outer, inner = group(), group()
    outer.__enter__()
    inner.__enter__()
    calls()
    with pytest.raises(rccl.InvalidUsageError, match="left before one that was entered in it"):
        outer.__exit__(None, None, None)
    calls()
    return inner


def leave_siblings_out_of_order(group, calls):
    outer, first, second = group(), group(), group()
    for opened in (outer, first, second):
        opened.__enter__()
    calls()
    with pytest.raises(rccl.InvalidUsageError, match="left before one that was entered in it"):
        first.__exit__(None, None, None)
    second.__exit__(KeyError, KeyError(), None)
    return outer


def leave_in_another_context(group, calls):
    outer = group()
    outer.__enter__()
    calls()
    inner = contextvars.Context().run(leave_inside, group, calls)
    outer.__exit__(KeyError, KeyError(), None)
    return inner


def leave_inside(group, calls):
    inner = group()
    inner.__enter__()
    calls()
    return inner


@pytest.mark.parametrize("leave", [leave_outer_first, leave_siblings_out_of_order, leave_in_another_context])
def test_blocks_that_do_not_nest_launch_nothing(comm, group, leave):
    y, works = np.zeros_like(X), []
    last = leave(group, lambda: works.append(comm.all_reduce(X, out=y, block=False)))
    with pytest.raises(rccl.InvalidUsageError, match="nothing was launched"):
        last.__exit__(None, None, None)
    assert not y.any()
    for work in works:
        with pytest.raises(rocpy.ClosedError, match="never launched"):
            work.wait()
    assert comm.all_reduce(X).tolist() == X.tolist()


CHILD = """
import asyncio, os, sys
import numpy as np
from rocpy import rccl
from rocpy.compat import nccl

group = {"rccl": rccl.group, "compat": nccl.group}[sys.argv[1]]
x = np.ones(4, np.float32)


async def to_itself(comm):
    received = np.zeros_like(x)
    with group():
        comm.send(x, 0)
        await asyncio.sleep(0)
        comm.recv(received, 0)
    return received.tolist()


def in_child():
    comm.close()  # as often as one likes; it stays the parent's
    comm.close()
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as own:
        if own.all_reduce(x).tolist() != x.tolist() or asyncio.run(to_itself(own)) != x.tolist():
            return 1
    return 0 if own.is_closed else 2


with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    y = np.zeros_like(x)
    with group():
        comm.all_reduce(x, out=y)
        child = os.fork()
        if child == 0:
            status = 3
            try:
                status = in_child()
            finally:
                os._exit(status)
        print(os.waitpid(child, 0)[1], y.any())
    print(y.tolist() == x.tolist())
"""


def test_a_child_of_fork_has_none_of_its_parents_groups(group, run_python):
    which = "rccl" if group is rccl.group else "compat"
    assert run_python(CHILD.replace("sys.argv[1]", repr(which))).stdout.split() == ["0", "False", "True"]


def test_memory_that_runs_out_as_a_block_begins_or_ends_leaves_no_group_open(comm, group):
    def use():
        with group():
            pass

    for number, error in enumerate(each_failure(lambda: use)):
        assert isinstance(error, MemoryError | None)
        assert current_group() is None
        assert comm.all_reduce(X * number).tolist() == [number] * 4


def test_memory_that_runs_out_as_an_inner_block_ends_leaves_nothing_launched(comm, group):
    outers = []

    def leaving():
        outers.append(group())
        outers[-1].__enter__()
        inner = group()
        inner.__enter__()
        comm.all_reduce(X)
        return functools.partial(inner.__exit__, None, None, None)

    errors = []
    for error in each_failure(leaving):
        errors.append(error)
        with pytest.raises(rccl.InvalidUsageError, match="nothing was launched") if error else contextlib.nullcontext():
            outers[-1].__exit__(None, None, None)
    assert {type(error) for error in errors} == {MemoryError, type(None)}
