# SPDX-License-Identifier: MIT
"""Blocks of options that are left elsewhere or out of order, and decorated functions whose body runs later."""

import asyncio
import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest

import rocpy
from rocpy.blaslt.model.options import DEFAULT, current_options


def steps():
    with rocpy.options(copies="error"):
        yield


def is_default():
    return current_options() is DEFAULT


def test_a_block_left_in_another_thread_is_refused_there():
    generator = steps()
    next(generator)
    assert not is_default()
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(rocpy.InvalidProblemError, match="no with block of it"):
            pool.submit(list, generator).result()
        assert pool.submit(is_default).result()
    assert is_default()


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_block_left_in_a_task_or_thread_that_began_inside_it(in_thread):
    async def finish(generator):
        assert list(generator) == []

    async def work():
        generator = steps()
        next(generator)
        await (asyncio.to_thread(list, generator) if in_thread else asyncio.create_task(finish(generator)))
        return is_default()

    assert asyncio.run(work())


def test_an_async_generator_whose_first_step_ran_in_another_task():
    async def steps():
        with rocpy.options(copies="error"):
            yield

    async def work():
        generator = steps()
        await asyncio.wait_for(anext(generator), 60)
        with pytest.raises(rocpy.InvalidProblemError, match="no with block of it"):
            await generator.aclose()
        return is_default()

    assert asyncio.run(work())


@pytest.mark.parametrize(
    "manager",
    [rocpy.options(copies="error"), rocpy.tuning.record(), rocpy.Device(0)],
    ids=["options", "record", "Device"],
)
def test_leaving_a_block_that_was_not_entered(manager):
    for _ in range(2):
        with pytest.raises(rocpy.InvalidProblemError, match="with block of it"):
            manager.__exit__(None, None, None)
        with manager:
            pass
    assert is_default()


def test_blocks_left_out_of_order():
    outer, inner = rocpy.options(copies="error"), rocpy.options(reproducible=True)
    outer.__enter__()
    both = inner.__enter__()
    outer.__exit__(None, None, None)
    assert current_options() is both
    inner.__exit__(None, None, None)
    assert is_default()


async def coroutine():
    return 1


def generator():
    yield 1


async def async_generator():
    yield 1


class Callable:
    async def __call__(self):
        return 1


@functools.wraps(generator)
def wrapper():
    return generator()


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        generator,
        async_generator,
        Callable(),
        functools.partial(coroutine),
        functools.partial(async_generator),
        wrapper,
        lambda *_: coroutine(),
        lambda: (x for x in ()),
        contextlib.contextmanager(generator),
        contextlib.asynccontextmanager(async_generator),
    ],
)
def test_a_function_whose_body_runs_later_is_refused(function):
    with pytest.raises(rocpy.InvalidProblemError, match="inside it"):
        rocpy.options(copies="error")(function)()


@pytest.mark.parametrize("what", [3, None, "relu", Callable, staticmethod(generator), classmethod(generator)])
def test_what_is_no_function_cannot_be_decorated(what):
    with pytest.raises(rocpy.InvalidProblemError, match="decorates a function"):
        rocpy.options(copies="error")(what)


def test_a_function_that_runs_a_generator_may_be_decorated():
    @functools.wraps(generator)
    def collected():
        return [*generator(), is_default()]

    assert rocpy.options(copies="error")(collected)() == [1, False]
