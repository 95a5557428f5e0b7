# SPDX-License-Identifier: MIT
"""Module and Kernel: a code object that is loaded on a device, and the launch of what is in it."""

from rocpy._integers import integer_of
from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import CREATED_BY_METHODS, refuse_construction
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.kernels.arguments import check_sizes, extents, pack

from libcpp.vector cimport vector

cimport abi
from abi cimport hipStream_t

from rocpy cimport _core
from rocpy.runtime cimport device as _device
from rocpy.runtime._capture cimport Capturing, capture_of
from rocpy.runtime.handles.keep_alive cimport hold
from rocpy.runtime.handles.owner cimport Owner
from rocpy.runtime.handles.stream_handle cimport StreamUse, device_of_stream, handle_of


cdef class Module(Owner):
    """A code object loaded on a device (hipModuleLoadData, hipModuleUnload); created by :meth:`from_code`.

    Attributes
    ----------
    device_index : int
        Number of the device.

    Examples
    --------
    >>> import rocpy
    >>> try:
    ...     module = rocpy.Module.from_code(b"this is not a code object")
    ... except rocpy.RocpyError as error:
    ...     print(type(error).__name__)
    LibraryError
    """

    __signature__ = CREATED_BY_METHODS

    cdef abi.hipModule_t c_module
    cdef bytes code  # until its metadata is read, for the first kernel
    cdef dict sizes  # of arguments in bytes, by kernel

    def __cinit__(self):
        self.c_module = NULL

    def __init__(self, *_, **__):
        refuse_construction("Module", "Module.from_code, of a code object's bytes")

    @staticmethod
    def from_code(code, *, device=None):
        """Load a code object.

        Parameters
        ----------
        code : bytes
            A code object for the device, or a bundle that has one.
        device : Device or int, optional
            The device; the thread's current one by default.

        Returns
        -------
        Module
            The loaded code.

        Raises
        ------
        UnsupportedError
            The code object has nothing for this device; on the host platform, nothing for an architecture that it emulates.
        LibraryError
            It is not a code object.
        InvalidOperandError
            It is not a bytes-like object, or only the beginning of a code object.
        """
        cdef Module module = Module.__new__(Module)
        cdef bytes image
        try:
            whole = bytes(memoryview(code))
        except TypeError:
            raise InvalidOperandError(f"code: got {type(code).__name__}, expected bytes") from None
        from rocpy.runtime.kernels.metadata import declared_bytes  # most programs load no code

        # HIP takes no size: what is cut off would go on with what lies behind it, and a short image must end in what no header has.
        declared = declared_bytes(whole)
        if declared > len(whole):
            raise InvalidOperandError(
                f"code: got the first {len(whole)} bytes of a code object of at least {declared}; pass all of it")
        image = whole + b"\0" * 64
        _core.ensure()
        module.device_index = _device.index_of(device)
        previous = _device.enter(module.device_index)
        try:
            abi.hipModuleLoadData(&module.c_module, <const char*>image)
        finally:
            _device.leave(previous)
        module.code = image
        module.opened()
        return module

    cdef int give_back(self) except -1:
        abi.hipModuleUnload(self.c_module)
        return 0

    @property
    def handle(self):
        """The ``hipModule_t`` as a number."""
        self.check()
        return <size_t>self.c_module

    def kernel(self, name):
        """Return a kernel of the code (hipModuleGetFunction).

        Parameters
        ----------
        name : str
            Its name in the code object: mangled, unless it is ``extern "C"``.

        Returns
        -------
        Kernel
            The kernel, which keeps the module alive.
        """
        cdef Kernel kernel = Kernel.__new__(Kernel)
        cdef bytes text, code
        try:
            text = name.encode()
        except (AttributeError, UnicodeEncodeError):
            text = b""
        if not text or b"\0" in text:
            raise InvalidOperandError(f"name: got {name!r}, expected the name of a kernel in the code object")
        self.check()
        abi.hipModuleGetFunction(&kernel.c_function, self.c_module, text)
        code = self.code
        if code is not None:
            from rocpy.runtime.kernels.metadata import argument_sizes  # most programs load no code

            self.sizes = argument_sizes(code)
            self.code = None
        kernel.module = self
        kernel.name = name
        kernel.sizes = (self.sizes or {}).get(name)
        return kernel

    def __repr__(self):
        return f"rocpy.Module(device={self.device_index}{', closed' if self.closed else ''})"


