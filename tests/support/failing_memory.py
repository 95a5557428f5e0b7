# SPDX-License-Identifier: MIT
"""Calls in which an allocation of Python's fails: the first, the second and so on, until the call needs no more."""

from collections.abc import Callable, Iterator

import pytest

_MOST_ALLOCATIONS = 1000
# A call may go on without memory that it does not need.
_SUCCESSES_AT_END = 8


def each_failure(prepare: Callable[[], Callable[[], object]]) -> Iterator[BaseException | None]:
    """Yield what a call raised, None for nothing, after each of the calls.

    Parameters
    ----------
    prepare
        Called before each call, with all memory: returns what is called, without arguments.
    """
    testcapi = pytest.importorskip("_testcapi")
    successes = 0
    for number in range(_MOST_ALLOCATIONS):
        call = prepare()
        raised = None
        testcapi.set_nomemory(number, number + 1)
        try:
            call()
        except BaseException as error:
            raised = error
        finally:
            testcapi.remove_mem_hooks()
        successes = 0 if raised else successes + 1
        yield raised
        if successes == _SUCCESSES_AT_END:
            return
    raise AssertionError("the call does not end")
