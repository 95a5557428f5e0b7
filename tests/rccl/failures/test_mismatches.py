# SPDX-License-Identifier: MIT
"""Calls that the ranks make differently: which rank raises what, and what it is shown."""

import numpy as np
import pytest
import rccl_bodies
from one_thread import require_calls
from rccl_ranks import good, on_processes, on_threads

from rocpy import rccl

KINDS = pytest.mark.parametrize("run", [on_threads, on_processes])


def shown(answers):
    """What each rank was shown, without the numbers of the calls."""
    return [tuple(text.rsplit(", number", 1)[0] for text in answer) for answer in good(answers)]


@KINDS
def test_rows_of_another_length(run):
    expected = tuple(f"all_to_all_v(rows of {length} elements, dtype=float64)" for length in (1, 2))
    assert shown(run(2, rccl_bodies.trades_rows_of_another_length)) == [expected] * 2


def test_rows_of_another_type():
    def body(comm):
        x = np.zeros((2, 2), np.float32 if comm.rank == 0 else np.int32)
        with pytest.raises(rccl.CollectiveMismatchError) as told:
            comm.all_to_all_v(x, [1, 1])
        comm.abort()
        return told.value.signatures

    expected = tuple(f"all_to_all_v(rows of 2 elements, dtype={dtype})" for dtype in ("float32", "int32"))
    assert shown(on_threads(2, body)) == [expected] * 2


def test_counts_that_do_not_match():
    def body(comm):
        with pytest.raises(
            rccl.CollectiveMismatchError, match="rank 0 sends 2 elements to rank 1, which takes 3"
        ) as told:
            comm.all_to_all_v(np.zeros(3), [1, 2], [1, 1] if comm.rank == 0 else [3, 2])
        comm.abort()
        return told.value.signatures

    answers = good(on_threads(2, body))
    assert answers[0] == answers[1]
    assert answers[0][0].endswith("number 1; sends 2 elements to rank 1")
    assert answers[0][1].endswith("number 1; takes 3 elements from rank 0")


def test_flags_of_windows():
    require_calls()

    def body(comm):
        memory = comm.empty(4, window=True)
        with pytest.raises(rccl.CollectiveMismatchError) as told:
            comm.window(memory, flags=("strict", "default")[comm.rank])
        comm.abort()
        return told.value.signatures

    assert shown(on_threads(2, body)) == [("window(flags=strict)", "window(flags=default)")] * 2


def test_a_barrier_is_not_the_all_reduce_of_which_it_is_made():
    def body(comm):
        comm.barrier()
        with pytest.raises(rccl.CollectiveMismatchError) as told:
            comm.barrier() if comm.rank == 0 else comm.all_reduce(np.zeros(1, np.uint8), op="max")
        comm.abort()
        return told.value.signatures

    assert shown(on_threads(2, body)) == [("barrier()", "all_reduce(count=1, dtype=uint8, op=max)")] * 2


def test_the_exchange_of_counts_is_not_an_all_to_all():
    def body(comm):
        x = np.zeros(2, np.int64)
        with pytest.raises(rccl.CollectiveMismatchError) as told:
            comm.all_to_all_v(x, [1, 1]) if comm.rank == 0 else comm.all_to_all(x)
        comm.abort()
        return told.value.signatures

    expected = ("all_to_all_v(exchange of the counts)", "all_to_all(count=1, dtype=int64)")
    assert shown(on_threads(2, body)) == [expected] * 2


@KINDS
@pytest.mark.parametrize("count", [3, 1_000_000])
def test_a_send_and_its_receive(run, count):
    sender, receiver = good(run(2, rccl_bodies.CountedTransfer(count)))
    assert receiver == (f"send(count={count}, dtype=float64)", f"recv(count={count + 1}, dtype=float64)")
    # A short message is on its way when the send returns; a long one is read while the sender waits.
    assert sender == ("RemoteError in send" if count > 3 else "RemoteError after send")
