# SPDX-License-Identifier: MIT
"""Two ranks in namespaces of their own, as containers have them, on a wire between the two; prints what each found.

Run by `run` below through unshare(1): the program makes the namespaces' wire, and starts itself again in each of them.
"""

import fcntl
import importlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager

WIRE = b"eth7"
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def is_permitted():
    """Whether this machine lets its users have network namespaces."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-Urn", "true"], capture_output=True).returncode == 0


def run(body, *flags):
    """Run a function of this module, `body(rank)`, on two ranks in namespaces of their own; give what they return.

    `flags` are unshare's for each of the ranks; with ``-n`` they have a wire between them.
    """
    program = [sys.executable, "-P", __file__, body]
    words = [shutil.which("unshare"), "-U", "-r", "-n", "-m", *program, "both", *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def both(body, *flags):
    """Start the ranks, connect their networks, and print what they give."""
    words = [shutil.which("unshare"), *flags, sys.executable, "-P", __file__, body]
    ranks = [
        subprocess.Popen([*words, str(rank), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == "here\n"
    if "-n" in flags:
        connect_networks([rank.pid for rank in ranks])
    else:
        configure(b"lo", "127.0.0.1")
    for rank in ranks:
        rank.stdin.write("go\n")
        rank.stdin.flush()
    outputs = [rank.communicate()[0] for rank in ranks]
    print(json.dumps([json.loads(text.splitlines()[-1]) for text in outputs]))


def one(body, rank, *flags):
    """Be a rank."""
    print("here", flush=True)
    sys.stdin.readline()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_PORT="29500")
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    if "-n" in flags:
        configure(b"lo", "127.0.0.1")
        configure(WIRE, ADDRESSES[rank])
        os.environ.update(MASTER_ADDR=ADDRESSES[0], GLOO_SOCKET_IFNAME=WIRE.decode())
    print(json.dumps(globals()[body](rank)), flush=True)


def attribute(kind, value):
    """An attribute of rtnetlink(7)."""
    length = 4 + len(value)
    return struct.pack("HH", length, kind) + value + b"\0" * (-length % 4)


def connect_networks(pids):
    """Make a pair of virtual interfaces, one in the network namespace of each process (RTM_NEWLINK, kind veth)."""
    ends = [attribute(3, WIRE + b"\0") + attribute(19, struct.pack("I", pid)) for pid in pids]
    peer = attribute(1, b"\0" * 16 + ends[1])
    link = attribute(18, attribute(1, b"veth\0") + attribute(2, peer))
    body = b"\0" * 16 + ends[0] + link
    request, acknowledge, exclusive, create = 0x1, 0x4, 0x200, 0x400
    header = struct.pack("IHHII", 16 + len(body), 16, request | acknowledge | exclusive | create, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.sendto(header + body, (0, 0))
        (code,) = struct.unpack_from("i", netlink.recv(4096), 16)
    if code:
        raise OSError(-code, f"veth: {os.strerror(-code)}")


def configure(name, address):
    """Give an interface an address, and bring it up (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, text in ((0x8916, address), (0x891C, "255.255.255.0")):
            fcntl.ioctl(control, request, struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(text)))
        flags = struct.unpack("16sH", fcntl.ioctl(control, 0x8913, struct.pack("16sH14x", name, 0))[:18])[1]
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name, flags | 1))


# Bodies. Nobody waits for a deadline of an hour.


@contextmanager
def told(results, name):
    """Note what a block raises."""
    try:
        yield
        results[name] = None
    except Exception as error:
        results[name] = [type(error).__name__, str(error)]


def rendezvous_by_tcp(rank):
    """What a communicator comes to when the ranks have no memory in common."""
    from rocpy import rccl

    results = {}
    with told(results, "from_env"):
        rccl.Communicator.from_env(timeout_s=3600)
    return results


def rendezvous_by_torch(rank):
    """The ways of torch.distributed."""
    import warnings
    from datetime import timedelta

    import torch

    from rocpy import rccl

    dist = importlib.import_module("torch.distributed")
    results = {}
    with told(results, "backend"):
        dist.init_process_group("rocpy", timeout=timedelta(hours=1))
    os.environ["MASTER_PORT"] = "29501"
    dist.init_process_group("gloo", timeout=timedelta(minutes=3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comm = rccl.Communicator.from_torch(timeout_s=100)
    results["warned"] = [str(one.message) for one in caught if "shares no memory" in str(one.message)]
    results["kind"] = type(comm).__name__
    results["sum"] = comm.all_reduce(torch.tensor([rank + 1.0])).tolist()
    with told(results, "rccl"):
        rccl.Communicator.from_torch(carrier="rccl", timeout_s=3600)
    dist.destroy_process_group()
    return results


def work_and_die(rank):
    """Sums, and then what is said of a rank that dies in a pid namespace of its own."""
    import numpy as np

    from rocpy import rccl

    comm = rccl.Communicator.from_env(timeout_s=3600)
    results = {"sum": comm.all_reduce(np.ones(3)).tolist(), "pid": os.getpid()}
    results["processes"] = [row["process"] for row in comm.status()["ranks"]]
    comm.barrier()
    if rank == 1:
        print(json.dumps(results), flush=True)
        os._exit(0)
    try:
        comm.all_reduce(np.ones(3))
    except rccl.RemoteError as error:
        results["dead"] = error.rank
    comm.abort()
    return results


def be_late_with_a_decoy(rank):
    """What is said of a late rank while another process of its number, in this rank's namespace, is stopped."""
    if rank == 1:
        for _ in range(200):  # numbers that rank 0's namespace has not come to yet
            subprocess.run(["true"], check=False)
        if child := os.fork():
            os.waitpid(child, 0)
            os._exit(0)
    import numpy as np

    from rocpy import rccl

    results = {}
    comm = rccl.Communicator.from_env(timeout_s=100)
    comm.barrier()
    if rank == 0:
        number = comm.status()["ranks"][1]["pid"]
        while (decoy := subprocess.Popen(["sleep", "100"])).pid < number:
            decoy.kill()
            decoy.wait()
        results["is_decoy"] = decoy.pid == number
        decoy.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, decoy.pid, os.WSTOPPED)
        results["processes"] = [row["process"] for row in comm.status()["ranks"]]
        with told(results, "late"):
            comm.all_reduce(np.ones(1), timeout_s=0.3)
        decoy.kill()
        decoy.wait()
    else:
        with told(results, "late"):
            comm.recv(np.ones(1), 0, timeout_s=100)
    comm.abort()
    return results


if __name__ == "__main__":
    if sys.argv[2] == "both":
        both(sys.argv[1], *sys.argv[3:])
    else:
        one(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
