# SPDX-License-Identifier: MIT
"""WeightSnapshot: a weight as it was read at one time, packed where the platform packs. Products own it until they are done."""

import warnings

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp.atomic cimport atomic

cimport abi
from abi cimport hipStream_t

from rocpy cimport _core
from rocpy cimport _operand
from rocpy._core cimport DefaultFpEnvironment, Status, c_has
from rocpy._dlpack cimport array_type_of_hip
from rocpy._memory_record cimport MemoryRecord, record_of
from rocpy._operand cimport Operand
from rocpy._producers.torch_tensors cimport is_recorded_here
from rocpy.blaslt.model.packed cimport Packed, parse_packed
from rocpy.blaslt.model.scale_arguments cimport check_scale_number, plain_scale
from rocpy.runtime cimport device as _device
from rocpy.runtime._context cimport StreamContext, borrow_context, release_context
from rocpy.runtime.handles.call_stream cimport await_call_stream, await_stream, device_type_of
from rocpy.runtime.handles.stream_handle cimport StreamUse

from rocpy import platform as _platform
from rocpy._messages.modules import is_tensor
from rocpy._operand import describe
from rocpy.blaslt.arrays import array_libraries as _array_libraries
from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.model import product_types as _product_types
from rocpy.blaslt.model import shapes as _shapes
from rocpy.blaslt.model.problem import MAX_EXTENT
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyWarning, UnsupportedError

cdef extern from "packed_weight.hpp" namespace "rocpy" nogil:
    cdef cppclass PackSpec:
        PackSpec()
        int32_t type
        int32_t op
        int64_t rows
        int64_t columns
        int64_t ld
        int64_t m
        int64_t k
        const void *data
        const void *scales
    bint is_captured(hipStream_t stream)
    bint packs_type(void *handle, int32_t type)
    bint packs_blocks(void *handle, int32_t type, int64_t m, int64_t k)
    Status create_packed "rocpy::PackedWeight::create"(StreamContext *context, const PackSpec &spec, PackedWeight **out)

cdef int _CPU = 1  # kDLCPU
cdef int _NO_TRANSPOSE = 111, _TRANSPOSE = 112  # hipblasOperation_t

# How often sources may have changed without a sign.
cdef atomic[unsigned long] _epoch
# Types that the platform keeps packed; found out once.
cdef dict _PACKABLE = {}


cdef void raise_epoch() noexcept nogil:
    _epoch.fetch_add(1)


cdef class PackedMemory:
    """Memory of the platform that a weight is packed in."""

    def __dealloc__(self):
        cdef Status status
        cdef PackedWeight *weight = self.weight
        # A child process after a fork has no part in its parent's memory.
        if weight == NULL or self.forks != _device.forks:
            return
        with nogil:  # the device's queued work is waited for, and may need the GIL
            status = weight.release()
        if not status.ok():
            warnings.warn("a Weight's packed memory could not be freed; it is leaked", RocpyWarning)


cdef object version_of(object array):
    """Return the version counter of a torch tensor; None for other arrays, and for tensors of inference mode, which have none."""
    try:
        return getattr(array, "_version", None)
    except RuntimeError:
        return None


cdef object private_copy(object array):
    """Return what stands for an array from now on: a copy, unless it tells by a version counter that it changes. Numbers are themselves."""
    if array is None or isinstance(array, (int, float)) or version_of(array) is not None:
        return array
    return _copies.snapshot(array)


cdef object address_of(object array):
    """Return where a tensor's elements lie."""
    return array.data_ptr() if hasattr(array, "data_ptr") else 0


cdef tuple arrays_of(object source, object bias, object scale):
    """Return what is read of a Weight's arrays: of objects that export their memory, numpy's views of what that is now."""
    scale = _array_libraries.plain(plain_scale("scale", scale), "scale")
    return _array_libraries.plain(_operand.readable(source, "w"), "w"), _operand.readable(bias, "bias"), scale


cdef object checksum_of(WeightSnapshot snapshot, tuple arrays):
    """Return a number that tells whether arrays have changed that products read copies of, or tensors have other memory; None where
    nobody asks."""
    if _platform.environment("ROCPY_DEBUG") != "1":
        return None
    source, bias, scale = arrays
    return (
        _copies.checksum(source) if snapshot.copied else address_of(source),
        _copies.checksum(bias) if snapshot.bias is not bias else 0,
        _copies.checksum(scale) if snapshot.factors is not scale or snapshot.memory is not None and _blocks.are_blocks(scale) else 0,
    )


