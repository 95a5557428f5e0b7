# SPDX-License-Identifier: MIT
"""Products as calls of hip-python: descriptors and layouts from plain values, operands as column-major numpy arrays."""

import contextlib
import ctypes
import dataclasses

import ml_dtypes
import numpy as np

from hipblaslt_support.host import hip_python, library

hip, lt = hip_python()
from rocm.bindings import hipblas  # noqa: E402  (after hip-python is bound to the host platform)

Type = hip.hipDataType
Status = lt.hipblasStatus_t
Compute = hipblas.hipblasComputeType_t
Operation = hipblas.hipblasOperation_t
Epilogue = lt.hipblasLtEpilogue_t
Desc = lt.hipblasLtMatmulDescAttributes_t
LayoutAttribute = lt.hipblasLtMatrixLayoutAttribute_t
PreferenceAttribute = lt.hipblasLtMatmulPreferenceAttributes_t
Order = lt.hipblasLtOrder_t

DTYPES = {
    "float32": (np.dtype(np.float32), Type.HIP_R_32F),
    "float64": (np.dtype(np.float64), Type.HIP_R_64F),
    "float16": (np.dtype(np.float16), Type.HIP_R_16F),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), Type.HIP_R_16BF),
    "float8_e4m3fn": (np.dtype(ml_dtypes.float8_e4m3fn), Type.HIP_R_8F_E4M3),
    "float8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), Type.HIP_R_8F_E5M2),
    "float8_e4m3fnuz": (np.dtype(ml_dtypes.float8_e4m3fnuz), Type.HIP_R_8F_E4M3_FNUZ),
    "float8_e5m2fnuz": (np.dtype(ml_dtypes.float8_e5m2fnuz), Type.HIP_R_8F_E5M2_FNUZ),
    "int8": (np.dtype(np.int8), Type.HIP_R_8I),
    "int32": (np.dtype(np.int32), Type.HIP_R_32I),
    "complex64": (np.dtype(np.complex64), Type.HIP_C_32F),
    "complex128": (np.dtype(np.complex128), Type.HIP_C_64F),
}
FLOATS = ("float32", "float64", "float16", "bfloat16")
RESULT_BYTES = 56
PACKED_ORDER = 7498593

# Storage of attributes that are not 4-byte integers.
_WIDE = {
    Desc.HIPBLASLT_MATMUL_DESC_BIAS_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
    Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
    Desc.HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER,
}
_FLOAT = {Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT}


class StatusError(Exception):
    """A call that was expected to succeed did not."""


def unwrap(result):
    """What a hip-python call returned beside its status, which must be 0."""
    status, *values = result
    if int(status) != 0:
        raise StatusError(repr(status))
    return values[0] if len(values) == 1 else values


def address(array):
    """A numpy array's memory as the pointer that the calls take: the host platform's memory is the CPU's."""
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def dtype_name(array):
    """Key of `DTYPES` for an array."""
    return next(name for name, (dtype, _) in DTYPES.items() if dtype == array.dtype)


def set_desc(desc, attribute, value):
    """Set a descriptor's attribute from a number or an array (its address)."""
    if isinstance(value, np.ndarray):
        value = value.ctypes.data
    dtype = np.float32 if attribute in _FLOAT else np.int64 if attribute in _WIDE else np.int32
    buffer = np.array([value], dtype)
    unwrap(lt.hipblasLtMatmulDescSetAttribute(desc, attribute, buffer, buffer.nbytes))


@contextlib.contextmanager
def handle():
    """A hipBLASLt handle."""
    created = unwrap(lt.hipblasLtCreate())
    try:
        yield created
    finally:
        unwrap(lt.hipblasLtDestroy(created))


def make_layout(type_, rows, columns, ld, batch=1, stride=0, order=0, mode=0):
    """A matrix layout; `order` may be a number of rocpy's own."""
    layout = unwrap(lt.hipblasLtMatrixLayoutCreate(type_, rows, columns, ld))
    for attribute, value, dtype in (
        (LayoutAttribute.HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch, np.int32),
        (LayoutAttribute.HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, np.int64),
        (LayoutAttribute.HIPBLASLT_MATRIX_LAYOUT_ORDER, order, np.int32),
        (LayoutAttribute.HIPBLASLT_MATRIX_LAYOUT_BATCH_MODE, mode, np.int32),
    ):
        buffer = np.array([value], dtype)
        unwrap(lt.hipblasLtMatrixLayoutSetAttribute(layout, attribute, buffer, buffer.nbytes))
    return layout


