# SPDX-License-Identifier: MIT
"""MemoryRecord: where an array's memory was when it was read, for objects that keep arrays and read them again.

An array of numpy and a tensor of torch may get other memory while it stays the same object: by ``ndarray.resize``, by
``tensor.data = other``, ``tensor.set_`` or ``tensor.resize_``. An address that was read of it is then one of freed memory.
An object of another kind may have other memory whenever it is asked for it again; what it exports by DLPack or the buffer protocol stays
until that is given back, while nothing holds what it names in an array interface.
"""

cimport numpy as cnp
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from cpython.weakref cimport PyWeakref_NewRef
from libc.stdint cimport int32_t
from libc.string cimport memset

from rocpy._dlpack cimport DLDeviceType, DLTensor, Operand, array_type_of_hip, max_dims
from rocpy._producers.foreign_arrays cimport exports_memory, parse_foreign
from rocpy._producers.numpy_arrays cimport parse_ndarray, parse_ndarray_other
from rocpy._producers.torch_memory cimport read_words, words_hold
from rocpy._producers.torch_tensors cimport is_clear, learn, refuse_recorded, torch_api
from rocpy.runtime.memory cimport Buffer

import numpy

from rocpy._messages.modules import is_instance_of
from rocpy.errors import InvalidOperandError

cnp.import_array()

cdef enum:
    of_numpy = 1
    of_torch = 2
    of_exporter = 3


cdef object other_type = None  # the last that was neither's, which it stays: a class keeps its bases


cdef int kind_of(object array) except -1:
    global other_type
    if cnp.PyArray_Check(array):
        return of_numpy
    if type(array) is other_type:
        return 0
    if learn(type(array)):
        return of_torch
    other_type = type(array)
    return 0


cdef int read_ndarray(cnp.ndarray array, MemoryLayout* out) except -1:
    cdef int axis
    memset(out, 0, sizeof(MemoryLayout))
    out.data = cnp.PyArray_DATA(array)
    out.type.descriptor = <PyObject*>cnp.PyArray_DESCR(array)
    out.ndim = cnp.PyArray_NDIM(array)
    for axis in range(min(out.ndim, max_dims)):
        out.shape[axis] = cnp.PyArray_DIMS(array)[axis]
        out.strides[axis] = cnp.PyArray_STRIDES(array)[axis]
    return 0


cdef int read_tensor(object array, MemoryLayout* out) except -1:
    cdef DLTensor tensor
    cdef int axis
    memset(out, 0, sizeof(MemoryLayout))
    if not is_clear(array):
        out.conjugated, out.negated = array.is_conj(), array.is_neg()
    if torch_api.dltensor_from_py_object_no_sync(<void*>array, &tensor) == 0:
        out.data = <const char*>tensor.data + tensor.byte_offset
        out.type.dlpack = tensor.dtype
        out.device.dlpack = tensor.device
        out.ndim = tensor.ndim
        for axis in range(min(out.ndim, max_dims)):
            out.shape[axis], out.strides[axis] = tensor.shape[axis], tensor.strides[axis]
        return 0
    # Of a type or a layout that DLPack has no name for.
    PyErr_Clear()
    shape, strides = tuple(array.shape), tuple(array.stride())
    out.data = <const void*><size_t>array.data_ptr()
    out.type.hash, out.device.hash, out.ndim = hash(array.dtype), hash(array.device), len(shape)
    for axis in range(min(out.ndim, max_dims)):
        out.shape[axis], out.strides[axis] = shape[axis], strides[axis]
    return 0


cdef bint is_exporter(object array) except -1:
    """Whether an object of another kind is asked for its memory anew each time: a capsule can be read once, a Buffer keeps its memory."""
    return not isinstance(array, (Buffer, numpy.generic)) and exports_memory(array)


cdef int read_exporter(object array, str name, MemoryLayout* out) except -1:
    cdef Operand seen
    if not cnp.PyArray_Check(array):
        parse_foreign(array, name, &seen)
    elif not parse_ndarray(array, &seen):
        parse_ndarray_other(array, name, &seen)
    return layout_of(&seen, out)


