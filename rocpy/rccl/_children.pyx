# SPDX-License-Identifier: MIT
"""Communicators made from communicators: parts, and what is left when ranks go."""

from time import monotonic

from rocpy.errors import InvalidArgumentError
from rocpy.rccl._failures import error_of

cimport abi
from libc.stdint cimport uint64_t

from rocpy.rccl._call cimport raise_pending
from rocpy.rccl._library cimport last_text, nonblocking_config
from rocpy.rccl.communicator cimport Handle


def split(Handle self not None, Handle made not None, int color, int key, double seconds):
    """Make the handle of this rank's part; gives False where it has none (ncclCommSplit)."""
    cdef int code
    cdef abi.ncclConfig_t config = nonblocking_config(NULL)
    self.check()
    self.set_patience(<uint64_t>(seconds * 1e9))
    self.seq += 1
    with nogil:
        code = <int>abi.slot_ncclCommSplit(self.comm, color, key, &made.comm, &config)
    if code != 0 and code != <int>abi.ncclInProgress:
        raise_pending()
        raise error_of(code, op="split", seq=self.seq, rank=self.rank, text=last_text(self.comm), status=self.status())
    return take_child(self, made, seconds)


def shrink(Handle self not None, Handle made not None, excluded, bint abort, double seconds):
    """Make the handle of a communicator without some ranks (ncclCommShrink)."""
    cdef int code, count = len(excluded)
    cdef int ranks[1024]
    cdef int flags = 1 if abort else 0
    cdef abi.ncclConfig_t config = nonblocking_config(NULL)
    self.check()
    if not 0 < count < min(self.nranks, 1024) or any(not 0 <= rank < self.nranks for rank in excluded):
        raise InvalidArgumentError(f"exclude_ranks: got {list(excluded)}, expected some of the ranks 0 to {self.nranks - 1}")
    for i, rank in enumerate(excluded):
        ranks[i] = rank
    self.set_patience(<uint64_t>(seconds * 1e9))
    with nogil:
        code = <int>abi.slot_ncclCommShrink(self.comm, ranks, count, &made.comm, &config, flags)
    if code != 0 and code != <int>abi.ncclInProgress:
        raise_pending()
        raise error_of(code, op="shrink", seq=None, rank=self.rank, text=last_text(self.comm), status=self.status())
    return take_child(self, made, seconds)


cdef bint take_child(Handle self, Handle made, double seconds) except -1:
    cdef int value = 0
    if made.comm == NULL:
        return False
    made.adopt()
    made.timeout_s, made.device_index, made.name = self.timeout_s, self.device_index, self.name
    made.finish_init(monotonic() + seconds, seconds)
    abi.ncclCommCount(made.comm, &value)
    made.nranks = value
    abi.ncclCommUserRank(made.comm, &value)
    made.rank = value
    return True
