# SPDX-License-Identifier: MIT
"""Generated HIP kernels: the source that a GPU gets, run block by block on the CPU, and compiled for AMD by a clang."""

import ctypes
import importlib.util
import io
import random
import re
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from code_platform import HERE
from elftools.elf.elffile import ELFFile

import rocpy
from rocpy.epilogues.expressions.resolve import resolve
from rocpy.epilogues.lowering.hip import block_threads, kernel_source
from rocpy.runtime.kernels import compilation
from rocpy.testing import expressions
from rocpy.testing.tolerance import compare, ulp

COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
needs_clang = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no clang with AMD's back end: pip install ziglang"
)
ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")


def draw(count, seed=0):
    """Random functions: text, inputs, the epilogue, and its kernel."""
    chooser = random.Random(seed)
    made = []
    for place in range(count):
        text, names = expressions.random_text(chooser.randrange, 1 + place % 8)
        epilogue = rocpy.epilogue(expressions.function_of(text, names))
        resolved = resolve(epilogue.expression, "float32", dict.fromkeys(names, ("float32", 2)))
        made.append((names, epilogue, kernel_source(resolved, f"kernel{place}")))
    return made


def placed(array):
    """The array in memory of the device."""
    made = rocpy.Buffer(array.shape, array.dtype.name)
    made.copy_from(array)
    return made


def operands(rng, shape):
    """A product, and inputs of each kind by name."""
    shapes = {"row": shape[2:], "column": (shape[1], 1), "full": shape, "scalar": ()}
    arrays = {name: rng.standard_normal(own).astype(np.float32) for name, own in shapes.items()}
    return (3 * rng.standard_normal(shape)).astype(np.float32), arrays


def together(kernels):
    """One source of several kernels: the helpers once."""
    first, *others = (kernel.source for kernel in kernels)
    return first + "\n".join(source[source.index("// ") :] for source in others)


