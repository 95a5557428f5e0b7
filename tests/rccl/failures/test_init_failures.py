# SPDX-License-Identifier: MIT
"""Ranks absent, wrong or twice where a unique id is all that they have: every rank gives the same reason."""

import functools
import multiprocessing
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
    connection.send("started")
    connection.recv()
    connection.send(_init(*arguments))
    connection.recv()  # until all others have said theirs
    connection.close()


def init_all(kind, calls, late=()):
    """What each call of (nranks, rank, timeout_s) came to, in threads or processes; late ones come after the rest."""
    ident = rccl.UniqueId.make()
    found, ends, workers = [], [], []
    context = rccl_ranks.process_context() if kind == "processes" else None
    for wave in (calls, late):
        for nranks, rank, timeout_s in wave:
            own, theirs = (context or multiprocessing).Pipe()
            worker = context.Process if context else functools.partial(threading.Thread, daemon=True)
            workers.append(worker(target=_send, args=(theirs, nranks, rank, ident, timeout_s)))
            workers[-1].start()
            if context:
                theirs.close()
            ends.append(own)
        begun = ends[len(found) :]
        # All are up, and the patient begin first: how long a process takes to start must not count.
        for end in begun:
            assert end.poll(60)
            assert end.recv() == "started"
        for end, _ in sorted(zip(begun, wave, strict=True), key=lambda pair: -pair[1][2]):
            end.send(None)
        for end in begun:
            assert end.poll(60), "a rank hangs"
            found.append(end.recv())
    for end, worker in zip(ends, workers, strict=True):
        end.send(None)
        worker.join(60)
        end.close()
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


@KINDS
def test_who_comes_after_the_others_gave_up_is_told_the_same(kind):
    found = init_all(kind, [(3, 0, 30.0), (4, 2, 30.0)], late=[(3, 1, 30.0)])
    assert {name for name, _, _ in found} == {"InvalidArgumentError"}
    assert len({text for _, _, text in found}) == 1
    found = init_all(kind, [(3, 0, 1.0), (3, 1, 30.0)], late=[(3, 2, 30.0)])
    assert {(name, waiting_for) for name, waiting_for, _ in found} == {("CollectiveTimeoutError", (2,))}
    assert len({text for _, _, text in found}) == 1
