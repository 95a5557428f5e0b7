# SPDX-License-Identifier: MIT
"""Checks of a collective's operands, for Cython."""

from libc.stdint cimport int64_t

from rocpy._dlpack cimport Operand
from rocpy.rccl.engine.call cimport Call

# An integer of any type as Python's; None: it is none.
cdef object index_or_none(object number)
# A number of a rank.
cdef int rank_in(object rank, int nranks, str name, int own) except -1
# An operand or, if it is to be written, a result; gives what keeps its memory, even if the array is given other memory meanwhile.
cdef object parse_operand(object array, str name, Operand* operand, bint is_output, bint is_pinned=*)
cdef int64_t elements(const Operand* operand)
cdef size_t bytes_of(const Operand* operand)
cdef int check_contiguous(const Operand* operand, str name) except -1
cdef object parse_input(Call call, object x, object out, int rank, Operand* operand_x)
# Whether this rank gets a result beside what it passes.
cdef bint has_result(Call call, int rank)
cdef object set_memory(Call call, object x, object out, int rank, int nranks, const Operand* operand_x, Operand* operand_out)
# Refuses an input or a bias whose memory was replaced while arguments were read that may run code of the caller's.
cdef int refuse_replaced(const Operand* operand_x, object x, const void* bias_data, object bias, object out, object stream, object op) except -1
# Refuses a result that overlaps the input otherwise than RCCL works in place; `count` elements go in, `wanted` come out.
cdef int check_in_place(int kind, int rank, int root, int64_t count, int64_t wanted, const Operand* operand_x, const Operand* operand_out) except -1
cdef object set_bias(Call call, object bias, const Operand* operand_x)
