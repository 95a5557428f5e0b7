# SPDX-License-Identifier: MIT
"""Kernels compiled for AMD GPUs with no GPU: what the code holds, what it needs, and what is refused."""

import math
import re
import types

import numpy as np
import pytest
from device_kernels import BY_DPP, CALLS, NO_COMPILER, make

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import code_object, device_library
from rocpy.errors import InvalidOperandError, InvalidProblemError, KernelTypeError, LibraryError, OutOfMemoryError

pytestmark = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
SIGNATURE = "void({0}[::1],{0}[::1],int64)"
DPP = re.compile(r"row_sh[lr]:")


def compiled(name, arch, dtype="float32", width=0, threads=256, warp_size=64):
    return coop.compile(make(name, dtype, width, warp_size), SIGNATURE.format(dtype), arch, threads=threads)


def check(name, arch, dtype="float32", width=0):
    code = compiled(name, arch, dtype, width, warp_size=64 if device_library.has_waves_of(arch, 64) else 32)
    assert code.info.scratch_bytes == 0, code.info
    assert code.info.wave_size == (64 if device_library.has_waves_of(arch, 64) else 32)
    assert "s_swappc" not in code.assembly
    assert code.code[:4] == b"\x7fELF"
    if name in BY_DPP:
        assert len(DPP.findall(code.assembly)) >= 4, code.assembly
    return code


# Those of which another takes the same way.
RELATED = {
    "min",
    "max",
    "reduce_named",
    "exclusive_sum",
    "all",
    "merge_sort_keys",
    "discontinuity",
    "store",
    "exchange",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in RELATED else []) for name in CALLS]
)
def test_primitive(name):
    check(name, "gfx942")


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, 16, 32])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201", "gfx1250"])
@pytest.mark.parametrize("name", CALLS)
def test_primitive_everywhere(name, arch, width):
    check(name, arch, width=width)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float64"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", ["sum", "max", "inclusive_sum", "scan_items", "shuffle", "topk_max_keys", "exchange"])
def test_primitive_of_type(name, arch, dtype):
    check(name, arch, dtype)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100", "gfx1201"])
def test_other_architectures(arch):
    check("sum", arch)
    check("scan_items", arch)


FAMILIES = (
    "gfx908",
    "gfx1030",
    "gfx1151",
    "gfx9-4-generic",
    "gfx10-1-generic",
    "gfx10-3-generic",
    "gfx11-generic",
    "gfx12-generic",
)


@pytest.mark.parametrize(
    "arch",
    [pytest.param(arch, marks=[] if arch in FAMILIES else pytest.mark.slow) for arch in device_library.ARCHITECTURES],
)
def test_every_architecture(arch):
    code = check("sum", arch)
    assert code_object.metadata(code.code)["amdhsa.target"] == f"amdgcn-amd-amdhsa--{arch}"
    is_generic = arch.endswith("-generic")
    assert code.code[8] == (4 if is_generic else 3)  # EI_ABIVERSION: code objects of version 6, or 5
    assert (int.from_bytes(code.code[48:52], "little") >> 24 != 0) == is_generic  # the version of the generic target


