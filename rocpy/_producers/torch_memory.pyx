# SPDX-License-Identifier: MIT
"""Where torch tensors lie: read directly from torch's structures, whose layout is found on samples and proven by changing them."""

import sys

from rocpy._producers.torch_modes import nothing_traces

from cpython.object cimport Py_TYPE, PyObject
from libc.stdint cimport uint64_t

from rocpy._producers.torch_tensors cimport is_clear, key_offsets, parameter_type, tensor_type

cdef extern from "torch_memory.hpp" namespace "rocpy" nogil:
    bint find_tensor_offsets(uint64_t impl_offset, uint64_t keys_offset, const uint64_t* impls, const uint64_t* storages,
                             const uint64_t* memories, int count)
    void forget_tensor_offsets()
    void read_tensor_words(const void* array, TensorWords* out)
    bint tensor_words_hold(const void* array, const TensorWords& before)

# TensorImpl itself holds the shapes of five axes; those of more lie elsewhere.
cdef int _MOST_AXES = 4
cdef bint offsets_sought = False


cdef int seek_offsets() except -1:
    """Find where tensors keep what says where they lie; where that fails, torch is asked each time."""
    global offsets_sought
    cdef uint64_t impl_offset = 0, keys_offset = 0
    torch = sys.modules["torch"]
    if not key_offsets(&impl_offset, &keys_offset) or not nothing_traces() or torch.is_inference_mode_enabled():
        return 0
    offsets_sought = True
    try:
        if find_offsets(torch, impl_offset, keys_offset) and not changes_are_seen(torch):
            forget_tensor_offsets()
    except Exception:
        forget_tensor_offsets()  # only speed is lost
    return 0


cdef bint find_offsets(object torch, uint64_t impl_offset, uint64_t keys_offset) except -1:
    cdef uint64_t impls[5]
    cdef uint64_t storages[5]
    cdef uint64_t memories[5]
    samples = (
        torch.zeros(3, 4, device="cpu"),
        torch.zeros(5, device="cpu", dtype=torch.int8),
        torch.zeros(64, device="cpu")[3:7],
        torch.zeros(2, 3, 4, 5, device="cpu", dtype=torch.float64),
        torch.frombuffer(bytearray(64), dtype=torch.uint8),
    )
    for i, sample in enumerate(samples):
        storage = sample.untyped_storage()
        impls[i], storages[i], memories[i] = sample._cdata, storage._cdata, storage.data_ptr()
    return find_tensor_offsets(impl_offset, keys_offset, impls, storages, memories, 5)


cdef list changes_of(object torch):
    """Return shape and strides of samples, and a change of each that must be seen."""
    def lay(offset, shape, strides):
        return lambda tensor: tensor.set_(tensor.untyped_storage(), offset, shape, strides)

    def give(make):
        def change(tensor):
            tensor.data = make(tensor.data)
        return change

    cube, steps, line, even = (2, 2, 2, 2), (8, 4, 2, 1), (4, 1, 1, 1), (4, 4, 4, 4)
    return [
        (cube, steps, lay(3, cube, steps)),
        *[(cube, steps, lay(0, cube, (*steps[:axis], 5, *steps[axis + 1:]))) for axis in range(4)],
        *[(line, even, lay(0, (*(1,) * axis, 4, *(1,) * (3 - axis)), even)) for axis in range(1, 4)],
        (cube, steps, lay(0, (4, 4), (4, 1))),
        (cube, steps, lambda tensor: tensor.transpose_(0, 3)),
        (cube, steps, give(torch.zeros_like)),
        (cube, steps, give(lambda data: data.view(torch.int32))),
        (cube, steps, lambda tensor: tensor.untyped_storage().resize_(1 << 16)),
    ]


cdef bint changes_are_seen(object torch) except -1:
    cdef TensorWords words
    for shape, strides, change in changes_of(torch):
        tensor = torch.zeros(64, device="cpu", dtype=torch.float32)
        tensor.set_(tensor.untyped_storage(), 0, shape, strides)
        read_tensor_words(<const void*><PyObject*>tensor, &words)
        if not tensor_words_hold(<const void*><PyObject*>tensor, words):
            return False
        change(tensor)
        if tensor_words_hold(<const void*><PyObject*>tensor, words):
            return False
    return True


cdef int read_words(object array, TensorWords* out) except -1:
    cdef void* cls = <void*>Py_TYPE(array)
    out[0] = TensorWords()
    if not offsets_sought:
        seek_offsets()
    if (cls == tensor_type or cls == parameter_type) and is_clear(array) and array.dim() <= _MOST_AXES:
        read_tensor_words(<const void*><PyObject*>array, out)
    return 0


cdef bint words_hold(object array, const TensorWords& before) noexcept:
    return tensor_words_hold(<const void*><PyObject*>array, before)
