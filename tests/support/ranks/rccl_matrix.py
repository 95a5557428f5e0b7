# SPDX-License-Identifier: MIT
"""One of three ranks does wrong, in one of three phases: what each rank is told, and what it is left with."""

import gc
import os
import pathlib
import signal
import threading
import time
from collections import Counter

import numpy as np

NRANKS, CULPRIT = 3, 1
DEADLINE_S = 60.0


def belongings():
    """Shared memory that is mapped or open, other open files, and threads, of this process."""
    gc.collect()
    maps = [line for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "memfd:rocpy-" in line]
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            # Memory of one name differs by its number: else what goes meanwhile would hide what is new.
            name = pathlib.Path(f"/proc/self/fd/{number}").readlink()
            files.append(f"{name} {os.fstat(int(number)).st_ino}")
        except OSError:
            continue
    ours = [name for name in files if "rocpy-" in name]
    threads = [thread.ident for thread in threading.enumerate()]
    # A mapping's line begins with its addresses; what it maps, by its number, tells it from others.
    return tuple(map(Counter, ([line.split()[4] for line in maps], files, ours, threads)))


# What the process that made the memory of a communicator keeps for a while, to tell who comes late why there is none.
RETAINED = (1, 2, 1, 0)


def left_behind(before, phase):
    """What this process has more than before, once what goes by itself has gone."""
    patience = time.monotonic() + 20
    while True:
        # Each by its name: what an earlier failure kept may go meanwhile, and a count would let it hide a new one.
        more = tuple((now - then).total() for now, then in zip(belongings(), before, strict=True))
        if not any(more) or (phase == "init" and more == RETAINED) or time.monotonic() > patience:
            return more if more != RETAINED or phase != "init" else (0, 0, 0, 0)
        time.sleep(0.02)


def told(error):
    """An exception, as data."""
    return {
        "kind": type(error).__name__,
        "waiting_for": getattr(error, "waiting_for", None),
        "rank": getattr(error, "rank", None),
        "text": str(error),
    }


class Gone(BaseException):
    """The end of a thread that leaves without a word, as a killed process does."""


def misbehave(what, seconds, released=None):
    """What the culprit does instead of its call, or before it; a thread that stops goes on when it is released."""
    if what == "late":
        time.sleep(seconds + 0.7)
    elif what == "killed" and released is not None:
        raise Gone
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stopped" and released is not None:
        released.wait(DEADLINE_S)
    elif what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "raising":
        raise KeyError(what)


def act(rank, ident, what, phase, seconds, released=None):
    """Play one rank; gives what it was told, or None."""
    from rocpy import rccl

    comm = None
    is_culprit = rank == CULPRIT
    try:
        if is_culprit and phase == "init":
            misbehave(what, seconds, released)
        count = NRANKS - 1 if is_culprit and (what, phase) == ("mismatching", "init") else NRANKS
        comm = rccl.Communicator.init(
            count, rank, ident, device=rank, timeout_s=seconds if phase == "init" else 30.0, name="matrix"
        )
        comm.barrier()
        if is_culprit and phase == "collective":
            misbehave(what, seconds, released)
        length = 5 if is_culprit and what == "mismatching" else 4
        if phase == "collective" or (is_culprit and (what, phase) == ("mismatching", "finalize")):
            comm.all_reduce(np.ones(length), timeout_s=seconds)
        if is_culprit and phase == "finalize":
            misbehave(what, seconds, released)
        comm.finalize(timeout_s=seconds)
    except Gone:
        comm = None  # nobody ends it: it is dropped
        return None
    except Exception as error:
        return told(error)
    finally:
        if comm is not None:
            comm.abort()
    return None


def play(rank, ident, what, phase, seconds, connection):
    """Play one rank in a process of its own: what it was told, how long that took, and what it is left with."""
    from rocpy import rccl

    # What the platform keeps for itself, such as workers, is there before.
    rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=rank).close()
    before, start = belongings(), time.monotonic()
    outcome = act(rank, ident, what, phase, seconds)
    connection.send((outcome, time.monotonic() - start, left_behind(before, phase)))
    connection.close()


def interrupted(ident, connection):
    """Wait in a call for a rank that does not come, and hear Ctrl-C."""
    from rocpy import rccl

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born ignoring it
    comm = rccl.Communicator.init(2, 0, ident, device=0, timeout_s=DEADLINE_S)
    connection.send("ready")
    try:
        comm.all_reduce(np.ones(4))
    except KeyboardInterrupt:
        connection.send("heard")
    finally:
        comm.abort()


def absent(ident, connection):
    """Join, and then do nothing until the other is through."""
    from rocpy import rccl

    comm = rccl.Communicator.init(2, 1, ident, device=1, timeout_s=DEADLINE_S)
    connection.recv()
    comm.abort()