def built(tmp_path, kernels):
    source = tmp_path / "kernels.cpp"
    runs = "\n".join(f"RUN({kernel.name})" for kernel in kernels)
    source.write_text(f'#include "grid.hpp"\n{together(kernels)}\n{runs}\n', encoding="utf-8")
    library = tmp_path / "kernels.so"
    command = [COMPILER, "-std=c++17", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC"]
    command += ["-ffp-contract=off", f"-I{HERE}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def call(library, kernel, x, inputs, outs, blocks=None):
    """Launch on arrays with three axes; ``blocks`` are fewer than the rows and batch entries, if given."""
    batch, rows, columns = outs[0].shape
    keep = [np.ascontiguousarray(x), *inputs, *outs]
    arguments = [ctypes.c_void_p(keep[0].ctypes.data)]
    for array in inputs:
        wide = np.broadcast_to(array, outs[0].shape)
        arguments.append(ctypes.c_void_p(array.ctypes.data))
        arguments += [ctypes.c_longlong(step // array.itemsize) for step in wide.strides]
    arguments += [ctypes.c_void_p(out.ctypes.data) for out in outs]
    grid = kernel.grid(batch, rows, columns) if blocks is None else (kernel.grid(1, 1, columns)[0], *blocks)
    arguments += map(ctypes.c_longlong, (batch, rows, columns, grid[2], grid[1]))
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
    run = getattr(library, f"{kernel.name}_run")
    assert run((ctypes.c_uint * 3)(*grid), ctypes.c_uint(kernel.threads), pointers, None) == 0


def check(epilogue, x, inputs, out):
    """Compare a result in float32 with the expression on float64, where that is known to lie."""
    ((value, error),) = expressions.bounded(epilogue.expression, x.astype(np.float64), 0.0, inputs)
    known = np.isfinite(error)
    bound = np.where(known, error + 0.5 * ulp(np.abs(value) + np.where(known, error, 0), np.float32), 1.0)
    found = compare(np.where(known, out, 0), np.where(known, value, 0), bound)
    assert found.ok, f"{found.message}\n{epilogue}"


@needs_compiler
def test_kernels_on_the_cpu(tmp_path, rng):
    drawn = draw(40)
    library = built(tmp_path, [kernel for *_, kernel in drawn])
    x, arrays = operands(rng, (2, 5, 7))
    for _names, epilogue, kernel in drawn:
        inputs = [arrays[name] for name in kernel.inputs]
        out = np.empty((2, 5, 7), np.float32)
        call(library, kernel, x, inputs, [out])
        check(epilogue, x, dict(zip(kernel.inputs, inputs, strict=True)), out)


@needs_compiler
def test_a_grid_smaller_than_the_result(tmp_path, rng):
    kernel = kernel_source(resolve(rocpy.epilogue(lambda x: x * 2).expression, "float32", {}), threads=64)
    assert kernel.grid(70000, 100000, 65) == (2, 65535, 65535)
    x, out = rng.standard_normal((3, 5, 65)).astype(np.float32), np.zeros((3, 5, 65), np.float32)
    call(built(tmp_path, [kernel]), kernel, x, [], [out], blocks=(2, 2))
    np.testing.assert_array_equal(out, x * 2)
    assert [block_threads(columns) for columns in (1, 64, 65, 300)] == [64, 64, 128, 256]


@needs_compiler
def test_types_of_memory(tmp_path, rng):
    f = rocpy.epilogue(
        lambda x, b, m: (np.where(m, x + b, 0.0).astype(x.dtype), np.rint(x * 50).clip(-128, 127).astype(np.int8))
    )
    types = {"b": ("bfloat16", 2), "m": ("bool", 2)}
    kernel = kernel_source(resolve(f.expression, "float16", types))
    x = rng.standard_normal((1, 4, 6)).astype(np.float32)
    b, m = rng.standard_normal(6).astype(ml_dtypes.bfloat16), rng.random((1, 4, 6)) < 0.5
    outs = np.empty((1, 4, 6), np.float16), np.empty((1, 4, 6), np.int8)
    call(built(tmp_path, [kernel]), kernel, x, [{"b": b, "m": m}[name] for name in kernel.inputs], outs)
    np.testing.assert_array_equal(outs[0], np.where(m, x + b.astype(np.float32), 0).astype(np.float16))
    np.testing.assert_array_equal(outs[1], np.clip(np.rint(x * np.float32(50)), -128, 127).astype(np.int8))


@needs_compiler
def test_int32_saturates_to_its_limits(tmp_path):
    f = rocpy.epilogue(lambda x: (x.astype(np.int32), x.astype(np.int32) * 1.0, np.logical_not(x).astype(np.int32)))
    kernel = kernel_source(resolve(f.expression, "float32", {}))
    x = np.array([[[3e9, -3e9, 2147483520.0, np.inf, -np.inf, 1.9, -1.9, 0.0, np.nan]]], np.float32)
    outs = [np.empty(x.shape, dtype) for dtype in (np.int32, np.float32, np.int32)]
    call(built(tmp_path, [kernel]), kernel, x, [], outs)
    whole = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64))), -(2**31), 2**31 - 1)
    for out, wanted in zip(outs, (whole, whole.astype(np.float32), x == 0), strict=True):
        np.testing.assert_array_equal(out, wanted)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_eight_bits_are_those_of_ml_dtypes(tmp_path, rng, dtype):
    kernel = kernel_source(resolve(rocpy.epilogue(lambda x: (x * 1).astype(dtype)).expression, "float32", {}))
    wanted = np.dtype(getattr(ml_dtypes, dtype))
    whole = np.arange(256, dtype=np.uint8).view(wanted).astype(np.float32)
    whole = np.sort(whole[np.isfinite(whole)])
    # Every value, every tie between neighbours, and what lies beside a tie; then what is too large.
    ties = (whole[1:] + whole[:-1]) / 2
    sides = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
    many = rng.standard_normal(3000) * 2.0 ** rng.integers(-24, 20, 3000)
    x = np.concatenate([whole, ties, *sides, many, [0.0, -0.0, 1e9, -1e9, np.inf, -np.inf, np.nan]]).astype(np.float32)
    x = x.reshape(1, 1, -1)
    out = np.empty(x.shape, wanted)
    call(built(tmp_path, [kernel]), kernel, x, [], [out])
    largest = float(ml_dtypes.finfo(wanted).max)
    known = ~np.isnan(x)
    np.testing.assert_array_equal(
        out[known].view(np.uint8), np.clip(x, -largest, largest).astype(wanted)[known].view(np.uint8)
    )
    assert np.isnan(out[~known].astype(np.float32)).all()


