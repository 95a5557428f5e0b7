# SPDX-License-Identifier: MIT
"""Communicator: how it is made, its collectives on arrays of each kind, groups, work, children, and its end."""

import contextlib
import pickle
import sys
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import pytest
from rccl_ranks import good, on_threads

import rocpy
from rocpy import rccl


def test_collectives_of_threads():
    def body(comm):
        rank, n = comm.rank, comm.nranks
        x = np.arange(6, dtype=np.int64).reshape(3, 2) + 10 * rank
        total = sum(np.arange(6).reshape(3, 2) + 10 * r for r in range(n))
        assert (comm.all_reduce(x) == total).all()
        assert comm.all_gather(x).shape == (3 * n, 2)
        assert (comm.all_gather(x)[3 * 1 : 3 * 2] == np.arange(6).reshape(3, 2) + 10).all()
        assert (comm.reduce_scatter(x) == total[rank : rank + 1]).all()
        assert (comm.all_to_all(x)[:, 0] == [10 * r + 2 * rank for r in range(n)]).all()
        assert (comm.broadcast(x, root=2) == np.arange(6).reshape(3, 2) + 20).all()
        reduced = comm.reduce(x, root=1, op="max")
        assert (reduced is None) == (rank != 1)
        gathered = comm.gather(x, root=0)
        assert (gathered is None) == (rank != 0)
        part = np.zeros((1, 2), np.int64)
        assert comm.scatter(x if rank == 0 else None, root=0, out=part) is part
        assert (part == np.arange(6).reshape(3, 2)[rank : rank + 1]).all()
        assert (comm.scatter(x, root=1) == (np.arange(6).reshape(3, 2) + 10)[rank : rank + 1]).all()
        comm.barrier()
        assert comm.all_reduce(x, out=x) is x
        assert (x == total).all()
        return [call["op"] for call in comm.trace()][:3]

    assert good(on_threads(3, body))[2] == ["all_reduce", "all_gather", "all_gather"]


@pytest.mark.torch
def test_results_are_of_the_operands_kind(torch):
    def body(comm):
        made = comm.all_reduce(torch.ones(4, dtype=torch.bfloat16), op="avg")
        inplace = torch.ones(4)
        version = inplace._version
        comm.all_reduce(inplace, out=inplace)
        with rocpy.Buffer(4, "float32") as buffer:
            buffer.copy_from(np.full(4, 2, np.float32))
            summed = comm.all_reduce(buffer)
            rocpy.Device(comm.device_index)
            found = type(summed)
        return made, inplace._version - version, inplace, found

    for rank, (made, raised, inplace, _) in enumerate(good(on_threads(1, body))):
        assert rank == 0
        assert made.dtype == torch.bfloat16
        assert made.tolist() == [1.0] * 4
        assert raised == 1
        assert inplace.tolist() == [1.0] * 4


@pytest.mark.torch
@pytest.mark.parametrize("form", ["plain", "grouped", "nonblocking"])
def test_a_receive_raises_the_version_of_its_tensor(torch, form):
    def body(comm):
        sent, received = torch.ones(4), torch.zeros(4)
        if comm.rank == 0:
            comm.send(sent, 1)
        elif form == "plain":
            comm.recv(received, 0)
        elif form == "grouped":
            with rccl.group():
                comm.recv(received, 0)
        else:
            comm.recv(received, 0, block=False).wait()
        return sent._version, received._version, received.tolist()

    assert good(on_threads(2, body)) == [(0, 0, [0.0] * 4), (0, 1, [1.0] * 4)]


def test_bfloat16_and_operators():
    def body(comm):
        x = np.full(3, comm.rank + 1, ml_dtypes.bfloat16)
        assert comm.all_reduce(x, op="prod").tolist() == [6.0] * 3
        assert comm.all_reduce(x, bias=np.ones(3, ml_dtypes.bfloat16)).tolist() == [7.0] * 3
        y = np.ones(2, np.float32)
        return comm.all_reduce(y, op=comm.premul_sum(comm.rank + 0.5)).tolist()

    assert good(on_threads(3, body)) == [[4.5, 4.5]] * 3


