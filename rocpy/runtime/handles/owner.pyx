# SPDX-License-Identifier: MIT
"""Owner: the life of a noun that owns one object of HIP's, from its making to close(), the end of a block, or its last reference."""

import warnings

from rocpy._messages.pickling import refuse_pickling
from rocpy.errors import ClosedError, RocpyWarning

from rocpy.runtime cimport device as _device


cdef class Owner:
    """What has one object of HIP's and gives it back once."""

    def __cinit__(self):
        self.closed = True  # until there is something to give back

    cdef void opened(self) noexcept:
        self.closed = False
        self.generation = _device.generation_of(self.device_index)

    cdef int check(self) except -1:
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} has been closed; create a new one")
        if _device.is_lost(self.generation, self.device_index):
            raise _device.lost_error(type(self).__name__, self.generation)
        return 0

    cdef int give_back(self) except -1:
        return 0

    @property
    def device(self):
        """Its Device."""
        return _device.Device(self.device_index)

    @property
    def is_closed(self):
        """Whether `close` has been called."""
        return self.closed

    def close(self):
        """Release it; calling it again has no effect."""
        if self.closed:
            return
        self.closed = True
        if not _device.is_lost(self.generation, self.device_index):
            self.give_back()

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *details):
        self.close()

    def __reduce__(self):
        refuse_pickling(self, "create one in the process that uses it")

    def __del__(self):
        try:
            self.close()
        except Exception as error:
            warnings.warn(f"{type(self).__name__}: it could not be released and is leaked: {error}", RocpyWarning, stacklevel=1)
