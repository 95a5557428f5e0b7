# SPDX-License-Identifier: MIT
"""Generated HIP kernels: run on the CPU with a loop in the place of a grid, compiled for AMD where a clang can."""

import ctypes
import importlib.util
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

import rocpy
from rocpy.epilogues._hip import kernel_source
from rocpy.epilogues._resolve import resolve
from rocpy.testing import expressions
from rocpy.testing.tolerance import compare, ulp

ON_THE_CPU = """
#define EPILOGUE_ON_THE_CPU
#define KERNEL extern "C"
#define DEVICE static inline
#define FIRST 0LL
#define STEP 1LL
"""
COMPILER = shutil.which("g++") or shutil.which("clang++")


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


def together(kernels, prelude=""):
    """One source of several kernels: the helpers once."""
    first, *others = (kernel.source for kernel in kernels)
    return prelude + first + "\n".join(source[source.index("// ") :] for source in others)


def built(tmp_path, kernels):
    source = tmp_path / "kernels.cpp"
    source.write_text(together(kernels, ON_THE_CPU), encoding="utf-8")
    library = tmp_path / "kernels.so"
    command = [
        COMPILER,
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Werror",
        "-Wno-unused",
        "-shared",
        "-fPIC",
        "-ffp-contract=off",
    ]
    subprocess.run([*command, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def call(library, kernel, x, inputs, outs):
    arguments = [x.ctypes.data_as(ctypes.c_void_p)]
    for array in inputs:
        wide = np.broadcast_to(array, x.shape)
        steps = [ctypes.c_longlong(step // array.itemsize) for step in wide.strides]
        arguments += [array.ctypes.data_as(ctypes.c_void_p), *steps]
    arguments += [out.ctypes.data_as(ctypes.c_void_p) for out in outs]
    getattr(library, kernel.name)(*arguments, *map(ctypes.c_longlong, x.shape))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_kernels_on_the_cpu(tmp_path, rng):
    drawn = draw(40)
    library = built(tmp_path, [kernel for *_, kernel in drawn])
    shapes = {"row": (7,), "column": (5, 1), "full": (5, 7), "scalar": ()}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    x = (3 * rng.standard_normal((5, 7))).astype(np.float32)
    for _names, epilogue, kernel in drawn:
        inputs = [arrays[name] for name in kernel.inputs]
        out = np.empty((5, 7), np.float32)
        call(library, kernel, x, inputs, [out])
        ((value, error),) = expressions.bounded(
            epilogue.expression, x.astype(np.float64), 0.0, dict(zip(kernel.inputs, inputs, strict=True))
        )
        known = np.isfinite(error)
        bound = np.where(known, error + 0.5 * ulp(np.abs(value) + np.where(known, error, 0), np.float32), 1.0)
        found = compare(np.where(known, out, 0), np.where(known, value, 0), bound)
        assert found.ok, f"{found.message}\n{epilogue}"


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_types_of_memory(tmp_path, rng):
    import ml_dtypes

    f = rocpy.epilogue(
        lambda x, b, m: (np.where(m, x + b, 0.0).astype(x.dtype), np.rint(x * 50).clip(-128, 127).astype(np.int8))
    )
    types = {"b": ("bfloat16", 2), "m": ("bool", 2)}
    kernel = kernel_source(resolve(f.expression, "float16", types))
    library = built(tmp_path, [kernel])
    x = rng.standard_normal((4, 6)).astype(np.float32)
    b, m = rng.standard_normal(6).astype(ml_dtypes.bfloat16), rng.random((4, 6)) < 0.5
    outs = np.empty((4, 6), np.float16), np.empty((4, 6), np.int8)
    call(library, kernel, x, [{"b": b, "m": m}[name] for name in kernel.inputs], outs)
    np.testing.assert_array_equal(outs[0], np.where(m, x + b.astype(np.float32), 0).astype(np.float16))
    np.testing.assert_array_equal(outs[1], np.clip(np.rint(x * np.float32(50)), -128, 127).astype(np.int8))


@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no clang with AMD's back end: pip install ziglang"
)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_kernels_compile_for_amd(tmp_path, arch):
    source = tmp_path / "kernels.hip"
    source.write_text(together([kernel for *_, kernel in draw(12)]), encoding="utf-8")
    command = [sys.executable, "-m", "ziglang", "clang", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
    command += ["-std=c++17", "-O3", f"--offload-arch={arch}", "-S", str(source), "-o", str(tmp_path / "kernels.s")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "kernels.s").read_text(encoding="utf-8")
    assert text.count(".amdhsa_kernel kernel") == 12
    assert "s_swappc" not in text  # no calls
    assert all(line.split()[-1] == "0" for line in text.splitlines() if ".amdhsa_private_segment_fixed_size" in line)


def test_what_kernels_do_not_do():
    for function, x in (
        (lambda x: x * 2, "float64"),
        (lambda x: x[..., ::2], "float32"),
        (lambda x: x.astype("float64") * 2, "float32"),
        (lambda x: (x * 2).astype("float8_e4m3fn"), "float32"),
    ):
        with pytest.raises(rocpy.UnsupportedError):
            kernel_source(resolve(rocpy.epilogue(function).expression, x, {}))
