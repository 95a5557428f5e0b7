# SPDX-License-Identifier: MIT
"""The tool that counts nccl4py's examples: programs of their kinds run, and those that fail are told."""

import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "nccl_examples.py"

ONE_PROCESS = """
import sys
import cupy as cp
import nccl.core as nccl
from cuda.core import Device, system

assert system.get_num_devices() == cp.cuda.runtime.getDeviceCount() == 2
for number in range(2):
    device = Device(number)
    device.set_current()
    assert device.to_system_device().memory_info.total > 0
    assert (device.device_id, device.compute_capability.major) == (number, 0)
comms = nccl.Communicator.init_all()
sums, rings = [], []
for comm in comms:
    with cp.cuda.Device(comm.device.device_id):
        sums.append([cp.full(64, comm.rank + 1.0), cp.zeros(64)])
        rings.append([cp.arange(8) + 100 * comm.rank, cp.zeros(8, dtype=int)])
with nccl.group():
    for comm, (sent, received), (mine, other) in zip(comms, sums, rings):
        comm.allreduce(sent, received, nccl.SUM)
        comm.send(mine, (comm.rank + 1) % 2)
        comm.recv(other, (comm.rank - 1) % 2)
for comm in comms:
    cp.cuda.Device(comm.device.device_id).synchronize()
    assert cp.asnumpy(sums[comm.rank][1]).tolist() == [3.0] * 64
    assert int(cp.asnumpy(rings[comm.rank][1])[0]) == 100 * (1 - comm.rank)
with nccl.group():
    for comm in comms:
        comm.finalize()
for comm in comms:
    comm.destroy()
sys.exit(0)
"""

MPI = """
import cupy as cp
from mpi4py import MPI
import nccl.core as nccl

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
assert size == 2
cp.cuda.Device(rank).use()
ident = world.bcast(nccl.get_unique_id() if rank == 0 else None, root=0)
again = nccl.get_unique_id() if rank == 0 else nccl.get_unique_id(empty=True)
world.Bcast(again.as_ndarray.view("i1"), root=0)
config = nccl.NCCLConfig(cta_policy=nccl.CTAPolicy.ZERO)
comm = nccl.Communicator.init(nranks=size, rank=rank, unique_id=ident, config=config)
other = nccl.Communicator.init(size, rank, again)
send, recv = nccl.cupy.empty(1000, dtype=cp.float32), nccl.cupy.empty(1000 * size, dtype=cp.float32)
handles = [comm.register_buffer(send), comm.register_buffer(recv)]
windows = [comm.register_window(one, flags=nccl.WindowFlag.CollSymmetric) for one in (send, recv)]
assert all(one.is_valid for one in handles + windows)
send.fill(float(rank))
comm.allgather(send, recv)
cp.cuda.Device(rank).synchronize()
assert all((recv.reshape(size, -1)[r] == r).all() for r in range(size))
comm.allreduce(send, recv, comm.create_pre_mul_sum(0.5, nccl.FLOAT32))
assert (recv[:1000] == 0.5).all()
for one in (comm, other):
    one.finalize()
    one.destroy()
"""

TENSORS = """
import torch
from mpi4py import MPI
import nccl.core as nccl

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
device = torch.device(f"cuda:{rank % torch.cuda.device_count()}")
torch.cuda.set_device(device)
comm = nccl.Communicator.init(size, rank, world.bcast(nccl.get_unique_id() if rank == 0 else None))
assert comm.device.device_id == rank
x = torch.tensor([float(rank)], device=device)
comm.reduce(x, x, nccl.SUM)
torch.cuda.synchronize()
assert x.item() == size * (size - 1) / 2
comm.destroy()
"""


def count(folder):
    done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_examples_of_one_process_are_counted(tmp_path):
    inner = tmp_path / "python"
    inner.mkdir()
    (inner / "ring.py").write_text(ONE_PROCESS)
    (inner / "helper.py").write_text("raise RuntimeError('no example: it does not name the library')\n")
    (tmp_path / "03_multimem.py").write_text("import nccl.core\nimport nccl.core.device.cute\n")
    (tmp_path / "wrong.py").write_text("from nccl.core import SUM\nassert SUM == 1\n")
    status, lines, _ = count(tmp_path)
    assert status == 1
    assert lines[0] == "03_multimem.py: ModuleNotFoundError: No module named 'nccl'"
    assert lines[1].startswith("    known: kernels in NVIDIA's CuTe DSL")
    assert lines[2:] == ["wrong.py: AssertionError", "1 of 3 run"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(util.find_spec("mpi4py") is None, reason="mpi4py is not installed (the extra `mpi`)")
def test_examples_of_several_processes_are_counted(tmp_path, torch):
    (tmp_path / "registered.py").write_text(MPI)
    if not torch.cuda.is_available():
        (tmp_path / "tensors.py").write_text(TENSORS)
    status, lines, error = count(tmp_path)
    assert (status, len(lines)) == (0, 1), (lines, error)