cdef int layout_of(const Operand* seen, MemoryLayout* out) except -1:
    cdef int axis
    memset(out, 0, sizeof(MemoryLayout))
    if not seen.copied:
        out.data = seen.data
    out.type.hash, out.ndim = seen.type, seen.ndim
    out.device.dlpack.device_type, out.device.dlpack.device_id = <DLDeviceType>seen.device_type, seen.device_id
    for axis in range(seen.ndim):
        out.shape[axis], out.strides[axis] = seen.shape[axis], seen.strides[axis]
    return 0


cdef class MemoryRecord:
    """Where an array's memory is, and how the elements lie in it."""

    @property
    def is_exported(self):
        """Whether the array is neither numpy's nor torch's."""
        return self.kind == of_exporter

    def moved(self):
        """Return whether the array has other memory than when it was recorded.

        Raises
        ------
        InvalidOperandError
            Its shape, dtype, layout or device is another one now.
        """
        return self.has_moved()

    cdef bint is_at_rest(self) noexcept:
        cdef const MemoryLayout* before = &self.layout
        cdef cnp.npy_intp* shape
        cdef cnp.npy_intp* strides
        cdef cnp.ndarray array
        cdef int axis
        if self.kind == of_exporter:
            return False
        if self.kind != of_numpy:
            return words_hold(self.array, self.words)
        array = <cnp.ndarray>self.array
        if (cnp.PyArray_DATA(array) != before.data or <PyObject*>cnp.PyArray_DESCR(array) != before.type.descriptor
                or cnp.PyArray_NDIM(array) != before.ndim):
            return False
        shape, strides = cnp.PyArray_DIMS(array), cnp.PyArray_STRIDES(array)
        for axis in range(before.ndim):
            if shape[axis] != before.shape[axis] or strides[axis] != before.strides[axis]:
                return False
        return True

    cdef bint has_moved(self) except -1:
        cdef MemoryLayout now
        if self.is_at_rest() or (self.is_deleted is not None and not self.is_deleted()):
            return False
        if self.kind == of_numpy:
            read_ndarray(<cnp.ndarray>self.array, &now)
        elif self.kind == of_torch:
            read_tensor(self.array, &now)
        else:
            read_exporter(self.array, self.name, &now)
        if not self.is_as_before(&now):
            before = f"shape {shape_of(&self.layout)}, {self.dtype}, strides {strides_of(&self.layout)}"
            raise InvalidOperandError(
                f"{self.name}: had {before} when it was passed, and now has shape {shape_of(&now)}, "
                f"{dtype_of(self.array, self.kind, &now)}, strides "
                f"{strides_of(&now)}; pass an operand with another layout to reset_operands(), or create a new Matmul "
                "for another shape")
        if now.data != self.layout.data:
            return True
        if self.kind == of_torch:
            read_words(self.array, &self.words)
        return False

    cdef bint has_changed(self) except -1:
        try:
            return self.has_moved()
        except InvalidOperandError:
            return True

    cdef bint is_as_before(self, const MemoryLayout* now) except -1:
        cdef const MemoryLayout* before = &self.layout
        cdef bint empty = False
        cdef int axis
        if now.ndim != before.ndim or not same_device(&now.device, &before.device):
            return False
        if now.conjugated != before.conjugated or now.negated != before.negated:
            return False
        if not same_type(&now.type, &before.type) and (self.kind != of_numpy or self.array.dtype != self.dtype):
            return False
        for axis in range(now.ndim):
            if now.shape[axis] != before.shape[axis]:
                return False
            empty = empty or now.shape[axis] == 0
        if empty:
            return True
        for axis in range(now.ndim):
            # A step along an axis of one element says nothing.
            if now.strides[axis] != before.strides[axis] and now.shape[axis] > 1:
                return False
        return True

    cdef bint is_elsewhere(self, const void* read) noexcept:
        return read != self.layout.data


cdef bint same_type(const TypeIdentity* one, const TypeIdentity* other) noexcept:
    return (one.descriptor == other.descriptor and one.hash == other.hash and one.dlpack.code == other.dlpack.code
            and one.dlpack.bits == other.dlpack.bits and one.dlpack.lanes == other.dlpack.lanes)


cdef bint same_device(const DeviceIdentity* one, const DeviceIdentity* other) noexcept:
    return (one.hash == other.hash and one.dlpack.device_type == other.dlpack.device_type
            and one.dlpack.device_id == other.dlpack.device_id)


