# SPDX-License-Identifier: MIT
"""Weight: a right operand that is used again and again, packed once for the platform."""

from libc.string cimport memcpy
from libcpp.atomic cimport atomic

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport Status
from rocpy._dlpack cimport array_type_of_hip, provider_torch
from abi cimport hipStream_t
from rocpy.blaslt._launch cimport StreamContext, borrow_context, release_context
from rocpy.blaslt._scales cimport Packed, parse_packed

import warnings

import numpy as np

from rocpy import platform as _platform
from rocpy.blaslt import _blocks
from rocpy.blaslt import lowering as _lowering
from rocpy.blaslt import _policy
from rocpy.blaslt import _staging
from rocpy.blaslt.problem import MAX_EXTENT
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, RocpyWarning, UnsupportedError

cdef extern from "types.h" nogil:
    ctypedef void *hipblasLtMatrixLayout_t

cdef extern from "table.hpp" namespace "rocpy" nogil:
    bint has(const char *function)

cdef extern from *:
    """
    #include "context.hpp"
    #include "table.hpp"
    namespace {
    using rocpy::Library;
    using rocpy::Status;
    using rocpy::table;

    hipblasComputeType_t compute_of(int32_t type) {
      if (type == HIP_R_64F || type == HIP_C_64F) return HIPBLAS_COMPUTE_64F;
      return type == HIP_R_8I ? HIPBLAS_COMPUTE_32I : HIPBLAS_COMPUTE_32F;
    }

    // Whether the platform keeps weights of a type packed.
    bool packs_type(void *handle, int32_t type) {
      size_t bytes = 0;
      return table.rocpyExtPackBytes(handle, static_cast<hipDataType>(type), compute_of(type), 32, 32, &bytes) == HIPBLAS_STATUS_SUCCESS;
    }

    // Whether the platform keeps weights of a type and their scales by blocks packed.
    bool packs_blocks(void *handle, int32_t type, int64_t n, int64_t k) {
      size_t bytes = 0;
      return table.rocpyExtPackBlocksBytes(handle, static_cast<hipDataType>(type), static_cast<uint64_t>(n), static_cast<uint64_t>(k),
                                           &bytes) == HIPBLAS_STATUS_SUCCESS;
    }

    // Packs op(A), the m x k view of the weight that the library sees, into memory of the platform; with its scales if there are any.
    Status pack_weight(void *handle, hipStream_t stream, int32_t type, int32_t op, int64_t rows, int64_t columns, int64_t ld, const void *data,
                       const void *scales, int64_t m, int64_t k, void **packed) {
      const hipblasComputeType_t compute = compute_of(type);
      const auto element = static_cast<hipDataType>(type);
      const auto height = static_cast<uint64_t>(m), depth = static_cast<uint64_t>(k);
      size_t bytes = 0;
      hipblasStatus_t status = scales ? table.rocpyExtPackBlocksBytes(handle, element, height, depth, &bytes)
                                      : table.rocpyExtPackBytes(handle, element, compute, height, depth, &bytes);
      if (status != HIPBLAS_STATUS_SUCCESS) return {Library::hipblaslt, status, "rocpyExtPackBytes"};
      hipError_t error = table.hipMalloc(packed, bytes);
      if (error != hipSuccess) return {Library::hip, error, "hipMalloc"};
      hipblasLtMatrixLayout_t layout = nullptr;
      status = table.hipblasLtMatrixLayoutCreate(&layout, element, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld);
      const char *function = "hipblasLtMatrixLayoutCreate";
      if (status == HIPBLAS_STATUS_SUCCESS) {
        const auto operation = static_cast<hipblasOperation_t>(op);
        status = scales ? table.rocpyExtPackBlocks(handle, operation, data, layout, scales, *packed, bytes, stream)
                        : table.rocpyExtPack(handle, operation, compute, data, layout, *packed, bytes, stream);
        function = scales ? "rocpyExtPackBlocks" : "rocpyExtPack";
        table.hipblasLtMatrixLayoutDestroy(layout);
      }
      if (status == HIPBLAS_STATUS_SUCCESS) {
        error = table.hipStreamSynchronize(stream);
        if (error == hipSuccess) return {};
        table.hipFree(*packed);
        *packed = nullptr;
        return {Library::hip, error, "hipStreamSynchronize"};
      }
      table.hipFree(*packed);
      *packed = nullptr;
      return {Library::hipblaslt, status, function};
    }

    Status free_weight(void *packed) {
      rocpy::CaptureRelaxed relaxed;
      return {Library::hip, table.hipFree(packed), "hipFree"};
    }
    int current_device() {
      int device = 0;
      table.hipGetDevice(&device);
      return device;
    }
    }  // namespace
    """
    Status pack_weight(void *handle, hipStream_t stream, int type, int op, long rows, long columns, long ld, const void *data,
                       const void *scales, long m, long k, void **packed) nogil
    bint packs_type(void *handle, int type) nogil
    bint packs_blocks(void *handle, int type, long n, long k) nogil
    Status free_weight(void *packed) nogil
    int current_device() nogil

