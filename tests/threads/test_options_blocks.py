# SPDX-License-Identifier: MIT
"""Blocks of options that are left elsewhere or out of order, and decorated functions whose body runs later."""

import asyncio
import contextlib
import contextvars
import copy
import functools
import gc
import inspect
import itertools
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from failing_memory import each_failure

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


def test_a_block_left_in_another_context_of_its_thread():
    block = rocpy.options(copies="error")
    for first, second in itertools.permutations((contextvars.copy_context, None)):
        block.__enter__()
        copied = contextvars.copy_context()
        leave = functools.partial(block.__exit__, None, None, None)
        runs = [functools.partial(copied.run, leave) if one else leave for one in (first, second)]
        runs[0]()
        with pytest.raises(rocpy.InvalidProblemError, match="no with block of it"):
            runs[1]()
        assert is_default()
    with block:
        assert not is_default()


def test_a_block_keeps_no_task():
    class Result:
        pass

    async def child(event):
        await event.wait()
        return is_default()

    async def parent(event):
        with rocpy.options(copies="error"):
            return Result(), asyncio.create_task(child(event))

    async def work():
        event = asyncio.Event()
        task = asyncio.create_task(parent(event))
        result, inner = await task
        seen = weakref.ref(result)
        del task, result
        await asyncio.sleep(0)  # the step that waited for the task holds it
        gc.collect()
        assert seen() is None
        event.set()
        return await inner

    assert not asyncio.run(work())


def pickled(protocol, block):
    return pickle.loads(pickle.dumps(block, protocol))


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, *(functools.partial(pickled, protocol) for protocol in range(6))],
)
def test_a_copy_of_a_block_in_a_task_was_not_entered(copied):
    async def work():
        block = rocpy.options(copies="error")
        with block:
            other = copied(block)
            assert repr(other) == repr(block)
            with pytest.raises(rocpy.InvalidProblemError, match="no with block of it"):
                other.__exit__(None, None, None)
            with other:
                assert not is_default()
            assert not is_default()
        return is_default()

    assert asyncio.run(work())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as a generator is closed
@pytest.mark.parametrize("is_nested", [False, True])
def test_ctrl_c_while_a_block_is_used(is_nested):
    """It arrives at each place where the interpreter hears it."""

    def use():
        with rocpy.options(copies="error"):
            pass

    with rocpy.options(reproducible=True) if is_nested else contextlib.nullcontext():
        before = current_options()
        for number in itertools.count():
            places = itertools.count()

            def interrupt(frame, event, argument, *, places=places, number=number):
                # Where Python calls functions of Python, and where their lines begin.
                if frame.f_code is not use.__code__ and next(places) == number:
                    sys.settrace(None)
                    raise KeyboardInterrupt
                return interrupt

            sys.settrace(interrupt)
            try:
                use()
            except KeyboardInterrupt:
                continue
            else:
                break
            finally:
                sys.settrace(None)
                assert current_options() is before
    assert number > 0
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
        functools.partial(Callable()),
        functools.partial(functools.partial(generator)),
        functools.lru_cache(generator),
        functools.lru_cache(functools.partial(coroutine)),
        wrapper,
        contextlib.contextmanager(generator),
        contextlib.asynccontextmanager(async_generator),
    ],
)
def test_a_function_whose_body_runs_later_is_refused(function):
    with pytest.raises(rocpy.InvalidProblemError, match="inside it"):
        rocpy.options(copies="error")(function)()


@functools.wraps(generator)
def same(value):
    return value


@pytest.mark.parametrize("function", [lambda value: value, functools.partial(lambda value: value), same])
@pytest.mark.parametrize(
    "make",
    [coroutine, async_generator, contextlib.contextmanager(steps), lambda: (current_options() for _ in range(1))],
)
def test_a_function_that_returns_what_runs_later_elsewhere_may_be_decorated(function, make):
    value = make()
    assert rocpy.options(copies="error")(function)(value) is value
    if inspect.iscoroutine(value):
        assert asyncio.run(value) == 1


def test_a_function_that_returns_a_generator_expression_may_be_decorated():
    decorated = rocpy.options(copies="error")(lambda: (x for x in [is_default()]))
    assert list(decorated()) == [False]


@pytest.mark.parametrize("what", [3, None, "relu", Callable, staticmethod(generator), classmethod(generator)])
def test_what_is_no_function_cannot_be_decorated(what):
    with pytest.raises(rocpy.InvalidProblemError, match="decorates a function"):
        rocpy.options(copies="error")(what)


def test_a_function_that_runs_a_generator_may_be_decorated():
    @functools.wraps(generator)
    def collected():
        return [*generator(), is_default()]

    assert rocpy.options(copies="error")(collected)() == [1, False]


# CPython closes generators, and has no memory for it either.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_that_runs_out_as_a_block_begins_or_ends_leaves_no_options_set():
    block = rocpy.options(copies="error")

    def use():
        with block:
            pass

    for error in each_failure(lambda: use):
        assert isinstance(error, MemoryError | None)
        assert is_default()
        with block:
            assert not is_default()