def test_group_exchanges_and_is_dropped_when_its_block_raises():
    def body(comm):
        rank, n = comm.rank, comm.nranks
        received = np.zeros(5)
        with rccl.group():
            comm.send(np.full(5, float(rank)), (rank + 1) % n)
            with rccl.group():
                comm.recv(received, (rank - 1) % n)
        assert (received == (rank - 1) % n).all()
        with contextlib.suppress(KeyError), rccl.group():
            comm.send(np.zeros(1), (rank + 1) % n)
            raise KeyError
        return comm.all_reduce(np.ones(1)).tolist()

    assert good(on_threads(3, body)) == [[3.0]] * 3
    alone = on_threads(1, lambda comm: comm.send(np.zeros(1), 0))
    assert isinstance(alone[0], rccl.InvalidUsageError)


def test_one_thread_for_all_devices():
    comms = rccl.Communicator.init_all(4)
    try:
        with rccl.group():
            sums = [comm.all_reduce(np.full(3, comm.rank, np.float32)) for comm in comms]
        assert all((total == 6).all() for total in sums)
        works = [comm.all_gather(np.array([comm.rank]), block=False) for comm in comms]
        assert [work.wait(timeout_s=10).tolist() for work in works] == [[0, 1, 2, 3]] * 4
        assert all(work.done for work in works)
        # One alone waits for the others, and says for whom.
        work = comms[0].all_reduce(np.ones(2), block=False)
        with pytest.raises(rccl.CollectiveTimeoutError, match=r"rank 1 last finished all_gather number 2") as late:
            work.wait(timeout_s=0.1)
        assert late.value.waiting_for == (1, 2, 3)
        assert (late.value.op, late.value.seq) == ("all_reduce", 3)
    finally:
        for comm in comms:
            comm.abort()


def test_more_ranks_than_devices():
    with pytest.raises(rccl.InvalidUsageError, match="ROCPY_HOST_DEVICES"):
        rccl.Communicator.init_all(65)
    with pytest.raises(rccl.InvalidUsageError, match="its own device"):
        rccl.Communicator.init_all([1, 1])


def test_operands_that_are_refused():
    def body(comm):
        x = np.arange(12.0).reshape(3, 4)
        with pytest.raises(rocpy.InvalidOperandError, match="not C-contiguous"):
            comm.all_reduce(x.T)
        with pytest.raises(rocpy.InvalidOperandError, match="int16"):
            comm.all_reduce(np.zeros(2, np.int16))
        with pytest.raises(rocpy.InvalidOperandError, match="expected 12 of float64"):
            comm.all_reduce(x, out=np.zeros(3))
        frozen = np.zeros((3, 4))
        frozen.flags.writeable = False
        with pytest.raises(rocpy.InvalidOperandError, match="read-only"):
            comm.all_reduce(x, out=frozen)
        with pytest.raises(rccl.InvalidArgumentError, match="op: got 'mean'"):
            comm.all_reduce(x, op="mean")
        with pytest.raises(rccl.InvalidArgumentError, match="root"):
            comm.broadcast(x, root=1)
        with pytest.raises(rccl.InvalidArgumentError, match="timeout_s"):
            comm.all_reduce(x, timeout_s=0)
        with pytest.raises(rocpy.InvalidOperandError, match="x: broadcast needs an array"):
            comm.broadcast(None)
        work = comm.all_reduce(x, block=False)
        for refused in (-1, 0, float("nan"), "soon"):
            with pytest.raises(rccl.InvalidArgumentError, match="timeout_s"):
                work.wait(timeout_s=refused)
            with pytest.raises(rccl.InvalidArgumentError, match="timeout_s"):
                comm.finalize(timeout_s=refused)
        assert (work.wait() == x).all()
        assert comm.reduce(x, root=np.int64(0)).shape == (3, 4)
        with rccl.group(), pytest.raises(rccl.InvalidArgumentError, match="recv_counts"):
            comm.all_to_all_v(np.zeros(2), [2])
        return comm.all_reduce(np.zeros((0, 2))).shape, comm.all_gather(np.zeros((4, 0))[:, ::-1]).shape

    assert good(on_threads(1, body)) == [((0, 2), (4, 0))]


def test_results_that_overlap_inputs():
    def body(comm):
        rank, n = comm.rank, comm.nranks
        memory = np.arange(12.0)
        for call, x, out in (
            (comm.all_reduce, memory[:4], memory[2:6]),
            (comm.all_to_all, memory[:4], memory[:4]),
            (comm.all_gather, memory[:2], memory[1:5]),
            (comm.reduce_scatter, memory[:4], memory[1:3]),
        ):
            with pytest.raises(rocpy.InvalidOperandError, match="overlaps x"):
                call(x, out=out)
        # In place, as RCCL has it.
        part = memory[2 * rank : 2 * rank + 2].copy()
        gathered = np.zeros(2 * n)
        gathered[2 * rank : 2 * rank + 2] = part
        comm.all_gather(gathered[2 * rank : 2 * rank + 2], out=gathered)
        scattered = np.arange(2.0 * n)
        comm.reduce_scatter(scattered, out=scattered[2 * rank : 2 * rank + 2])
        return gathered.tolist(), scattered[2 * rank : 2 * rank + 2].tolist()

    assert good(on_threads(2, body)) == [([0, 1, 2, 3], [0, 2]), ([0, 1, 2, 3], [4, 6])]


