# SPDX-License-Identifier: MIT
"""What ranks do, seen from outside: RCCL's RAS protocol against a server, host communicators in its shape, commands."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from rccl_ranks import on_threads

from rocpy import rccl
from rocpy.cli import _checks_rccl
from rocpy.cli._checks import examine
from rocpy.cli._machine import Machine
from rocpy.rccl.monitoring.ras import ask_ras, diagnose, ras_address

DOCUMENT = {
    "nccl_version": "2.30.4",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0x1",
            "size": 3,
            "ranks_count": 2,
            "missing_ranks_count": 1,
            "ranks": [
                {
                    "rank": rank,
                    "host": "node",
                    "pid": 100 + rank,
                    "cuda_dev": rank,
                    "status": {"async_error": 0, "abort_flag": False},
                    "collective_counts": {"AllReduce": 10 - rank, "Send": rank},
                }
                for rank in range(2)
            ],
            "missing_ranks": [{"rank": 2, "host": "node", "pid": 102, "cuda_dev": 2, "considered_dead": True}],
        }
    ],
}


@contextmanager
def server(answers):
    """A server on loopback that gives an answer to each line; None ends the connection."""
    heard = []

    def serve(listener):
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("r") as lines:
            for answer, line in zip(answers, lines, strict=False):
                heard.append(line.strip())
                if answer is None:
                    return
                connection.sendall(answer.encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[:2], heard
        listener.close()
        thread.join(20)
    assert not thread.is_alive()


GREETING = ("SERVER PROTOCOL 2\n", "OK\n", "OK\n")


def test_protocol():
    with server((*GREETING, json.dumps(DOCUMENT))) as (address, heard):
        assert ask_ras(address, timeout_s=20) == DOCUMENT
    assert heard == ["CLIENT PROTOCOL 2", "TIMEOUT 10", "SET FORMAT json", "STATUS"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (("HTTP/1.1 400\n",), "not a RAS server"),
        (("SERVER PROTOCOL 2\n", "OK\n", "ERROR\n"), "refuses 'SET FORMAT json'"),
        ((*GREETING, "Job summary"), "no JSON document"),
        ((*GREETING, "{}"), "not list RAS communicators"),
        ((None,), "not a RAS server"),
    ],
)
def test_servers_that_are_none(answers, message):
    with server(answers) as (address, _), pytest.raises(rccl.RcclSystemError, match=message):
        ask_ras(address, timeout_s=20)


@pytest.mark.parametrize(
    "document",
    [
        "[" * 100_000,
        "[1]",
        '{"communicators": {}}',
        '{"communicators": [1]}',
        '{"communicators": [{"ranks": [[]]}]}',
        '{"communicators": [{"ranks": [{"rank": "0"}]}]}',
        '{"communicators": [{"ranks": [{"rank": 0, "collective_counts": {"AllReduce": "x"}}]}]}',
        '{"communicators": [{"ranks": [{"rank": 0, "status": 7}]}]}',
    ],
    ids=range(8),
)
def test_documents_that_are_none(document):
    with (
        server((*GREETING, document)) as (address, _),
        pytest.raises(rccl.RcclError, match="returned (no|a) "),
    ):
        ask_ras(address, timeout_s=10)


def test_what_a_server_leaves_out_is_unknown():
    with server((*GREETING, '{"communicators": [{"ranks": [{"rank": 3}]}]}')) as (address, _):
        (one,) = ask_ras(address, timeout_s=10)["communicators"]
    assert (one["hash"], one["size"], one["missing_ranks"]) == ("?", 1, [])
    assert one["ranks"][0]["host"] == "?"


def test_silent_and_absent_servers():
    with server(("SERVER PROTOCOL 2\n", "OK\n")) as (address, _), pytest.raises(rccl.RcclSystemError):
        ask_ras(address, timeout_s=0.3)
    with pytest.raises(rccl.RcclSystemError, match="NCCL_RAS_ENABLE"):
        ask_ras(address, timeout_s=2)
    with pytest.raises(rccl.InvalidArgumentError, match="host:port"):
        ras_address("node:port")


def test_diagnosis():
    assert diagnose(DOCUMENT) == [
        "communicator 0x1: rank 2 (process 102) is dead",
        "communicator 0x1: ranks [1] are behind in AllReduce: 9 of 10 calls",
    ]


def mine(document, name):
    return [one for one in document["communicators"] if one.get("name") == name]


def test_communicators_of_this_process_are_counted():
    def body(comm):
        for _ in range(3):
            comm.all_reduce(np.ones(2))
        comm.all_gather(np.ones(2))
        comm.barrier()
        found = rccl.machine_status() if comm.rank == 0 else None
        comm.barrier()
        return found

    document = on_threads(2, body)[0]
    found = [one for one in document["communicators"] if {row["pid"] for row in one["ranks"]} == {os.getpid()}]
    assert len(found) == 1
    counts = [row["collective_counts"]["AllReduce"] for row in found[0]["ranks"]]
    assert counts[0] == 4
    assert counts[1] in (4, 5)  # the second barrier may have begun
    assert [row["collective_counts"]["AllGather"] for row in found[0]["ranks"]] == [1, 1]
    assert found[0]["missing_ranks"] == []


PROGRAM = """
import os, sys, time
import numpy as np
from rocpy import rccl
rank = int(sys.argv[1])
comm = rccl.Communicator.init(2, rank, bytes.fromhex(sys.argv[2]), device=rank, timeout_s=100, name=sys.argv[3])
comm.barrier()
if rank == 1:
    print("here", flush=True)
    time.sleep(100)