cdef class WeightSnapshot(WeightOperand):
    """What products read of a Weight: its matrix, packed or not, its bias and its scale, all of one time.

    Made by a Weight, which makes another when its source has changed; nothing here changes. It owns all memory that it names, so that who
    has it may read that whatever becomes of the Weight.
    """

    cdef WeightOperand read(self):
        return self

    cdef bint outdated(self) except -1:
        if _device.is_reset(self.generation, self.device):
            return True
        if self.of_torch and self.epoch != _epoch.load():
            return True
        # Reading it again says why that is refused.
        if is_recorded_here(self.source) or is_recorded_here(self.bias):
            return True
        if self.version is not None and version_of(self.source) != self.version:
            return True
        for record in self.records:
            if (<MemoryRecord>record).has_changed():
                return True
        return self.scale_version is not None and version_of(self.scale) != self.scale_version

    cdef bint changed_unnoticed(self, object source, object bias, object scale) except -1:
        return self.checksum is not None and self.checksum != checksum_of(self, arrays_of(source, bias, scale))

    @property
    def shape(self):
        """``(K, N)``."""
        return (self.operand.shape[0], self.operand.shape[1])

    @property
    def dtype(self):
        """Name of the element type."""
        return array_type_of_hip(self.operand.type).name.decode()

    cdef bint reads_copy(self) noexcept:
        return self.plain is None and (self.copied or self.factors is not self.plain_scale)

    def values(self):
        """Return source, bias and scale: tensors that count their changes as they are, of other arrays copies of the values that were read."""
        return (self.source if self.plain is None else self.plain, self.bias, self.plain_scale)

    def by_blocks(self):
        """Return what a product with scales by blocks takes for it; for rocpy.blaslt.arrays.blocks."""
        return self if self.packed else self.prepared

    def matrix(self):
        """Return the weight as an array of shape (K, N); for products that are composed."""
        if self.prepared is not None:
            return self.prepared
        if self.packed and _blocks.are_blocks(self.scale):
            return _blocks.of_weight(self, self.values()[0])[0]
        return self.in_rows()

    def in_rows(self):
        """Return the source with the values that were read, its axes exchanged where it lies as (N, K)."""
        cdef object array = self.values()[0]
        if self.layout == "kn":
            return array
        if not hasattr(array, "swapaxes"):
            raise UnsupportedError(
                f"b: a Weight of a {type(array).__name__} with layout='nk', in a product that reads its transposed "
                "source (one with a bias per "
                "row, or composed); create the Weight from a numpy or torch array")
        return array.swapaxes(-1, -2)

    def __repr__(self):
        return f"<what a product reads of a rocpy.Weight {self.shape}{', packed' if self.packed else ''}>"


cdef tuple records_of_tensors(tuple arrays):
    """Return where tensors lie; what has no memory to read is refused by who reads it."""
    cdef list records = []
    cdef MemoryRecord record
    for array in arrays:
        if not is_tensor(array):
            continue
        try:
            record = record_of(array, "w")
        except Exception:
            continue
        if record is not None:
            records.append(record)
    return tuple(records)


cdef WeightSnapshot read_weight(object source, object bias, object scale, str layout, tuple watched):
    """Read a weight as it is now."""
    cdef DefaultFpEnvironment environment
    environment.hold()
    cdef WeightSnapshot snapshot = WeightSnapshot.__new__(WeightSnapshot)
    # What is read here serves products on any stream: it has what this call's stream and the arrays' own were given to write before.
    cdef int device_type = device_type_of(source)
    await_call_stream(device_type)
    if device_type == _CPU and not _staging.has_own_memory():
        await_stream(None)
    # Before anything is read: what changes meanwhile makes the snapshot outdated.
    snapshot.epoch = _epoch.load()
    snapshot.version, snapshot.scale_version = version_of(source), version_of(scale)
    snapshot.records = records_of_tensors((source, scale, *watched))
    snapshot.of_torch = is_tensor(source) or is_tensor(scale)
    source, bias, scale = arrays_of(source, bias, scale)
    snapshot.source, snapshot.scale, snapshot.layout = source, scale, layout
    if _blocks.are_blocks(scale):
        snapshot.plain_scale = private_copy(scale)
        read_by_blocks(snapshot)
    else:
        read_matrix(snapshot)
        check_scale(scale, snapshot)
        snapshot.factors = snapshot.plain_scale = private_copy(scale)
    if _staging.has_own_memory():
        snapshot.factors = _staging.upload_scale(snapshot.factors, "scale_b")
    if bias is not None:
        check_bias(bias, snapshot.operand.shape[1])
    snapshot.bias = private_copy(bias)
    snapshot.checksum = checksum_of(snapshot, (source, bias, scale))
    snapshot.scale = snapshot.plain_scale
    snapshot.device = device_of(&snapshot.operand)
    snapshot.generation = _device.generation_of(snapshot.device)
    return snapshot