@pytest.mark.parametrize(("arch", "waves"), [("gfx942", 4), ("gfx1201", 8)])
def test_shared_memory_is_what_the_waves_of_a_block_need(arch, waves):
    own = 4  # the kernel's own shared array, where it is used

    def lds_bytes(name, *options, **named):
        return compiled(name, arch, *options, warp_size=256 // waves, **named).info.lds_bytes

    assert lds_bytes("sum") == 4 * waves
    assert lds_bytes("sum", "float64") == 8 * waves
    assert lds_bytes("scan_prefix") == 4 * waves + own + (16 - own) + 4
    assert lds_bytes("scan_total") == 4 * waves
    assert lds_bytes("sum", width=16) == 0
    assert lds_bytes("exchange") == 256 * 4 * 4
    assert lds_bytes("shuffle", threads=128) == 128 * 4


def test_additions_are_fused_with_the_moves_between_lanes():
    assert len(re.findall(r"v_add_f32_dpp .* row_shl:", compiled("sum", "gfx942").assembly)) >= 4


def test_the_same_kernel_gives_the_same_code():
    kernel, signature = make("sum"), SIGNATURE.format("float32")
    assert coop.compile(kernel, signature, cache=False).code == coop.compile(kernel, signature, cache=False).code


def test_results_are_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(device_library, "cache_folder", lambda: tmp_path)
    kernel, signature = make("broadcast"), SIGNATURE.format("float32")
    first = coop.compile(kernel, signature)
    assert {path.suffix for path in tmp_path.iterdir()} == {".bc", ".kernel"}
    monkeypatch.setattr(device_library, "link", None)  # nothing is linked again
    assert coop.compile(kernel, signature) == first


def test_shared_memory_is_that_of_the_call_whatever_was_compiled_before():
    def exchanger(mode, count):
        @coop.jit
        def kernel(out):
            items = coop.ThreadData(count, np.int32)
            for k in range(count):
                items[k] = k
            moved = coop.exchange(coop.this_block(), items, mode)
            coop.store(coop.this_block(), out, moved)

        return kernel

    for mode, count in (("blocked_to_striped", 4), ("blocked_to_striped", 2), ("striped_to_blocked", 4)):
        code = coop.compile(exchanger(mode, count), "void(int32[::1])", threads=64, cache=False)
        assert code.info.lds_bytes == 4 * count * 64, (mode, count)


def test_arguments_are_described():
    code = compiled("sum", "gfx942")
    assert [name for name, _ in code.arguments] == ["x", "out", "n"]
    # Address, extent and stride of two arrays, and a number; what a launch adds comes behind.
    offsets = [each[".offset"] for each in code_object.metadata(code.code)["amdhsa.kernels"][0][".args"]]
    assert offsets[:8] == [0, 8, 16, 24, 32, 40, 48, 56]
    assert code_object.metadata(code.code)["amdhsa.target"] == "amdgcn-amd-amdhsa--gfx942"


def test_threads_bound_the_block():
    assert compiled("sum", "gfx942", threads=128).info.most_threads == 128


@coop.jit
def softmax(x, out):
    """Softmax of the rows, a block each."""
    block = coop.this_block()
    row, first, step = coop.blockIdx.x, coop.threadIdx.x, coop.blockDim.x
    top = np.float32(-np.inf)
    for j in range(first, x.shape[1], step):
        top = max(top, x[row, j])
    top = coop.max(block, top, all=True)
    total = np.float32(0)
    for j in range(first, x.shape[1], step):
        total += np.float32(math.exp(x[row, j] - top))
    total = coop.sum(block, total, all=True)
    for j in range(first, x.shape[1], step):
        out[row, j] = np.float32(math.exp(x[row, j] - top)) / total


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_softmax(arch):
    code = coop.compile(softmax, "void(float32[:,::1],float32[:,::1])", arch)
    assert code.info.scratch_bytes == 0
    assert "v_exp_f32" in code.assembly


@coop.jit
def with_gamma(x, out):
    out[coop.threadIdx.x] = math.gamma(x[coop.threadIdx.x])


@coop.jit
def allocating(x, out):
    held = np.zeros(5, np.float32)
    out[0] = held[coop.threadIdx.x]


@coop.jit
def returning(x, out):
    return x[0]


@coop.jit
def much_shared(x, out):
    held = coop.shared.array(20000, np.float32)
    held[coop.threadIdx.x] = x[coop.threadIdx.x]
    coop.syncthreads()
    out[coop.threadIdx.x] = held[coop.threadIdx.x ^ 1]


@coop.jit
def with_functions(x, out):
    i = coop.threadIdx.x
    out[i] = math.exp(x[i]) + np.log(x[i]) * math.sqrt(x[i]) - math.sin(x[i]) + math.tanh(x[i]) / math.erf(x[i])
    out[i] += math.floor(x[i]) + math.fabs(x[i]) + math.log1p(x[i])


@pytest.mark.filterwarnings("ignore:kernel with_functions computes in float64")  # floor gives an integer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_numbers(dtype):
    code = coop.compile(with_functions, f"void({dtype}[::1],{dtype}[::1])")
    assert code.info.scratch_bytes == 0
    assert "s_swappc" not in code.assembly


TOOLS = types.ModuleType("tools")
TOOLS.doubled = coop.jit(lambda value: value + value)


def test_a_kernel_of_a_module_is_compiled_for_the_target_of_its_caller():
    @coop.jit
    def doubling(x):
        x[coop.threadIdx.x] = TOOLS.doubled(x[coop.threadIdx.x])

    x = np.arange(4.0)
    doubling[1, 4](x)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert "fadd" in coop.compile(doubling, "void(float64[::1])").llvm
    doubling[1, 4](x)
    assert x.tolist() == [0.0, 4.0, 8.0, 12.0]


@pytest.mark.parametrize(
    ("kernel", "error", "told"),
    [
        (with_gamma, KernelTypeError, "gamma"),
        (allocating, KernelTypeError, "memory is allocated here"),
        (returning, KernelTypeError, "returns nothing"),
        (much_shared, OutOfMemoryError, "much_shared"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(kernel, error, told):
    with pytest.raises(error, match=told):
        coop.compile(kernel, "void(float32[::1],float32[::1])", cache=False)


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"signature": "void(float32[::1])"}, InvalidProblemError, "has 1 arguments"),
        ({"signature": "void(no_type)"}, InvalidProblemError, "cannot be read"),
        ({"signature": "int32(float32[::1],float32[::1])"}, InvalidProblemError, "returns nothing"),
        ({"arch": "gfx9999"}, InvalidProblemError, "gfx942"),
        ({"threads": 2000}, InvalidProblemError, "1024"),
        ({"kernel": math.sqrt}, InvalidOperandError, "coop.jit"),
    ],
)
def test_mistakes_are_named(given, error, told):
    call = {"kernel": with_gamma, "signature": "void(float32[::1],float32[::1])", "arch": "gfx942"} | given
    with pytest.raises(error, match=re.escape(told)):
        coop.compile(**call)


