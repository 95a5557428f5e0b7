# SPDX-License-Identifier: MIT
"""DLPack capsules in both directions, versioned and legacy, with each deleter called exactly once."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF

from rocpy.errors import InvalidOperandError, UnsupportedError


cdef extern from "Python.h":
    ctypedef int PyGILState_STATE
    bint Py_IsInitialized() nogil
    void PyGILState_Release(PyGILState_STATE) nogil

cdef extern from "runtime/gil.hpp" namespace "rocpy" nogil:
    PyGILState_STATE ensure_gil()


cdef class Import:
    def __cinit__(self):
        self.versioned = NULL
        self.unversioned = NULL

    def __dealloc__(self):
        cdef DLManagedTensorVersioned* versioned = self.versioned
        cdef DLManagedTensor* unversioned = self.unversioned
        self.versioned = NULL
        self.unversioned = NULL
        if versioned != NULL and versioned.deleter != NULL:
            versioned.deleter(versioned)
        if unversioned != NULL and unversioned.deleter != NULL:
            unversioned.deleter(unversioned)

    cdef const DLTensor* tensor(self) noexcept nogil:
        if self.versioned != NULL:
            return &self.versioned.dl_tensor
        return &self.unversioned.dl_tensor

    cdef bint read_only(self) noexcept nogil:
        return self.versioned != NULL and (self.versioned.flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0


cdef Import import_capsule(object capsule, str name):
    """Take the managed tensor out of a capsule. From here on the tensor is ours to delete, also when it is refused."""
    cdef Import taken = Import.__new__(Import)
    cdef DLManagedTensorVersioned* versioned
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        versioned = <DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, b"dltensor_versioned")
        PyCapsule_SetName(capsule, b"used_dltensor_versioned")
        taken.versioned = versioned
        if versioned.version.major != DLPACK_MAJOR_VERSION:
            raise UnsupportedError(
                f"{name}: the array's producer exports DLPack {versioned.version.major}.{versioned.version.minor}, "
                "but rocpy "
                f"supports {DLPACK_MAJOR_VERSION}.{DLPACK_MINOR_VERSION}; pass an array of a framework version that "
                "supports DLPack 1"
            )
        return taken
    if PyCapsule_IsValid(capsule, b"dltensor"):
        taken.unversioned = <DLManagedTensor*>PyCapsule_GetPointer(capsule, b"dltensor")
        PyCapsule_SetName(capsule, b"used_dltensor")
        return taken
    if PyCapsule_IsValid(capsule, b"used_dltensor_versioned") or PyCapsule_IsValid(capsule, b"used_dltensor"):
        raise InvalidOperandError(
            f"{name}: its DLPack capsule has been consumed already; a capsule can be used once, pass the array itself"
        )
    raise InvalidOperandError(f"{name}: its __dlpack__ returned {type(capsule).__name__}, expected a DLPack capsule")


cdef Import import_array(object array, str name):
    """Ask an array for its capsule: DLPack 1 first, then the form from before versions."""
    if PyCapsule_CheckExact(array):
        return import_capsule(array, name)
    method = array.__dlpack__
    try:
        capsule = method(max_version=(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION))
    except TypeError:
        capsule = method()
    return import_capsule(capsule, name)


cdef struct Export:
    DLManagedTensorVersioned versioned
    DLManagedTensor unversioned
    void* owner
    int64_t extents[64]


cdef void release(Export* record) noexcept nogil:
    # A consumer may drop its tensor in any thread, and as late as after the interpreter's end.
    # Its destructor, that of a tensor in C++, cannot be unwound.
    if not Py_IsInitialized():
        return
    cdef PyGILState_STATE state = ensure_gil()
    drop(record)
    PyGILState_Release(state)


cdef void drop(Export* record) noexcept with gil:
    Py_DECREF(<object>record.owner)
    PyMem_Free(record)


cdef void delete_versioned(DLManagedTensorVersioned* managed) noexcept nogil:
    release(<Export*>managed.manager_ctx)


cdef void delete_unversioned(DLManagedTensor* managed) noexcept nogil:
    release(<Export*>managed.manager_ctx)


cdef Export* record_of(object owner, const Operand* operand, uint64_t flags) except NULL:
    cdef Export* record
    cdef DLTensor* tensor
    cdef int64_t step = 1
    cdef int i
    if operand.ndim > max_dims:
        raise UnsupportedError(f"cannot export an array with {operand.ndim} dimensions, the maximum is {max_dims}")
    record = <Export*>PyMem_Malloc(sizeof(Export))
    if record == NULL:
        raise MemoryError()
    record.owner = <void*>owner
    tensor = &record.versioned.dl_tensor
    tensor.data = operand.data
    tensor.device.device_type = <DLDeviceType>operand.device_type
    tensor.device.device_id = operand.device_id
    tensor.ndim = operand.ndim
    tensor.dtype = dlpack_type(operand.type)
    tensor.shape = record.extents
    tensor.strides = record.extents + max_dims
    tensor.byte_offset = 0
    for i in range(operand.ndim - 1, -1, -1):
        record.extents[i] = operand.shape[i]
        record.extents[max_dims + i] = step
        step *= operand.shape[i] if operand.shape[i] > 0 else 1
    record.versioned.version.major = DLPACK_MAJOR_VERSION
    record.versioned.version.minor = DLPACK_MINOR_VERSION
    record.versioned.manager_ctx = record
    record.versioned.deleter = delete_versioned
    record.versioned.flags = flags
    record.unversioned.dl_tensor = tensor[0]
    record.unversioned.manager_ctx = record
    record.unversioned.deleter = delete_unversioned
    Py_INCREF(owner)
    return record


cdef void drop_versioned_capsule(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        delete_versioned(<DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, b"dltensor_versioned"))


cdef void drop_capsule(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor"):
        delete_unversioned(<DLManagedTensor*>PyCapsule_GetPointer(capsule, b"dltensor"))


cdef object export_capsule(object owner, const Operand* operand, bint versioned, uint64_t flags):
    """A capsule over the memory of an operand, C-contiguous, in the form the consumer asked for; it keeps `owner` alive."""
    cdef Export* record = record_of(owner, operand, flags)
    try:
        if versioned:
            return PyCapsule_New(&record.versioned, b"dltensor_versioned", drop_versioned_capsule)
        return PyCapsule_New(&record.unversioned, b"dltensor", drop_capsule)
    except BaseException:
        release(record)
        raise


cdef const DLPackExchangeAPI* exchange_api(object cls) except? NULL:
    """The exchange table of an array type, or NULL where it has none that we can read."""
    cdef DLPackExchangeAPIHeader* header
    capsule = getattr(cls, "__dlpack_c_exchange_api__", None)
    if capsule is None or not PyCapsule_IsValid(capsule, b"dlpack_exchange_api"):
        return NULL
    header = <DLPackExchangeAPIHeader*>PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
    while header != NULL and header.version.major != DLPACK_MAJOR_VERSION:
        header = header.prev_api
    return <const DLPackExchangeAPI*>header


cdef object describe_type(uint8_t code, uint8_t bits, uint16_t lanes):
    """Readable name of a DLPack type, for error messages."""
    cdef const ArrayType* row = array_type_of_dlpack(code, bits, lanes)
    if row != NULL:
        return row.name.decode()
    if code == kDLBool:
        return "bool"
    kinds = {0: "int", 1: "uint", 2: "float", 3: "opaque handle", 4: "bfloat", 5: "complex", 15: "float6_e2m3fn", 16: "float6_e3m2fn",
             17: "float4_e2m1fn"}
    kind = kinds.get(code, f"type code {code}, bits ")
    return f"{kind}{bits}" + (f"x{lanes}" if lanes != 1 else "")