def stored(matrix, dtype, order="F"):
    """A batch of matrices (batch, rows, columns) as contiguous entries: column-major or, with order "C", row-major."""
    entries = np.asarray(matrix).astype(DTYPES[dtype][0])
    return np.ascontiguousarray(entries if order == "C" else np.swapaxes(entries, -1, -2))


def unstored(memory, rows, columns, order="F"):
    """What `stored` made, as (batch, rows, columns) in float64."""
    if order == "C":
        return memory.reshape(-1, rows, columns).astype(np.float64)
    return np.swapaxes(memory.reshape(-1, columns, rows), -1, -2).astype(np.float64)


@dataclasses.dataclass
class Problem:
    """One product: what the calls need, with defaults that are right for a plain float32 product of m x n x k."""

    m: int = 8
    n: int = 6
    k: int = 5
    dtype: str = "float32"
    out: str = ""
    batch: int = 1
    op_a: str = "N"
    op_b: str = "N"
    epilogue: int = int(Epilogue.HIPBLASLT_EPILOGUE_DEFAULT)
    compute: Compute | None = None
    scale: Type | None = None
    attributes: dict = dataclasses.field(default_factory=dict)
    orders: dict = dataclasses.field(default_factory=dict)  # of "a", "b", "c", "d"
    layouts: dict = dataclasses.field(default_factory=dict)  # changes to make_layout's arguments, by operand
    workspace: int = 32 << 20

    @property
    def result(self):
        """Name of the result's dtype."""
        return self.out or self.dtype

    def compute_type(self):
        """The compute type to ask for."""
        if self.compute is not None:
            return self.compute
        return Compute.HIPBLAS_COMPUTE_64F if self.dtype == "float64" else Compute.HIPBLAS_COMPUTE_32F

    def scale_type(self):
        """The type of alpha and beta."""
        if self.scale is not None:
            return self.scale
        return Type.HIP_R_64F if self.dtype == "float64" else Type.HIP_R_32F

    def scalar(self, value):
        """A host scalar of that type."""
        dtypes = {
            Type.HIP_R_64F: np.float64,
            Type.HIP_R_16F: np.float16,
            Type.HIP_R_32I: np.int32,
            Type.HIP_C_32F: np.complex64,
            Type.HIP_C_64F: np.complex128,
        }
        return np.array([value], dtypes.get(self.scale_type(), np.float32))


