# SPDX-License-Identifier: MIT
"""The status of each wrong call: what hipBLASLt answers, and what the host reports where hipBLASLt would go wrong."""

import ctypes
import dataclasses

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import Call, Compute, Desc, Problem, Type, hip, lt, unwrap
from hipblaslt_support.host import library

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, INTERNAL_ERROR, INVALID_ENUM = 0, 1, 3, 6, 10
VECTOR = np.ones(64, np.float32)
SCALAR = np.ones(1, np.float32)
BIAS, AUX, AUX_LD, AUX_STRIDE = (
    Desc.HIPBLASLT_MATMUL_DESC_BIAS_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
)
A_SCALE, B_SCALE, A_MODE, B_MODE, D_SCALE, AMAX, MODE = (
    Desc.HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_A_SCALE_MODE,
    Desc.HIPBLASLT_MATMUL_DESC_B_SCALE_MODE,
    Desc.HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_POINTER_MODE,
)
GELU_AUX, DRELU_BGRAD, BIASED = 160, 152, 4


@pytest.fixture(scope="module")
def handle():
    with calls.handle() as made:
        yield made


@dataclasses.dataclass
class Row:
    """One wrong (or surprising, but right) call of 4 x 3 x 5, its status, and whether the heuristic finds anything."""

    name: str
    status: int
    found: bool  # whether the heuristic finds any
    problem: dict = dataclasses.field(default_factory=dict)
    arguments: dict = dataclasses.field(default_factory=dict)
    stderr: str = ""
    heuristic_status: int = SUCCESS

    def __str__(self):
        return self.name.replace(" ", "-")


def layouts(**changes):
    return {"layouts": changes}


def layouts_of(names, **changes):
    return {"layouts": {name: dict(changes) for name in names}}


def attributes(epilogue=1, **changes):
    return {"epilogue": epilogue, "attributes": {globals()[name]: value for name, value in changes.items()}}


EIGHT_BITS = layouts_of("ab", type_=Type.HIP_R_8F_E4M3)