cdef class Kernel:
    """A kernel of a :class:`Module`.

    Attributes
    ----------
    module : Module
        The module that contains it.
    name : str
        Its name.
    """

    __signature__ = CREATED_BY_METHODS

    cdef abi.hipFunction_t c_function
    cdef readonly Module module
    cdef readonly str name
    cdef tuple sizes  # of its arguments in bytes; None where the code object does not tell

    def __init__(self, *_, **__):
        refuse_construction("Kernel", "Module.kernel")

    def __reduce__(self):
        refuse_pickling(self, "load its Module in the other process")

    def launch(self, grid, block, *arguments, shared_bytes=0, stream=None):
        """Queue the kernel (hipModuleLaunchKernel).

        Parameters
        ----------
        grid, block : int or sequence of int
            Blocks of the grid and threads of a block, up to three extents each.
        *arguments
            The kernel's arguments: Python's int as 64 bits, float as double, bool as a byte; numpy scalars and ctypes objects as they
            are; arrays with DLPack, including Buffers, and None as pointers. They and their memory are kept until the kernel has
            finished, in a graph as long as the graph. Their number and their sizes are checked where the code object has them, and an int
            may be narrower there. The code object does not tell an integer from a float of its size: to a ``float`` parameter pass
            ``numpy.float32(2)``, since the int ``2`` is the float with these bits, 3e-45.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        stream : stream, optional
            Stream on which the kernel is queued; the null stream by default.

        Raises
        ------
        InvalidProblemError
            The kernel has another number of arguments.
        InvalidOperandError
            An argument is not one, or has not the size that the kernel has for it; or the stream is of another device than the module.

        Notes
        -----
        Nobody knows what a kernel of raw code writes. Arrays that must not change, such as jax's and read-only ones of numpy's, are
        accepted, for kernels that only read them; and the versions of torch tensors, by which autograd notices a change, stay as they are. Where the kernel writes to a tensor that autograd may have saved, call
        ``torch.autograd.graph.increment_version(tensor)`` after the launch. Kernels of `rocpy.cooperative` do so themselves.
        """
        cdef hipStream_t c_stream = NULL
        cdef vector[void*] pointers
        cdef unsigned int shared
        cdef unsigned int g[3]
        cdef unsigned int b[3]
        cdef bytes value
        cdef Capturing capturing = None
        cdef StreamUse use
        cdef int other = 0
        self.module.check()
        memory = integer_of(shared_bytes)
        if memory is None or not 0 <= memory < 1 << 32:
            raise InvalidProblemError(f"shared_bytes: got {shared_bytes!r}, expected a number of bytes")
        shared = memory
        g[0], g[1], g[2] = extents(grid, "grid")
        b[0], b[1], b[2] = extents(block, "block")
        values, owners = pack(arguments)
        if self.sizes is not None:
            check_sizes(self.name, self.sizes, arguments, values)
        for value in values:
            pointers.push_back(<void*><const char*>value)
        device = self.module.device_index
        if stream is not None:
            handle_of(stream, &c_stream, &use)
            capturing = capture_of(c_stream, device)
        self.module.check()  # the code of arguments and streams may have let another thread close it
        previous = _device.enter(device)
        try:
            if c_stream != NULL:
                device_of_stream(stream, c_stream, &other)
                if other != device:
                    raise InvalidOperandError(
                        f"stream: it belongs to device {other}, and kernel {self.name} is loaded on device {device}; "
                        f"pass a stream of device {device}")
            abi.hipModuleLaunchKernel(
                self.c_function, g[0], g[1], g[2], b[0], b[1], b[2], shared, c_stream, pointers.data(), NULL)
        finally:
            _device.leave(previous)
        if capturing is not None:
            capturing.objects.append(self)
            capturing.keep(owners)
        else:
            hold(c_stream, device, (self, owners))

    def __repr__(self):
        return f"rocpy.Kernel({self.name!r})"
