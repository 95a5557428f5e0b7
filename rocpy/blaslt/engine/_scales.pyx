# SPDX-License-Identifier: MIT
"""Scales of a product: arrays taken as they lie or made dense, numbers put into device memory once and kept."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

import numpy

cimport abi

from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_hip
from rocpy._operand cimport Operand
from rocpy.runtime cimport device as _device
from rocpy.runtime._capture cimport captures, foreign_captures
from rocpy.runtime.memory cimport Buffer
from rocpy.runtime.stream cimport Stream

from rocpy.blaslt.arrays import blocks as _blocks
from rocpy.blaslt.model import product_types as types
from rocpy.blaslt.model.problem import extents_of
from rocpy.errors import InvalidOperandError, InvalidProblemError

cdef tuple _NAMES = ("scale_a", "scale_b", "scale_c", "scale_d")
cdef int _FLOAT32 = 0  # HIP_R_32F
cdef int _CPU = 1  # kDLCPU
# Numbers in device memory, by device and bits. They are written before anyone reads them and never again, so that streams and threads
# share them; a Buffer that is dropped waits for the device.
cdef dict _NUMBERS = {}
cdef int _MOST_NUMBERS = 4096


cdef Buffer number(double value, int device):
    """Return one float32 in device memory."""
    cdef float narrow = <float>value
    cdef uint32_t bits
    memcpy(&bits, &narrow, sizeof(bits))
    key = (device, _device.generation_of(device), bits)
    found = _NUMBERS.get(key)
    if found is None:
        if len(_NUMBERS) >= _MOST_NUMBERS:
            _NUMBERS.clear()
        found = Buffer((1,), "float32", device=device)
        put_aside(found, numpy.array([narrow], numpy.float32), device)
        _NUMBERS[key] = found
    return found


cdef int put_aside(Buffer memory, object values, int device) except -1:
    """Copy values into memory; where streams are captured, on a stream that is not, since waiting would end their captures."""
    cdef abi.hipStreamCaptureMode mode = abi.hipStreamCaptureModeRelaxed
    if not captures and not foreign_captures:
        memory.copy_from(values)
        return 0
    cdef bint exchanged = abi.slot_hipThreadExchangeStreamCaptureMode(&mode) == 0
    try:
        with Stream(device, nonblocking=True) as stream:
            memory.copy_from(values, stream=stream)
    finally:
        if exchanged:
            abi.slot_hipThreadExchangeStreamCaptureMode(&mode)
    return 0


cdef class Scales:
    """Pointers and kinds of the scales of one product, and what keeps the memory alive."""

    def __cinit__(self):
        cdef int i
        for i in range(6):
            self.pointers[i] = NULL
        self.problem = {}
        self.held = []
        self.numbers = []


cdef int read_number(Scales scales, int place, str name, double value, int device) except -1:
    cdef Buffer memory = number(value, device)
    scales.pointers[place] = memory.data
    scales.held.append(memory)
    scales.numbers.append(memory)
    scales.problem[name] = "scalar" if place < 2 else True
    return 0


cdef int read_array(Scales scales, int place, str name, object value, const Operand *a, const Operand *b, int device) except -1:
    """Read scales given as an array: one number is taken where it lies, others are made dense if they are not."""
    cdef Operand seen
    cdef int axis
    cdef int64_t count = 1
    cdef object kept = _operand.parse(value, name, &seen)
    for axis in range(seen.ndim):
        count *= seen.shape[axis]
    if seen.device_type != a.device_type or seen.device_id != a.device_id:
        if count != 1 or seen.device_type != _CPU or seen.type != _FLOAT32:
            raise InvalidOperandError(
                f"{name} is on another device than a; move it, so that all operands are on one device"
            )
        return read_number(scales, place, name, (<float *>seen.data)[0], device)
    if count != 1 or seen.type != _FLOAT32 or place >= 2:
        shape = tuple([seen.shape[axis] for axis in range(seen.ndim)])
        m, n, k, batch_shape, _ = extents_of(tuple([a.shape[axis] for axis in range(a.ndim)]), tuple([b.shape[axis] for axis in range(b.ndim)]))
        kind, batch = types.scale_kind(name, shape, array_type_of_hip(seen.type).name.decode(), (m, n, k), batch_shape)
        if kind != "scalar":
            strides = tuple([seen.strides[axis] for axis in range(seen.ndim)])
            dense = _blocks.dense(value, shape, strides, kind == "block32" and place == 1)
            if dense is not None:
                kept = (dense, _operand.parse(dense, name, &seen))
        if batch:
            scales.problem[name + "_batch"] = batch
        scales.problem[name] = kind if place < 2 else True
    else:
        scales.problem[name] = "scalar"
    scales.pointers[place] = seen.data
    scales.held += [value, kept]
    return 0


cdef Scales read_scales(tuple given, const Operand *a, const Operand *b, int device):
    """Read ``(scale_a, scale_b, scale_c, scale_d, amax)`` of a product of a and b."""
    cdef Scales scales = Scales.__new__(Scales)
    cdef int place
    cdef str name
    for place in range(4):
        value = given[place]
        if value is None:
            continue
        name = _NAMES[place]
        if type(value) is float or type(value) is int or isinstance(value, (float, int, numpy.floating, numpy.integer)):
            if isinstance(value, bool):
                raise InvalidOperandError(f"{name}: got {value!r}, expected a number or a float32 array")
            if value != value:
                raise InvalidProblemError(
                    f"{name}: got {value!r}, expected a number; look for NaN in the data that was quantized"
                )
            try:
                read_number(scales, place, name, value, device)
            except OverflowError:
                raise InvalidOperandError(
                    f"{name}: an integer of {value.bit_length()} bits; pass a float32 number"
                ) from None
        else:
            read_array(scales, place, name, value, a, b, device)
    scales.amax = given[4]
    if scales.amax:
        scales.problem["amax"] = True
    # hipBLASLt wants both of one kind.
    kinds = scales.problem.get("scale_a"), scales.problem.get("scale_b")
    if kinds == ("scalar", "vector"):
        spread(scales, 0, a, b, given)
    elif kinds == ("vector", "scalar"):
        spread(scales, 1, a, b, given)
    return scales


cdef int spread(Scales scales, int place, const Operand *a, const Operand *b, tuple given) except -1:
    """Put a vector of equal scales in the place of a scalar."""
    cdef int axis
    cdef Operand seen
    m, n, _, _, _ = extents_of(tuple([a.shape[axis] for axis in range(a.ndim)]), tuple([b.shape[axis] for axis in range(b.ndim)]))
    cdef object value = given[place]
    made = _blocks.repeated(value, given[1 - place], m if place == 0 else n)
    kept = _operand.parse(made, _NAMES[place], &seen)
    scales.problem[_NAMES[place]] = "vector"
    scales.pointers[place] = seen.data
    scales.held += [made, kept]
    return 0