cdef tuple shape_of(const MemoryLayout* layout):
    return tuple([layout.shape[axis] for axis in range(min(layout.ndim, max_dims))])


cdef tuple strides_of(const MemoryLayout* layout):
    return tuple([layout.strides[axis] for axis in range(min(layout.ndim, max_dims))])


cdef object dtype_of(object array, int kind, const MemoryLayout* layout):
    return array_type_of_hip(<int32_t>layout.type.hash).name.decode() if kind == of_exporter else array.dtype


cdef MemoryRecord record_of(object array, str name, object view=None, const Operand* read=NULL):
    cdef int kind = kind_of(array)
    cdef MemoryRecord record
    if kind == 0 and (is_exporter(array) if view is array else cnp.PyArray_Check(view)):
        kind = of_exporter
    if kind == 0:
        return None
    record = MemoryRecord.__new__(MemoryRecord)
    record.array, record.name, record.kind = array, name, kind
    if kind == of_numpy:
        read_ndarray(<cnp.ndarray>array, &record.layout)
    elif kind == of_torch:
        read_tensor(array, &record.layout)
        read_words(array, &record.words)
    elif read != NULL:
        layout_of(read, &record.layout)
    else:
        read_exporter(view, name, &record.layout)
    if kind == of_exporter and is_instance_of(array, "jax", "Array"):
        record.is_deleted = array.is_deleted
    record.dtype = dtype_of(array, kind, &record.layout)
    return record if record.layout.ndim <= max_dims else None


def records_of(arrays, views=None):
    """Return where the memory of arrays is, as records whose ``moved()`` tells whether it is elsewhere since.

    Parameters
    ----------
    arrays : dict
        By name, as errors name them; numbers have no record.
    views : dict, optional
        What is read of them. With it arrays that are neither numpy's nor torch's have a record, too: they are asked for their memory again.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._memory_record import records_of
    >>> x = numpy.zeros((2, 2))
    >>> (record,) = records_of({"x": x, "alpha": 2.0})
    >>> record.moved()
    False
    """
    return tuple([record for record in [record_of(array, name, (views or {}).get(name)) for name, array in arrays.items()] if record is not None])


cpdef bint any_moved(tuple records) except -1:
    """Return whether any array has other memory than when it was recorded; raises as ``MemoryRecord.moved`` does."""
    cdef bint moved = False
    for record in records:
        moved = (<MemoryRecord>record).has_moved() or moved
    return moved


cdef int refuse_changed(tuple records) except -1:
    cdef MemoryRecord record
    for record in records:
        # An exporter may give a new copy each time it is read, and what was read of it before is held.
        if record.kind != of_exporter and record.has_changed():
            raise changed(record)
    return 0


cdef int refuse_other_shape(MemoryRecord record, const Operand* read) except -1:
    cdef int axis
    if read.copied or array_type_of_hip(read.type).bits < 8:  # of which torch has two in an element
        return 0
    if record.layout.ndim != read.ndim:
        raise changed(record)
    for axis in range(read.ndim):
        if record.layout.shape[axis] != read.shape[axis]:
            raise changed(record)
    return 0


cdef object changed(MemoryRecord record):
    return InvalidOperandError(
        f"{record.name}: its memory was replaced or resized while the other arguments of the call were read; convert those that do so "
        "first, as in alpha=float(alpha)")


cpdef int refuse_gradients(tuple records) except -1:
    """Refuse tensors whose product torch would have to record now.

    Raises
    ------
    UnsupportedError
        A tensor requires a gradient with grad mode on or carries a tangent, or torch is tracing.
    """
    for record in records:
        if (<MemoryRecord>record).kind == of_torch:
            refuse_recorded((<MemoryRecord>record).array, (<MemoryRecord>record).name)
    return 0


cdef object pinned_memory(object array):
    cdef int kind = 0 if array is None else kind_of(array)
    if kind == of_numpy:
        return (array, PyWeakref_NewRef(array, None))  # numpy does not resize what a weak reference names
    if kind == of_torch:
        # Not by DLPack, which lends the tensor and not its storage.
        return (array, array.untyped_storage())
    return array


cdef tuple pinned_memories(object arrays):
    return tuple([pinned_memory(array) for array in arrays])
