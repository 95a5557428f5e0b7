# SPDX-License-Identifier: MIT
# The operands of one product call, shared by the function form and Matmul.
from libc.stdint cimport int32_t, int64_t

from rocpy._memory_record cimport MemoryRecord
from rocpy._operand cimport Operand
from rocpy.blaslt.engine.launch cimport CachedCall, Completion, MatmulFactors, Operands, PlanKey
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments


cdef int epilogue_index(object epilogue) except -1
cdef int dtype_code(object dtype) except -2
cdef int read_factors(MatmulFactors *factors, object alpha, object beta, object c, int32_t type) except -1
cdef int reset_factors(MatmulFactors *factors, object alpha, object beta, object c, int32_t type) except -1
cdef Operand *operand_named(Operands *operands, str name) noexcept
cdef int check_whole(const MatmulFactors *factors) except -1
cdef void describe_scales(PlanKey *key, Scales scales)
cdef double real(object value, str name) except? -1.0
cdef void describe(PlanKey *key, const Operands *operands) noexcept nogil
cdef object info(const Operand *operand, bint packed=*)
cdef object problem_of(const Operands *operands, str epilogue, object dtype, object compute, object clamp, Scales scales=*)
cdef object sole_aux(object aux)
cdef tuple parse_all(Operands *operands, object a, object b, object c, object bias, object aux, object out)
# Whether what was read of an array with this record, or of one without, is a copy of it.
cdef bint reads_copy(MemoryRecord record, const Operand *operand) noexcept
# Refuse operands of which copies were read where the options forbid that, and, with the scales too, where a graph would hold the copies.
cdef int check_copies(tuple arrays, const Operands *operands, Scales scales, Completion completion, object options) except -1
# What to pass so that an operand or a scale, of which a copy is read, is read where it lies.
cdef str form_of_copied(str name, Scales scales)
cdef bint must_be_staged(object a, tuple others) except? -1
cdef dict staged_infos(tuple arrays, ScaleArguments scales, object options, bint of_weight)
cdef int check_same_device(const Operand *a, const Operand *other, str name) except -1
cdef object parse_one(object array, str name, Operand *operand, const Operand *a)
# Parse a, b and c, wherever they lie, to compare an out with them.
cdef tuple parse_read(Operands *operands, object a, object b, object c)
cdef int check_out(const Operands *operands, const Operand *out, str name=*) except -1
# Whether a result of this shape and type may be written straight into out; refuses an out that it cannot be written to at all.
cdef bint check_result(const Operand *out, tuple shape, int32_t element, object options, str name=*) except? -1
cdef bint read_out(const CachedCall *call, const Operands *operands, object out, object prototype, object problem, object options, Operand *target) except? -1
