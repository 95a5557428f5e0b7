# SPDX-License-Identifier: MIT
"""Ranks absent, wrong or twice where a unique id is all that they have: every rank gives the same reason."""

import threading

import pytest
import rccl_ranks

from rocpy import rccl


def _init(nranks, rank, ident, timeout_s):
    try:
        rccl.Communicator.init(nranks, rank, ident, device=rank, timeout_s=timeout_s).close()
    except rccl.RcclError as error:
        return type(error).__name__, getattr(error, "waiting_for", None), str(error).split(": ", 2)[-1]
    return None


def _send(connection, *arguments):
    connection.send(_init(*arguments))
    connection.close()


def init_all(kind, calls):
    """What each call of (nranks, rank, timeout_s) came to, on threads or in processes."""
    ident = rccl.UniqueId.make()
    found = [None] * len(calls)
    if kind == "threads":

        def run(index, nranks, rank, timeout_s):
            found[index] = _init(nranks, rank, ident, timeout_s)

        threads = [threading.Thread(target=run, args=(index, *call), daemon=True) for index, call in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "a rank hangs"
        return found
    context = rccl_ranks.process_context()
    ends, processes = [], []
    for nranks, rank, timeout_s in calls:
        own, theirs = context.Pipe(duplex=False)
        processes.append(context.Process(target=_send, args=(theirs, nranks, rank, ident, timeout_s)))
        processes[-1].start()
        theirs.close()
        ends.append(own)
    for index, end in enumerate(ends):
        assert end.poll(60), "a rank hangs"
        found[index] = end.recv()
        end.close()
    for process in processes:
        process.join(60)
    return found


KINDS = pytest.mark.parametrize("kind", ["threads", "processes"])


@KINDS
def test_an_absent_rank(kind):
    # The impatient rank is not blamed: it says whom it waited for.
    found = init_all(kind, [(4, 0, 30.0), (4, 1, 1.0), (4, 3, 30.0)])
    assert {(name, waiting_for) for name, waiting_for, _ in found} == {("CollectiveTimeoutError", (2,))}
    assert all("containers with networks of their own" in text for _, _, text in found)


@KINDS
def test_a_rank_that_comes_twice(kind):
    found = init_all(kind, [(3, 0, 30.0), (3, 1, 30.0), (3, 1, 30.0)])
    assert {name for name, _, _ in found} == {"InvalidUsageError"}
    (text,) = {text for _, _, text in found}
    assert "rank 1 is taken" in text


@KINDS
def test_a_rank_that_counts_otherwise(kind):
    found = init_all(kind, [(3, 0, 30.0), (3, 1, 30.0), (4, 2, 30.0)])
    assert {name for name, _, _ in found} == {"InvalidArgumentError"}
    (text,) = {text for _, _, text in found}
    assert "do not agree on their number" in text
