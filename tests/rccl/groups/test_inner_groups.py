# SPDX-License-Identifier: MIT
"""Inner groups are part of the outer one, also those of several tasks at once; each drops its own calls alone."""

import asyncio
import time

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy.compat import nccl

X = np.ones(4, np.float32)
pytestmark = pytest.mark.parametrize("group", [rccl.group, nccl.group], ids=["rccl", "compat"])


@pytest.fixture
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=5) as one:
        yield one


def without_a_block(group, call, pause):
    async def run():
        await pause()
        call()

    return run


def in_a_block(group, call, pause):
    async def run():
        with group():
            await pause()
            call()
            await pause()
            await pause()

    return run


def in_a_block_that_ends_first(group, call, pause):
    async def run():
        with group():
            call()
        await pause()

    return run


@pytest.mark.parametrize("other", [without_a_block, in_a_block, in_a_block_that_ends_first])
def test_a_task_whose_block_raises_drops_its_own_calls_alone(comm, group, other):
    dropped, y, z = np.zeros((3, 4), np.float32)
    works, op = [], comm.premul_sum(2.0)

    async def pause():
        await asyncio.sleep(0)

    async def failing():
        with group():
            works.append(comm.all_reduce(X, out=dropped, block=False))
            with group():
                comm.all_reduce(X, out=dropped)
                op.close()
            await pause()
            await pause()
            raise KeyError

    def call():
        works.append(comm.all_reduce(X, out=y, block=False))

    async def main():
        with group():
            tasks = asyncio.gather(failing(), other(group, call, pause)(), return_exceptions=True)
            await pause()
            comm.all_reduce(X, out=z)
            return await tasks

    failure, ended = asyncio.run(main())
    assert isinstance(failure, KeyError)
    assert ended is None
    works[1].wait()
    assert [y.tolist(), z.tolist()] == [X.tolist()] * 2
    assert not dropped.any()
    with pytest.raises(rocpy.ClosedError, match="never launched"):
        works[0].wait()
    assert comm.all_reduce(X, op=op).tolist() == [2.0] * 4


def test_calls_are_launched_in_the_order_in_which_they_were_noted(comm, group):
    x, received = np.arange(3.0), np.zeros(3)

    async def inner():
        with group():
            comm.send(x[:1], 0)
            await asyncio.sleep(0)
            comm.send(x[2:], 0)

    async def main():
        with group():
            task = asyncio.create_task(inner())
            await asyncio.sleep(0)
            comm.send(x[1:2], 0)
            await task
            for i in range(3):
                comm.recv(received[i : i + 1], 0)

    asyncio.run(main())
    assert received.tolist() == x.tolist()


def test_a_communicator_that_two_blocks_close_is_closed_although_one_raises(comm, group):
    async def closing(one, fails):
        with group():
            one.close()
            await asyncio.sleep(0)
            if fails:
                raise KeyError

    async def main(ones):
        with group():
            calls = [closing(ones[0], fails) for fails in (True, False)]
            return await asyncio.gather(*calls, closing(ones[1], True), return_exceptions=True)

    ones = [comm.split(0) for _ in range(2)]
    asyncio.run(main(ones))
    assert [one.is_closed for one in ones] == [True, False]
    ones[1].close()


def test_a_task_that_outlives_its_inner_block_is_in_the_outer_one(comm, group):
    y = np.zeros_like(X)

    async def late():
        await asyncio.sleep(0)
        comm.all_reduce(X, out=y)

    async def main():
        with group():
            with group():
                task = asyncio.create_task(late())
            await task
            assert not y.any()

    asyncio.run(main())
    assert y.tolist() == X.tolist()


def test_a_block_that_ends_before_one_of_its_tasks_launches_nothing(comm, group):
    y, tasks = np.zeros_like(X), []

    async def inner():
        with group():
            comm.all_reduce(X, out=y)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def outer():
        with group():
            tasks.append(asyncio.create_task(inner()))
            await asyncio.sleep(0)

    async def main():
        with pytest.raises(rccl.InvalidUsageError, match="left before one that was entered in it"):
            await outer()
        with pytest.raises(rccl.InvalidUsageError, match="nothing was launched"):
            await tasks[0]

    asyncio.run(main())
    assert not y.any()
    assert comm.all_reduce(X).tolist() == X.tolist()


def seconds_of(group, comm, count):
    """Time of this thread for so many inner groups of a call, of which nothing is launched."""
    begin = time.thread_time()
    with group():
        for _ in range(count):
            with group():
                comm.all_reduce(X, out=X)
        seconds = time.thread_time() - begin
        raise DroppedError(seconds)


class DroppedError(Exception):
    """Drops a group, and has the time that it took."""


def shortest(group, comm, count):
    times = []
    for _ in range(3):
        with pytest.raises(DroppedError) as dropped:
            seconds_of(group, comm, count)
        times.append(dropped.value.args[0])
    return min(times)


def test_time_is_in_proportion_to_their_number(comm, group):
    assert shortest(group, comm, 4000) < 8 * shortest(group, comm, 1000)
