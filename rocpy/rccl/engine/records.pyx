# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""The last calls of a rank, for its trace."""

from rocpy.rccl.engine.call cimport now


cdef class Records:
    """The last calls, in a ring."""

    cdef uint64_t note(self, uint64_t seq, int kind, int type, size_t count, int op, int rank_argument) noexcept:
        cdef Record* record = &self.ring[self.noted % TRACE_LENGTH]
        record.seq, record.kind, record.type, record.count = seq, kind, type, count
        record.op, record.rank_argument, record.when, record.number = op, rank_argument, now(), 0
        self.noted += 1
        return self.noted - 1

    cdef void set_number(self, uint64_t index, uint64_t number) noexcept:
        if self.noted - index <= TRACE_LENGTH:
            self.ring[index % TRACE_LENGTH].number = number

    cdef list rows(self):
        """Sequence number, kind, type, count, operator, root or peer, when called, and the platform's number, oldest first."""
        cdef uint64_t i, first = self.noted - TRACE_LENGTH if self.noted > TRACE_LENGTH else 0
        cdef Record* one
        cdef list rows = []
        for i in range(first, self.noted):
            one = &self.ring[i % TRACE_LENGTH]
            rows.append((one.seq, one.kind, one.type, one.count, one.op, one.rank_argument, one.when, one.number))
        return rows