comm.all_reduce(np.ones(4))
"""


def rocpy(*words, expect=0):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rocpy", *words],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def test_commands_see_a_job_that_hangs():
    name, ident = f"hanging-{os.getpid()}", bytes(rccl.UniqueId.make()).hex()
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(rank), ident, name], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        assert processes[1].stdout.readline().strip() == "here"
        deadline = time.monotonic() + 60
        waiting = {"busy": False}
        # The first call may still be at its end.
        while not (waiting["busy"] and waiting["seq"] == 2) and time.monotonic() < deadline:
            one = mine(rccl.machine_status(), name)[0]
            waiting = one["ranks"][0]["last"]
        assert (waiting["op"], waiting["seq"], waiting["count"]) == ("all_reduce", 2, 4)
        os.kill(processes[1].pid, signal.SIGSTOP)
        document = json.loads(rocpy("rccl", "status", "--json", expect=1))
        one = mine(document, name)[0]
        assert [row["pid"] for row in one["ranks"]] == [process.pid for process in processes]
        about = [problem for problem in document["problems"] if one["hash"] in problem]
        assert any("ranks [1] are behind in AllReduce: 1 of 2 calls" in problem for problem in about)
        assert any(f"the process {processes[1].pid} of rank 1 is stopped" in problem for problem in about)
        watched = json.loads(rocpy("rccl", "trace", "--seconds", "0.2", "--interval-s", "0.1", "--json", expect=1))
        still = {row["rank"]: row["stands_still"] for row in watched["ranks"] if row["communicator"] == one["hash"]}
        assert still == {0: True, 1: False}
        text = rocpy("rccl", "status", expect=1)
        assert name in text
        assert "in all_reduce number 2, 4 of float64" in text
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert mine(rccl.machine_status(), name) == []


def test_status_from_a_server_and_without_one():
    with server((*GREETING, json.dumps(DOCUMENT))) as ((host, port), _):
        text = rocpy("rccl", "status", "--address", f"{host}:{port}", expect=1)
    assert "rank 2 (process 102) is dead" in text
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rocpy", "rccl", "status", "--address", f"{host}:{port}"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "no RAS server" in done.stderr


def test_check_of_this_machine():
    findings = json.loads(rocpy("rccl", "check", "-r", "3", "--json"))["findings"]
    said = {row["check"]: row["seen"] for row in findings}
    assert "RCCL 2." in " ".join(row["seen"] for row in findings)
    assert "right sums" in said["all reduce"]


def made_up(tmp_path, **environ):
    def write(name, text=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    for index in range(2):
        write(f"sys/bus/pci/devices/0000:0{index}:00.0/vendor", "0x1002\n")
        write(f"sys/bus/pci/devices/0000:0{index}:00.0/class", "0x038000\n")
    write("sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90402\n")
    write("sys/class/kfd/kfd/topology/nodes/2/properties", "gfx_target_version 90010\n")
    write("sys/class/net/eth0/mtu", "1500")
    write("proc/cmdline", environ.pop("cmdline", "quiet"))
    return Machine(root=tmp_path, environ=environ)


def seen(machine, status):
    rows = examine(machine, 1, _checks_rccl.CHECKS)
    assert all(row["fix"] for row in rows if row["status"] == "problem")
    return {row["check"]: row["seen"] for row in rows if row["status"] == status}


def test_traps_are_found(tmp_path):
    machine = made_up(
        tmp_path,
        RANK="0",
        NCCL_SOCKET_IFNAME="ib0",
        RCCL_TIMEOUT="10",
        NCCL_P2P_DISABLE="1",
        NCCL_RAS_ENABLE="0",
        NCCL_DEBUG="INFO",
    )
    problems = seen(machine, "problem")
    assert "not WORLD_SIZE, MASTER_ADDR, MASTER_PORT" in problems["launcher"]
    assert "interfaces are eth0" in problems["variables"]
    assert "iommu=pt" in problems["kernel command line"]
    assert "no /dev/shm" in problems["shared memory"]
    notes = [row["seen"] for row in examine(machine, 1, _checks_rccl.CHECKS) if row["status"] == "note"]
    for word in ("RCCL_TIMEOUT", "NCCL_P2P_DISABLE", "NCCL_RAS_ENABLE", "NCCL_DEBUG", "NCCL_CUMEM_ENABLE", "gfx90a"):
        assert any(word in note for note in notes), word


def test_a_good_machine_has_no_problem(tmp_path):
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "1", "NCCL_SOCKET_IFNAME": "eth"}
    machine = made_up(tmp_path, cmdline="quiet iommu=pt", **torchrun)
    (tmp_path / "dev" / "shm").mkdir(parents=True)
    problems = seen(machine, "problem")
    problems.pop("shared memory", None)  # as large as where the test runs
    assert problems == {}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4"}, "was not started by srun"),
        (
            {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": "1",
                "SLURM_NNODES": "2",
            },
            "each rank connects only to itself",
        ),
    ],
)
def test_launchers_that_cannot_meet(tmp_path, environ, message):
    assert message in seen(made_up(tmp_path, **environ), "problem")["launcher"]
