# SPDX-License-Identifier: MIT
"""What a group does with each of its calls."""

from rocpy.rccl.engine.call cimport NOT_DONE, Call, state_of
from rocpy.rccl.handles.communicator cimport Handle


def launch_call(Handle communicator not None, Call call not None, double seconds):
    """Give a call to RCCL, between ncclGroupStart and ncclGroupEnd."""
    communicator.check()
    code = communicator.launch(call, seconds)
    if code != 0 and code != NOT_DONE:
        raise communicator.failure(code, call)


def finish_launch(Handle communicator not None, Call call not None):
    """Wait until a call has been given to its stream, after ncclGroupEnd."""
    cdef int code = state_of(call)
    if code != NOT_DONE:
        return  # what it came to is told by who waits for it
    code = communicator.await_launch(call)
    if code != 0:
        raise communicator.failure(code, call)


def withdraw_call(Handle communicator not None, Call call not None):
    """Take back the number of a call whose group RCCL refused; later calls come before it."""
    if call.seq != 0 and not communicator.closed and state_of(call) == 0:
        communicator.records.withdraw(call)


def is_closed(Handle communicator not None):
    """Whether a communicator has been closed, or aborted."""
    return communicator.closed


def failure_of(Handle communicator not None, int code, str op, seq):
    """Return the error of a communicator that answered with a code."""
    return communicator.failure_of(code, op, seq)


def await_call(Handle communicator not None, Call call not None, double limit):
    """Wait for a blocking call that was launched, until a moment; expiry and failures raise."""
    communicator.check()
    communicator.await_end(call, call.seconds, limit, True)
