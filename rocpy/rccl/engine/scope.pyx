# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""What a ``with`` statement enters and leaves for a group, and what is between ncclGroupStart and ncclGroupEnd.

The interpreter hears Ctrl-C between two instructions of Python code, and compiled code runs to its end: what belongs together is done
here without a function in Python in between, so that a thread never has half a group open.
"""

from functools import partial

cimport abi

from rocpy._messages.decorators import in_blocks
from rocpy.errors import InvalidUsageError
from rocpy.rccl.engine.call cimport raise_pending
from rocpy.rccl.engine.library cimport last_text
from rocpy.rccl.engine.open_group cimport OpenGroup, begin_group, end_group, open_here
from rocpy.rccl.engine.pending import GroupState, PendingGroup

ELSEWHERE = "group: its block, or one in it, was entered in another thread, task or process than it was left in; nothing was launched"
NOT_NESTED = (
    "group: a block was left before one that was entered in it, as tasks do that were started in a block and have groups of their own; "
    "nothing was launched. Leave blocks in the reverse order"
)


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
        Called with what is pending when the outermost block has ended.
    """

    cdef object launch, before, __weakref__
    cdef OpenGroup group

    def __cinit__(self, launch):
        self.launch = launch

    def __reduce__(self):
        return type(self), (self.launch,)  # a copy is another group, which has not begun

    def __call__(self, function):
        return in_blocks(function, partial(GroupScope, self.launch), usage_error, ("group", "with group()"))

    def __enter__(self):
        cdef OpenGroup group = open_here()
        state, before = GroupState(), None
        if group is None:
            group = OpenGroup(PendingGroup(state))
        else:
            before = group.pending.savepoint()
        pending = group.pending
        # From here on nothing is interrupted.
        if self.group is not None:
            raise usage_error("group: its block has not ended; call group() for each block")
        self.group, self.before = group, before
        pending.state = state
        pending.states.append(state)
        group.blocks.append(self)
        if before is None:
            begin_group(group)

    def __exit__(self, kind, error, trace):
        cdef OpenGroup group = self.group
        before = self.before
        self.group = self.before = None
        if group is None:
            return  # it was not entered
        if open_here() is not group:
            group.obstacle = ELSEWHERE
        elif group.blocks[-1] is not self:
            group.obstacle = NOT_NESTED
        group.blocks.remove(self)
        leave_block(group, before, self.launch, kind is not None)
        if group.obstacle is not None and kind is None:
            raise usage_error(group.obstacle)


def usage_error(text):
    """The error of a group that is used otherwise than it can be."""
    return InvalidUsageError(text, op="group")


cdef int leave_block(OpenGroup group, object before, object launch, bint is_dropped) except -1:
    """Go on with the outer block; launch what is pending after the last, unless it is to be dropped."""
    pending = group.pending
    if group.obstacle is not None:
        pending.close()
    elif group.blocks:
        pending.state = before.state  # what comes now is the outer group's
        if is_dropped:
            pending.roll_back(before)
    if group.blocks:
        return 0
    end_group(group)
    pending.close()
    if is_dropped or group.obstacle is not None:
        pending.drop()
    else:
        launch(pending)
    return 0