ROWS = [
    Row("plain product", SUCCESS, True),
    Row("alpha null", INVALID_VALUE, True, arguments={"alpha": None}),
    Row("beta null", INVALID_VALUE, True, arguments={"beta": None}),
    Row("A null", INVALID_VALUE, True, arguments={"a": None}),
    Row("B null", INVALID_VALUE, True, arguments={"b": None}),
    Row("C null though beta is 0", INVALID_VALUE, True, arguments={"c": None}),
    Row("D null", INVALID_VALUE, True, arguments={"d": None}),
    Row("A null with alpha 0", SUCCESS, True, arguments={"a": None, "alpha": 0.0}),
    Row("A null with k of 0", INVALID_VALUE, True, {"k": 0}, {"a": None}),
    Row("B null with k of 0", INVALID_VALUE, True, {"k": 0}, {"b": None}),
    Row("A and B null with alpha 0 and k of 0", SUCCESS, True, {"k": 0}, {"a": None, "b": None, "alpha": 0.0}),
    Row(
        "A null with an alpha vector and k of 0",
        INVALID_VALUE,
        True,
        {"k": 0, **attributes(MODE=4)},
        {"a": None, "alpha": np.zeros(4, np.float32)},
    ),
    Row(
        "A null with an alpha vector",
        INVALID_VALUE,
        True,
        attributes(MODE=4),
        {"a": None, "alpha": np.zeros(4, np.float32)},
    ),
    Row("workspace null with a size", INVALID_VALUE, True, arguments={"workspace_bytes": 16}),
    Row("C of another type than D", INVALID_ENUM, False, layouts(c={"type_": Type.HIP_R_16F})),
    Row("A and B of different types", INTERNAL_ERROR, False, layouts(a={"type_": Type.HIP_R_16F})),
    Row(
        "TF32 of half precision",
        INTERNAL_ERROR,
        False,
        {"dtype": "float16", "compute": Compute.HIPBLAS_COMPUTE_32F_FAST_TF32},
    ),
    Row("64F of float32", INTERNAL_ERROR, False, {"compute": Compute.HIPBLAS_COMPUTE_64F}),
    Row("32I of float32", INTERNAL_ERROR, False, {"compute": Compute.HIPBLAS_COMPUTE_32I}),
    Row("16F of bfloat16", INTERNAL_ERROR, False, {"dtype": "bfloat16", "compute": Compute.HIPBLAS_COMPUTE_16F}),
    Row("scale type float64 of float32", INTERNAL_ERROR, False, {"scale": Type.HIP_R_64F}),
    Row("float16 to bfloat16", INTERNAL_ERROR, False, {"dtype": "float16", "out": "bfloat16"}),
    Row(
        "8-bit floats of two dialects",
        INTERNAL_ERROR,
        False,
        layouts(a={"type_": Type.HIP_R_8F_E4M3}, b={"type_": Type.HIP_R_8F_E4M3_FNUZ}),
    ),
    Row(
        "8-bit floats to the other dialect",
        INTERNAL_ERROR,
        False,
        layouts(
            a={"type_": Type.HIP_R_8F_E4M3},
            b={"type_": Type.HIP_R_8F_E5M2},
            c={"type_": Type.HIP_R_8F_E4M3_FNUZ},
            d={"type_": Type.HIP_R_8F_E4M3_FNUZ},
        ),
    ),
    Row("8-bit floats in 16F", INTERNAL_ERROR, False, {"compute": Compute.HIPBLAS_COMPUTE_16F, **EIGHT_BITS}),
    Row("4-bit floats without block scales", INTERNAL_ERROR, False, layouts_of("ab", type_=Type.HIP_R_4F_E2M1)),
    Row(
        "block scales of 8-bit floats not along k",
        INTERNAL_ERROR,
        False,
        {**EIGHT_BITS, **attributes(A_SCALE=SCALAR, B_SCALE=SCALAR, A_MODE=2, B_MODE=2), "k": 32},
    ),
    Row("block scales of one operand", INTERNAL_ERROR, False, {**EIGHT_BITS, **attributes(A_SCALE=SCALAR, A_MODE=2)}),
    Row(
        "block scales of float32", INTERNAL_ERROR, False, attributes(A_SCALE=SCALAR, B_SCALE=SCALAR, A_MODE=2, B_MODE=2)
    ),
    Row("modes of 8-bit floats differ", INVALID_VALUE, False, {**EIGHT_BITS, **attributes(A_MODE=3, B_MODE=0)}),
    Row("result scale without 8-bit result", INTERNAL_ERROR, False, {**EIGHT_BITS, **attributes(D_SCALE=SCALAR)}),
    Row("int8 of float32 compute", INTERNAL_ERROR, False, layouts_of("ab", type_=Type.HIP_R_8I)),
    Row(
        "int8 to float64",
        INTERNAL_ERROR,
        False,
        {
            "compute": Compute.HIPBLAS_COMPUTE_32I,
            **layouts(
                a={"type_": Type.HIP_R_8I},
                b={"type_": Type.HIP_R_8I},
                c={"type_": Type.HIP_R_64F},
                d={"type_": Type.HIP_R_64F},
            ),
        },
    ),
    Row("complex operands of real scalars", INTERNAL_ERROR, False, layouts_of("abcd", type_=Type.HIP_C_32F)),
    Row("negative stride", INVALID_VALUE, False, layouts(b={"stride": -1}), stderr="negative"),
    Row("unequal batch counts", INVALID_VALUE, False, layouts(b={"batch": 2}), stderr="must be equal"),
    Row("batch count 0", INVALID_VALUE, False, layouts_of("abcd", batch=0), stderr="must be equal"),
    Row("m of 0 with null pointers", SUCCESS, False, {"m": 0}, dict.fromkeys(("alpha", "a", "b", "beta", "c", "d"))),
    Row(
        "m of 0 with unequal batch counts",
        INVALID_VALUE,
        False,
        {"m": 0, "layouts": {"b": {"batch": 2}}},
        stderr="must be equal",
    ),
    Row("n of 0", SUCCESS, True, {"n": 0}, dict.fromkeys("abcd")),
    Row("bias null", INVALID_VALUE, True, {"epilogue": BIASED}),
    Row("bias gradient null", INVALID_VALUE, True, {"epilogue": 256}),
    Row("aux null", INVALID_VALUE, False, attributes(GELU_AUX, AUX_LD=4, AUX_STRIDE=12)),
    Row("aux without ld and stride", INVALID_VALUE, False, attributes(GELU_AUX, AUX=VECTOR)),
    Row("aux with ld alone", SUCCESS, True, attributes(GELU_AUX, AUX=VECTOR, AUX_LD=4)),
    Row("aux with stride alone", SUCCESS, True, attributes(GELU_AUX, AUX=VECTOR, AUX_STRIDE=12)),
    Row("aux ld below m", INVALID_VALUE, False, attributes(GELU_AUX, AUX=VECTOR, AUX_LD=3, AUX_STRIDE=12)),
    Row("aux stride below m times n", INVALID_VALUE, False, attributes(GELU_AUX, AUX=VECTOR, AUX_LD=4, AUX_STRIDE=11)),
    Row("mixed scale modes", INVALID_VALUE, False, attributes(A_MODE=0, B_MODE=3)),
    Row("scale of float32", INTERNAL_ERROR, False, attributes(A_SCALE=SCALAR)),
    Row("result scale of float32", INTERNAL_ERROR, False, attributes(D_SCALE=SCALAR)),
    Row("amax of float32", INTERNAL_ERROR, False, attributes(AMAX=SCALAR)),
    Row("swizzled A with op N", INVALID_VALUE, False, {"dtype": "float16", "orders": {"a": 101}}),
    Row("swizzled A of the wrong order", INVALID_VALUE, False, {"dtype": "float16", "op_a": "T", "orders": {"a": 100}}),
    Row(
        "swizzled A that no algorithm takes",
        INTERNAL_ERROR,
        False,
        {"dtype": "float16", "op_a": "T", "orders": {"a": 101}},
    ),
    Row("swizzled B with op T", INVALID_VALUE, False, {"dtype": "float16", "op_b": "T", "orders": {"b": 101}}),
    Row("unknown order", INTERNAL_ERROR, False, {"orders": {"b": 7}}),
    Row("C in rows and D in columns", INTERNAL_ERROR, False, {"orders": {"c": 1}}),
    Row(
        "pointer arrays with an epilogue",
        INVALID_VALUE,
        False,
        {"epilogue": 2, **layouts(a={"mode": 1})},
        heuristic_status=INVALID_VALUE,
    ),
    Row(
        "pointer arrays with an alpha vector",
        INVALID_VALUE,
        False,
        {**attributes(MODE=1), **layouts(a={"mode": 1})},
        heuristic_status=INVALID_VALUE,
    ),
    Row("A with fewer rows than D", INVALID_VALUE, False, layouts(a={"rows": 3}), stderr="A is 3 x 5"),
    Row("A with more rows than D", SUCCESS, True, layouts(a={"rows": 6, "ld": 6}), {"a": np.ones(30, np.float32)}),
    Row("B with fewer columns than D", INVALID_VALUE, False, layouts(b={"columns": 2}), stderr="B is 5 x 2"),
    Row("ld of A below its rows", INVALID_VALUE, False, layouts(a={"ld": 3}), stderr="leading dimension of A is 3"),
    Row("negative ld", INVALID_VALUE, False, layouts(d={"ld": -4}), stderr="leading dimension of D is -4"),
    Row("ld of C is 0, a broadcast", SUCCESS, True, layouts(c={"ld": 0}), {"beta": 1.0}),
    Row("ld of D is 0", INVALID_VALUE, False, layouts(d={"ld": 0}), stderr="leading dimension of D is 0"),
    Row(
        "2^40 columns",
        INTERNAL_ERROR,
        False,
        layouts(b={"columns": 1 << 40}, c={"columns": 1 << 40}, d={"columns": 1 << 40}),
    ),
    Row("batch entries that share D", INVALID_VALUE, False, {"batch": 2, **layouts(d={"stride": 0})}, stderr="same D"),
    Row(
        "batch entries that share a bias gradient",
        INVALID_VALUE,
        False,
        {"batch": 2, **attributes(DRELU_BGRAD, BIAS=VECTOR, AUX=VECTOR, AUX_LD=4)},
        stderr="same bias gradient",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_status(handle, row, capfd):
    problem = Problem(**{"m": 4, "n": 3, "k": 5, **row.problem})
    problem.attributes = dict(problem.attributes)
    wide = {"float16": np.float16, "bfloat16": np.uint16}.get(problem.dtype, np.float32)
    operands = {name: np.zeros(128, wide) for name in "abcd"}
    arguments = {"alpha": 1.0, "beta": 0.0, **operands, **row.arguments}
    with Call(problem) as call:
        status, found, results = call.heuristic(handle)
        assert (status, bool(found)) == (row.heuristic_status, row.found)
        if status == SUCCESS:
            states = results.reshape(-1, calls.RESULT_BYTES)[:, 32:36].copy().view(np.int32)[:, 0].tolist()
            assert states == [0] * len(found) + [7] * (8 - len(found))
        assert call.matmul(handle, **arguments) == row.status
        unwrap(hip.hipStreamSynchronize(None))
    assert row.stderr in capfd.readouterr().err


@pytest.mark.parametrize("missing", ["handle", "desc", "a", "b", "c", "d"])
def test_null_handle_descriptor_and_layouts(handle, missing):
    memory = np.zeros(64, np.float32)
    with Call(Problem(4, 3, 5)) as call:
        preference = unwrap(lt.hipblasLtMatmulPreferenceCreate())
        objects = {"handle": handle, "desc": call.desc, **call.layouts}
        kept = objects[missing]
        for absent in (None, 0x1230, 0x1234567):
            objects[missing] = absent
            layouts_ = [objects[name] for name in "abcd"]
            status, _ = lt.hipblasLtMatmulAlgoGetHeuristic(
                objects["handle"], objects["desc"], *layouts_, preference, 1, np.zeros(56, np.uint8)
            )
            assert int(status) == NOT_INITIALIZED
            (status,) = lt.hipblasLtMatmul(
                objects["handle"], objects["desc"], SCALAR, memory, layouts_[0], memory, layouts_[1], SCALAR,
                memory, layouts_[2], memory, layouts_[3], None, None, 0, None,
            )  # fmt: skip
            assert int(status) == NOT_INITIALIZED
        objects[missing] = kept
        unwrap(lt.hipblasLtMatmulPreferenceDestroy(preference))


def test_heuristic_arguments(handle):
    with Call(Problem(4, 3, 5)) as call:
        layouts_ = [call.layouts[name] for name in "abcd"]
        preference = unwrap(lt.hipblasLtMatmulPreferenceCreate())
        results = np.zeros(56, np.uint8)

        def status(preference_, requested, results_):
            return int(
                lt.hipblasLtMatmulAlgoGetHeuristic(handle, call.desc, *layouts_, preference_, requested, results_)[0]
            )

        assert status(None, 1, results) == NOT_INITIALIZED
        assert status(preference, 0, results) == INVALID_VALUE
        assert status(preference, -1, results) == INVALID_VALUE
        assert status(preference, 1, None) == INVALID_VALUE
        assert status(preference, 1, results) == SUCCESS
        unwrap(lt.hipblasLtMatmulPreferenceDestroy(preference))


def test_destroyed_objects_are_told(capfd):
    handle = unwrap(lt.hipblasLtCreate())
    assert int(lt.hipblasLtDestroy(handle)[0]) == SUCCESS
    assert int(lt.hipblasLtGetVersion(handle)[0]) == NOT_INITIALIZED
    assert int(lt.hipblasLtDestroy(handle)[0]) == INVALID_VALUE
    layout = calls.make_layout(Type.HIP_R_32F, 2, 2, 2)
    assert int(lt.hipblasLtMatrixLayoutDestroy(layout)[0]) == SUCCESS
    assert int(lt.hipblasLtMatrixLayoutDestroy(layout)[0]) == INVALID_VALUE
    desc = unwrap(lt.hipblasLtMatmulDescCreate(Compute.HIPBLAS_COMPUTE_32F, Type.HIP_R_32F))
    assert int(lt.hipblasLtMatmulDescDestroy(desc)[0]) == SUCCESS
    assert int(lt.hipblasLtMatmulDescDestroy(desc)[0]) == INVALID_VALUE
    assert capfd.readouterr().err.count("is not a live") == 3


@pytest.mark.parametrize(
    "function",
    ["Destroy", "MatrixLayoutDestroy", "MatmulDescDestroy", "MatmulPreferenceDestroy"],
)
def test_destroy_null(function):
    assert int(getattr(lt, f"hipblasLt{function}")(None)[0]) == INVALID_VALUE


def test_a_null_transform_is_destroyed_as_any_other():
    assert int(lt.hipblasLtMatrixTransformDescDestroy(None)[0]) == SUCCESS


def test_null_results_of_create():
    native = library("hipblaslt")
    assert native.hipblasLtCreate(None) == INVALID_VALUE
    assert native.hipblasLtMatmulDescCreate(None, 2, 0) == INVALID_VALUE
    assert (
        native.hipblasLtMatrixLayoutCreate(None, 0, ctypes.c_uint64(1), ctypes.c_uint64(1), ctypes.c_int64(1))
        == INVALID_VALUE
    )
    assert native.hipblasLtMatmulPreferenceCreate(None) == NOT_INITIALIZED
    assert native.hipblasLtMatrixTransformDescCreate(None, 0) == INVALID_VALUE


def test_handle_functions(handle):
    native, pointer = library("hipblaslt"), ctypes.c_void_p(int(handle))
    assert lt.hipblasLtGetVersion(handle) == (SUCCESS, 100401)
    assert int(lt.hipblasLtGetVersion(None)[0]) == NOT_INITIALIZED
    revision = np.zeros(128, np.uint8)
    assert native.hipblasLtGetGitRevision(None, ctypes.c_void_p(revision.ctypes.data)) == NOT_INITIALIZED
    assert native.hipblasLtGetGitRevision(pointer, None) == INVALID_VALUE
    assert native.hipblasLtGetGitRevision(pointer, ctypes.c_void_p(revision.ctypes.data)) == SUCCESS
    assert bytes(revision).rstrip(b"\0").isalnum()
    assert int(lt.hipblasLtSetSmCountTarget(None, 1)[0]) == NOT_INITIALIZED
    assert int(lt.hipblasLtSetSmCountTarget(handle, -1)[0]) == INVALID_VALUE
    assert int(lt.hipblasLtSetSmCountTarget(handle, 7)[0]) == SUCCESS
    assert lt.hipblasLtGetSmCountTarget(handle) == (SUCCESS, 7)
    assert native.hipblasLtGetSmCountTarget(pointer, None) == INVALID_VALUE
    assert native.hipblasLtCheckNumericsDrain(pointer, None) == SUCCESS
    assert native.hipblasLtCheckNumericsDrain(None, None) == NOT_INITIALIZED


@pytest.mark.parametrize("compute", list(Compute))
def test_compute_types_of_descriptors(compute):
    accepted = compute.value in {0, 2, 4, 5, 6, 7, 9, 100, 101, 102, 103}
    status, desc = lt.hipblasLtMatmulDescCreate(compute, Type.HIP_R_32F)
    assert int(status) == (SUCCESS if accepted else INVALID_VALUE)
    if accepted:
        unwrap(lt.hipblasLtMatmulDescDestroy(desc))


@pytest.mark.parametrize("scale", list(Type))
def test_scale_types_of_descriptors(scale):
    accepted = scale.name in {"HIP_R_32F", "HIP_R_64F", "HIP_R_32I", "HIP_R_16F", "HIP_C_32F", "HIP_C_64F"}
    status, desc = lt.hipblasLtMatmulDescCreate(Compute.HIPBLAS_COMPUTE_32F, scale)
    assert int(status) == (SUCCESS if accepted else INVALID_VALUE)
    if accepted:
        unwrap(lt.hipblasLtMatmulDescDestroy(desc))


def test_invalid_stream(handle):
    memory = np.zeros(64, np.float32)
    stream = unwrap(hip.hipStreamCreate())
    unwrap(hip.hipStreamDestroy(stream))
    with Call(Problem(4, 3, 5)) as call:
        assert call.matmul(handle, 1.0, memory, memory, 0.0, memory, memory, stream=int(stream)) == INTERNAL_ERROR


def test_misaligned_operand(handle, capfd):
    memory = np.zeros(64, np.float32)
    shifted = memory.view(np.uint8)[1:]
    with Call(Problem(4, 3, 5)) as call:
        assert call.matmul(handle, 1.0, memory, shifted, 0.0, memory, memory) == INVALID_VALUE
    assert "not aligned" in capfd.readouterr().err


def test_same_memory_with_different_layouts(handle, capfd):
    memory = np.zeros(64, np.float32)
    with Call(Problem(4, 3, 5, layouts={"c": {"ld": 6}})) as call:
        assert call.matmul(handle, 1.0, memory, memory, 1.0, memory, memory) == INVALID_VALUE
        assert call.matmul(handle, 1.0, memory, memory, 0.0, memory, memory) == SUCCESS
        unwrap(hip.hipStreamSynchronize(None))
    assert "different layouts" in capfd.readouterr().err


def test_unknown_algorithm(handle):
    memory = np.zeros(64, np.float32)
    with Call(Problem(4, 3, 5)) as call:
        _, found, _ = call.heuristic(handle)
        algo = calls.algo_of(found[0])
        algo[:4] = np.array([987654321], np.int32).view(np.uint8)
        assert call.matmul(handle, 1.0, memory, memory, 0.0, memory, memory, algo) == INTERNAL_ERROR
        name = ctypes.create_string_buffer(8)
        function = library("hipblaslt").rocpyExtAlgoName
        pointers = ctypes.c_void_p(int(handle)), ctypes.c_void_p(algo.ctypes.data)
        assert function(*pointers, name, ctypes.c_size_t(8)) == INVALID_VALUE
