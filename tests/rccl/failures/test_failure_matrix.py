# SPDX-License-Identifier: MIT
"""Late, killed, stopped, raising and mismatching ranks, in each phase: who is told what, and what is left."""

import itertools
import os
import signal
import threading
import time

import pytest
import rccl_matrix
from rccl_ranks import DEADLINE_S, process_context

from rocpy import rccl

PHASES = ("init", "collective", "finalize")
SECONDS = 0.5

# The error of the ranks that wait for the culprit, and whom it names.
TIMEOUT, REMOTE, MISMATCH = "CollectiveTimeoutError", "RemoteError", "CollectiveMismatchError"
EXPECTED = {
    ("late", "init"): TIMEOUT,
    ("late", "collective"): TIMEOUT,
    ("late", "finalize"): TIMEOUT,
    ("killed", "init"): TIMEOUT,  # it never came
    ("killed", "collective"): REMOTE,
    ("killed", "finalize"): REMOTE,
    ("stopped", "init"): TIMEOUT,
    ("stopped", "collective"): TIMEOUT,
    ("stopped", "finalize"): TIMEOUT,
    ("raising", "init"): TIMEOUT,
    ("raising", "collective"): REMOTE,
    ("raising", "finalize"): REMOTE,
    ("mismatching", "init"): TIMEOUT,
    ("mismatching", "collective"): MISMATCH,
    ("mismatching", "finalize"): REMOTE,
}


def check(what, phase, found):
    """The ranks that are not to blame have the right error; one of them names the culprit."""
    expected = EXPECTED[what, phase]
    others = [found[rank] for rank in range(rccl_matrix.NRANKS) if rank != rccl_matrix.CULPRIT]
    assert all(error is not None for error in others), found
    # The first to give up is another rank's reason.
    kinds = {error["kind"] for error in others}
    if (what, phase) == ("mismatching", "init") and "InvalidArgumentError" in kinds:
        # Whoever came first has said how many ranks there are.
        assert all("do not agree on their number" in e["text"] for e in others if e["kind"] == "InvalidArgumentError")
        return
    assert expected in kinds, found
    assert kinds <= {expected, REMOTE}, found
    named = [e["waiting_for"] or (e["rank"],) for e in others if e["kind"] == expected]
    if expected != MISMATCH:
        assert any(rccl_matrix.CULPRIT in ranks for ranks in named), found
    culprit = found[rccl_matrix.CULPRIT]
    if what == "raising":
        assert culprit["kind"] == "KeyError"
    elif what == "mismatching":
        assert culprit["kind"] in ("InvalidArgumentError", MISMATCH, REMOTE)


@pytest.mark.filterwarnings("ignore:.*was dropped without close:rocpy.RocpyWarning")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("what", ["late", "killed", "stopped", "raising", "mismatching"])
def test_threads(what, phase):
    """A thread that is killed drops its communicator without a word; one that stops waits until the rest is through."""
    ident = rccl.UniqueId.make()
    rccl.Communicator.init(1, 0, rccl.UniqueId.make()).close()
    before, found, released = rccl_matrix.belongings(), {}, threading.Event()

    def run(rank):
        found[rank] = rccl_matrix.act(rank, ident, what, phase, SECONDS, released)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(rccl_matrix.NRANKS)]
    for thread in threads:
        thread.start()
    for thread in sorted(threads, key=lambda thread: thread is threads[rccl_matrix.CULPRIT]):
        if thread is threads[rccl_matrix.CULPRIT]:
            released.set()
        thread.join(DEADLINE_S)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    check(what, phase, found)
    assert not any(rccl_matrix.left_behind(before, phase))


COMBINATIONS = [
    pytest.param(what, phase, marks=[] if what in ("killed", "stopped") else pytest.mark.slow)
    for what, phase in itertools.product(["killed", "stopped", "late", "raising", "mismatching"], PHASES)
]


@pytest.mark.parametrize(("what", "phase"), COMBINATIONS)
def test_processes(what, phase):
    context = process_context()
    ident = rccl.UniqueId.make()
    pipes, processes, found = [], [], {}
    for rank in range(rccl_matrix.NRANKS):
        pipe, theirs = context.Pipe(duplex=False)
        pipes.append(pipe)
        words = (rank, bytes(ident), what, phase, SECONDS, theirs)
        processes.append(context.Process(target=rccl_matrix.play, args=words))
        processes[-1].start()
        theirs.close()
    # A stopped rank is let go when the others are through.
    for rank in sorted(range(rccl_matrix.NRANKS), key=lambda rank: rank == rccl_matrix.CULPRIT):
        if rank == rccl_matrix.CULPRIT and what == "stopped":
            os.kill(processes[rank].pid, signal.SIGCONT)
        assert pipes[rank].poll(DEADLINE_S), f"rank {rank} hangs"
        try:
            found[rank], elapsed, left_behind = pipes[rank].recv()
        except EOFError:
            found[rank] = None
            continue
        finally:
            pipes[rank].close()
        assert not any(left_behind), (rank, left_behind, found)
        assert elapsed < 20, (rank, found)  # seconds, on a machine that does much else
    for process in processes:
        process.join(DEADLINE_S)
        assert process.exitcode is not None
    assert (processes[rccl_matrix.CULPRIT].exitcode == -signal.SIGKILL) == (what == "killed")
    check(what, phase, found)


def test_ctrl_c_is_heard_in_a_wait():
    context = process_context()
    ident = bytes(rccl.UniqueId.make())
    first, theirs = context.Pipe()
    second, others = context.Pipe()
    processes = [
        context.Process(target=rccl_matrix.interrupted, args=(ident, theirs)),
        context.Process(target=rccl_matrix.absent, args=(ident, others)),
    ]
    for process in processes:
        process.start()
    assert first.poll(DEADLINE_S)
    assert first.recv() == "ready"
    time.sleep(0.3)
    os.kill(processes[0].pid, signal.SIGINT)
    assert first.poll(DEADLINE_S), "Ctrl-C is not heard"
    assert first.recv() == "heard"
    second.send("go")
    for process in processes:
        process.join(DEADLINE_S)
        assert process.exitcode == 0
