# SPDX-License-Identifier: MIT
"""Real launchers: torchrun, mpiexec with mpi4py; ranks on made-up machines go over MPI or gloo, and are told so."""

import json
import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest
import torch_ranks

from rocpy import rccl
from rocpy.rccl.rendezvous.boards import StoreBoard

SUPPORT = Path(torch_ranks.__file__).parent
HAS_MPI = util.find_spec("mpi4py") is not None and shutil.which("mpiexec") is not None
needs_mpi = pytest.mark.skipif(not HAS_MPI, reason="mpi4py or mpiexec is not installed (the extra `mpi`)")


def run(*words, **environment):
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_mpi
def test_mpiexec():
    found = json.loads(run(shutil.which("mpiexec"), "-n", 2, sys.executable, "-P", SUPPORT / "mpi_program.py"))
    for rank, row in enumerate(found):
        assert row["by_variables"] == [2.0, 2.0]
        assert row["device"] == rank
        assert row["same"]
        assert (row["kind"], row["transport"]) == ("Communicator", "mpi4py")
        assert "split: mpi4py carries this communicator" in row["refused"]
        assert "cannot report which rank it waits for" in row["late"]


PROGRAM = """
import os
import numpy as np
from rocpy import rccl
with rccl.Communicator.from_env(timeout_s=60) as comm:
    # In one piece: both ranks write to one pipe.
    os.write(1, f"{comm.rank} {comm.device_index} {comm.all_reduce(np.ones(3)).tolist()}\\n".encode())
"""


@pytest.mark.slow
@pytest.mark.torch
def test_torchrun(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, program]
    lines = run(sys.executable, "-P", *words, OMP_NUM_THREADS="1").splitlines()
    assert sorted(lines) == ["0 0 [2.0, 2.0, 2.0]", "1 1 [2.0, 2.0, 2.0]"]


@pytest.mark.torch
def test_a_store_names_who_is_missing(torch):
    import torch.distributed as dist

    store = dist.HashStore()
    with pytest.raises(rccl.CollectiveTimeoutError) as late:
        rccl.Communicator.from_store(store, 0, 3, prefix="x/", timeout_s=0.3)
    assert late.value.waiting_for == (1, 2)
    # The store is as before: the same prefix may be used again.
    with rccl.Communicator.from_store(store, 0, 1, prefix="x/") as comm:
        assert comm.all_reduce(np.ones(1)).tolist() == [1.0]


@pytest.mark.torch
def test_from_torch_needs_a_group(torch):
    with pytest.raises(rccl.InvalidArgumentError, match="init_process_group"):
        rccl.Communicator.from_torch()


@pytest.mark.slow
@pytest.mark.torch
def test_ranks_on_several_machines_go_over_gloo(tmp_path):
    workers = torch_ranks.Workers(2)
    found = workers(torch_ranks.far_apart, str(tmp_path / "store"))
    workers.close()
    for rank, (near, kind, told, results, refused) in enumerate(found):
        assert near == ([2.0, 2.0], "Communicator")
        assert kind[0] == "CarriedCommunicator"
        assert "gloo" in kind[1]
        assert (len(told) == 1 and "shares no memory with ranks [1]" in told[0]) if rank == 0 else told == []
        assert results[0] == [[1.0, 3.0], [5.0, 7.0]]
        assert results[1] == [1.0] * 3
        assert results[2] == [results[0][rank]]
        assert results[3] == (4, 2)
        assert results[4] == [[rank * 2.0, rank * 2.0 + 1], [rank * 2.0 + 1, rank * 2.0 + 2]]
        assert results[5] == [[1.0, 2.0], [3.0, 4.0]]
        assert "shares no memory" in refused


@pytest.mark.torch
def test_a_board_of_keys(torch):
    import torch.distributed as dist

    store = dist.HashStore()
    board = StoreBoard(store, "p/")
    board.put("a", "text")
    assert board.get("a") == "text"
    board.drop("a")
    assert board.get("a") is None
