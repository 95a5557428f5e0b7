# SPDX-License-Identifier: MIT
# A weight as the per-call path reads it.
from rocpy._operand cimport Operand


# Packed memory of the platform: it lives as long as a Weight, a stream or a graph uses it.
cdef class Block:
    cdef void *data


cdef class Weight:
    cdef readonly object source
    cdef readonly object bias  # as it was read: a copy where nothing tells that it has changed
    cdef object origin  # the bias as it was given
    cdef readonly object scale
    cdef readonly object factors  # the scale as products take it
    cdef readonly str layout
    cdef readonly bint packed
    cdef Operand operand
    cdef object kept  # owns the memory of operand when it is not ours
    cdef object version
    cdef unsigned long epoch  # that of sources_may_have_changed() when the source was read
    cdef bint of_torch  # the source is a tensor, which optimizers change
    cdef long reads  # how often the source was read
    cdef object plain  # a copy of a source that nothing tells the changes of, beside the packed memory; else None
    cdef object checksum  # in debug mode, of sources whose changes nothing reports
    cdef bint is_live  # whether products read the source's own memory
    cdef object prepared  # with scales by blocks and not packed: what products take
    cdef Block block  # what it is packed in, or None
    cdef int device
    cdef object __weakref__

    cdef int current(self) except -1
    cdef int load(self) except -1
    cdef int load_source(self) except -1
    cdef int load_blocks(self) except -1
