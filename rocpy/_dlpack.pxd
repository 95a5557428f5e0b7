# SPDX-License-Identifier: MIT
"""DLPack for Cython: the structs, capsules in and out, and the reading of a DLTensor into an Operand."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "dlpack.h" nogil:
    ctypedef struct DLPackVersion:
        uint32_t major
        uint32_t minor

    ctypedef enum DLDeviceType:
        kDLCPU
        kDLCUDA
        kDLCUDAHost
        kDLROCM
        kDLROCMHost
        kDLCUDAManaged

    enum:
        DLPACK_MAJOR_VERSION
        DLPACK_MINOR_VERSION
        DLPACK_FLAG_BITMASK_READ_ONLY
        DLPACK_FLAG_BITMASK_IS_COPIED

    ctypedef enum DLDataTypeCode:
        kDLComplex
        kDLBool

    ctypedef struct DLDevice:
        DLDeviceType device_type
        int32_t device_id

    ctypedef struct DLDataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes

    ctypedef struct DLTensor:
        void* data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset

    ctypedef struct DLManagedTensor:
        DLTensor dl_tensor
        void* manager_ctx
        void (*deleter)(DLManagedTensor*) noexcept

    ctypedef struct DLManagedTensorVersioned:
        DLPackVersion version
        void* manager_ctx
        void (*deleter)(DLManagedTensorVersioned*) noexcept
        uint64_t flags
        DLTensor dl_tensor

    ctypedef struct DLPackExchangeAPIHeader:
        DLPackVersion version
        DLPackExchangeAPIHeader* prev_api

    ctypedef void (*SetError)(void*, const char*, const char*) noexcept

    ctypedef struct DLPackExchangeAPI:
        DLPackExchangeAPIHeader header
        int (*managed_tensor_allocator)(DLTensor*, DLManagedTensorVersioned**, void*, SetError) noexcept
        int (*managed_tensor_from_py_object_no_sync)(void*, DLManagedTensorVersioned**) noexcept
        int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned*, void**) noexcept
        int (*dltensor_from_py_object_no_sync)(void*, DLTensor*) noexcept
        int (*current_work_stream)(DLDeviceType, int32_t, void**) noexcept

cdef extern from "operand.hpp" namespace "rocpy" nogil:
    const int max_dims
    enum:
        provider_numpy
        provider_torch
        provider_exchange
        provider_capsule
        provider_array_interface
        provider_buffer

    cppclass Operand:
        void* data
        int32_t type
        int32_t device_type
        int32_t device_id
        int32_t ndim
        int32_t provider
        bint read_only
        bint copied
        bint conjugated
        int64_t* shape
        int64_t* strides

cdef extern from "array_types.hpp" namespace "rocpy" nogil:
    cppclass ArrayType:
        int32_t type
        uint8_t shift
        uint8_t code
        uint8_t bits
        bint in_numpy
        int32_t nccl
        const char* name

    const ArrayType* array_types_of_core "rocpy::array_types"
    const int array_type_count
    const ArrayType* array_type_of_hip(int32_t type)
    const ArrayType* array_type_of_dlpack(uint8_t code, uint8_t bits, uint16_t lanes)
    const ArrayType* array_type_of_name(const char* name)

cdef extern from "dlpack_operand.hpp" namespace "rocpy" nogil:
    enum:
        fault_none
        fault_type
        fault_null_data
        fault_too_large
        fault_misaligned

    const char* fault_message(int fault)
    int check_extents(Operand* out, int64_t bytes, bint compact, int64_t* elements)
    int operand_of_dltensor(const DLTensor& tensor, Operand* out)
    DLDataType dlpack_type(int32_t type)

cdef extern from "host_block.hpp" namespace "rocpy" nogil:
    DLManagedTensorVersioned* new_host_block(const Operand& operand)


cdef class Import:
    """Owns one managed tensor taken from a producer; calls its deleter once, when it is dropped."""

    cdef DLManagedTensorVersioned* versioned
    cdef DLManagedTensor* unversioned
    cdef const DLTensor* tensor(self) noexcept nogil
    cdef bint read_only(self) noexcept nogil


cdef Import import_capsule(object capsule, str name)
cdef Import import_array(object array, str name)
# C-contiguous memory; strides and provider of the operand are not read.
cdef object export_capsule(object owner, const Operand* operand, bint versioned, uint64_t flags)
cdef const DLPackExchangeAPI* exchange_api(object cls) except? NULL
cdef object describe_type(uint8_t code, uint8_t bits, uint16_t lanes)
