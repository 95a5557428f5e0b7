# SPDX-License-Identifier: MIT
"""Attributes of the host platform's hipBLASLt: defaults, ranges, sizes, and the gaps in what can be read back."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import Compute, Desc, LayoutAttribute, PreferenceAttribute, Type, lt, unwrap
from hipblaslt_support.host import library

SUCCESS, NOT_INITIALIZED, INVALID_VALUE = 0, 1, 3

# Attribute -> bytes, default (None: cannot be read back), values accepted, values refused.
DESC = {
    "TRANSA": (4, 111, [112, 113, 7], []),
    "TRANSB": (4, 111, [112, 113, 7], []),
    "EPILOGUE": (4, 1, [36, 3, 131204], []),
    "BIAS_POINTER": (8, 0, [4096], []),
    "BIAS_DATA_TYPE": (4, 255, [0, 14], []),
    "A_SCALE_POINTER": (8, 0, [4096], []),
    "B_SCALE_POINTER": (8, 0, [4096], []),
    "C_SCALE_POINTER": (8, None, [4096], []),
    "D_SCALE_POINTER": (8, None, [4096], []),
    "EPILOGUE_AUX_SCALE_POINTER": (8, None, [4096], []),
    "EPILOGUE_AUX_POINTER": (8, None, [4096], []),
    "EPILOGUE_AUX_LD": (8, None, [64], []),
    "EPILOGUE_AUX_BATCH_STRIDE": (8, None, [4096], []),
    "POINTER_MODE": (4, 0, [1, 4], []),
    "AMAX_D_POINTER": (8, 0, [4096], []),
    "EPILOGUE_AUX_DATA_TYPE": (4, 255, [2], []),
    "BIAS_BATCH_STRIDE": (4, 0, [0, 17], [-1]),
    "A_SCALE_MODE": (4, INVALID_VALUE, [0, 1, 2, 3, 1001, 1002, 1003, 1004, 1005], [4, 5, 6, 1006, -1]),
    "B_SCALE_MODE": (4, INVALID_VALUE, [0, 1, 2, 3, 1001, 1002, 1003, 1004, 1005], [4, 5, 6, 1006, -1]),
    "SM_COUNT_TARGET": (4, 0, [0, 4], [-1]),
    "COMPUTE_INPUT_TYPE_A_EXT": (4, 255, [2], []),
    "COMPUTE_INPUT_TYPE_B_EXT": (4, 255, [2], []),
    "EPILOGUE_ACT_ARG0_EXT": (4, None, [1065353216], []),
    "EPILOGUE_ACT_ARG1_EXT": (4, None, [1065353216], []),
    "STREAMK_TILE_SCHEDULING_EXT": (4, 0, [0, 1, 2], [-1, 3]),
}
LAYOUT = {
    "BATCH_COUNT": (4, 1, [0, 5], []),
    "STRIDED_BATCH_OFFSET": (8, 0, [100, -1], []),
    "TYPE": (4, None, [2], []),
    "ORDER": (4, None, [1, 101], []),
    "ROWS": (8, None, [9], []),
    "COLS": (8, None, [9], []),
    "LD": (8, None, [9], []),
    "BATCH_MODE": (4, 0, [1], []),
}
PREFERENCE = {
    "SEARCH_MODE": (4, 0, [1], []),
    "MAX_WORKSPACE_BYTES": (8, 0, [1 << 33], []),
    "SM_COUNT_TARGET": (4, 0, [3], [-1]),
}


def make(kind):
    """(object, attribute enum, prefix, setter, getter, destroy, status of a null object)."""
    if kind == "desc":
        made = unwrap(lt.hipblasLtMatmulDescCreate(Compute.HIPBLAS_COMPUTE_32F, Type.HIP_R_32F))
        return made, Desc, "HIPBLASLT_MATMUL_DESC_", "MatmulDesc", NOT_INITIALIZED
    if kind == "layout":
        made = unwrap(lt.hipblasLtMatrixLayoutCreate(Type.HIP_R_32F, 3, 4, 3))
        return made, LayoutAttribute, "HIPBLASLT_MATRIX_LAYOUT_", "MatrixLayout", NOT_INITIALIZED
    made = unwrap(lt.hipblasLtMatmulPreferenceCreate())
    return made, PreferenceAttribute, "HIPBLASLT_MATMUL_PREF_", "MatmulPreference", INVALID_VALUE


CASES = [
    (kind, name, *row)
    for kind, table in (("desc", DESC), ("layout", LAYOUT), ("preference", PREFERENCE))
    for name, row in table.items()
]


@pytest.mark.parametrize(
    ("kind", "name", "width", "default", "accepted", "refused"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES]
)
def test_attribute(kind, name, width, default, accepted, refused, capfd):
    made, enum, prefix, family, null_status = make(kind)
    attribute = enum[prefix + name]
    dtype = np.int64 if width == 8 else np.int32

    def set_value(value, bytes_=width, target=made):
        buffer = np.array([value], np.int64).view(np.uint8) if value < 0 else np.array([value, 0], dtype)
        return int(getattr(lt, f"hipblasLt{family}SetAttribute")(target, attribute, buffer, bytes_)[0])

    def get_value(bytes_=width, target=made):
        buffer = np.full(2, -77, dtype)
        status, written = getattr(lt, f"hipblasLt{family}GetAttribute")(target, attribute, buffer, bytes_)
        return int(status), written, int(buffer[0])

    if default is None or default == INVALID_VALUE:
        assert get_value()[0] == INVALID_VALUE
    else:
        assert get_value() == (SUCCESS, width, default)
    for value in accepted:
        assert set_value(value) == SUCCESS
        expected = (INVALID_VALUE, -77) if default is None else (SUCCESS, value)
        status, _, seen = get_value()
        assert (status, seen) == expected
    for value in refused:
        assert set_value(value) == INVALID_VALUE
    assert set_value(accepted[0], width + 4) == SUCCESS
    assert set_value(accepted[0], width - 1) == INVALID_VALUE
    assert set_value(accepted[0], 0) == INVALID_VALUE
    assert int(getattr(lt, f"hipblasLt{family}SetAttribute")(made, attribute, None, width)[0]) == INVALID_VALUE
    assert set_value(accepted[0], target=None) == null_status
    assert get_value(target=None)[0] == null_status
    assert get_value(width - 1)[0] == INVALID_VALUE
    if default is not None:
        status, written, _ = get_value(0)
        assert status == INVALID_VALUE
        if kind != "preference":
            assert written == width
    unwrap(getattr(lt, f"hipblasLt{family}Destroy")(made))
    assert ("bytes" in capfd.readouterr().err) == (kind == "preference")


@pytest.mark.parametrize("family", ["MatmulDesc", "MatrixLayout", "MatmulPreference"])
def test_unknown_attribute_and_missing_size(family):
    kind = {"MatmulDesc": "desc", "MatrixLayout": "layout", "MatmulPreference": "preference"}[family]
    made = make(kind)[0]
    native, pointer = library("hipblaslt"), ctypes.c_void_p(int(made))
    value = ctypes.c_uint64()
    for unknown in (-1, 99, 105, 1000):
        assert (
            getattr(native, f"hipblasLt{family}SetAttribute")(pointer, unknown, ctypes.byref(value), ctypes.c_size_t(8))
            == INVALID_VALUE
        )
        assert (
            getattr(native, f"hipblasLt{family}GetAttribute")(
                pointer, unknown, ctypes.byref(value), ctypes.c_size_t(8), None
            )
            == INVALID_VALUE
        )
    assert (
        getattr(native, f"hipblasLt{family}GetAttribute")(pointer, 0, None, ctypes.c_size_t(0), None) == INVALID_VALUE
    )
    assert (
        getattr(native, f"hipblasLt{family}GetAttribute")(pointer, 0, ctypes.byref(value), ctypes.c_size_t(8), None)
        == SUCCESS
    )
    unwrap(getattr(lt, f"hipblasLt{family}Destroy")(made))


def test_every_attribute_has_a_row():
    for enum, prefix, table in (
        (Desc, "HIPBLASLT_MATMUL_DESC_", DESC),
        (LayoutAttribute, "HIPBLASLT_MATRIX_LAYOUT_", LAYOUT),
        (PreferenceAttribute, "HIPBLASLT_MATMUL_PREF_", PREFERENCE),
    ):
        assert {member.name.removeprefix(prefix) for member in enum} - {"MAX"} == set(table)


def test_scale_pointer_implies_one_scalar():
    desc = make("desc")[0]
    calls.set_desc(desc, Desc.HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, 4096)
    value = np.full(1, -1, np.int32)
    assert unwrap(lt.hipblasLtMatmulDescGetAttribute(desc, Desc.HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, value, 4)) == 4
    assert value[0] == 0
    unwrap(lt.hipblasLtMatmulDescDestroy(desc))


def test_transform_attributes_need_their_exact_size():
    attributes = lt.hipblasLtMatrixTransformDescAttributes_t
    desc = unwrap(lt.hipblasLtMatrixTransformDescCreate(Type.HIP_R_32F))
    for attribute, default in zip(attributes, (0, 0, 111, 111), strict=True):
        seen = np.full(2, -1, np.int32)
        assert lt.hipblasLtMatrixTransformDescGetAttribute(desc, attribute, seen, 4) == (SUCCESS, 4)
        assert seen[0] == default
        value = np.array([2, 0], np.int32)
        assert int(lt.hipblasLtMatrixTransformDescSetAttribute(desc, attribute, value, 4)[0]) == SUCCESS
        for size in (0, 3, 8):
            assert int(lt.hipblasLtMatrixTransformDescSetAttribute(desc, attribute, value, size)[0]) == INVALID_VALUE
            assert int(lt.hipblasLtMatrixTransformDescGetAttribute(desc, attribute, seen, size)[0]) == INVALID_VALUE
        assert lt.hipblasLtMatrixTransformDescGetAttribute(desc, attribute, seen, 4) == (SUCCESS, 4)
        assert seen[0] == 2
    unwrap(lt.hipblasLtMatrixTransformDescDestroy(desc))