cdef int check_scale(object scale, WeightSnapshot snapshot) except -1:
    """Refuse what is no scale of all products with a weight; scales by blocks are checked where they are read."""
    if scale is None:
        return 0
    kind = "scalar"
    if isinstance(scale, (int, float)):
        check_scale_number("scale", scale)
    else:
        seen = describe(scale, "scale")
        if seen["dtype"] in ("uint8", "float8_e8m0fnu"):
            raise InvalidOperandError(
                f"scale: got {type(scale).__name__}; pass scales by blocks as a numpy array or a torch tensor of uint8 or float8_e8m0fnu")
        k, n = snapshot.shape
        kind, _ = _product_types.scale_kind("scale", tuple(seen["shape"]), seen["dtype"], (0, n, k), ())
    _product_types.check_weight_scale(snapshot.dtype, kind)
    return 0


cdef int check_bias(object bias, int64_t columns) except -1:
    cdef Operand seen
    _operand.parse(bias, "bias", &seen)
    if seen.ndim != 1 or seen.shape[0] != columns:
        shape = tuple([seen.shape[i] for i in range(seen.ndim)])
        raise InvalidProblemError(f"bias: got shape {shape}, expected length N = {columns}, the columns of w")
    return 0


cdef object readable(WeightSnapshot snapshot):
    """Return what is read of the source: a copy that stands for it from now on where nothing would tell that it has changed, else an array
    whose memory stays while it is there: a tensor's may become that of another one (``.data =``)."""
    if snapshot.version is None:
        snapshot.plain = private_copy(snapshot.source)
        snapshot.copied = True
        return snapshot.plain
    return snapshot.source.detach() if is_tensor(snapshot.source) else snapshot.source


