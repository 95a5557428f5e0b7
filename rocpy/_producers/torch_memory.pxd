# SPDX-License-Identifier: MIT
"""Whether torch tensors lie where they lay before, without asking torch."""

cdef extern from "torch_memory.hpp" namespace "rocpy" nogil:
    cppclass TensorWords:
        TensorWords()

# Read what says where a plain tensor lies, to compare it later; whether it lies there still. False is no answer.
cdef int read_words(object array, TensorWords* out) except -1
cdef bint words_hold(object array, const TensorWords& before) noexcept
