# SPDX-License-Identifier: MIT
"""Buffer: C-contiguous memory of the platform, exchanged with array libraries by DLPack."""

import numpy

from rocpy._integers import integer_of
from rocpy._messages.pickling import refuse_pickling
from rocpy._messages.text import plain_text
from rocpy._signatures import signature_like
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, RocpyError
from rocpy.platform import current as current_platform
from rocpy.runtime._foreign import address_of, check_plain, count_writes, elements_of, host_values, has_version, is_immutable, memory_owner, pair_of

cimport abi
cimport cython
from abi cimport hipStream_t
from cpython.ref cimport Py_REFCNT
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int32_t, int64_t

from rocpy._dlpack cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, Import, Operand, array_type_of_hip, describe_type, export_capsule,
    fault_message, fault_none, import_array, kDLCPU, kDLROCM, kDLROCMHost, operand_of_dltensor,
)
from rocpy.runtime cimport device as _device
from rocpy.runtime._allocation cimport Allocation, allocate
from rocpy.runtime._capture cimport Capturing, capture_of
from rocpy.runtime._extents cimport fill_extents, numpy_dtype, size_of, type_of
from rocpy.runtime.handles.call_stream cimport await_handle, note_write, refuse_captured_wait
from rocpy.runtime.handles.keep_alive cimport hold, release_finished
from rocpy.runtime.handles.stream_handle cimport StreamUse, device_of_stream, handle_of

cdef Buffer buffer_on(void* data, int32_t type, object shape, int device, object source):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.ndim = fill_extents(shape, buffer.extents)
    buffer.type = type
    buffer.nbytes = size_of(type, buffer.ndim, buffer.extents)
    buffer.device_index = device
    buffer.location = "device"
    buffer.data = data
    buffer.source = source
    buffer.closed = False
    buffer.generation = _device.generation_of(buffer.device_index)
    return buffer


cdef Buffer new_buffer(int32_t type, int ndim, const int64_t* extents, int device, str location):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    fill_buffer(buffer, type, ndim, extents, device, location)
    return buffer


cdef int fill_buffer(Buffer buffer, int32_t type, int ndim, const int64_t* extents, int device, object location) except -1:
    cdef int i
    buffer.nbytes = size_of(type, ndim, extents)
    buffer.type = type
    buffer.ndim = ndim
    for i in range(ndim):
        buffer.extents[i] = extents[i]
    buffer.device_index = device
    cdef Allocation memory = allocate(buffer.nbytes, device, location)
    buffer.location, buffer.data, buffer.source = location, memory.data, memory
    buffer.closed = False
    buffer.generation = _device.generation_of(buffer.device_index)
    return 0


def memory_of(Buffer buffer not None):
    """Return a buffer's address, and what keeps the memory there when the buffer is closed."""
    cdef void* data = NULL
    owner = buffer.memory_now(&data)
    return <size_t>data, owner


def shared_tensor(Buffer buffer not None):
    """Return the tensor of torch's whose memory a buffer shares, and which counts its writes; None for other memory."""
    return buffer.tensor


