# SPDX-License-Identifier: MIT
"""Options: what is refused, how they nest, and that threads and tasks keep theirs apart."""

import asyncio
import contextvars
import dataclasses
import threading

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.options import DEFAULT, current_options, resolve_options

# A layout that no library takes: it is copied, or refused under options(copies="error").
ODD = np.ones((4, 8), np.float32)[::2, ::-2]
B = np.ones((4, 3), np.float32)


def refused() -> bool:
    """Whether the options that hold here forbid copies, by what a product does."""
    try:
        rocpy.matmul(ODD, B)
    except rocpy.UnsupportedError:
        return True
    return False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fallback": "maybe"}, "fallback: got 'maybe', expected 'allow' or 'error'"),
        ({"reproducible": "rows"}, "reproducible: got 'rows', expected False or True or 'batch'"),
        ({"reproducible": 1}, "reproducible: got 1"),
        ({"reproducible": np.array([1, 2])}, "reproducible: got"),
        ({"dynamic": "n"}, "dynamic: got 'n', expected None or 'm'"),
        ({"copies": None}, "copies: got None"),
        ({"max_workspace_bytes": -1}, "max_workspace_bytes: got -1"),
        ({"max_workspace_bytes": True}, "max_workspace_bytes: got True"),
        ({"quick": True}, "there is no option 'quick'; options: copies, "),
    ],
)
def test_wrong_values_are_told_where_they_are_written(changes, words):
    with pytest.raises(rocpy.InvalidProblemError) as error:
        rocpy.options(**changes)
    assert words in str(error.value)


def test_equal_values_of_another_type_are_other_options():
    for values in ({"reproducible": True}, {"max_workspace_bytes": 1}, {"max_workspace_bytes": np.int64(1)}):
        assert resolve_options(values) == resolve_options(values) == rocpy.Options(**values)
    for values in ({"reproducible": 1}, {"reproducible": 1.0}, {"max_workspace_bytes": True}):
        with pytest.raises(rocpy.InvalidProblemError):
            resolve_options(values)


def test_wrong_kind_of_options():
    with pytest.raises(rocpy.InvalidProblemError, match="not str"):
        rocpy.matmul(B, B.T, options="fast")


def test_a_block_changes_what_it_names_and_is_left_as_it_was():
    with rocpy.options(copies="error") as outer:
        assert outer == rocpy.Options(copies="error")
        with rocpy.options(reproducible="batch") as inner:
            assert inner == rocpy.Options(copies="error", reproducible="batch")
            with pytest.raises(ZeroDivisionError), rocpy.options(copies="allow"):
                1 // int(refused())
            assert current_options() is inner
            assert refused()
        assert current_options() is outer
    assert current_options() is DEFAULT
    assert not refused()


def test_argument_forms_agree():
    with rocpy.options(copies="error"):
        record = dataclasses.replace(current_options(), max_workspace_bytes=7)
        assert resolve_options({"max_workspace_bytes": 7}) == record
        assert resolve_options(rocpy.options(max_workspace_bytes=7)) == record
    # A manager made in one place holds its changes only: the rest is that of where it is used.
    manager = rocpy.options(max_workspace_bytes=7)
    with rocpy.options(copies="error"):
        assert resolve_options(manager) == record
    for given in (record, {"copies": "error"}, rocpy.options(copies="error")):
        with pytest.raises(rocpy.UnsupportedError):
            rocpy.matmul(ODD, B, options=given)


def test_decorator():
    @rocpy.options(copies="error")
    def inside():
        """Say whether copies are refused."""
        return refused()

    assert inside()
    assert not refused()
    assert inside.__doc__ == "Say whether copies are refused."

    async def later():
        return refused()

    def several():
        yield refused()

    for function in (later, several):
        with pytest.raises(rocpy.InvalidProblemError, match="inside it"):
            rocpy.options(copies="error")(function)


def test_one_manager_in_many_threads_at_a_time():
    manager = rocpy.options(copies="error")
    barrier = threading.Barrier(4)
    seen = []

    def work():
        for _ in range(20):
            barrier.wait()
            with manager:
                barrier.wait()
                inside = refused()
            seen.append((inside, current_options() is DEFAULT))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(True, True)] * 80


def test_tasks_keep_their_own():
    async def work(copies):
        with rocpy.options(copies=copies):
            for _ in range(5):
                await asyncio.sleep(0)
                assert refused() == (copies == "error")

    async def all_of_them():
        await asyncio.gather(*(work(copies) for copies in ("error", "allow") * 4))

    asyncio.run(all_of_them())
    assert not refused()


def test_a_context_outlives_its_block():
    with rocpy.options(copies="error"):
        context = contextvars.copy_context()
    assert not refused()
    assert context.run(refused)
    # Nor does its plan become the one of a call without options.
    assert not refused()


@pytest.mark.parametrize("limit", [2**64, 2**100, -1])
def test_a_workspace_that_no_address_reaches(limit):
    x = np.ones((2, 2), np.float32)
    for call in (rocpy.matmul, rocpy.explain):
        with pytest.raises(rocpy.InvalidProblemError, match="max_workspace_bytes"):
            call(x, x, options={"max_workspace_bytes": limit})
    with pytest.raises(rocpy.InvalidProblemError, match="max_workspace_bytes"):
        rocpy.blaslt.supported("float32", options={"max_workspace_bytes": limit})
    rocpy.matmul(x, x, options={"max_workspace_bytes": 2**64 - 1})
