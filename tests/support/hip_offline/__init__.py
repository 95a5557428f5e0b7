# SPDX-License-Identifier: MIT
"""numba-hip with no ROCm and no GPU: what it takes of a ROCm is made here, and kernels become code objects.

Everything that stands in is named: two compression libraries, hipRTC's header, comgr's compilers (zig's clang and
linker, and numba-hip's own LLVM), and the device that kernels are compiled for.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import subprocess
import tempfile
import types
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rocpy.cooperative.amdgpu import device_library

_HERE = Path(__file__).resolve().parent
_VERSION = "AMDROCM_SYSDEPS_1.0 { global: *; };\n"
_TRIPLE = "amdgcn-amd-amdhsa--"
_OPTIONS = ("-std=c++17", "-O3", "-fgpu-rdc", "-nogpuinc", "-nogpulib", "-fuse-cuid=none", "-ffp-contract=off", "-w")
# Not the device library's, so that the tests see that a kernel's parts are compiled for one.
OBJECT_VERSION = 6


@functools.cache
def start() -> types.SimpleNamespace:
    """Import numba-hip and return it, and the device that is made up, whose `amdgpu_arch` is to be set."""
    folder = Path(tempfile.mkdtemp(prefix="rocpy-hip-"))
    for name in ("z", "zstd"):
        ctypes.CDLL(str(_sysdeps(folder, name)), ctypes.RTLD_GLOBAL)
    _rocm_tree(folder / "rocm")
    from rocm.bindings.clang import cindex

    cindex.Config.set_compatibility_check(False)  # the parser's bindings are newer than the library, and need not be
    _comgr()
    from numba import hip
    from numba.hip import dispatcher

    device = types.SimpleNamespace(amdgpu_arch="")
    dispatcher.get_current_device = lambda: device
    return types.SimpleNamespace(hip=hip, device=device)


def _sysdeps(folder: Path, name: str) -> Path:
    """Compile a library that LLVM is linked with."""
    script, library = folder / "version.map", folder / f"librocm_sysdeps_{name}.so.1"
    script.write_text(_VERSION, encoding="utf-8")
    command = [device_library.zig(), "cc", "-shared", "-fPIC", "-O1", f"-Wl,--version-script={script}"]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library), str(_HERE / f"sysdeps_{name}.c")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def _rocm_tree(root: Path) -> None:
    """Lay out the little of a ROCm that numba-hip looks into: the parser, clang's own headers, hipRTC's header."""
    import clang.native

    library = Path(clang.native.__path__[0]) / "libclang.so"
    headers = root / "llvm" / "lib" / "clang" / "23"
    headers.mkdir(parents=True)
    (headers / "include").symlink_to(Path(device_library.zig()).parent / "lib" / "include")
    (root / "include").mkdir()
    os.environ["ROCM_PATH"] = os.environ["ROCM_HOME"] = str(root)
    os.environ["NUMBA_HIP_LIBCLANG_FILE"] = str(library)
    os.environ["NUMBA_HIP_USE_DEVICE_LIB_CACHE"] = "0"
    os.environ["HIP_PYTHON_HIPRTC_RUNTIME_HEADER"] = str(_HERE / "runtime_header.h")


def _comgr() -> None:
    """Replace what numba-hip asks comgr for."""
    from rocm import comgr

    comgr.get_isa_metadata_all = lambda: {f"{_TRIPLE}{arch}": {} for arch in device_library.ARCHITECTURES}
    comgr.compile_hip_to_bc = _bitcode
    comgr.compile_bc = _code_object


def _bitcode(source, isa_name, extra_opts=(), **_options):
    """Compile HIP C++ into bitcode."""
    arch = isa_name.removeprefix(_TRIPLE)
    command = [device_library.zig(), "clang", "-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", *_OPTIONS]
    command += [f"-mcode-object-version={OBJECT_VERSION}", *extra_opts, "-emit-llvm", "-c", "-o", "-", "-"]
    done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return done.stdout, None, None


def _code_object(bitcode, isa_name, **_options):
    """Optimise, compile and link bitcode."""
    return device_library.link([_object(bitcode, isa_name.removeprefix(_TRIPLE))]), "", None


def _object(bitcode: bytes, arch: str) -> bytes:
    """Compile bitcode with numba-hip's LLVM."""
    from numba.hip import amdgcn
    from numba.hip.util import llvmutils
    from rocm.bindings.llvm.c import core, target, targetmachine

    target.LLVMInitializeAllAsmPrinters()
    machine = amdgcn.AMDGPUTargetMachine(arch)
    optimised = machine.optimize_module(bitcode, to_bc=True)
    context = core.LLVMContextCreate()
    (module,) = llvmutils._get_module_in_context(context, optimised)
    code, message = Path(tempfile.mkdtemp(prefix="rocpy-hip-")) / "kernel.o", bytearray(8)
    kind = targetmachine.LLVMCodeGenFileType.LLVMObjectFile
    status = targetmachine.LLVMTargetMachineEmitToFile(
        machine._target_machine, module, str(code).encode(), kind, message
    )
    if status:
        raise RuntimeError(ctypes.string_at(int.from_bytes(message, "little")).decode())
    core.LLVMContextDispose(context)
    return code.read_bytes()


@functools.cache
def _worker(arch: str) -> ProcessPoolExecutor:
    # A process for each architecture: numba-hip keeps functions with the one that they were first compiled for.
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (arch,))


def _begin(arch: str) -> None:
    start().device.amdgpu_arch = arch


def compile_kernel(arch: str, make, *arguments) -> tuple[bytes, str]:
    """Return the code object of a kernel, and the kernel's name in it.

    `make` is a function of a module, so that another process finds it: it is given numba-hip and `arguments`, and
    returns a function of ``hip.jit`` and a signature.
    """
    return _worker(arch).submit(_compiled, make, arguments).result()


def _compiled(make, arguments) -> tuple[bytes, str]:
    """Do what a launch does before it loads the code."""
    from numba.core import sigutils
    from numba.hip.dispatcher import _Kernel

    started = start()
    dispatcher, signature = make(started.hip, *arguments)
    types_, _ = sigutils.normalize_signature(signature)
    kernel = _Kernel(dispatcher.py_func, types_, **dispatcher.targetoptions)
    return kernel.library.get_codeobj(started.device.amdgpu_arch), kernel.entry_name
