# SPDX-License-Identifier: MIT
"""A launch is given as many arguments as the kernel's code declares, each of its size, or it is refused."""

import struct

import numpy as np
import pytest

from rocpy.runtime.kernels.metadata import argument_sizes

pytest.importorskip("numba")

HEAD = """
    import ctypes
    import numpy as np, pytest, rocpy
    from rocpy import cooperative as coop

    @coop.jit
    def scale(x, n, factor, narrow, out):
        i = coop.threadIdx.x
        if i < n:
            out[i] = x[i] * factor + narrow

    code = coop.compile(scale, "void(float32[::1],int64,float32,int32,float32[::1])", arch="gfx942", threads=64)
    kernel = rocpy.Module.from_code(code.code).kernel("scale")
    x, out = np.arange(64, dtype=np.float32), rocpy.Buffer(64, "float32")
    right = [x, 64, 4, 64, np.float32(2), 3, out, 64, 4]

    def launch(*arguments):
        out.fill(0)
        kernel.launch(1, 64, *arguments)
        return out.to_numpy()
"""


def test_number_and_sizes_of_arguments(run_python):
    code = """
    assert (launch(*right) == 2 * x + 3).all()
    assert (launch(*right[:5], -3, *right[6:]) == 2 * x - 3).all()
    assert (launch(*right[:5], ctypes.c_int32(3), *right[6:]) == 2 * x + 3).all()
    for count in range(len(right)):
        with pytest.raises(rocpy.InvalidProblemError, match=f"arguments: kernel 'scale' has 9, got {count}"):
            launch(*right[:count])
    with pytest.raises(rocpy.InvalidProblemError, match="has 9, got 10"):
        launch(*right, None)
    narrow = [(1, np.int32(64)), (0, np.float32(1)), (5, True), (0, ctypes.c_int16(3))]
    for place, wrong in [*narrow, (4, 2.0), (4, 1 + 2j), (5, x)]:
        with pytest.raises(rocpy.InvalidOperandError, match=f"argument {place}: .* bytes"):
            launch(*right[:place], wrong, *right[place + 1:])
    with pytest.raises(rocpy.InvalidProblemError, match="argument 5: .* does not fit into the 4 bytes"):
        launch(*right[:5], 1 << 32, *right[6:])
    """
    run_python(HEAD + code, ROCPY_HOST_ARCH="gfx942", ROCPY_HOST_STAGING=None)


def test_names_of_kernels(run_python):
    code = """
    module = rocpy.Module.from_code(code.code)
    for wrong in ["scale\\0nonsense", "\\0", "", "\\udcff", 3, None, b"scale"]:
        with pytest.raises(rocpy.InvalidOperandError, match="name: got"):
            module.kernel(wrong)
    """
    run_python(HEAD + code, ROCPY_HOST_ARCH="gfx942", ROCPY_HOST_STAGING=None)


def code_of(signature):
    from rocpy import cooperative as coop

    @coop.jit
    def add(x, n, out):
        i = coop.threadIdx.x
        if i < n:
            out[i] = x[i] + 1

    return coop.compile(add, signature, arch="gfx942", threads=64).code


def bundle(*images):
    names = [f"hipv4-amdgcn-amd-amdhsa--gfx90{n}".encode() for n in range(len(images))]
    at = 32 + sum(24 + len(name) for name in names)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(images))
    for name, image in zip(names, images, strict=True):
        head += struct.pack("<3Q", at, len(image), len(name)) + name
        at += len(image)
    return head + b"".join(images)


def test_sizes_that_a_code_object_tells():
    wide, narrow = code_of("void(float32[::1],int64,float32[::1])"), code_of("void(float32[::1],int32,float32[::1])")
    assert argument_sizes(wide) == {"add": (8, 8, 8, 8, 8, 8, 8)}
    assert argument_sizes(narrow) == {"add": (8, 8, 8, 4, 8, 8, 8)}
    assert argument_sizes(bundle(wide, wide)) == argument_sizes(wide)
    assert argument_sizes(bundle(wide, narrow)) == {}  # targets that differ


def test_damaged_code_tells_nothing_and_harms_nobody():
    code, rng = code_of("void(float32[::1],int64,float32[::1])"), np.random.default_rng(3)
    note = code.index(b"amdhsa.kernels")
    for form in (code, bundle(code)):
        for length in [*range(0, 200, 7), *range(note, note + 400, 11)]:
            argument_sizes(form[:length])
        for _ in range(400):
            damaged = bytearray(form)
            for at in [*rng.integers(0, 256, 2), *(note + rng.integers(-40, 400, 3))]:
                damaged[at] = rng.integers(0, 256)
            argument_sizes(bytes(damaged))
    for text in (b"", b"\x7fELF\x02\x01", b"__CLANG_OFFLOAD_BUNDLE__", b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 8):
        assert argument_sizes(text) == {}