class Call:
    """Descriptors and layouts of a problem; the calls on them return bare statuses."""

    def __init__(self, problem):
        self.problem = p = problem
        self.desc = unwrap(lt.hipblasLtMatmulDescCreate(p.compute_type(), p.scale_type()))
        set_desc(self.desc, Desc.HIPBLASLT_MATMUL_DESC_TRANSA, int(Operation[f"HIPBLAS_OP_{p.op_a}"]))
        set_desc(self.desc, Desc.HIPBLASLT_MATMUL_DESC_TRANSB, int(Operation[f"HIPBLAS_OP_{p.op_b}"]))
        set_desc(self.desc, Desc.HIPBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue)
        for attribute, value in p.attributes.items():
            set_desc(self.desc, attribute, value)
        a_shape = (p.m, p.k) if p.op_a == "N" else (p.k, p.m)
        b_shape = (p.k, p.n) if p.op_b == "N" else (p.n, p.k)
        self.layouts = {}
        for name, shape in (("a", a_shape), ("b", b_shape), ("c", (p.m, p.n)), ("d", (p.m, p.n))):
            order = p.orders.get(name, 0)
            rows, columns = shape
            settings = {
                "type_": DTYPES[p.dtype if name in "ab" else p.result][1],
                "rows": rows,
                "columns": columns,
                "ld": columns if order == int(Order.HIPBLASLT_ORDER_ROW) else rows,
                "batch": p.batch,
                "stride": rows * columns,
                "order": order,
            }
            self.layouts[name] = make_layout(**{**settings, **p.layouts.get(name, {})})

    def close(self):
        """Destroy all of it."""
        unwrap(lt.hipblasLtMatmulDescDestroy(self.desc))
        for layout in self.layouts.values():
            unwrap(lt.hipblasLtMatrixLayoutDestroy(layout))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def heuristic(self, handle_, requested=8, workspace=None):
        """(status, list of 56-byte results that were returned, all bytes)."""
        preference = unwrap(lt.hipblasLtMatmulPreferenceCreate())
        limit = np.array([self.problem.workspace if workspace is None else workspace], np.uint64)
        attribute = PreferenceAttribute.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
        unwrap(lt.hipblasLtMatmulPreferenceSetAttribute(preference, attribute, limit, limit.nbytes))
        results = np.full(RESULT_BYTES * max(requested, 1), 0xEE, np.uint8)
        layouts = [self.layouts[name] for name in "abcd"]
        status, count = lt.hipblasLtMatmulAlgoGetHeuristic(handle_, self.desc, *layouts, preference, requested, results)
        unwrap(lt.hipblasLtMatmulPreferenceDestroy(preference))
        entries = [results[i * RESULT_BYTES : (i + 1) * RESULT_BYTES] for i in range(count)]
        return int(status), entries, results

    def matmul(self, handle_, alpha, a, b, beta, c, d, algo=None, workspace=None, workspace_bytes=None, stream=None):
        """Status of hipblasLtMatmul. Arrays are passed by address; None is a null pointer."""
        if workspace_bytes is None:
            workspace_bytes = 0 if workspace is None else workspace.nbytes
        scalars = [self.problem.scalar(x) if isinstance(x, int | float) else x for x in (alpha, beta)]
        layouts = self.layouts
        (status,) = lt.hipblasLtMatmul(
            handle_, self.desc, scalars[0], address(a), layouts["a"], address(b), layouts["b"], scalars[1],
            address(c), layouts["c"], address(d), layouts["d"], algo, address(workspace), workspace_bytes, stream,
        )  # fmt: skip
        return int(status)


def workspace_of(result):
    """workspaceSize of a heuristic result."""
    return int(result[24:32].view(np.uint64)[0])


def algo_of(result):
    """The 24 bytes of a heuristic result's algorithm."""
    return result[:24].copy()


def algo_name(handle_, algo):
    """The platform's name of an algorithm."""
    name = ctypes.create_string_buffer(64)
    function = library("hipblaslt").rocpyExtAlgoName
    status = function(ctypes.c_void_p(int(handle_)), ctypes.c_void_p(algo.ctypes.data), name, ctypes.c_size_t(64))
    if status:
        raise StatusError(f"rocpyExtAlgoName: {status}")
    return name.value.decode()


def run(handle_, problem, a, b, c=None, alpha=1.0, beta=0.0, algo_index=0):
    """D of a problem as (batch, m, n) in float64; `a`, `b`, `c` are (batch, rows, columns) as stored, before op."""
    p = problem

    def letter(name):
        return "C" if p.orders.get(name) == int(Order.HIPBLASLT_ORDER_ROW) else "F"

    memory_a, memory_b = stored(a, p.dtype, letter("a")), stored(b, p.dtype, letter("b"))
    memory_c = stored(np.full((p.batch, p.m, p.n), np.nan) if c is None else c, p.result, letter("c"))
    memory_d = np.zeros(p.batch * p.m * p.n, DTYPES[p.result][0])
    with Call(p) as call:
        status, entries, _ = call.heuristic(handle_, algo_index + 1)
        if status or not entries:
            raise StatusError(f"heuristic: status {status}, {len(entries)} found")
        result = entries[algo_index]
        workspace = np.zeros(workspace_of(result), np.uint8) if workspace_of(result) else None
        status = call.matmul(handle_, alpha, memory_a, memory_b, beta, memory_c, memory_d, algo_of(result), workspace)
        if status:
            raise StatusError(f"hipblasLtMatmul: {Status(status)!r}")
        unwrap(hip.hipStreamSynchronize(None))
    return unstored(memory_d, p.m, p.n, letter("d"))
