# SPDX-License-Identifier: MIT
# The planned product of csrc/core as Cython sees it: planning and launching, shared by the function form, Matmul and Weight.
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as c_bool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

cimport abi
from rocpy._core cimport Status
from abi cimport hipStream_t, hipblasLtMatmulAlgo_t, rocpyExtProgramOperand_t

from rocpy._operand cimport Operand
from rocpy.blaslt.engine.program cimport ProgramCode
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.runtime._context cimport StreamContext, borrow_context, library_version, release_context
from rocpy.runtime.handles.stream_handle cimport StreamUse


cdef extern from "algo_extension.hpp" namespace "rocpy" nogil:
    cdef cppclass AlgoTraits:
        c_bool run_to_run
        c_bool batch_invariant
        c_bool any()


cdef extern from "matmul.hpp" namespace "rocpy" nogil:
    cdef struct LayoutSpec:
        int32_t type
        int32_t order
        int64_t rows
        int64_t columns
        int64_t ld
        int64_t batch_stride
    const int max_outer
    cdef enum OperandIndex:
        operand_a
        operand_b
        operand_c
        operand_d
        operand_bias
        operand_aux
        operand_scale_a
        operand_scale_b
        operand_count
    cdef cppclass ScaleSet:
        ScaleSet &set(size_t index, c_bool value)
    cdef cppclass MatmulSpec:
        MatmulSpec() except +
        int32_t compute
        int32_t scale_type
        int32_t op_a
        int32_t op_b
        LayoutSpec a
        LayoutSpec b
        LayoutSpec c
        LayoutSpec d
        int32_t batch_count
        uint32_t epilogue
        c_bool uses_bias
        c_bool uses_aux
        int32_t bias_type
        int32_t aux_type
        int64_t bias_batch_stride
        c_bool strides_bias
        int64_t aux_ld
        int64_t aux_batch_stride
        float activation_low
        float activation_high
        c_bool has_activation_arguments
        AlgoTraits required_traits
        ScaleSet scales
        int32_t scale_mode_a
        int32_t scale_mode_b
        int32_t vector_attribute_a
        int32_t vector_attribute_b
        const ProgramCode *program
        vector[rocpyExtProgramOperand_t] program_operands
        vector[int64_t] program_outer_bytes
        int32_t outer_ndim
        int64_t outer_shape[32]
        int64_t outer_stride_bytes[8][32]
    cdef struct MatmulPointers:
        const void *a
        const void *b
        const void *c
        void *d
        void *bias
        void *aux
        void *scales[6]
        void **program
    cdef cppclass MatmulFactors:
        MatmulFactors()
        double alpha
        double beta
        double alpha_imaginary
        double beta_imaginary
    cdef cppclass MatmulAlgorithm:
        hipblasLtMatmulAlgo_t algo
        size_t workspace_bytes
        float waves
        string name
    cdef cppclass MatmulPlan:
        @staticmethod
        Status create(const MatmulSpec &spec, StreamContext *context, size_t max_workspace_bytes, int requested, MatmulPlan **out)
        void release()
        Status launch(StreamContext *context, const MatmulPointers &pointers, const MatmulFactors &factors, size_t algorithm)
        const vector[MatmulAlgorithm] &algorithms()
        double flops()
        const MatmulSpec &spec()


cdef extern from "plan_key.hpp" namespace "rocpy" nogil:
    cdef enum class PlanKind(int32_t):
        product
        program
        groups_of_m
        groups_of_n
        groups_of_k
    cdef cppclass PlanSettings:
        PlanSettings()
        PlanKind kind
        int32_t epilogue
        int32_t dtype
        int32_t compute
        c_bool packed
        c_bool scaled
        c_bool listed
    cdef cppclass ScaleSettings:
        ScaleSettings()
        int32_t a
        int32_t b
        c_bool c
        c_bool d
        c_bool amax
    cdef cppclass PlanKey:
        int size
        void begin(const PlanSettings &settings)
        void add(int64_t word)
        void add_number(double number)
        void add_scales(const ScaleSettings &scales)
        void add_operand(int32_t position, const Operand &operand)
        c_bool fits()


