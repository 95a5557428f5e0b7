# SPDX-License-Identifier: MIT
"""Every row of hipblaslt.def is called through unmodified hip-python, or through ctypes where its wrapper is broken."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support.host import hip_python, library, rows
from hipblaslt_support.programs import instruction, program

# hip-python takes Cdesc for an output and passes a block of its own in its place.
BROKEN_WRAPPERS = {"hipblasLtMatrixTransform"}


class Recorder:
    """hip-python's module, noting which of its functions are called."""

    def __init__(self, module):
        self.module = module
        self.called = []

    def __getattr__(self, name):
        member = getattr(self.module, name)
        if not name.startswith("hipblasLt") or isinstance(member, type):
            return member

        def call(*arguments):
            self.called.append(name)
            status, *values = member(*arguments)
            assert int(status) == 0, name
            return values[0] if len(values) == 1 else values

        return call


def bytes_of(value, dtype):
    return np.array([value], dtype)


def test_every_row_is_called(capsys):
    hip, module = hip_python()
    lt = Recorder(module)
    from rocm.bindings.hipblas import hipblasComputeType_t as Compute

    float32 = hip.hipDataType.HIP_R_32F
    native_calls = []

    def native(name, *arguments):
        native_calls.append(name)
        assert getattr(library("hipblaslt"), name)(*arguments) == 0, name

    # A handle and what it says about itself.
    handle = lt.hipblasLtCreate()
    assert lt.hipblasLtGetVersion(handle) == 100401
    revision = np.zeros(128, np.uint8)
    lt.hipblasLtGetGitRevision(handle, revision)
    assert revision[0] != 0
    assert b"host-" in bytes(lt.hipblasLtGetArchName())
    lt.hipblasLtSetSmCountTarget(handle, 3)
    assert lt.hipblasLtGetSmCountTarget(handle) == 3
    assert lt.hipblasLtCheckNumericsDrain(handle) == 0

    # A product of 2 x 2 matrices.
    layout = lt.hipblasLtMatrixLayoutCreate(float32, 2, 2, 2)
    count = bytes_of(1, np.int32)
    attribute = lt.hipblasLtMatrixLayoutAttribute_t.HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT
    lt.hipblasLtMatrixLayoutSetAttribute(layout, attribute, count, 4)
    assert lt.hipblasLtMatrixLayoutGetAttribute(layout, attribute, count, 4) == 4
    desc = lt.hipblasLtMatmulDescCreate(Compute.HIPBLAS_COMPUTE_32F, float32)
    epilogue = bytes_of(2, np.int32)
    attribute = lt.hipblasLtMatmulDescAttributes_t.HIPBLASLT_MATMUL_DESC_EPILOGUE
    lt.hipblasLtMatmulDescSetAttribute(desc, attribute, epilogue, 4)
    assert lt.hipblasLtMatmulDescGetAttribute(desc, attribute, epilogue, 4) == 4
    preference = lt.hipblasLtMatmulPreferenceCreate()
    limit = bytes_of(1 << 20, np.uint64)
    attribute = lt.hipblasLtMatmulPreferenceAttributes_t.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
    lt.hipblasLtMatmulPreferenceSetAttribute(preference, attribute, limit, 8)
    assert lt.hipblasLtMatmulPreferenceGetAttribute(preference, attribute, limit, 8) == 8
    results = np.zeros(56, np.uint8)
    assert lt.hipblasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, preference, 1, results) == 1
    host = {
        name: np.array(values, np.float32)
        for name, values in (("a", [1, 2, 3, 4]), ("b", [1, 0, -1, -1]), ("d", [0, 0, 0, 0]))
    }
    device = {}
    for name, values in host.items():
        status, device[name] = hip.hipMalloc(16)
        assert int(status) == 0
        assert int(hip.hipMemcpy(device[name], values, 16, hip.hipMemcpyKind.hipMemcpyHostToDevice)[0]) == 0
    workspace_bytes = int(results[24:32].view(np.uint64)[0])
    status, workspace = hip.hipMalloc(workspace_bytes + 16)
    lt.hipblasLtMatmul(
        handle, desc, bytes_of(2, np.float32), device["a"], layout, device["b"], layout, bytes_of(0, np.float32),
        device["d"], layout, device["d"], layout, results[:24].copy(), workspace, workspace_bytes, None,
    )  # fmt: skip
    assert int(hip.hipMemcpy(host["d"], device["d"], 16, hip.hipMemcpyKind.hipMemcpyDeviceToHost)[0]) == 0
    np.testing.assert_array_equal(host["d"], [2, 4, 0, 0])

    # A transposition.
    transform = lt.hipblasLtMatrixTransformDescCreate(float32)
    attribute = lt.hipblasLtMatrixTransformDescAttributes_t.HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA
    lt.hipblasLtMatrixTransformDescSetAttribute(transform, attribute, bytes_of(112, np.int32), 4)
    seen = bytes_of(0, np.int32)
    assert lt.hipblasLtMatrixTransformDescGetAttribute(transform, attribute, seen, 4) == 4
    assert seen[0] == 112
    scalars = bytes_of(1, np.float32), bytes_of(0, np.float32)
    pointers = [
        ctypes.c_void_p(x) for x in (int(handle), int(transform), scalars[0].ctypes.data, int(device["a"]), int(layout))
    ]
    pointers += [ctypes.c_void_p(x) for x in (scalars[1].ctypes.data, None, None, int(device["d"]), int(layout), None)]
    native("hipblasLtMatrixTransform", *pointers)
    assert int(hip.hipMemcpy(host["d"], device["d"], 16, hip.hipMemcpyKind.hipMemcpyDeviceToHost)[0]) == 0
    np.testing.assert_array_equal(host["d"], [1, 3, 2, 4])

    # rocpy's own rows, which hip-python does not know.
    name, size = ctypes.create_string_buffer(64), ctypes.c_size_t()
    native("rocpyExtAlgoName", pointers[0], ctypes.c_void_p(results.ctypes.data), name, ctypes.c_size_t(64))
    assert name.value
    traits = ctypes.c_uint32(77)
    four = [ctypes.c_void_p(int(layout))] * 4
    algo = ctypes.c_void_p(results.ctypes.data)
    native("rocpyExtAlgoTraits", pointers[0], algo, ctypes.c_void_p(int(desc)), *four, ctypes.byref(traits))
    assert traits.value & 1
    assert traits.value < 4
    native("rocpyExtPackBytes", pointers[0], 0, 2, ctypes.c_uint64(2), ctypes.c_uint64(2), ctypes.byref(size))
    memory = np.zeros(size.value + 64, np.uint8)
    packed = ctypes.c_void_p(memory.ctypes.data + -memory.ctypes.data % 64)
    native("rocpyExtPack", pointers[0], 111, 2, pointers[3], pointers[4], packed, size, None)
    fp8 = lt.hipblasLtMatrixLayoutCreate(float32.__class__.HIP_R_8F_E4M3, 32, 2, 32)
    native("rocpyExtPackBlocksBytes", pointers[0], 28, ctypes.c_uint64(2), ctypes.c_uint64(32), ctypes.byref(size))
    memory = np.zeros(size.value + 128, np.uint8)
    lines, packed = (
        ctypes.c_void_p(memory.ctypes.data),
        ctypes.c_void_p(memory.ctypes.data + 64 + -memory.ctypes.data % 64),
    )
    native("rocpyExtPackBlocks", pointers[0], 112, lines, ctypes.c_void_p(int(fp8)), lines, packed, size, None)
    lt.hipblasLtMatrixLayoutDestroy(fp8)
    assert int(hip.hipStreamSynchronize(None)[0]) == 0

    doubled = program(
        [instruction("INPUT", 0), instruction("VALUE", 1), instruction("ADD", 1, 0, 1)], result=1, inputs=[(0, 1, 2, 0)]
    )
    native("rocpyExtMatmulDescSetProgram", ctypes.c_void_p(int(desc)), ctypes.byref(doubled))
    native("rocpyExtMatmulDescSetProgramPointers", ctypes.c_void_p(int(desc)), ctypes.byref(pointers[3]), None)

    lt.hipblasLtMatrixTransformDescDestroy(transform)
    lt.hipblasLtMatmulPreferenceDestroy(preference)
    lt.hipblasLtMatmulDescDestroy(desc)
    lt.hipblasLtMatrixLayoutDestroy(layout)
    lt.hipblasLtDestroy(handle)
    for pointer in (*device.values(), workspace):
        assert int(hip.hipFree(pointer)[0]) == 0

    with capsys.disabled():
        print("\nrows of libhipblaslt, and what called them:")
        for row, (_, _, own) in rows("hipblaslt").items():
            caller = "hip-python" if row in lt.called else "ctypes" if row in native_calls else "nothing"
            note = (
                " (rocpy's own row)" if own else " (hip-python's wrapper drops Cdesc)" if row in BROKEN_WRAPPERS else ""
            )
            print(f"  {row}: {caller}{note}")
    public = {name for name, (_, _, own) in rows("hipblaslt").items() if not own}
    assert public - set(lt.called) == BROKEN_WRAPPERS
    assert set(rows("hipblaslt")) == set(lt.called) | set(native_calls)