@needs_compiler
def test_every_second_column(tmp_path, rng):
    gated = rocpy.epilogue(lambda x, row: (np.maximum(x[..., ::2], 0) + row) * x[..., 1::2])
    back = gated.vjp().expression
    forward = kernel_source(resolve(gated.expression, "float32", {"row": ("float32", 2)}), "forward")
    read = dict.fromkeys(("row", "grad"), ("float32", 2))
    backward = resolve(back, "float32", read)
    x = rng.integers(-3, 4, (2, 3, 10)).astype(np.float32)
    row = rng.integers(-3, 4, 5).astype(np.float32)
    out = np.empty((2, 3, 5), np.float32)
    assert "pick" in {node.op for node in gated.expression.nodes}
    library = built(tmp_path, [forward])
    call(library, forward, x, [row], [out])
    np.testing.assert_array_equal(out, gated.evaluate(x, row=row))
    with pytest.raises(rocpy.UnsupportedError, match="differ in width"):
        kernel_source(backward)


# ---- for AMD ----


@needs_clang
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile_for_amd(tmp_path, arch):
    kernels = [kernel for *_, kernel in draw(12)]
    text = compilation.isa_text(together(kernels), arch, tmp_path)
    assert text.count(".amdhsa_kernel kernel") == 12
    assert not re.search(r"s_swappc|scratch_(load|store)", text)
    sizes = re.findall(r"\.amdhsa_private_segment_fixed_size (\d+)", text)
    assert sizes == ["0"] * 12
    assert set(re.findall(r"\.max_flat_workgroup_size: (\d+)", text)) == {"256"}


@needs_clang
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_code_object_has_one_kernel(tmp_path, arch):
    f = rocpy.epilogue(lambda x, b, m: (np.tanh(x + b) * m, (x * 8).astype("float8_e4m3fn")))
    types = {"b": ("bfloat16", 2), "m": ("bool", 2)}
    kernel = kernel_source(resolve(f.expression, "float32", types), x_type="float32")
    code = compilation.code_object(kernel.source, kernel.name, arch, using=compilation.clang(), folder=tmp_path)
    assert code == compilation.code_object(kernel.source, kernel.name, arch, using=compilation.clang(), folder=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 1
    elf = ELFFile(io.BytesIO(code))
    # The loader goes by the machine in the ELF header: EF_AMDGPU_MACH of LLVM's AMDGPU usage.
    machine = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx1100": 0x41, "gfx1201": 0x4E}[arch]
    assert elf["e_machine"] == "EM_AMDGPU"
    assert elf["e_flags"] & 0xFF == machine
    symbols = {one.name for one in elf.get_section_by_name(".dynsym").iter_symbols()}
    assert {name for name in symbols if name.endswith(".kd")} == {"rocpy_epilogue.kd"}


@needs_clang
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_code_objects_run_on_the_emulator(tmp_path, rng, arch):
    x, arrays = operands(rng, (2, 3, 70))
    drawn = draw(8, seed=3)
    code = compilation.code_object(
        together([one for *_, one in drawn]), "k", arch, using=compilation.clang(), folder=tmp_path
    )
    if rocpy.platform.current().name != "host":
        pytest.skip("a GPU runs its own code")
    try:
        module = rocpy.Module.from_code(code)
    except rocpy.UnsupportedError:
        pytest.skip("the host platform emulates no AMD instructions")
    for _names, epilogue, kernel in drawn:
        inputs = [arrays[name] for name in kernel.inputs]
        out = placed(np.full(x.shape, np.nan, np.float32))
        arguments = [placed(x)]
        for array in inputs:
            wide = np.broadcast_to(array, x.shape)
            arguments += [placed(array), *(np.int64(step // array.itemsize) for step in wide.strides)]
        grid = kernel.grid(*x.shape)
        extents = map(np.int64, (*x.shape, grid[2], grid[1]))
        module.kernel(kernel.name).launch(grid, kernel.threads, *arguments, out, *extents)
        rocpy.Device.current().synchronize()
        check(epilogue, x, dict(zip(kernel.inputs, inputs, strict=True)), out.to_numpy())


@needs_clang
def test_what_does_not_compile_is_said(tmp_path):
    with pytest.raises(rocpy.LibraryError, match="k.hip does not compile"):
        compilation.code_object("this is no program", "k", "gfx942", using=compilation.clang(), folder=tmp_path)


def test_what_kernels_do_not_do():
    for function, x in (
        (lambda x: x * 2, "float64"),
        (lambda x: x.astype("float64") * 2, "float32"),
        (lambda x: (x * 2).astype("uint8") + x, "float32"),
    ):
        with pytest.raises(rocpy.UnsupportedError):
            kernel_source(resolve(rocpy.epilogue(function).expression, x, {}))
