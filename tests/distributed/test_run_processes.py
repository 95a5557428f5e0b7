# SPDX-License-Identifier: MIT
"""Ranks in processes: what cannot be pickled, or not be unpickled, whose failure is raised, and how they end."""

import multiprocessing
import signal
import time
from multiprocessing.context import SpawnProcess

import numpy as np
import pytest

from rocpy import distributed, rccl
from rocpy.distributed._ranks import _Failure, _raise_cause, _serve
from rocpy.errors import CollectiveTimeoutError, InvalidArgumentError, RcclSystemError, RemoteError


class TwoArgumentsError(Exception):
    """Pickles, and does not unpickle: what it passes on is one argument."""

    def __init__(self, what, code):
        super().__init__(f"{what} ({code})")


class UnpicklableError(Exception):
    def __reduce__(self):
        raise TypeError("not to be sent")


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


def answer(comm, kind):
    match kind:
        case "exception that does not unpickle":
            raise TwoArgumentsError("disk full", 28)
        case "exception that does not pickle":
            raise UnpicklableError("disk full")
        case "result that does not unpickle":
            return Unreadable()
        case "result that does not pickle":
            return lambda: "disk full"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("exception that does not unpickle", "rank 0 raised TwoArgumentsError.*disk full .28.*cannot be unpickled"),
        ("exception that does not pickle", "UnpicklableError.*disk full"),
        ("result that does not unpickle", "rank 0: its result cannot be unpickled.*invalid literal"),
        ("result that does not pickle", "rank 0: .*lambda.* cannot be sent"),
    ],
)
def test_what_cannot_be_pickled_is_named_with_its_rank(kind, said):
    with pytest.raises(RcclSystemError, match=said) as raised:
        distributed.run_processes(answer, 1, kind)
    assert raised.value.rank == 0


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("function", lambda comm: 1, ()),
        ("arguments", answer, (lambda: 1,)),
        ("arguments", answer, (UnpicklableError(),)),
    ],
    ids=["function", "argument", "object"],
)
def test_what_no_process_can_be_started_with_is_refused(name, function, arguments):
    with pytest.raises(InvalidArgumentError, match=rf"^{name}: cannot be pickled"):
        distributed.run_processes(function, 2, *arguments)


@pytest.mark.parametrize("run", [distributed.run_threads, distributed.run_processes])
@pytest.mark.parametrize("timeout_s", [None, 0, -1.0, float("nan"), "x"])
def test_a_timeout_is_a_positive_number(run, timeout_s):
    with pytest.raises(InvalidArgumentError, match="^timeout_s: got .*positive number of seconds"):
        run(answer, 2, "", timeout_s=timeout_s)


class Interrupted(BaseException):
    """What the handler of a signal raises, as that of Ctrl-C raises KeyboardInterrupt."""


def sleep(comm):
    time.sleep(30)


def raise_interrupted(*_):
    raise Interrupted


def test_processes_end_with_an_interrupted_caller():
    before = signal.signal(signal.SIGALRM, raise_interrupted)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Interrupted):
            distributed.run_processes(sleep, 2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert multiprocessing.active_children() == []


def test_processes_end_where_a_later_one_cannot_be_started(monkeypatch):
    start = SpawnProcess.start

    def fail(process):
        if process.name == "rank 1":
            raise OSError("no more processes")
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", fail)
    with pytest.raises(OSError, match="no more processes"):
        distributed.run_processes(sleep, 2)
    assert multiprocessing.active_children() == []


def test_a_process_whose_caller_has_gone_says_nothing(capfd):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    ours.close()
    with theirs:
        _serve(answer, 0, 1, bytes(rccl.UniqueId.make()), 5.0, ("exception that does not pickle",), theirs)
    assert capfd.readouterr() == ("", "")


RAISED = {
    "own": ValueError("mine"),
    "late": CollectiveTimeoutError("late"),
    "later": CollectiveTimeoutError("later"),
    "remote": RemoteError("remote"),
}


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        ("remote late", "late"),
        ("late remote", "late"),
        ("remote late own", "own"),
        ("remote", "remote"),
        ("late later remote", "late"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_failure_that_caused_the_others_is_raised(names, cause, is_reversed):
    failures = [_Failure(float(when), RAISED[name]) for when, name in enumerate(names.split())]
    with pytest.raises(type(RAISED[cause])) as raised:
        _raise_cause(failures[::-1] if is_reversed else failures)
    assert raised.value is RAISED[cause]


@pytest.mark.parametrize("run", [distributed.run_threads, distributed.run_processes])
@pytest.mark.parametrize("nranks", [0, -1, True, 2.0, "2", None, 2**40])
def test_a_number_of_ranks(run, nranks):
    with pytest.raises(InvalidArgumentError, match="^nranks: got"):
        run(answer, nranks, "")
    assert distributed.run_threads(lambda comm: comm.rank, np.int64(2)) == [0, 1]