cdef extern from "plan_cache.hpp" namespace "rocpy" nogil:
    cdef enum class CallKind(int32_t):
        launch
        copy
        compose
    cdef cppclass CopiedArrays:
        c_bool a
        c_bool b
        c_bool c
        c_bool bias
        c_bool aux
        c_bool out
        c_bool c_in_columns
    cdef cppclass NativeRecipe:
        string epilogue
        string dtype
        string operands
        c_bool scaled
        c_bool blocks
    cdef cppclass CachedCall:
        CachedCall() except +
        CallKind kind
        CopiedArrays copies
        NativeRecipe recipe
        MatmulPlan *plan
        size_t algorithm
        string source
        c_bool swapped
        c_bool transposed
        c_bool synchronous
        int32_t result_type
        int32_t result_ndim
        int64_t result_shape[32]
        c_bool integer_factors
        c_bool extra_is_aux
        int32_t extra_type
        int32_t extra_ndim
        int64_t extra_shape[32]
    cdef cppclass PlanCache:
        shared_ptr[CachedCall] find(const PlanKey &key)
        void insert(const PlanKey &key, shared_ptr[CachedCall] call) noexcept
    PlanCache &plan_cache()


# Operands of one product as they were parsed; absent ones have ndim -1.
cdef struct Operands:
    Operand a
    Operand b
    Operand c
    Operand bias
    Operand aux
    Operand out
    bint packed


# What a call does once its product is queued: nothing, wait until it is done, keep its operands until then, or keep them with the graph
# that the stream is captured into.
cdef enum Completion:
    FAILED = -1  # an exception is set
    NOTHING = 0
    WAIT = 1
    KEEP_ALIVE = 2
    CAPTURE = 3

# One launch of a planned call.
cdef struct Launch:
    CachedCall *call
    const Operands *operands
    const Operand *out  # the array that the result is written to; NULL: a new one
    const MatmulFactors *factors
    void **program  # what the call's tile program reads and writes; NULL: it has none
    size_t algorithm  # its rank in the plan
    int device
    hipStream_t stream
    Completion completion


cdef list algorithms_of(CachedCall *call, int device)
cdef Completion resolve_device_and_stream(const Operand *like, object stream, int *device, hipStream_t *out,
                                          StreamUse *use) except Completion.FAILED
cdef void aim(MatmulPointers *pointers, const CachedCall *call, const Operand *a, const Operand *b, const Operand *c) noexcept nogil
# `owner` is the user's a, whose framework allocates; `out` is the array of launch.out, where that is set; `held` is what the launch reads beside the operands.
cdef object execute(const Launch *launch, object owner, object out, tuple held, Scales scales)
# `device_type` and `device` are those of the operands' memory.
cdef int synchronize_stream(hipStream_t c_stream, int device_type, int device) except -1
# Whether a launch that failed may have written over the c that it reads: one of several, into c's own memory.
cdef bint overwrites_c(const Launch *launch) noexcept
# Raise where a stream is captured: for what no graph can hold. `what` names it, `do` says what to do.
cdef int refuse_capture(Completion completion, str what, str do) except -1
# The same before anything is copied, of a stream that the user gave.
cdef int refuse_captured(object stream, str what, str do) except -1


cdef inline bint is_nothing(double alpha, const Operand *a) noexcept nogil:
    """Whether nothing is left of a product: alpha is 0 in float32, in which it is applied, or there is nothing to add."""
    return <float>alpha == 0 or a.shape[a.ndim - 1] == 0


# Wait for a stream; what its work uses is kept for ever where that fails: then nothing tells when the work ends.
cdef int wait_or_keep(hipStream_t stream, object objects) except -1


cdef inline int wait_if_running(hipStream_t stream) except -1:
    """Wait for a stream; the GIL is given up only if there is something to wait for."""
    return 0 if abi.slot_hipStreamQuery(stream) == abi.hipSuccess else wait_or_keep(stream, None)
