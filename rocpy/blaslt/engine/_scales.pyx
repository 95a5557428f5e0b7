# SPDX-License-Identifier: MIT
"""Scales of a product: arrays taken as they lie or made dense, numbers put into device memory once and kept."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

import sys

import numpy

cimport abi

from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip
from rocpy._operand cimport Operand
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments, check_scale_number, is_scale_array
from rocpy.runtime cimport device as _device
from rocpy.runtime._capture cimport captures, foreign_captures
from rocpy.runtime.handles.call_stream cimport await_call_stream
from rocpy.runtime.memory cimport Buffer
from rocpy.runtime.stream cimport Stream

from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.model import product_types as types
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model.shapes import extents_of
from rocpy.errors import InvalidOperandError

cdef int _FLOAT32 = 0  # HIP_R_32F
cdef int _BYTE = 8, _EXPONENT = 30  # HIP_R_8U and HIP_R_8F_UE8M0
cdef int _CPU = 1  # kDLCPU
cdef tuple _OF_FLOATS = ("scalar", "vector")  # kinds of scales of float32
# Numbers in device memory, by device and bits. They are written before anyone reads them and never again, so that streams and threads
# share them; a Buffer that is dropped waits for the device.
cdef dict _NUMBERS = {}
cdef int _MOST_NUMBERS = 4096


cdef Buffer number(double value, int device):
    """Return one float32 in device memory."""
    cdef float narrow = <float>value
    cdef uint32_t bits
    cdef _device.Generation generation = _device.generation_of(device)
    memcpy(&bits, &narrow, sizeof(bits))
    key = (device, generation.forks, generation.resets, bits)
    buffer = _NUMBERS.get(key)
    if buffer is None:
        if len(_NUMBERS) >= _MOST_NUMBERS:
            _NUMBERS.clear()
        buffer = Buffer((1,), "float32", device=device)
        copy_aside(buffer, numpy.array([narrow], numpy.float32), device, True)
        _NUMBERS[key] = buffer
    return buffer


cdef int copy_aside(Buffer memory, object values, int device, bint writes) except -1:
    """Copy values into memory, or from it; where streams are captured, on a stream that is not, since waiting would end their captures."""
    cdef abi.hipStreamCaptureMode mode = abi.hipStreamCaptureModeRelaxed
    cdef object copy = memory.copy_from if writes else memory.copy_to
    if not captures and not foreign_captures:
        copy(values)
        return 0
    cdef bint exchanged = abi.slot_hipThreadExchangeStreamCaptureMode(&mode) == 0
    try:
        with Stream(device, nonblocking=True) as stream:
            copy(values, stream=stream)
    finally:
        if exchanged:
            abi.slot_hipThreadExchangeStreamCaptureMode(&mode)
    return 0


def repeated(value, like, Py_ssize_t count):
    """Return a vector of ``count`` times one scale, by the framework of the vector that it goes with."""
    cdef Buffer buffer
    cdef Operand seen
    if not isinstance(value, (float, int)):
        _operand.parse(value, "scale", &seen)
        await_call_stream(seen.device_type)
    if isinstance(value, Buffer):
        buffer = <Buffer>value
        value = numpy.empty(buffer.shape, numpy.float32)
        copy_aside(buffer, value, buffer.device_index, False)
    if hasattr(like, "new_full"):  # torch's name for it
        return like.new_empty(count).fill_(
            value.reshape(()).to(like.device) if hasattr(value, "new_full") else float(numpy.asarray(value).reshape(())))
    if isinstance(like, Buffer):
        buffer = Buffer((count,), "float32", device=(<Buffer>like).device_index)
        copy_aside(buffer, numpy.full(count, float(numpy.asarray(value).reshape(())), numpy.float32), buffer.device_index, True)
        return buffer
    if not isinstance(value, (float, int, numpy.generic, numpy.ndarray)):
        value = value.reshape(())
    module = sys.modules.get(type(like).__module__.partition(".")[0])
    if module is not None and hasattr(module, "full"):
        return module.full((count,), value if not hasattr(value, "reshape") else value.reshape(()), dtype="float32")
    return numpy.full(count, float(numpy.asarray(value).reshape(())), numpy.float32)


cdef class Scales:
    """Pointers and kinds of the scales of one product, and what keeps the memory alive."""

    def __cinit__(self):
        cdef int i
        for i in range(6):
            self.pointers[i] = NULL
            self.arrays[i].ndim = -1
        self.single[0] = self.single[1] = False
        self.problem = {}
        self.held = []
        self.numbers = []

    cdef int note_copy(self, str name, str form) except -1:
        """Note that a copy of a scale is read; ``form`` says what to pass instead."""
        self.copied, self.form = name, form
        return 0


cdef inline bint is_of_factor(int slot) noexcept nogil:
    """Whether a scale is that of a or b, which has a kind."""
    return slot == scale_a or slot == scale_b


cdef int read_number(Scales scales, int slot, str name, double value, int device) except -1:
    cdef Buffer memory = number(value, device)
    scales.pointers[slot] = memory.data
    scales.held.append(memory)
    scales.numbers.append(memory)
    scales.problem[name] = "scalar" if is_of_factor(slot) else True
    return 0


cdef bint are_plain_blocks(const Operand *seen, int slot, const Operand *a, const Operand *b) noexcept:
    """Whether scales are those of blocks of matrices, one of them for each, as the library reads them."""
    cdef int64_t blocks
    cdef int64_t lines
    if (seen.type != _BYTE and seen.type != _EXPONENT) or seen.ndim != 2 or a.ndim != 2 or b.ndim != 2 or a.shape[1] % 32:
        return False
    blocks = a.shape[1] // 32
    if slot == scale_a:
        lines = a.shape[0]
        return seen.shape[0] == lines and seen.shape[1] == blocks and (lines <= 1 or seen.strides[0] == blocks) and (
            blocks <= 1 or seen.strides[1] == 1)
    lines = b.shape[1]
    return seen.shape[0] == blocks and seen.shape[1] == lines and (lines <= 1 or seen.strides[1] == blocks) and (
        blocks <= 1 or seen.strides[0] == 1)


cdef int read_array(Scales scales, int slot, str name, object value, const Operand *a, const Operand *b, int device) except -1:
    """Read scales given as an array: one number is taken where it lies, others are made dense if they are not."""
    cdef Operand seen
    cdef int axis
    cdef int64_t count = 1
    cdef object owner = _operand.parse(value, name, &seen)
    for axis in range(seen.ndim):
        count *= seen.shape[axis]
    if seen.device_type != a.device_type or seen.device_id != a.device_id:
        if count != 1 or seen.device_type != _CPU or seen.type != _FLOAT32:
            raise InvalidOperandError(
                f"{name} is on another device than a; move it, so that all operands are on one device"
            )
        scales.note_copy(name, f"pass float({name}), or an array on the device of a")
        return read_number(scales, slot, name, (<float *>seen.data)[0], device)
    if is_of_factor(slot):
        scales.single[slot] = count == 1 and seen.ndim > 0
    if seen.copied:
        scales.note_copy(name, _refusals.readable_form(name))
    if is_of_factor(slot) and are_plain_blocks(&seen, slot, a, b):
        scales.problem[name] = "block32"
    elif count != 1 or seen.type != _FLOAT32 or not is_of_factor(slot):
        shape = tuple([seen.shape[axis] for axis in range(seen.ndim)])
        m, n, k, batch_shape, _ = extents_of(tuple([a.shape[axis] for axis in range(a.ndim)]), tuple([b.shape[axis] for axis in range(b.ndim)]))
        kind, batch = types.scale_kind(name, shape, array_type_of_hip(seen.type).name.decode(), (m, n, k), batch_shape)
        if kind != "scalar":
            strides = tuple([seen.strides[axis] for axis in range(seen.ndim)])
            dense = _blocks.dense(value, shape, strides, kind == "block32" and slot == scale_b)
            if dense is not None:
                owner = (dense, _operand.parse(dense, name, &seen))
                along_k = "b and its scales contiguous along K, or a rocpy.Weight"
                scales.note_copy(name, f"pass {along_k}" if kind == "block32" and slot == scale_b else _refusals.readable_form(name))
        if batch:
            scales.problem[name + "_batch"] = batch
        scales.problem[name] = kind if is_of_factor(slot) else True
    else:
        scales.problem[name] = "scalar"
    scales.pointers[slot] = seen.data
    scales.arrays[slot] = seen
    scales.held += [value, owner]
    return 0


cdef int check_one_apart(str name, const Operand *scale, const Operand *out) except -1:
    if _operand.share_memory(out, scale):
        raise InvalidOperandError(f"out shares memory with {name}, which is read while out is written; pass another array")
    return 0


cdef int check_apart(Scales scales, const Operand *out) except -1:
    cdef int slot
    for slot in range(6):
        if scales.arrays[slot].ndim >= 0:
            check_one_apart(("scale_a", "scale_b", "scale_c", "scale_d")[slot], &scales.arrays[slot], out)
    return 0


cdef int check_arguments_apart(ScaleArguments values, const Operand *out) except -1:
    cdef Operand seen
    for name, scale in values.items():
        if is_scale_array(scale):
            _operand.parse(scale, name, &seen)
            check_one_apart(name, &seen, out)
    return 0


cdef int read_one(Scales scales, int slot, str name, object value, const Operand *a, const Operand *b, int device) except -1:
    """Read the scale of one operand or of the result; ``None`` is none."""
    if value is None:
        return 0
    if not (type(value) is float or type(value) is int or isinstance(value, (float, int, numpy.floating, numpy.integer))):
        return read_array(scales, slot, name, value, a, b, device)
    check_scale_number(name, value)
    return read_number(scales, slot, name, value, device)


cdef Scales without_factors(Scales scales, const Operand *a, const Operand *b, int device):
    """Return scales whose factors of a and b are 1, for a product of which nothing is left: the library multiplies that by its own, and 0
    times a factor that is not finite is NaN."""
    cdef Scales neutral = Scales.__new__(Scales)
    cdef Buffer ones
    cdef int slot, axis
    cdef int64_t count
    memcpy(neutral.pointers, scales.pointers, sizeof(neutral.pointers))
    memcpy(neutral.arrays, scales.arrays, sizeof(neutral.arrays))
    neutral.problem, neutral.amax = scales.problem, scales.amax
    neutral.held, neutral.numbers = list(scales.held), list(scales.numbers)
    for slot, name in enumerate(("scale_a", "scale_b")):
        if scales.problem.get(name) not in _OF_FLOATS:
            continue
        count = 1
        if scales.arrays[slot].ndim >= 0:
            for axis in range(scales.arrays[slot].ndim):
                count *= scales.arrays[slot].shape[axis]
        elif scales.problem[name] == "vector":
            count = rows_of(a) if slot == scale_a else columns_of(b)
        if count == 1:
            ones = number(1.0, device)
        else:
            ones = Buffer((count,), "float32", device=device)
            copy_aside(ones, numpy.ones(count, numpy.float32), device, True)
        neutral.pointers[slot] = ones.data
        neutral.held.append(ones)
        neutral.numbers.append(ones)
    return neutral


cdef inline int64_t rows_of(const Operand *a) noexcept nogil:
    return a.shape[a.ndim - 2] if a.ndim > 1 else 1


cdef inline int64_t columns_of(const Operand *b) noexcept nogil:
    return b.shape[b.ndim - 1] if b.ndim > 1 else 1


cdef Scales read_scales(ScaleArguments values, const Operand *a, const Operand *b, int device, bint by_rows):
    """Read the scales of a product of a and b."""
    cdef Scales scales = Scales.__new__(Scales)
    read_one(scales, scale_a, "scale_a", values.a, a, b, device)
    read_one(scales, scale_b, "scale_b", values.b, a, b, device)
    read_one(scales, scale_c, "scale_c", values.c, a, b, device)
    read_one(scales, scale_d, "scale_d", values.d, a, b, device)
    scales.amax = values.amax
    if scales.amax:
        scales.problem["amax"] = True
    cdef object kind_a = scales.problem.get("scale_a"), kind_b = scales.problem.get("scale_b")
    cdef bint lines = (scales.single[0] or scales.single[1]) and kind_a in _OF_FLOATS and kind_b in _OF_FLOATS and types.are_of_lines(
        rows_of(a), columns_of(b), scales.single[0], scales.single[1])
    if kind_a == "scalar" and scales.single[0] and (lines or by_rows):
        kind_a = spread(scales, scale_a, "scale_a", values.a, values.a, a, b)
    if kind_b == "scalar" and scales.single[1] and lines:
        kind_b = spread(scales, scale_b, "scale_b", values.b, values.b, a, b)
    # hipBLASLt wants both of one kind.
    if kind_a == "scalar" and kind_b == "vector":
        spread(scales, scale_a, "scale_a", values.a, values.b, a, b)
    elif kind_a == "vector" and kind_b == "scalar":
        spread(scales, scale_b, "scale_b", values.b, values.a, a, b)
    return scales


cdef str spread(Scales scales, int slot, str name, object value, object like, const Operand *a, const Operand *b):
    """Put a vector of equal scales, of the library of the other operand's, in the place of a scalar; returns their kind."""
    cdef int axis
    cdef Operand seen
    m, n, _, _, _ = extents_of(tuple([a.shape[axis] for axis in range(a.ndim)]), tuple([b.shape[axis] for axis in range(b.ndim)]))
    count = m if slot == scale_a else n
    scales.problem[name] = "vector"
    if count == 1:
        return "vector"
    vector = repeated(value, like, count)
    owner = _operand.parse(vector, name, &seen)
    scales.pointers[slot] = seen.data
    if scales.arrays[slot].ndim >= 0:
        line = "row of a" if slot == scale_a else "column of b"
        scales.note_copy(name, f"pass float({name}), or one for each {line}, as the other scale is")
    scales.arrays[slot].ndim = -1
    scales.held += [vector, owner]
    return "vector"
