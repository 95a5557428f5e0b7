# SPDX-License-Identifier: MIT
"""How a rank joins a communicator, and waits until the others have joined."""

from time import monotonic

from rocpy._core import has
from rocpy.errors import UnsupportedError
from rocpy.rccl.model.arguments import name_of, rank_and_size, unique_id_bytes
from rocpy.rccl.model.failures import error_of, timeout_error

cimport abi
from libc.string cimport memcpy

from rocpy.rccl.engine.call cimport pause
from rocpy.rccl.engine.library cimport device_of_rank, last_text, nonblocking_config
from rocpy.rccl.handles.communicator cimport Handle
from rocpy.runtime cimport device as _device


def start_init(Handle self not None, nranks, rank, unique_id, device, timeout_s, name, *, settings=None, bint grows=False):
    """Start joining; `finish_init` waits until that is done."""
    cdef abi.ncclUniqueId ident
    cdef abi.ncclConfig_t config
    cdef int code, previous, c_nranks, c_rank
    cdef const unsigned char[:] raw = unique_id_bytes(unique_id)
    rank, nranks = rank_and_size(rank, nranks)
    self.timeout_s = timeout_s
    self.device_index = device_of_rank(device, nranks, rank)
    self.name = name_of(name)
    self.c_name = self.name.encode()
    self.nranks, self.rank = nranks, rank
    c_nranks, c_rank = nranks, rank
    memcpy(&ident, &raw[0], sizeof(ident))
    config = nonblocking_config(self.label())
    self.choose(&config, settings)
    if grows and not has("ncclCommGrow"):
        raise UnsupportedError("join_grown: this platform's RCCL has no ncclCommGrow, which was added in 2.30", library="rccl")
    previous = _device.enter(self.device_index)
    try:
        # Chosen by `index_of`, the platform is loaded: the slot may be called.
        with nogil:
            if grows:
                code = <int>abi.slot_ncclCommGrow(NULL, c_nranks, &ident, c_rank, &self.comm, &config)
            else:
                code = <int>abi.slot_ncclCommInitRankConfig(&self.comm, c_nranks, ident, c_rank, &config)
    finally:
        _device.leave(previous)
    if code != 0 and code != <int>abi.ncclInProgress:
        raise error_of(code, op="init", seq=None, rank=rank, text=last_text(NULL))
    self.adopt()


def finish_init(Handle self not None, deadline, seconds, op="init", seq=None, Handle parent=None):
    """Wait until the others have joined; gives up and aborts when they do not. Errors name the operation, and its number.

    Where the one that it is created from is closed meanwhile, that is the error.
    """
    cdef abi.ncclResult_t state = abi.ncclInProgress
    turn = 0
    try:
        self.check()
        # The platform keeps the deadline where it can: all ranks then give the same reason.
        self.set_patience(max(deadline - monotonic(), 0.001))
        if self.has_patience:
            deadline += 0.4
        while True:
            self.check()
            abi.ncclCommGetAsyncError(self.comm, &state)
            if state == abi.ncclSuccess:
                return
            if parent is not None:
                parent.check()
            if state != abi.ncclInProgress:
                raise error_of(<int>state, op=op, seq=seq, rank=self.rank, text=last_text(self.comm), status=self.status())
            if monotonic() > deadline:
                raise timeout_error(op, seq, self.rank, seconds, self.status())
            turn += 1
            pause(turn)
    except BaseException:
        self.abort()
        raise
