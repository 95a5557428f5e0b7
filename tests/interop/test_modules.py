# SPDX-License-Identifier: MIT
"""Code objects and what kernels are given: everything up to the launch itself, which takes a GPU."""

import ctypes
import struct

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.runtime import Module
from rocpy.runtime.kernels.arguments import extents, pack

torch = pytest.importorskip("torch")

# The header of an ELF file for AMD's GPUs: EM_AMDGPU is 224.
AMDGPU = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 224) + bytes(44)


def test_code_for_a_gpu_is_refused_where_there_is_none():
    if rocpy.platform.current().name != "host":
        pytest.skip("a GPU loads code")
    for code in (AMDGPU, bytearray(AMDGPU), memoryview(AMDGPU), b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8)):
        with pytest.raises(rocpy.UnsupportedError) as caught:
            Module.from_code(code)
        assert caught.value.status_name == "hipErrorNoBinaryForGpu"
    for code in (b"", b"\x7fELF", b"not code"):
        with pytest.raises(rocpy.RocpyError):
            Module.from_code(code)
    with pytest.raises(rocpy.InvalidOperandError, match="code: got str"):
        Module.from_code("text")


def elf_of(segment):
    """An ELF file with one segment of so many bytes, behind the headers."""
    sizes = struct.pack("<HHHHHH", 64, 56, 1, 64, 0, 0)
    header = AMDGPU[:0x20] + struct.pack("<QQI", 64, 0, 0) + sizes
    return header + struct.pack("<IIQQQQQQ", 1, 5, 120, 0, 0, segment, segment, 4096) + bytes(segment)


def bundle_of(code):
    name = b"hipv4-amdgcn-amd-amdhsa--gfx942"
    table = struct.pack("<4Q", 1, 56 + len(name), len(code), len(name))
    return b"__CLANG_OFFLOAD_BUNDLE__" + table + name + code


def test_code_that_is_cut_off_is_refused():
    """HIP takes no size: it would go on with what lies behind."""
    compressed = b"CCOB" + struct.pack("<HHIIQ", 2, 1, 40, 100, 0) + bytes(16)
    for whole in (elf_of(200), bundle_of(elf_of(200)), compressed):
        for length in (len(whole) - 1, len(whole) - 10, len(whole) // 2):
            with pytest.raises(rocpy.InvalidOperandError, match=f"code: got the first {length} bytes of a code object"):
                Module.from_code(whole[:length])
        with pytest.raises((rocpy.UnsupportedError, rocpy.LibraryError)):
            Module.from_code(whole)


class Pair(ctypes.Structure):
    """A struct that a kernel may take by value."""

    _fields_ = (("x", ctypes.c_int32), ("y", ctypes.c_float))


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        (True, b"\x01"),
        (-2, struct.pack("=q", -2)),
        ((1 << 64) - 1, b"\xff" * 8),
        (0.5, struct.pack("=d", 0.5)),
        (1 + 2j, struct.pack("=dd", 1, 2)),
        (None, bytes(8)),
        (np.float32(0.5), struct.pack("=f", 0.5)),
        (np.int16(-1), b"\xff\xff"),
        (np.bool_(True), b"\x01"),
        (ml_dtypes.bfloat16(1), struct.pack("=H", 0x3F80)),
        (ctypes.c_int32(7), struct.pack("=i", 7)),
        (ctypes.c_void_p(4096), struct.pack("=Q", 4096)),
        (Pair(1, 0.5), struct.pack("=if", 1, 0.5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers(argument, wanted):
    packed, _ = pack([argument])
    assert packed == [wanted]


def test_arrays_are_their_addresses_and_are_kept():
    if not rocpy.platform.current().host_memory:
        pytest.skip("the device cannot access numpy's memory")
    x, t = np.ones(4, np.float32), torch.ones(2, 3)
    with rocpy.Buffer(8, "int8") as buffer:
        packed, kept = pack([x, t, buffer])
        assert packed == [struct.pack("=Q", address) for address in (x.ctypes.data, t.data_ptr(), buffer.handle)]
        assert any(one is x for one in kept)
        assert any(one is t for one in kept)


def test_what_is_no_argument():
    with pytest.raises(rocpy.InvalidOperandError, match="argument 1: got str"):
        pack([1, "text"])
    with pytest.raises(rocpy.InvalidProblemError, match="64 bits"):
        pack([1 << 64])


def test_extents_of_grids_and_blocks():
    assert extents(5, "grid") == (5, 1, 1)
    assert extents((2, 3), "grid") == (2, 3, 1)
    assert extents(np.int32(5), "grid") == extents(np.array([5, 1]), "grid") == (5, 1, 1)
    for wrong in (0, (1, 2, 3, 4), (), (1.0,), True, 1 << 32, 5.0, np.float32(5), None, "5", (True, 1)):
        with pytest.raises(rocpy.InvalidProblemError, match="block"):
            extents(wrong, "block")


def test_an_array_in_cpu_memory_is_refused_where_the_device_has_its_own(run_python):
    run_python(
        "import numpy as np, pytest, rocpy\n"
        "from rocpy.runtime.kernels.arguments import pack\n"
        "with pytest.raises(rocpy.InvalidOperandError, match='argument 1: got ndarray in CPU memory.*Buffer'):\n"
        "    pack([1, np.ones(3)])\n"
        "with rocpy.Buffer(3, 'float64') as buffer:\n"
        "    assert pack([buffer])[0] == [buffer.handle.to_bytes(8, 'little')]\n",
        ROCPY_HOST_STAGING="1",
    )