cdef int read_by_blocks(WeightSnapshot snapshot) except -1:
    """Read a source that has scales by blocks: packed with them where the platform packs, else as the library reads both."""
    cdef Operand view, seen
    cdef PackSpec spec
    cdef object owner, b, scales
    if not hasattr(snapshot.source, "dtype") or is_tensor(snapshot.source) and _operand.dispatch_reason(snapshot.source) is not None:
        _operand.parse(snapshot.source, "w", &view)  # says why
    b, scales = _blocks.of_weight(snapshot, readable(snapshot))
    if _staging.needed(b):
        b = _staging.upload(b, "b", blocks=True)
    owner = parse_packed(<Packed>b, "w", &view) if type(b) is Packed else _operand.parse(b, "w", &view)
    _product_types.check_weight_scale(array_type_of_hip(view.type).name.decode(), "block32")
    cdef int64_t k = view.shape[0], n = view.shape[1]
    if tuple(scales.shape) != (k // 32, n) or k % 32:
        raise InvalidProblemError(
            f"scale: got shape {tuple(snapshot.scale.shape)} for a weight of K = {k} and N = {n} with "
            f"layout={snapshot.layout!r}, expected one for "
            "each 32 consecutive elements along K, and K must be a multiple of 32")
    if c_has(b"rocpyExtPackBlocks") and k > 0 and n > 0:
        dense = scales.swapaxes(-1, -2)
        if _staging.needed(dense):
            dense = _staging.upload_scale(dense, "scale_b")
        _owner = _operand.parse(dense, "scale", &seen)
        # Lines along K: the library's A, transposed, in columns.
        spec.op, spec.rows, spec.columns = _TRANSPOSE, k, n
        spec.ld = max(1, view.strides[1] if n > 1 else k)
        spec.scales = seen.data
        pack(snapshot, &view, &spec)
        del _owner
    if snapshot.memory is not None:
        owner = b = None
    # What is brought into the library's order is a copy for the most part, and the scales always are.
    snapshot.copied = True
    snapshot.held = (owner, b)
    snapshot.prepared, snapshot.factors = b, scales
    memcpy(&snapshot.operand, &view, sizeof(Operand))
    return 0


cdef int read_matrix(WeightSnapshot snapshot) except -1:
    """Read a source without scales by blocks: pack it where the platform packs, else take its memory or a copy of it."""
    cdef Operand view
    cdef PackSpec spec
    cdef object source = snapshot.source
    cdef object owner = _operand.parse(source, "w", &view)
    if view.ndim != 2:
        raise InvalidProblemError(f"w: got shape {tuple([view.shape[i] for i in range(view.ndim)])}, expected two axes")
    if view.shape[0] > MAX_EXTENT or view.shape[1] > MAX_EXTENT:
        raise UnsupportedError(
            f"w: shape {(view.shape[0], view.shape[1])}; hipBLASLt supports extents up to {MAX_EXTENT}"
        )
    source = readable(snapshot)
    if _staging.needed(source):
        source = _staging.upload(source, "w")
        snapshot.copied = True
    owner = _operand.parse(source, "w", &view)
    snapshot.copied = snapshot.copied or view.copied
    cdef bint packs = c_has(b"rocpyExtPack") and view.shape[0] > 0 and view.shape[1] > 0 and is_packable(&view)
    cdef object lies = _shapes.matrix_layout((view.shape[0], view.shape[1]), (view.strides[0], view.strides[1]))
    if lies is None:
        source = _copies.contiguous(source)
        snapshot.copied = True
        owner = _operand.parse(source, "w", &view)
        lies = ("row", max(1, view.shape[1]))
    if snapshot.layout == "nk":
        view.shape[0], view.shape[1] = view.shape[1], view.shape[0]
        view.strides[0], view.strides[1] = view.strides[1], view.strides[0]
        lies = ("column" if lies[0] == "row" else "row", lies[1])
    cdef int64_t k = view.shape[0], n = view.shape[1]
    if packs:
        # The library's A is this matrix: row-major (K, N) is column-major n x k.
        spec.op = _NO_TRANSPOSE if lies[0] == "row" else _TRANSPOSE
        spec.rows, spec.columns = (n, k) if lies[0] == "row" else (k, n)
        spec.ld = max(lies[1], spec.rows)
        pack(snapshot, &view, &spec)
        owner, snapshot.copied = None, True
    snapshot.held = owner
    memcpy(&snapshot.operand, &view, sizeof(Operand))
    return 0


cdef int device_of(const Operand *view) except -1:
    cdef int device = 0
    if view.device_type == _CPU:
        abi.hipGetDevice(&device)
        return device
    return view.device_id


cdef bint is_packable(const Operand *view) except? -1:
    cdef StreamContext *context = NULL
    cdef Status status
    cdef bint answer = False
    cdef int device = device_of(view)
    packable = _PACKABLE.get(view.type)
    if packable is None:
        with nogil:
            status = borrow_context(device, NULL, &context)
            if status.ok():
                answer = packs_type(context.handle, view.type)
                release_context(context)
        _core.check(status)
        packable = _PACKABLE[view.type] = bool(answer)
    return packable


cdef int pack(WeightSnapshot snapshot, Operand *view, PackSpec *spec) except -1:
    """Pack what the view describes and let it name the packed memory; leaves all as it is where the platform does not pack such blocks."""
    cdef StreamContext *context = NULL
    cdef hipStream_t stream = NULL
    cdef StreamUse use
    cdef Status status
    cdef PackedWeight *packed = NULL
    cdef bint packs = True
    cdef int device = device_of(view)
    spec.type, spec.data = view.type, view.data
    spec.k, spec.m = view.shape[0], view.shape[1]
    _operand.stream_of(None, view, &stream, &use)
    if is_captured(stream):
        raise UnsupportedError(
            "w: a Weight must be packed, for the first time or because its source has changed, and the current stream "
            "is captured into a graph, "
            "which would pack it at each launch; call its refresh() before capture")
    with nogil:
        status = borrow_context(device, stream, &context)
        if status.ok():
            packs = spec.scales == NULL or packs_blocks(context.handle, view.type, spec.m, spec.k)
            if packs:
                status = create_packed(context, spec[0], &packed)
            release_context(context)
    _core.check(status)
    if packs:
        snapshot.memory = PackedMemory.__new__(PackedMemory)
        snapshot.memory.weight = packed
        snapshot.memory.forks = _device.forks
        snapshot.packed = True
        view.data = packed.data()
        view.strides[0], view.strides[1] = view.shape[1], 1
    return 0