cdef int _CPU = 1  # kDLCPU

# How often sources_may_have_changed() was called.
cdef atomic[unsigned long] _epoch


def sources_may_have_changed():
    """Tell every Weight that the torch tensors that it was made of may have changed without a sign.

    Raises a counter that each product compares with one integer comparison; a Weight of a torch tensor is then read again at its next
    product. Weights of other arrays are not touched. For hooks that run after optimizer steps: torch's fused optimizers change parameters
    and leave their version counters as they are.

    Notes
    -----
    Safe in any thread, and cheap: nothing is read here. A product that runs at the same time takes the values before or after.

    Examples
    --------
    >>> from rocpy.blaslt.weight import sources_may_have_changed
    >>> sources_may_have_changed()
    """
    _epoch.fetch_add(1)


# Types that the platform keeps packed; found out once.
cdef dict _PACKABLE = {}


cdef bint is_packable(const Operand *view) except? -1:
    cdef StreamContext *context = NULL
    cdef hipStream_t stream = NULL
    cdef Status status
    cdef bint answer = False
    cdef int device = current_device() if view.device_type == _CPU else view.device_id
    found = _PACKABLE.get(view.type)
    if found is None:
        with nogil:
            status = borrow_context(device, stream, &context)
            if status.ok():
                answer = packs_type(context.handle, view.type)
                release_context(context)
        _core.check(status)
        found = _PACKABLE[view.type] = bool(answer)
    return found


cdef object version_of(object array):
    """Return the version counter of a torch tensor; None for other arrays, and for tensors of inference mode, which have none."""
    try:
        return getattr(array, "_version", None)
    except RuntimeError:
        return None


cdef object versions_of(Weight weight):
    """Return the version counters of what a weight is read from, None for arrays without."""
    cdef object own = version_of(weight.source)
    return own if own is None else (own, version_of(weight.scale))


cdef object kept_copy(object array):
    """Return what stands for an array from now on: a copy, unless it tells by a version counter that it changes. Numbers are themselves."""
    if isinstance(array, np.generic) or not hasattr(array, "shape") or version_of(array) is not None:
        return array
    return _policy.snapshot(array)


cdef object checksum_of(Weight weight):
    """Return a number that tells whether arrays of which there is a copy here have changed unreported; None where nobody asks."""
    if _platform.environment("ROCPY_DEBUG") != "1":
        return None
    cdef list arrays = [x for x in (weight.source, weight.origin, weight.scale) if version_of(x) is None]
    if weight.version is not None and not weight.is_live:
        arrays += [x for x in (weight.source, weight.scale) if version_of(x) is not None]
    return tuple([_policy.checksum(x) for x in arrays])


cdef class Block:
    """Memory that a weight is packed in."""

    def __dealloc__(self):
        if self.data != NULL:
            status = free_weight(self.data)
            if not status.ok():
                warnings.warn("a Weight's packed memory could not be freed; it is leaked", RocpyWarning)


