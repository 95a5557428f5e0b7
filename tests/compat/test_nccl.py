# SPDX-License-Identifier: MIT
"""Programs written for nccl4py run after changing an import: its order of arguments, its constants, its errors."""

import os
import threading

import numpy as np
import pytest

import rocpy
from rocpy.compat import nccl


def on_ranks(nranks, body):
    """Run body(comm) on a thread for each rank, as nccl4py's programs begin and end."""
    unique_id = nccl.get_unique_id()
    results, errors = [None] * nranks, []

    def run(rank):
        try:
            with rocpy.Device(rank):
                comm = nccl.Communicator.init(nranks=nranks, rank=rank, unique_id=unique_id)
            results[rank] = body(comm)
            comm.destroy()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


@pytest.fixture
def newest_rccl():
    """Skips where the host platform presents an older release, whose RCCL lacks what the test calls."""
    missing = rocpy.platform.missing()["rccl"]
    if missing:
        pytest.skip(f"this release's RCCL has no {min(missing)}")
    if os.environ.get("ROCPY_HOST_STAGING") == "1":
        pytest.skip("device memory is no numpy array")


def test_collectives():
    def body(comm):
        rank, n = comm.rank, comm.nranks
        x = np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * rank
        whole = [np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * r for r in range(n)]
        y = np.zeros(10, np.float32)  # longer than needed, as nccl4py allows
        comm.allreduce(x, y, nccl.SUM)
        assert (y[:6] == sum(whole).ravel()).all()
        assert (y[6:] == 0).all()
        comm.reduce(x, y, nccl.MAX)
        assert (y[:6] == whole[-1].ravel()).all()
        comm.reduce(x, y if rank == 1 else None, nccl.NcclRedOp.MIN, 1)
        assert rank != 1 or (y[:6] == whole[0].ravel()).all()
        z = np.zeros((3, 2), np.float32)
        comm.broadcast(x if rank == 2 else None, z, 2)
        assert (z == whole[2]).all()
        gathered = np.zeros((n, 3, 2), np.float32)
        comm.allgather(x, gathered)
        assert (gathered == whole).all()
        gathered[:] = 0
        comm.gather(x, gathered if rank == 0 else None, root=0)
        assert rank != 0 or (gathered == whole).all()
        part = np.zeros(2, np.float32)
        comm.reduce_scatter(x, part, nccl.SUM)
        assert (part == sum(whole)[rank]).all()
        comm.scatter(x if rank == 1 else None, part, root=1)
        assert (part == whole[1][rank]).all()
        comm.alltoall(x, z)
        assert (z == [whole[r][rank] for r in range(n)]).all()
        op = comm.create_pre_mul_sum(0.5 + rank, nccl.FLOAT32)
        comm.allreduce(np.ones(2, np.float32), part, op)
        op.close()
        return part.tolist()

    assert on_ranks(3, body) == [[4.5, 4.5]] * 3


def test_one_to_one_and_groups():
    def body(comm):
        rank, n = comm.rank, comm.nranks
        sent, received = np.full(3, float(rank)), np.zeros(3)
        with nccl.group():
            comm.send(sent, peer=(rank + 1) % n)
            comm.recv(received, peer=(rank - 1) % n)
        again = np.zeros(3)
        nccl.group_start()
        comm.send(sent, (rank - 1) % n)
        comm.recv(again, (rank + 1) % n)
        nccl.group_end()
        return received[0], again[0]

    assert on_ranks(3, body) == [(2.0, 1.0), (0.0, 2.0), (1.0, 0.0)]
    with pytest.raises(nccl.NCCLError, match="no group is open"):
        nccl.group_end()


def test_windows_and_signals(newest_rccl):
    def body(comm):
        rank, n = comm.rank, comm.nranks
        memory = nccl.mem_alloc(64, comm.device)
        here = np.asarray(memory).view(np.float32)
        here[:] = rank
        window = comm.register_window(memory, nccl.WindowFlag.CollSymmetric)
        assert window.is_valid
        assert window.user_ptr == memory.handle
        comm.put_signal(np.asarray(memory)[:16], (rank + 1) % n, window, 32)
        comm.wait_signal(nccl.WaitSignalDesc(peer=(rank - 1) % n))
        comm.signal((rank + 1) % n)
        comm.wait_signal([nccl.WaitSignalDesc((rank - 1) % n, op_count=1)])
        seen = here[8], here[0]
        comm.allreduce(np.ones(1), np.ones(1), nccl.SUM)
        window.close()
        return float(seen[0]), float(seen[1])

    assert on_ranks(2, body) == [(1.0, 0.0), (0.0, 1.0)]


def test_family(newest_rccl):
    def body(comm):
        part = comm.split(comm.rank % 2, 0)
        size = part.nranks
        part.destroy()
        rest = comm.split(nccl.NCCL_SPLIT_NOCOLOR if comm.rank == 0 else 1, 0)
        assert rest.is_valid == (comm.rank != 0)
        rest.destroy()
        if comm.rank != 1:
            rest = comm.shrink([1], flag=nccl.CommShrinkFlag.Default)
            assert rest.nranks == 2
            rest.abort()
        assert comm.get_mem_stat(nccl.CommMemStat.GpuMemTotal) > 0
        comm.suspend()
        comm.resume()
        comm.revoke()
        return size

    assert on_ranks(3, body) == [2, 1, 2]


def test_what_is_refused():
    def body(comm):
        with pytest.raises(nccl.NcclInvalid, match="sendbuf: is not C-contiguous"):
            comm.allreduce(np.ones((3, 4)).T, np.ones((4, 3)), nccl.SUM)
        with pytest.raises(nccl.NcclInvalid, match="recvbuf: has dtype FLOAT32, sendbuf has FLOAT64"):
            comm.allgather(np.ones(3), np.ones(3, np.float32))
        with pytest.raises(nccl.NcclInvalid, match="op: got 9"):
            comm.allreduce(np.ones(1), np.ones(1), 9)
        with pytest.raises(nccl.NcclInvalid, match="must be 0"):
            comm.signal(0, 1)
        with pytest.raises(rocpy.UnsupportedError, match="create_dev_comm"):
            comm.create_dev_comm(None)
        return comm.ptr != 0

    assert on_ranks(1, body) == [True]
    with pytest.raises(nccl.NcclInvalid, match="null"):
        nccl.Communicator().allreduce(np.ones(1), np.ones(1), nccl.SUM)
    with pytest.raises(nccl.NcclInvalid, match="min_ctas"):
        nccl.NCCLConfig(min_ctas="two")
    nccl.group_start()
    with pytest.raises(rocpy.UnsupportedError, match="cannot estimate"):
        nccl.group_simulate_end()


def test_records(newest_rccl):
    assert nccl.NcclDataType.BFLOAT16.itemsize == 2
    assert nccl.FLOAT is nccl.FLOAT32
    assert nccl.get_version().libnccl.version >= nccl.Version(2, 18, 3)
    assert "invalid usage" in nccl.get_error_string(5)
    assert isinstance(nccl.get_last_error(), str)
    assert dict(nccl.params) == {}
    config = nccl.NCCLConfig(min_ctas=1, comm_name="mine", blocking=True)
    comm = nccl.Communicator.init(1, 0, [nccl.get_unique_id()], config)
    assert comm.own.name == "mine"
    comm.finalize()
    assert (comm.rank, comm.nranks) == (0, 1)
    comm.destroy()
    assert not comm.is_valid
