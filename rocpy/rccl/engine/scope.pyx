# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""What a ``with`` statement enters and leaves for a group, and what is between ncclGroupStart and ncclGroupEnd.

The interpreter hears Ctrl-C between two instructions of Python code, and compiled code runs to its end: what belongs together is done
here without a function in Python in between, so that a thread never has half a group open.
"""

import functools

cimport abi

from rocpy.errors import InvalidUsageError
from rocpy.rccl.engine.call cimport count_group, raise_pending
from rocpy.rccl.engine.library cimport last_text
from rocpy.rccl.engine.pending import GroupState, PendingGroup, cancel_steps, current_group, open_groups


def run_grouped(actions):
    """Call functions between ncclGroupStart and ncclGroupEnd; gives RCCL's code and the last error's text.

    If one raises, the group is ended all the same.
    """
    cdef int code
    abi.ncclGroupStart()
    try:
        for action in actions:
            action()
    finally:
        with nogil:
            code = <int>abi.slot_ncclGroupEnd()
    raise_pending()
    return (0 if code == <int>abi.ncclInProgress else code), ("" if code == 0 else last_text(NULL))


cdef class GroupScope:
    """The block of a group; as a decorator, that of a group around each call of a function.

    Parameters
    ----------
    launch : callable
        Called with the group when its block has ended, and with whether it ended in the thread that entered it.
    """

    cdef object launch, pending, before, __weakref__

    def __cinit__(self, launch):
        self.launch = launch

    def __reduce__(self):
        return type(self), (self.launch,)  # a copy is another group, which has not begun

    def __call__(self, function):
        launch = self.launch

        @functools.wraps(function)
        def grouped(*args, **kwargs):
            with GroupScope(launch):
                return function(*args, **kwargs)

        return grouped

    def __enter__(self):
        pending, before, state = current_group(), None, GroupState()
        if pending is not None:
            before = pending.savepoint()
        else:
            pending = PendingGroup([], [], [], [], state)
        # From here on nothing is interrupted.
        if self.pending is not None:
            raise InvalidUsageError("group: its block has not ended; call group() for each block", op="group")
        self.pending, self.before = pending, before
        pending.state = state
        pending.states.append(state)
        if before is None:
            open_groups.group = pending
            count_group(1)

    def __exit__(self, kind, error, trace):
        pending, before = self.pending, self.before
        self.pending = self.before = None
        if pending is None:
            return  # it was not entered
        if before is not None:
            leave_inner(pending, before, kind is not None)
            return
        is_here = getattr(open_groups, "group", None) is pending
        count_group(-1)
        for state in pending.states:
            state.is_open = False
        if is_here:
            del open_groups.group
        if kind is not None:
            pending.drop()
        else:
            self.launch(pending, is_here)


cdef object leave_inner(object pending, object before, bint is_dropped):
    """What comes now is the outer group's; what a block began that has raised is given back."""
    pending.state = before.state
    if not is_dropped:
        return
    for state in pending.states[before.states:]:
        state.is_open = False
    steps = pending.steps[before.steps:]
    del pending.steps[before.steps:], pending.calls[before.calls:], pending.ends[before.ends:], pending.states[before.states:]
    cancel_steps(steps)
