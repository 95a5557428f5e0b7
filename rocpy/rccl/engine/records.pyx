# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""The last calls of a rank, for its trace."""

from rocpy.rccl.engine.call cimport Call, all_to_all_v, now, send


cdef bint is_collective(Call call):
    return call.kind < send or call.kind == all_to_all_v


cdef class Records:
    """The last calls, in a ring."""

    cdef int begin(self, Call call) except -1:
        cdef int kind = call.shown_kind()
        if is_collective(call):
            self.collectives += 1
            call.seq = self.collectives
        else:
            self.transfers += 1
            call.seq = self.transfers
        self.numbered += 1
        call.number = self.numbered
        self.add(
            call.seq, kind, call.type, call.count, call.op, call.rank_argument, call.when, call.number if call.is_timed else 0
        )
        return 0

    cdef void begin_alone(self, int kind) noexcept:
        self.collectives += 1
        self.add(self.collectives, kind, -1, 0, 0, -1, now(), 0)

    cdef void add(
        self, uint64_t seq, int kind, int type, size_t count, int op, int rank_argument, double when, uint64_t number
    ) noexcept:
        cdef Record* record = &self.ring[self.noted % TRACE_LENGTH]
        record.seq, record.kind, record.type, record.count = seq, kind, type, count
        record.op, record.rank_argument, record.when, record.number = op, rank_argument, when, number
        self.noted += 1

    cdef void refuse(self, Call call) noexcept:
        self.numbered -= 1
        self.withdraw(call)

    cdef void withdraw(self, Call call) noexcept:
        if call.is_refused:
            return
        call.is_refused = True
        if is_collective(call):
            self.collectives -= 1
        else:
            self.transfers -= 1
        self.noted -= 1

    cdef void withdraw_alone(self) noexcept:
        self.collectives -= 1
        self.noted -= 1

    cdef list rows(self):
        """Sequence number, kind, type, count, operator, root or peer, when called, and the platform's number, oldest first."""
        cdef uint64_t i, first = self.noted - TRACE_LENGTH if self.noted > TRACE_LENGTH else 0
        cdef Record* one
        cdef list rows = []
        for i in range(first, self.noted):
            one = &self.ring[i % TRACE_LENGTH]
            rows.append((one.seq, one.kind, one.type, one.count, one.op, one.rank_argument, one.when, one.number))
        return rows
