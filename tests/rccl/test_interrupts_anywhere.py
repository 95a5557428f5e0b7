# SPDX-License-Identifier: MIT
"""Ctrl-C at any moment of a group or of init_all: later calls of the thread have their results, or say that it came."""

import dis
import functools
import gc
import itertools
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy.compat import nccl

_PACKAGE = str(Path(rocpy.__file__).parent)
_HEARD_AFTER = ("CALL", "JUMP_BACKWARD", "RESUME")  # the instructions after which the interpreter hears signals


class Interrupted(BaseException):
    """What is raised, as KeyboardInterrupt by Ctrl-C."""


@functools.cache
def _instructions(code):
    return {each.offset: each.opname for each in dis.get_instructions(code)}


def interrupt(body, moment):
    """Run a function and raise at the moment with that number; return whether there was one."""
    moments, previous = itertools.count(), {}

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = previous.get(frame, "RESUME")
            previous[frame] = _instructions(frame.f_code)[frame.f_lasti]
            if before.startswith(_HEARD_AFTER) and next(moments) == moment:
                sys.settrace(None)
                raise Interrupted
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(Interrupted):
            body()
    finally:
        sys.settrace(tracing)
    return next(moments) > moment


def in_a_group(comm, x, out):
    with rccl.group():
        comm.all_reduce(x, out=out)


def to_itself(comm, x, out):
    with rccl.group():
        comm.send(x, 0)
        comm.recv(out, 0)


def in_an_inner_group(comm, x, out):
    with rccl.group():
        with suppress(Interrupted), rccl.group():
            comm.all_reduce(x, out=np.empty_like(out))
        comm.all_reduce(x, out=out)


def of_compat(comm, x, out):
    with nccl.group():
        nccl.Communicator(comm).allreduce(x, out, nccl.SUM)


def that_makes_a_part(comm, x, out):
    with rccl.group():
        part = comm.split(0)
    with part:
        part.all_reduce(x, out=out)


def after_a_barrier(comm, x, out):
    comm.barrier()


def after_init_all(comm, x, out):
    (own,) = rccl.Communicator.init_all(1, timeout_s=5)
    with own:
        own.all_reduce(x, out=out)


@pytest.mark.filterwarnings("ignore:.*dropped without close", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "call", [in_a_group, to_itself, in_an_inner_group, of_compat, that_makes_a_part, after_a_barrier, after_init_all]
)
def test_later_calls_have_their_results(call):
    x = np.ones(4)
    (comm,) = rccl.Communicator.init_all(1, timeout_s=5)
    for moment in itertools.count():
        was_interrupted = interrupt(functools.partial(call, comm, x, np.zeros(4)), moment)
        if comm.is_closed:
            (comm,) = rccl.Communicator.init_all(1, timeout_s=5)
        in_a_group(comm, x, out := np.zeros(4))
        assert out.tolist() == [1.0] * 4, moment
        assert comm.all_reduce(x).tolist() == [1.0] * 4, moment
        assert comm.trace()[-1]["op"] == "all_reduce", moment
        if not was_interrupted:
            break
    comm.abort()
    gc.collect()  # the communicators of interrupted calls: their warnings are ignored here
    assert moment > 5