def test_a_type_error_names_the_line():
    @coop.jit
    def wrong(x, out):
        out[0] = coop.sum(coop.this_block(), x)

    with pytest.raises(KernelTypeError, match=r"pass one element.*test_code_objects.py:\d+"):
        coop.compile(wrong, "void(float32[::1],float32[::1])")


def test_what_is_no_code_object_is_told():
    with pytest.raises(LibraryError, match="not a code object"):
        code_object.metadata(b"nothing of the kind")


def test_headers_compile_by_themselves(tmp_path):
    """As hipRTC would: the headers alone, and a kernel that uses them."""
    source = """#include "rocpy_coop.h"
extern "C" __attribute__((global)) void total(const float *x, float *out) {
  const unsigned rank = rocpy::Block<256>::rank();
  const float sum = rocpy::block_sum<float, 256>(x[rank]);
  const float before = rocpy::block_exclusive_scan<float, 256>(x[rank], rocpy::Plus{}, 0.0f);
  out[rank] = sum + before + rocpy::warp_reduce<float, 16>(x[rank], rocpy::Max{});
}
"""
    code = device_library.bitcode(source, "gfx942")
    assert code[:2] == b"BC"
    assert set(coop.headers()) >= {"rocpy_coop.h", "rocpy_coop_lanes.h"}
    for text in coop.headers().values():
        assert not re.search(r"#include\s*<", text)


@pytest.mark.parametrize("damaged", [b"", b"BC", b"rocpy kept file 1 0 \n"])
def test_damaged_files_are_made_anew(tmp_path, monkeypatch, damaged):
    monkeypatch.setattr(device_library, "cache_folder", lambda: tmp_path)
    kernel, signature = make("broadcast"), SIGNATURE.format("float32")
    first = coop.compile(kernel, signature)
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.suffix for path in whole} == {".bc", ".kernel"}
    for path in whole:
        path.write_bytes(damaged)
    assert coop.compile(kernel, signature) == first
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == whole


@pytest.mark.parametrize(
    ("arch", "said"), [("gfx942:sramecc+:xnack-", "pass 'gfx942'"), ("sm_90", "generated for gfx906")]
)
def test_an_architecture_that_there_is_not(arch, said):
    with pytest.raises(InvalidProblemError, match=said):
        check("sum", arch)


@pytest.mark.filterwarnings("ignore:kernel kernel computes in float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_python_and_of_numpy_in_one_kernel(dtype):
    @coop.jit
    def kernel(x, y, out):
        i = coop.threadIdx.x
        a, b = x[i], y[i]
        out[i] = a // b + a % b + divmod(a, b)[0] + math.floor(a) + np.floor(a) + math.ceil(a) + np.ceil(a)
        out[i] += math.trunc(a) + np.trunc(a) + math.sqrt(a) + np.sqrt(a) + math.exp(a) + np.exp(a) + math.sin(a)
        out[i] += np.sin(a) + math.fabs(a) + np.fabs(a) + math.expm1(a) + np.expm1(a) + math.tanh(a) + np.tanh(a)

    compiled = coop.compile(kernel, f"void({dtype}[::1],{dtype}[::1],{dtype}[::1])", threads=64)
    assert compiled.info.wave_size == 64
