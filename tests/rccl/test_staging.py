# SPDX-License-Identifier: MIT
"""Arrays in CPU memory where devices have memory of their own: every call, in groups, and as work that goes on."""

PROGRAM = """
import numpy as np
import pytest
import rocpy
from rocpy import distributed, rccl

def body(comm):
    rank, n = comm.rank, comm.nranks
    x = np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * rank
    whole = [np.arange(6, dtype=np.float32).reshape(3, 2) + 10 * r for r in range(n)]
    assert (comm.all_reduce(x) == sum(whole)).all()
    assert (comm.all_reduce_with_bias(x, x * 0 + 1) == sum(whole) + 1).all()
    assert (comm.all_reduce(x, op=comm.premul_sum(2.0)) == 2 * sum(whole)).all()
    assert (comm.all_gather(x) == np.concatenate(whole)).all()
    assert (comm.reduce_scatter(x) == sum(whole)[rank : rank + 1]).all()
    assert (comm.all_to_all(x) == [part[rank] for part in whole]).all()
    assert (comm.broadcast(x, root=2) == whole[2]).all()
    reduced, gathered = comm.reduce(x, root=1), comm.gather(x, root=0)
    assert (reduced is None) == (rank != 1) and (gathered is None) == (rank != 0)
    part = np.zeros((1, 2), np.float32)
    assert comm.scatter(x if rank == 0 else None, root=0, out=part) is part
    assert (part == whole[0][rank : rank + 1]).all()
    traded = comm.all_to_all_v(x, [1] * n)
    assert (traded == [part[rank] for part in whole]).all()
    comm.barrier()
    received = np.zeros((3, 2), np.float32)
    with rccl.group():
        comm.send(x, (rank + 1) % n)
        assert comm.recv(received, (rank - 1) % n) is received
        summed = comm.all_reduce(x)
    assert (received == whole[rank - 1]).all()
    assert (summed == sum(whole)).all()
    work = comm.all_reduce(x, block=False)
    assert (work.wait() == sum(whole)).all()
    assert (work.wait() == sum(whole)).all()
    inplace = x.copy()
    assert comm.all_reduce(inplace, out=inplace) is inplace
    assert (inplace == sum(whole)).all()
    assert comm.all_reduce(np.zeros((0, 2))).shape == (0, 2)
    with pytest.raises(rocpy.InvalidOperandError, match="not C-contiguous"):
        comm.all_reduce(x, out=np.zeros((2, 3), np.float32).T)
    with pytest.raises(rocpy.InvalidOperandError, match="read-only"):
        frozen = np.zeros((3, 2), np.float32)
        frozen.flags.writeable = False
        comm.all_reduce(x, out=frozen)
    with rocpy.Buffer((3, 2), "float32", device=rank) as buffer:
        buffer.copy_from(x)
        on_device = comm.all_reduce(buffer)
        comm.barrier()
        assert (on_device.to_numpy() == sum(whole)).all()
        with pytest.raises(rocpy.InvalidOperandError):
            comm.all_reduce(buffer, out=np.zeros((3, 2), np.float32))
    return [call["op"] for call in comm.trace()].count("all_reduce")

assert not rocpy.platform.current().host_memory
assert len(set(distributed.run_threads(body, 3))) == 1
print("good")
"""


def test_arrays_in_cpu_memory_are_copied(run_python):
    assert run_python(PROGRAM, ROCPY_HOST_STAGING="1", timeout_s=120).stdout.split() == ["good"]


# One thread makes the call of rank 0, then that of rank 1: memory of earlier communicators must not be freed between.
ONE_AFTER_ANOTHER = """
import numpy as np
from rocpy import rccl

def play():
    comms = rccl.Communicator.init_all(2, timeout_s=20)
    works = [comm.all_reduce(np.ones(2), block=False) for comm in comms]
    assert [work.wait().tolist() for work in works] == [[2.0, 2.0]] * 2
    with rccl.group():
        for comm in comms:
            comm.close()

for _ in range(20):
    play()
print("good")
"""


def test_memory_of_the_communicators_before_is_freed_before_a_call_runs(run_python):
    assert run_python(ONE_AFTER_ANOTHER, ROCPY_HOST_STAGING="1", timeout_s=60).stdout.split() == ["good"]