cdef class Weight:
    """A weight matrix, with its bias, packed once for the platform.

    Parameters
    ----------
    w
        Shape ``(K, N)``, or ``(N, K)`` with ``layout="nk"``, as ``torch.nn.Linear`` stores it. It is kept for export and for repacking.
    bias
        Length N; used by epilogues that take a bias when the call gives none.
    scale
        ``scale_b`` of every product with it, for weights of 8 bits: a number, or float32 of shape ``(N,)`` or ``(1, N)``. For MX formats
        the scales that go with ``w``: ``(K / 32, N)``, or ``(N, K / 32)`` with ``layout="nk"``.
    layout
        ``"kn"`` or ``"nk"``.

    Raises
    ------
    InvalidOperandError
        If ``w`` is not an array.
    InvalidProblemError
        If it does not have two axes, or the bias is not of length N.

    Notes
    -----
    A torch tensor that changes is noticed by its version counter, and after each step of an optimizer, and packed again; scales by blocks
    are packed with it. Writes through ``tensor.data``, a numpy view or a pointer are not noticed. Other arrays are copied here, beside the
    packed memory. After such a write, and after changing another array, call :meth:`refresh`; with ``ROCPY_DEBUG=1`` a product warns where
    that was forgotten. Pickles as the arrays themselves.

    References
    ----------
    ``rocpyExtPack`` and ``rocpyExtPackBlocks`` where the platform has them; elsewhere the weight stays as it is.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> w = rocpy.Weight(np.ones((3, 4), np.float32), bias=np.arange(4, dtype=np.float32))
    >>> rocpy.matmul(np.ones((1, 3), np.float32), w, epilogue="relu_bias")
    array([[3., 4., 5., 6.]], dtype=float32)
    """

    def __cinit__(self, w, bias=None, *, scale=None, layout="kn"):
        self.device = 0

    def __init__(self, w, bias=None, *, scale=None, layout="kn"):
        if not isinstance(layout, str) or layout not in ("kn", "nk"):
            raise InvalidProblemError(f"layout={layout!r}; it may be 'kn' for (K, N) or 'nk' for (N, K)")
        if type(w) is Weight:
            raise InvalidOperandError("w: a Weight already; pass the array it was made of (its .source)")
        _core.ensure()
        self.layout = layout
        self.source = w
        self.origin = bias
        self.scale = scale
        self.load()
        cdef Operand b
        if bias is not None:
            _operand.parse(bias, "bias", &b)
            if b.ndim != 1 or b.shape[0] != self.operand.shape[1]:
                shape = tuple([b.shape[i] for i in range(b.ndim)])
                self.block = None
                raise InvalidProblemError(f"bias: shape {shape}; it must have length N = {self.operand.shape[1]}, the columns of w")

    @classmethod
    def from_linear(cls, module):
        """Return the weight of a ``torch.nn.Linear``, with its bias.

        Parameters
        ----------
        module
            Anything with ``weight`` of shape ``(N, K)`` and ``bias`` of length N or ``None``.

        Examples
        --------
        >>> import types, numpy as np, rocpy
        >>> linear = types.SimpleNamespace(weight=np.ones((4, 3), np.float32), bias=None)
        >>> rocpy.Weight.from_linear(linear).shape
        (3, 4)
        """
        weight, bias = module.weight, module.bias
        if hasattr(weight, "detach"):  # a Parameter requires grad; products with a Weight are for inference
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        return cls(weight, bias=bias, layout="nk")

    cdef int load_blocks(self) except -1:
        """Read a source that has scales by blocks: packed with them where the platform packs, else as the library reads both."""
        cdef Operand view, seen
        cdef StreamContext *context = NULL
        cdef hipStream_t stream = NULL
        cdef Status status
        cdef void *packed = NULL
        cdef bint packs = False, ours = False
        cdef int device
        cdef object version = versions_of(self), kept, b, scales
        b, scales = _blocks.of_weight(self, self.source)
        if _staging.needed(b):
            b = _staging.upload(b, "b", blocks=True)
            ours = True
        kept = parse_packed(<Packed>b, "w", &view) if type(b) is Packed else _operand.parse(b, "w", &view)
        cdef long k = view.shape[0], n = view.shape[1], ld = max(1, view.strides[1] if n > 1 else k)
        if tuple(scales.shape) != (k // 32, n) or k % 32:
            raise InvalidProblemError(
                f"scale: shape {tuple(self.scale.shape)} for a weight of K = {k} and N = {n} with layout={self.layout!r}; it must have one for "
                "each 32 neighbours along K, and K must be a multiple of 32")
        if has(b"rocpyExtPackBlocks") and k > 0 and n > 0:
            device = current_device() if view.device_type == _CPU else view.device_id
            dense = scales.swapaxes(-1, -2)
            if _staging.needed(dense):
                dense = _staging.upload_scales((None, dense))[1]
            _kept = _operand.parse(dense, "scale", &seen)
            _operand.stream_of(None, &view, &stream)
            with nogil:
                status = borrow_context(device, stream, &context)
                if status.ok():
                    packs = packs_blocks(context.handle, view.type, n, k)
                    if packs:
                        # Lines along K: the library's A, transposed, in columns.
                        status = pack_weight(context.handle, stream, view.type, 112, k, n, ld, view.data, seen.data, n, k, &packed)
                    release_context(context)
            _core.check(status)
        if packs:
            self.block = Block()
            self.block.data = packed
            self.device = device
            view.data = packed
            view.strides[0], view.strides[1] = n, 1
            kept = b = None
        elif version is None and not ours:
            b = _blocks.copied(b)  # nothing would tell that the source has changed
            kept = parse_packed(<Packed>b, "w", &view) if type(b) is Packed else _operand.parse(b, "w", &view)
        self.packed = packs
        self.kept = (kept, b)
        self.prepared, self.factors = b, scales
        self.plain = kept_copy(self.source) if packs else None
        self.version = version
        memcpy(&self.operand, &view, sizeof(Operand))
        return 0

    def by_blocks(self):
        """Return what a product with scales by blocks takes for it; for rocpy.blaslt._blocks."""
        self.current()
        return self if self.packed else self.prepared

    def matrix(self):
        """Return the weight as an array of shape (K, N), as it was when it was read; for products that are composed."""
        cdef object array
        self.current()
        array = self.source if self.plain is None else self.plain
        if self.prepared is not None:
            return self.prepared
        if self.packed and _blocks.are_blocks(self.scale):
            return _blocks.of_weight(self, array)[0]
        if self.layout == "kn":
            return array
        if not hasattr(array, "swapaxes"):
            raise UnsupportedError(
                f"b: a Weight of a {type(array).__name__} with layout='nk', in a product that reads its transposed source (one with a bias per "
                "row, or composed); make the Weight of a numpy or torch array")
        return array.swapaxes(-1, -2)

    cdef int load(self) except -1:
        """Read the source, the bias and the scale."""
        cdef Operand seen
        cdef unsigned long epoch = _epoch.load()
        if _blocks.are_blocks(self.scale):
            self.load_blocks()
        else:
            self.load_source()
            self.factors = kept_copy(self.scale)
        if _staging.has_own_memory():
            self.factors = _staging.upload_scales((None, self.factors))[1]
        self.bias = kept_copy(self.origin)
        self.reads += 1
        _operand.parse(self.source, "w", &seen)
        self.of_torch, self.epoch = seen.provider == provider_torch, epoch
        self.is_live = seen.data == self.operand.data
        self.checksum = checksum_of(self)
        return 0

    cdef int load_source(self) except -1:
        """Read a source without scales by blocks: pack it where the platform packs, else take its memory or a copy of it."""
        cdef Operand view
        cdef StreamContext *context = NULL
        cdef hipStream_t stream = NULL
        cdef Status status
        cdef void *packed = NULL
        cdef int i
        cdef object source = self.source
        cdef object kept = _operand.parse(source, "w", &view)
        if view.ndim != 2:
            raise InvalidProblemError(f"w: shape {tuple([view.shape[i] for i in range(view.ndim)])}; a weight has two axes")
        if view.shape[0] > MAX_EXTENT or view.shape[1] > MAX_EXTENT:
            raise UnsupportedError(f"w: shape {(view.shape[0], view.shape[1])}; hipBLASLt takes extents up to {MAX_EXTENT}")
        cdef object version = versions_of(self)
        cdef bint ours = False
        if _staging.needed(source):
            source = _staging.upload(source, "w")
            ours = True
            kept = _operand.parse(source, "w", &view)
        cdef bint packs = has(b"rocpyExtPack") and view.shape[0] > 0 and view.shape[1] > 0 and is_packable(&view)
        cdef object lies = _lowering.matrix_layout((view.shape[0], view.shape[1]), (view.strides[0], view.strides[1]))
        if lies is None or (version is None and not packs and not ours):
            source = _policy.contiguous(source)
            kept = _operand.parse(source, "w", &view)
            lies = ("row", max(1, view.shape[1]))
        if self.layout == "nk":
            view.shape[0], view.shape[1] = view.shape[1], view.shape[0]
            view.strides[0], view.strides[1] = view.strides[1], view.strides[0]
            lies = ("column" if lies[0] == "row" else "row", lies[1])
        cdef long k = view.shape[0], n = view.shape[1], ld = max(lies[1], n if lies[0] == "row" else k)
        cdef int op = 111 if lies[0] == "row" else 112
        cdef int device
        if packs:
            device = current_device() if view.device_type == _CPU else view.device_id
            _operand.stream_of(None, &view, &stream)
            with nogil:
                status = borrow_context(device, stream, &context)
                if status.ok():
                    # The library's A is this matrix: row-major (K, N) is column-major n x k.
                    status = pack_weight(context.handle, stream, view.type, op, n if op == 111 else k, k if op == 111 else n, ld,
                                         view.data, NULL, n, k, &packed)
                    release_context(context)
            _core.check(status)
            self.block = Block()
            self.block.data = packed
            self.device = device
            view.data = packed
            view.strides[0], view.strides[1] = n, 1
            kept = None
        self.packed = packs
        self.kept = kept
        self.plain = None if version is not None else (kept_copy(self.source) if packs or ours else source)
        self.version = version
        memcpy(&self.operand, &view, sizeof(Operand))
        return 0

    cdef int current(self) except -1:
        """Make sure that the packed copy is that of the source as it is now."""
        if self.operand.ndim == 0:
            raise ClosedError("w: this Weight was closed")
        if self.of_torch and self.epoch != _epoch.load():
            self.load()
        elif self.version is not None and versions_of(self) != self.version:
            self.load()
        elif self.checksum is not None and self.checksum != checksum_of(self):
            warnings.warn(
                "w: the array that a Weight was made of has changed since, and nothing reported it (a write through numpy, .data or a pointer): "
                "products read the copy that was made then; call its refresh(), or repack() of a layer", RocpyWarning, stacklevel=2)
        return 0

    def refresh(self):
        """Read the source again, after it was changed in a way that carries no version counter.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> source = np.zeros((2, 2), np.float32)
        >>> w = rocpy.Weight(source)
        >>> source[:] = 1
        >>> w.refresh()
        >>> rocpy.matmul(np.ones((1, 2), np.float32), w)
        array([[2., 2.]], dtype=float32)
        """
        if self.operand.ndim == 0:
            raise ClosedError("w: this Weight was closed")
        self.load()

    @property
    def shape(self):
        """``(K, N)``."""
        return (self.operand.shape[0], self.operand.shape[1])

    @property
    def dtype(self):
        """Name of the element type."""
        return array_type_of_hip(self.operand.type).name.decode()

    def close(self):
        """Free the packed copy. Closing twice is harmless; using the weight afterwards raises ClosedError."""
        self.operand.ndim = 0
        self.kept = self.prepared = self.plain = None
        self.block = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __reduce__(self):
        return (_rebuild, (self.source, self.origin, self.layout, self.scale))

    def __repr__(self):
        if self.operand.ndim == 0:
            return "<rocpy.Weight, closed>"
        return f"<rocpy.Weight {self.shape} {self.dtype}{', packed' if self.packed else ''}{', with bias' if self.bias is not None else ''}>"


def _rebuild(source, bias, layout, scale=None):
    """Make a Weight again from what it pickles as."""
    return Weight(source, bias, scale=scale, layout=layout)
