# SPDX-License-Identifier: MIT
"""How processes meet: launchers' variables, TCP, a folder; who is missing is named, and nothing is left behind."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from rocpy import rccl
from rocpy.rccl.rendezvous import boards, tcp
from rocpy.rccl.rendezvous.boards import BoardChannel, StoreBoard
from rocpy.rccl.rendezvous.bootstrap import (
    LaunchFacts,
    agree,
    default_address,
    introduction,
    launch_facts,
    open_channel,
)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def meet_all(store, facts, *, seconds=10.0, **said):
    """What each of some ranks gets, or raises; `said` are lists of what the ranks say of themselves."""
    results = {}

    def run(fact):
        note = introduction() | {name: values[fact.rank] for name, values in said.items()}
        try:
            channel = open_channel(fact, store)
            try:
                results[fact.rank] = agree(channel, fact, time.monotonic() + seconds, lambda: b"i" * 128, note)
            finally:
                channel.close()
        except rccl.RcclError as error:
            results[fact.rank] = error

    threads = [threading.Thread(target=run, args=(fact,), daemon=True) for fact in facts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return results


def ranks(*numbers, of):
    return [LaunchFacts(number, of, number, "test") for number in numbers]


@pytest.fixture(params=["tcp", "file"])
def store(request, tmp_path):
    """An address to meet at; a folder is empty afterwards."""
    if request.param == "tcp":
        yield f"tcp://127.0.0.1:{free_port()}"
    else:
        yield f"file://{tmp_path / 'meeting'}"
        assert list((tmp_path / "meeting").iterdir()) == []


def test_all_get_the_id(store):
    found = meet_all(store, ranks(0, 1, 2, of=3))
    assert {met.unique_id for met in found.values()} == {b"i" * 128}
    assert [found[rank].facts for rank in range(3)] == ranks(0, 1, 2, of=3)
    assert found[0].hosts == (socket.gethostname(),)


def test_numbers_on_a_machine_are_counted_where_no_launcher_tells_them(store):
    facts = [LaunchFacts(rank, 4, None, "test") for rank in range(4)]
    found = meet_all(store, facts, machine=list("abab"), host=list("xyxy"))
    assert [found[rank].facts.local_rank for rank in range(4)] == [0, 0, 1, 1]
    assert found[3].hosts == ("x", "y")


def test_ranks_that_count_differently_are_told(store):
    found = meet_all(store, [LaunchFacts(0, 2, 0, "test"), LaunchFacts(1, 3, 1, "test")], seconds=2.0)
    assert isinstance(found[0], rccl.InvalidUsageError)
    for error in found.values():
        assert f"rank 1 (process {os.getpid()} on {socket.gethostname()}) expects 3 ranks" in str(error)


def test_missing_ranks_are_named(store):
    found = meet_all(store, ranks(0, 2, of=4), seconds=0.6)
    assert {type(error) for error in found.values()} == {rccl.CollectiveTimeoutError}
    assert found[0].waiting_for == (1, 3)


def test_disagreement_is_told_to_all(store):
    found = meet_all(store, ranks(0, 1, of=2), version=[23004, 22707])
    assert all(isinstance(error, rccl.InvalidUsageError) for error in found.values())
    assert "RCCL 22707" in str(found[1])


def test_launchers_variables():
    assert launch_facts({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}) == LaunchFacts(2, 4, 0, "torchrun")
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
    assert launch_facts(slurm).launcher == "Slurm"
    with pytest.raises(rccl.InvalidArgumentError, match="no launcher's variables"):
        launch_facts({})
    with pytest.raises(rccl.InvalidArgumentError, match="not one of the 4 ranks"):
        launch_facts({"RANK": "4", "WORLD_SIZE": "4"})
    with pytest.raises(rccl.InvalidArgumentError, match="tcp://host:port"):
        open_channel(ranks(0, of=2)[0], "udp://here")
    assert launch_facts({"RANK": "0", "WORLD_SIZE": "1"}).local_rank is None
    assert default_address(LaunchFacts(0, 2, 0, "torchrun"), {"MASTER_PORT": "7"}) == "tcp://localhost:8"
    with pytest.raises(rccl.InvalidArgumentError, match="MPICH does not set MASTER_PORT"):
        default_address(LaunchFacts(0, 2, 0, "MPICH"), {})


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "x"}, "RANK='x'"),
        ({"RANK": "-1"}, "RANK='-1'"),
        ({"WORLD_SIZE": "4.0"}, "WORLD_SIZE='4.0'"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x'"),
        ({"LOCAL_RANK": "99"}, "device: by torchrun this is the process with the number 99"),
        ({"WORLD_SIZE": "2", "MASTER_PORT": "x"}, "MASTER_PORT='x' must be a number from 1 to 65534"),
        ({"WORLD_SIZE": "2", "MASTER_PORT": "65535"}, "MASTER_PORT='65535'"),
    ],
)
def test_the_variable_that_is_wrong_is_named(monkeypatch, variables, named):
    for name, value in ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"} | variables).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(rccl.RcclError) as refused:
        rccl.Communicator.from_env(timeout_s=1)
    assert named in str(refused.value)


@pytest.mark.parametrize("store", [5, b"tcp://here:1", "file:///dev/null", "file:///dev/null/x", "tcp://::1:7"])
def test_stores_that_are_none(monkeypatch, store):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(rccl.InvalidArgumentError, match="store: "):
        rccl.Communicator.from_env(store=store, timeout_s=1)


class FailingStore:
    """A store of torch.distributed whose server has gone."""

    def check(self, keys):
        return False

    def set(self, key, value):
        raise RuntimeError("connection reset by peer")


def many_files(*_, **__):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["a folder without files", "a store that fails", "many files"])
def test_stores_that_fail(monkeypatch, tmp_path, name, rank):
    facts = LaunchFacts(rank, 2, rank, "test")
    if name == "a folder without files":
        channel = open_channel(facts, "file:///proc")
    elif name == "a store that fails":
        channel = BoardChannel(StoreBoard(FailingStore()), rank, 2, b"key")
    else:
        channel = open_channel(facts, f"file://{tmp_path}")
        monkeypatch.setattr(boards.os, "open", many_files)
    with pytest.raises(rccl.RcclSystemError, match=f"^store: rank {rank} cannot use .*") as error:
        channel.exchange("id", {}, lambda notes: {}, time.monotonic() + 2)
    assert (error.value.op, error.value.rank) == ("init", rank)
    channel.close()


def test_a_server_without_files(monkeypatch):
    monkeypatch.setattr(tcp.selectors, "DefaultSelector", many_files)
    with pytest.raises(rccl.RcclSystemError, match="rank 0 cannot listen at .* pass store= with another port"):
        open_channel(LaunchFacts(0, 2, 0, "test"), "tcp://127.0.0.1:1")


def test_addresses_of_ipv6():
    address = default_address(LaunchFacts(0, 2, 0, "torchrun"), {"MASTER_ADDR": "::1", "MASTER_PORT": "34999"})
    assert address == "tcp://[::1]:35000"
    channel = open_channel(LaunchFacts(1, 2, 0, "torchrun"), address)
    assert channel._address == ("::1", 35000)
    channel.close()


PROGRAM = """
import numpy as np
from rocpy import rccl
with rccl.Communicator.from_env(timeout_s=50) as comm:
    print(comm.rank, comm.device_index, comm.all_reduce(np.ones(3)).tolist())
"""


def test_from_env():
    port = free_port()
    processes = []
    for rank in range(2):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port - 1),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM],
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    assert [process.communicate(timeout=100)[0].strip() for process in processes] == [
        "0 0 [2.0, 2.0, 2.0]",
        "1 1 [2.0, 2.0, 2.0]",
    ]


class VanishingStore:
    """A store in which another rank acts between a ``check`` and the ``get`` after it."""

    def __init__(self):
        self.values = {}
        self.between = None

    def set(self, key, value):
        self.values[key] = value.encode()

    def check(self, keys):
        is_there = all(key in self.values for key in keys)
        if self.between is not None:
            self.between()
        return is_there

    def get(self, key):
        assert key in self.values, "a real store would wait here for what never comes"
        return self.values[key]


def test_a_note_dropped_while_it_is_read():
    store = VanishingStore()
    reader, writer = StoreBoard(store, "x/"), StoreBoard(store, "x/")
    assert reader.get("rank-1") is None
    writer.put("rank-1", "here")
    assert reader.get("rank-1") == "here"
    store.between = lambda: writer.drop("rank-1")
    assert reader.get("rank-1") is None
    store.between = None
    writer.put("rank-1", "again")
    assert reader.get("rank-1") == "again"
