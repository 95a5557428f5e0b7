# SPDX-License-Identifier: MIT
"""torch.distributed in two processes: DDP and FSDP train as over gloo; objects, subgroups; gloo as a carrier."""

import subprocess
import sys

import pytest
import torch_ranks

import rocpy_torch_backend

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def workers():
    made = torch_ranks.Workers(2)
    yield made
    made.close()


@pytest.mark.parametrize(
    "kind", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow), pytest.param("fully_shard", marks=pytest.mark.slow)]
)
def test_training_gives_gloos_losses(workers, tmp_path, kind):
    expected = workers(torch_ranks.train, kind, "gloo", str(tmp_path / "gloo"))
    found = workers(torch_ranks.train, kind, "rocpy", str(tmp_path / "rocpy"))
    for (losses, counts, name), (wanted, _, _) in zip(found, expected, strict=True):
        assert name == "rocpy"
        assert counts["all_reduce"] >= 6
        assert kind == "ddp" or (counts["all_gather"] >= 6 and counts["reduce_scatter"] >= 6)
        # Two ranks: a sum has one order, so the bits are the same.
        assert losses == wanted
        assert losses[-1] < losses[0]


def test_objects_subgroups_and_batches(workers, tmp_path):
    found = workers(torch_ranks.objects, str(tmp_path / "store"))
    for rank, (gathered, told, ones, received) in enumerate(found):
        assert gathered == [0, 1]
        assert told == [("root", 7)]
        assert ones == [2.0] * 3
        assert received == [1.0 - rank + i for i in range(5)]


REGISTERED = """
import sys
import torch
import torch.distributed as dist
print("rocpy" in dist.Backend.backend_list, "rocpy" in sys.modules)
"""


def test_the_backend_registers_itself():
    done = subprocess.run(
        [sys.executable, "-P", "-c", REGISTERED], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.split() == ["True", "False"]


BROKEN = """
try:
    dist.init_process_group("rocpy", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    print(error)
"""


def test_torch_stands_where_rocpy_is_broken():
    program = f"import sys; sys.modules['rocpy'] = None\n{REGISTERED}{BROKEN}"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    registered, told = done.stdout.splitlines()
    assert registered == "True True"
    assert "rocpy" in told


def test_what_cannot_be_told_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "told_of_rocpy.py").write_text("value = 7\n")

    def tell():
        raise KeyError("changed")

    rocpy_torch_backend.when_imported("told_of_rocpy", tell)
    with pytest.warns(RuntimeWarning, match="could not make itself known to told_of_rocpy: KeyError"):
        import told_of_rocpy
    assert told_of_rocpy.value == 7
    with pytest.warns(RuntimeWarning, match="told_of_rocpy"):
        rocpy_torch_backend.when_imported("told_of_rocpy", tell)


def test_a_communicator_that_gloo_carries(workers, tmp_path):
    found = workers(torch_ranks.carried_by_gloo, str(tmp_path / "store"))
    for rank, (results, late) in enumerate(found):
        assert results == [[2.0, 3.0] if rank == 0 else [1.0, 2.0], [3.0, 2.0**31], [2**31 + 1], [0, 1]]
        assert ("recv number 7 did not complete within 0.05 s" in late) == (rank == 0)