cdef class Buffer:
    """C-contiguous memory on a device or in the platform's host memory (hipMalloc, hipHostMalloc, hipMallocManaged).

    It supports DLPack in both directions, on the host platform as CPU memory, after the device has finished its work.

    Parameters
    ----------
    shape : int or tuple of int
        Extents.
    dtype : str or dtype
        Element type: a name, or a dtype of numpy, ml_dtypes, torch or rocpy.
    device : Device or int, optional
        Device to which it belongs; the thread's current device by default.
    location : {"device", "host", "managed"}
        Device memory, pinned host memory, or managed memory, which migrates between the two.

    Attributes
    ----------
    nbytes : int
        Size, in bytes.
    device_index : int
        Index of the device.
    location : str
        Where the memory is; ``"foreign"`` for memory shared with an array of another library.

    Raises
    ------
    OutOfMemoryError
        There is not enough memory.
    ClosedError
        It was used after `close`.

    Examples
    --------
    >>> import numpy, rocpy
    >>> with rocpy.Buffer((2, 3), "float32") as buffer:
    ...     buffer.copy_from(numpy.ones((2, 3), "float32"))
    ...     float(buffer.to_numpy().sum())
    6.0
    """

    __signature__ = signature_like(lambda shape, dtype="uint8", *, device=None, location="device": None)

    def __cinit__(self):
        self.data = NULL
        self.closed = True

    @cython.embedsignature(False)  # Cython puts the `*` elsewhere
    def __init__(self, shape, dtype="uint8", *, device=None, location="device"):
        cdef int64_t extents[32]
        cdef int ndim = fill_extents(shape, extents)
        cdef int32_t type = type_of(dtype)
        fill_buffer(self, type, ndim, extents, _device.index_of(device), plain_text(location))

    @staticmethod
    def from_dlpack(array):
        """Return a buffer that shares the memory of an array, without a copy.

        The array's memory stays valid as long as the buffer exists, unless torch frees or moves it (``untyped_storage().resize_``,
        ``resize_``). What rocpy writes through the buffer raises the version of a torch tensor, by which autograd notices it; a capsule
        does not tell whose memory it is. A buffer over an array that must not change, such as jax's, is read-only.

        Parameters
        ----------
        array : array or capsule
            C-contiguous array with ``__dlpack__``, or a DLPack capsule.

        Returns
        -------
        Buffer
            A buffer of location ``"foreign"``.

        Raises
        ------
        InvalidOperandError
            The array does not support DLPack, or is not C-contiguous.

        Examples
        --------
        >>> import numpy, rocpy
        >>> x = numpy.arange(3.0)
        >>> rocpy.Buffer.from_dlpack(x).handle == x.ctypes.data
        True
        """
        cdef Operand view
        cdef Buffer buffer
        cdef Import taken
        cdef int64_t step = 1
        cdef int fault, i
        if not hasattr(array, "__dlpack__") and not PyCapsule_CheckExact(array):
            raise InvalidOperandError(f"array: got {type(array).__name__}, expected an array with __dlpack__")
        check_plain(array)
        try:
            taken = import_array(array, "array")
        except RocpyError:
            raise
        except (BufferError, TypeError, RuntimeError, ValueError) as error:
            raise InvalidOperandError(f"array: {type(array).__name__} does not export its memory by DLPack: {error}") from error
        fault = operand_of_dltensor(taken.tensor()[0], &view)
        if fault != fault_none:
            dtype = taken.tensor().dtype
            kind = describe_type(dtype.code, dtype.bits, dtype.lanes)
            raise InvalidOperandError(f"array: {type(array).__name__} of {kind} cannot be a Buffer: {fault_message(fault).decode()}")
        shape = [view.shape[i] for i in range(view.ndim)]
        for i in range(view.ndim - 1, -1, -1):
            if view.shape[i] > 1 and view.strides[i] != step and 0 not in shape:
                raise InvalidOperandError("array: a Buffer is C-contiguous memory; pass a contiguous copy of the array")
            step *= view.shape[i]
        if view.device_type not in (kDLCPU, kDLROCM, kDLROCMHost):
            raise InvalidOperandError(f"array: its memory is on a device of DLPack type {view.device_type}, which HIP cannot use")
        buffer = Buffer.__new__(Buffer)
        buffer.data, buffer.type, buffer.ndim = view.data, view.type, view.ndim
        for i in range(view.ndim):
            buffer.extents[i] = view.shape[i]
        buffer.nbytes = size_of(view.type, view.ndim, view.shape)
        buffer.device_index = view.device_id if view.device_type == kDLROCM else 0
        buffer.location = "foreign"
        buffer.source = (taken, memory_owner(array))
        buffer.foreign_type = view.device_type
        copied = taken.versioned != NULL and (taken.versioned.flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0
        buffer.read_only_ = taken.read_only() or copied or is_immutable(array)
        buffer.tensor = array if has_version(array) else None
        buffer.closed = False
        buffer.generation = _device.generation_of(buffer.device_index)
        return buffer

    cdef int check(self) except -1:
        if self.closed:
            raise ClosedError("this Buffer has been closed")
        # Memory of the process that another library owns is not the device's; a child process has a copy of it.
        cdef bint is_on_cpu = self.on_cpu()
        if not is_on_cpu and _device.is_lost(self.generation, self.device_index) or (
                is_on_cpu and self.location != "foreign" and _device.is_reset(self.generation, self.device_index)):
            raise _device.lost_error("Buffer", self.generation)
        return 0

    cdef object memory_now(self, void** data):
        """Give the address, and return what owns it: another thread may close this buffer at the next line of Python."""
        self.check()
        if self.closed:  # the check runs Python
            raise ClosedError("this Buffer has been closed")
        data[0] = self.data
        return self.source

    cdef int check_writable(self) except -1:
        if self.read_only_:
            raise InvalidOperandError("this Buffer is read-only: it shares the memory of an array that must not change; copy that array")
        return 0

    cdef int written(self) except -1:
        """Tell autograd of a tensor that shares the memory."""
        tensor = self.tensor
        if tensor is not None:
            count_writes((tensor,))
            note_write(tensor)
        return 0

    cdef bint on_cpu(self) except -1:
        """Whether the CPU can read the memory."""
        return self.device_type() != kDLROCM

    cdef int device_type(self) except -1:
        if self.foreign_type:
            return self.foreign_type
        if current_platform().host_memory:
            return kDLCPU
        return kDLROCMHost if self.location == "host" else kDLROCM

    @property
    def handle(self):
        """The address as a number."""
        cdef void* data = NULL
        self.memory_now(&data)
        return <size_t>data

    @property
    def shape(self):
        """Extents."""
        return tuple([self.extents[i] for i in range(self.ndim)])

    @property
    def dtype(self):
        """The numpy dtype of its elements (ml_dtypes' for the types that numpy lacks)."""
        return numpy_dtype(self.type)

    @property
    def device(self):
        """The Device to which it belongs."""
        return _device.Device(self.device_index)

    @property
    def read_only(self):
        """Whether it must not be written, because it shares the memory of an immutable array."""
        return bool(self.read_only_)

    @property
    def is_closed(self):
        """Whether `close` has been called."""
        return self.closed

    cdef int drain(self) except -1:
        """Wait until the device has finished what may still write the memory."""
        cdef int previous
        if self.foreign_type == kDLCPU and not current_platform().host_memory:
            return 0
        previous = _device.enter(self.device_index)
        try:
            with nogil:
                abi.hipDeviceSynchronize()
        finally:
            _device.leave(previous)
        return release_finished()

    def copy_from(self, array, *, stream=None):
        """Copy an array's elements into the buffer (hipMemcpyAsync) and wait for the copy; refused on a stream that is captured.

        Parameters
        ----------
        array : array
            Anything without a mask that numpy.asarray accepts, in the memory that it names, or another Buffer; of the buffer's shape
            and dtype.
        stream : stream, optional
            Stream on which the copy is queued; the null stream by default.
        """
        self.check_writable()
        source = array if isinstance(array, Buffer) else host_values(array, stream)
        self.check_like(source)
        cdef void *data = NULL, *address = NULL
        owner = (<Buffer>source).memory_now(&address) if isinstance(source, Buffer) else source
        if owner is source:
            address = <void*><size_t>address_of(source)
        mine = self.memory_now(&data)
        self.copy(data, address, (mine, owner), stream)
        self.written()

    def copy_to(self, array, *, stream=None):
        """Copy the buffer's elements into an array (hipMemcpyAsync) and wait for the copy; refused on a stream that is captured.

        Parameters
        ----------
        array : numpy.ndarray or Buffer
            Writable and C-contiguous, of the buffer's shape and dtype.
        stream : stream, optional
            Stream on which the copy is queued; the null stream by default.
        """
        self.check()
        if isinstance(array, Buffer):
            self.check_like(array)
            return array.copy_from(self, stream=stream)
        if not isinstance(array, numpy.ndarray):
            raise InvalidOperandError(f"array: got {type(array).__name__}, expected a numpy array or a Buffer")
        check_plain(array)
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InvalidOperandError("array: expected a writable C-contiguous array")
        self.check_like(array)
        cdef void* data = NULL
        mine = self.memory_now(&data)
        self.copy(<void*><size_t>address_of(array), data, (mine, array), stream)

    cdef int check_like(self, object array) except -1:
        if tuple(array.shape) != self.shape:
            raise InvalidProblemError(f"array: shape {tuple(array.shape)}; the Buffer has {self.shape}")
        if array.dtype != self.dtype:
            raise InvalidOperandError(f"array: dtype {array.dtype}; the Buffer has {self.dtype}")
        return 0

    cdef int copy(self, void* target, const void* source, tuple owners, object stream) except -1:
        # The caller has the owners of both: another thread may close a buffer meanwhile.
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        cdef size_t bytes = self.nbytes
        if stream is not None:
            handle_of(stream, &c_stream, &use)
            refuse_captured_wait(c_stream, "copies of a Buffer wait for their stream", "make the copy outside of the capture")
        if bytes == 0:
            return 0
        cdef int previous = _device.enter(self.device_index)
        try:
            with nogil:
                abi.hipMemcpyAsync(target, source, bytes, abi.hipMemcpyDefault, c_stream)
                await_handle(c_stream)
        finally:
            _device.leave(previous)
        return release_finished()

    def to_numpy(self, *, stream=None):
        """Return a copy as a numpy array.

        Parameters
        ----------
        stream : stream, optional
            Stream on which the copy is queued; the null stream by default.

        Returns
        -------
        numpy.ndarray
            A new array.
        """
        result = numpy.empty(self.shape, self.dtype)
        self.copy_to(result, stream=stream)
        return result

    def fill(self, value, *, stream=None):
        """Set every byte to a value, in stream order (hipMemsetAsync). The memory stays until that is done, in a graph with it.

        Parameters
        ----------
        value : int
            The byte, 0 to 255.
        stream : stream, optional
            Stream on which it is queued; the null stream by default.
        """
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        cdef Capturing capturing = None
        cdef int device = self.device_index, previous
        self.check_writable()
        byte = integer_of(value)
        if byte is None or not 0 <= byte <= 255:
            raise InvalidProblemError(f"value: got {value!r}, expected a byte from 0 to 255")
        cdef void* data = NULL
        if stream is not None:
            handle_of(stream, &c_stream, &use)
            device_of_stream(stream, c_stream, &device)
            capturing = capture_of(c_stream, device)
        source = self.memory_now(&data)
        if self.nbytes == 0:
            return
        previous = _device.enter(device)
        try:
            abi.hipMemsetAsync(data, byte, self.nbytes, c_stream)
        finally:
            _device.leave(previous)
        if capturing is not None:
            capturing.keep(source, self.tensor)
        elif device != self.device_index or not isinstance(source, Allocation):  # which hipFree frees, after the device's work
            hold(c_stream, device, (source,))
        else:
            release_finished()
        self.written()

    def __dlpack_device__(self):
        """DLPack's device type and number: the CPU on the host platform, ROCm on AMD."""
        self.check()
        kind = self.device_type()
        return (kind, self.device_index if kind == kDLROCM else 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Export the memory, which stays alive until the consumer lets go.

        The device's work is finished first, unless `stream` is -1. On the host platform the memory is the CPU's, and the device's
        own to a consumer that asks for ``dl_device=(10, device_index)``.

        Returns
        -------
        capsule
            Versioned if the consumer knows DLPack 1, legacy otherwise.
        """
        cdef Operand exported
        cdef int i
        cdef hipStream_t c_stream = NULL
        cdef StreamUse use
        device_pair = self.__dlpack_device__()
        number = integer_of(stream)
        if stream is not None and number != -1:
            handle_of(stream if number is None else number, &c_stream, &use)  # which refuses what is none
        wanted, version = pair_of(dl_device, "dl_device"), pair_of(max_version, "max_version")
        if copy:
            raise BufferError("a Buffer exports its own memory only; copy it with to_numpy() or into another Buffer")
        # Pinned memory is the CPU's too; the host platform's is also its device's, as programs for ROCm know it.
        if wanted == (kDLCPU, 0) and device_pair[0] == kDLROCMHost or (
                wanted == (kDLROCM, self.device_index) and device_pair[0] == kDLCPU and not self.foreign_type):
            device_pair = wanted
        if wanted is not None and wanted != device_pair:
            raise BufferError(f"the Buffer is on DLPack device {device_pair}, not on {wanted}")
        versioned = version is not None and version[0] >= 1
        if self.read_only_ and not versioned:
            raise BufferError("a read-only Buffer needs a consumer that knows DLPack 1")
        source = self.memory_now(<void**>&exported.data)
        exported.type, exported.ndim = self.type, self.ndim
        exported.device_type, exported.device_id = device_pair[0], device_pair[1]
        for i in range(self.ndim):
            exported.shape[i] = self.extents[i]
        if number != -1:
            self.drain()
        return export_capsule(source, &exported, versioned, DLPACK_FLAG_BITMASK_READ_ONLY if self.read_only_ else 0)

    # No __array_interface__: by that numpy would keep this object, and not the memory, which would outlive close().
    def __array__(self, dtype=None, copy=None):
        self.drain()
        return elements_of(self, *memory_of(self), dtype, copy)

    def close(self):
        """Free the memory (hipFree, hipHostFree); calling it again has no effect.

        It waits for all work of the device, as where a buffer that is not closed is collected. Memory that arrays share, or that products,
        graphs and copies in other threads still use, is freed after the last use, and later while a collective is pending.
        """
        if self.closed:
            return
        self.closed = True
        self.data = NULL
        source, self.source = self.source, None
        self.tensor = None
        # Its last reference frees it too, but has nobody to raise an error to.
        if isinstance(source, Allocation) and Py_REFCNT(source) == 1:
            (<Allocation>source).free()

    def __reduce__(self):
        refuse_pickling(self, "pickle the array that to_numpy() returns")

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *details):
        self.close()

    def __repr__(self):
        kind = f"{array_type_of_hip(self.type).name.decode()!r}, device={self.device_index}, location={self.location!r}"
        return f"rocpy.Buffer({self.shape}, {kind}{', closed' if self.closed else ''})"
