# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""What a ``with`` statement enters and leaves for a group, and what is between ncclGroupStart and ncclGroupEnd.

The interpreter hears Ctrl-C between two instructions of Python code, and compiled code runs to its end: what belongs together is done
here without a function in Python in between, so that a thread never has half a group open.
"""

from functools import partial
from operator import attrgetter

cimport abi

from rocpy._messages.decorators import in_blocks
from rocpy.errors import InvalidUsageError
from rocpy.rccl.engine.call cimport raise_pending
from rocpy.rccl.engine.library cimport last_text
from rocpy.rccl.engine.open_group cimport Block, OpenGroup, begin_block, end_block, open_here
from rocpy.rccl.engine.pending import PendingGroup

ELSEWHERE = "group: its block, or one in it, was entered in another thread, task or process than it was left in; nothing was launched"
NOT_NESTED = (
    "group: a block was left before one that was entered in it, as tasks do that were started in a block and have groups of their own; "
    "nothing was launched. Leave blocks in the reverse order"
)
UNFINISHED = "group: a block in it could not end for lack of memory or an interrupt; nothing was launched"
ORDER = attrgetter("order")


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

    cdef object launch, __weakref__
    cdef Block block

    def __cinit__(self, launch):
        self.launch = launch

    def __reduce__(self):
        return type(self), (self.launch,)  # a copy is another group, which has not begun

    def __call__(self, function):
        return in_blocks(function, partial(GroupScope, self.launch), usage_error, ("group", "with group()"))

    def __enter__(self):
        cdef Block outer = open_here()
        cdef Block block = Block(OpenGroup() if outer is None else outer.group, outer, PendingGroup())
        # From here on nothing is interrupted.
        if self.block is not None:
            raise usage_error("group: its block has not ended; call group() for each block")
        begin_block(block)
        self.block = block

    def __exit__(self, kind, error, trace):
        cdef Block block = self.block, current
        self.block = None
        if block is None:
            return  # it was not entered
        current = open_here()
        if current is None or current.group is not block.group:
            block.group.obstacle = ELSEWHERE
        elif current is not block or block.inner_count:
            block.group.obstacle = NOT_NESTED
        end_block(block)
        leave_block(block, self.launch, kind is not None)
        if block.group.obstacle is not None and kind is None:
            raise usage_error(block.group.obstacle)


def usage_error(text):
    """The error of a group that is used otherwise than it can be."""
    return InvalidUsageError(text, op="group")


cdef int leave_block(Block block, object launch, bint is_dropped) except -1:
    """Leave what is pending to the outer block, or launch it after the first one, unless it is to be dropped."""
    pending = block.pending
    if is_dropped or block.group.obstacle is not None:
        close(pending.states)
        pending.drop()
    elif block.outer is not None:
        try:
            merge(block.outer.pending, pending)
        except BaseException:
            block.group.obstacle = UNFINISHED
            raise
    else:
        close(pending.states)
        launch(pending)
    return 0


cdef int close(list states) except -1:
    """Note that a group takes no more calls; those that have not been launched by then never are."""
    for state in states:
        state.is_open = False
    return 0


cdef int merge(object outer, object inner) except -1:
    """Add what an inner block noted to the outer one, all in the order in which it was noted."""
    for notes, added in (
        (outer.steps, inner.steps), (outer.calls, inner.calls), (outer.releases, inner.releases), (outer.ends, inner.ends)
    ):
        # Of interleaved tasks alone, what is added may be older than what is there.
        is_sorted = not notes or not added or notes[-1].order < added[0].order
        notes.extend(added)
        if not is_sorted:
            notes.sort(key=ORDER)
    outer.states.extend(inner.states)
    return 0