def test_a_result_that_overlaps_the_bias():
    def body(comm):
        memory, x = np.arange(5.0), np.ones(4)
        for out, bias in ((memory[1:], memory[:4]), (memory[:4], memory[1:])):
            with pytest.raises(rocpy.InvalidOperandError, match="out: overlaps bias"):
                comm.all_reduce(x, out=out, bias=bias)
        untouched = memory.copy()
        comm.all_reduce(x, out=memory[1:], bias=memory[1:])  # its own memory
        comm.all_reduce(x, out=x, bias=x)
        return untouched.tolist(), memory.tolist(), x.tolist()

    assert good(on_threads(2, body)) == [([0, 1, 2, 3, 4], [0, 3, 4, 5, 6], [3, 3, 3, 3])] * 2


def test_children():
    def body(comm):
        half = comm.split(comm.rank % 2, key=-comm.rank)
        assert half.all_reduce(np.array([comm.rank])).tolist() == [2 if comm.rank % 2 == 0 else 4]
        shape = (half.rank, half.nranks)
        half.close()
        assert (comm.split(None if comm.rank == 3 else 0) is None) == (comm.rank == 3)
        if comm.rank != 0:
            with comm.shrink([0]) as rest:
                assert rest.all_gather(np.array([comm.rank])).tolist() == [1, 2, 3]
        return shape

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rocpy.RocpyWarning)
        assert good(on_threads(4, body)) == [(1, 2), (1, 2), (0, 2), (0, 2)]


def test_life():
    ident = rccl.UniqueId.make()
    assert pickle.loads(pickle.dumps(ident)) == ident
    comm = rccl.Communicator.init(1, 0, ident, name="mine")
    assert [known["state"] for known in rccl.status() if known["name"] == "mine"] == ["ready"]
    comm.finalize()
    comm.close()
    comm.abort()
    with pytest.raises(rocpy.ClosedError):
        comm.barrier()
    with pytest.raises(KeyError), rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as aborted:
        raise KeyError
    assert aborted.is_closed
    dropped = rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=1, name="mine")
    with pytest.warns(rocpy.RocpyWarning, match=r"name='mine', device=1\) was dropped without close"):
        del dropped
    with pytest.raises(rccl.InvalidArgumentError, match="ncclGetUniqueId"):
        rccl.Communicator.init(1, 0, bytes(128))
    with pytest.raises(rccl.InvalidArgumentError, match="128 bytes"):
        rccl.UniqueId(b"short")


def test_missing_rank_is_named_at_init():
    ident = rccl.UniqueId.make()
    results = []

    def join():
        try:
            rccl.Communicator.init(3, 1, ident, device=1, timeout_s=10)
        except rccl.RcclError as error:
            results.append(error)

    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    time.sleep(0.2)
    with pytest.raises(rccl.CollectiveTimeoutError, match="rank 2 has not joined") as late:
        rccl.Communicator.init(3, 0, ident, device=0, timeout_s=0.5)
    thread.join(30)
    assert late.value.waiting_for == (2,)
    # The other one, more patient, does not blame the impatient one.
    assert isinstance(results[0], rccl.CollectiveTimeoutError)
    assert results[0].waiting_for == (2,)


def test_nothing_is_left(open_files):
    good(on_threads(2, lambda comm: comm.all_reduce(np.ones(100000))))
    before = open_files()
    for _ in range(5):
        good(on_threads(2, lambda comm: comm.all_reduce(np.ones(100000))))
    assert open_files() == before


def test_one_that_is_dropped_is_aborted_where_warnings_are_errors(monkeypatch):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reports.append(str(report.exc_value)))
    dropped = rccl.Communicator.init(1, 0, rccl.UniqueId.make(), name="mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del dropped
    assert len(reports) == 1
    assert "was dropped without close(): it was aborted" in reports[0]
    assert "leaked" not in reports[0]
