# SPDX-License-Identifier: MIT
"""Communicators made from communicators: revoked ones as parents, newcomers, rest and resumption, on older RCCL too."""

import threading
import time

import numpy as np
import pytest
from rccl_ranks import good, on_threads

import rocpy
from rocpy import rccl


def test_revoked_communicators_are_parents():
    def body(comm):
        comm.barrier()
        if comm.rank == 0:
            time.sleep(0.1)
        else:
            # Rank 0 does not come: it has taken the work back; one of the others may be told by the other.
            with pytest.raises(rccl.RemoteError):
                comm.all_reduce(np.ones(3), timeout_s=30)
        comm.revoke()
        assert comm.is_revoked
        with pytest.raises(rccl.InvalidUsageError, match="revoked"):
            comm.all_reduce(np.ones(3))
        with pytest.raises(rccl.InvalidArgumentError, match="already been revoked"):
            comm.revoke()
        with comm.split(0, key=-comm.rank) as fresh:
            assert fresh.all_gather(np.array([comm.rank])).tolist() == [2, 1, 0]
        if comm.rank == 1:
            return None
        with comm.shrink([1]) as rest:
            return rest.all_reduce(np.array([comm.rank])).tolist()

    assert good(on_threads(3, body)) == [[2], None, [2]]


def test_a_revoked_communicator_is_left_without_waiting():
    def body(comm):
        with comm:
            if comm.rank == 1:
                with pytest.raises(rccl.RemoteError):
                    comm.barrier()
            comm.revoke()
        return comm.is_closed

    assert good(on_threads(2, body)) == [True, True]


def grow_to(nranks, found, **newcomer):
    """Two ranks grow to some; what each gathers goes to `found`."""
    told = threading.Event()
    ident = []

    def join(rank):
        told.wait(30)
        with rccl.Communicator.join_grown(nranks, rank, ident[0], device=rank, timeout_s=20, **newcomer) as joined:
            found[rank] = joined.all_gather(np.array([rank])).tolist(), joined.rank, joined.nranks

    threads = [threading.Thread(target=join, args=(rank,), daemon=True) for rank in range(2, nranks)]
    for thread in threads:
        thread.start()

    def body(comm):
        if comm.rank == 1:
            ident.append(comm.growth_id())
            told.set()
        with comm.grow(nranks, ident[0] if comm.rank == 1 else None, timeout_s=20) as larger:
            found[comm.rank] = larger.all_gather(np.array([comm.rank])).tolist(), larger.rank, larger.nranks
        # The one that grew works as before.
        return comm.all_reduce(np.ones(1)).tolist()

    assert good(on_threads(2, body)) == [[2.0]] * 2
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_newcomers():
    found = {}
    grow_to(4, found, name="newcomer")
    assert found == {rank: ([0, 1, 2, 3], rank, 4) for rank in range(4)}


def test_newcomers_that_do_not_come_are_named():
    def body(comm):
        ident = comm.growth_id() if comm.rank == 0 else None
        with pytest.raises(rccl.RcclError) as late:
            comm.grow(3, ident, timeout_s=0.4)
        return late.value

    errors = good_errors(on_threads(2, body))
    named = [error for error in errors if isinstance(error, rccl.CollectiveTimeoutError)]
    assert named
    assert all(error.waiting_for == (2,) for error in named)


def good_errors(found):
    """What bodies returned: the exceptions that they expected."""
    assert all(isinstance(error, rccl.RcclError) for error in found), found
    return found


def test_what_is_refused():
    def body(comm):
        with pytest.raises(rccl.InvalidArgumentError, match="expected more than the current 1"):
            comm.grow(1, comm.growth_id())
        with pytest.raises(rccl.InvalidArgumentError, match="unique_id: got 3 bytes"):
            comm.grow(2, b"abc")
        with pytest.raises(rccl.InvalidArgumentError, match="0 ranks gave"):
            comm.grow(2)
        for refused in (0, -1, float("nan"), "soon", None.__class__):
            with pytest.raises(rccl.InvalidArgumentError, match="timeout_s"):
                comm.split(0, timeout_s=refused)
        return comm.all_reduce(np.ones(1)).tolist()

    assert good(on_threads(1, body)) == [[1.0]]


def test_rest():
    def body(comm):
        before = comm.memory_stats()
        assert before["total"] > 0
        assert before["suspended"] == 0
        comm.suspend()
        assert comm.memory_stats()["suspended"] == 1
        with pytest.raises(rccl.InvalidUsageError, match="resume it first"):
            comm.barrier()
        comm.resume()
        with pytest.raises(rccl.InvalidUsageError, match="not suspended"):
            comm.resume()
        return comm.all_reduce(np.ones(1)).tolist()

    assert good(on_threads(2, body)) == [[2.0]] * 2


OLDER = """
import rocpy
from rocpy import rccl
with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    for call in (comm.revoke, comm.suspend, comm.resume, comm.growth_id, comm.memory_stats, rccl.parameters):
        try:
            call()
        except rocpy.UnsupportedError as error:
            assert "2.30" in str(error), error
        else:
            raise SystemExit(f"{call} is not refused")
print("refused")
"""


def test_an_older_rccl_is_named(run_python):
    assert run_python(OLDER, ROCPY_HOST_ABI="7.2").stdout.split() == ["refused"]


def test_parameters_and_texts():
    assert isinstance(rccl.parameters(), dict)
    assert rccl.version() == 23004
    assert "invalid usage" in rccl.error_string(5)
    with pytest.raises(rccl.InvalidArgumentError):
        rccl.Communicator.init(1, 0, bytes(128))
    assert "ncclGetUniqueId" in rccl.last_error()


def test_settings_of_rccl():
    settings = {"min_ctas": 1, "max_ctas": 4, "traffic_class": 3, "net_name": "Socket"}
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), config=settings) as comm:
        assert comm.all_reduce(np.ones(1)).tolist() == [1.0]
    for wrong in ({"blocking": 1}, {"min_ctas": 5, "max_ctas": 1}, {"min_ctas": "two"}, {"min_ctas": 1 << 40}):
        with pytest.raises(rccl.InvalidArgumentError):
            rccl.Communicator.init(1, 0, rccl.UniqueId.make(), config=wrong)


def test_operators_are_given_back():
    def body(comm):
        for _ in range(3000):
            comm.premul_sum(0.5)
        kept = comm.premul_sum(2.0)
        with rccl.group():
            first = comm.all_reduce(np.ones(2, "float32"), op=comm.premul_sum(3.0))
            second = comm.all_reduce(np.ones(2, "float32"), op=kept)
        kept.close()
        kept.close()
        with pytest.raises(rocpy.ClosedError):
            comm.all_reduce(np.ones(2, "float32"), op=kept)
        with pytest.raises(rccl.InvalidArgumentError, match="scalar: 0.5 is not a value of int32"):
            comm.premul_sum(0.5, "int32")
        return first.tolist() + second.tolist()

    assert good(on_threads(1, body)) == [[3.0, 3.0, 2.0, 2.0]]
