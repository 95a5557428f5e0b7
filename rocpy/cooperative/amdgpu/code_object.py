# SPDX-License-Identifier: MIT
"""``coop.compile``: kernels as code objects for AMD GPUs, made with no GPU, and what a code object says of itself."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocpy._fp_environment import default_arithmetic
from rocpy._messages.distribution import install_command
from rocpy.cooperative.amdgpu import device_library
from rocpy.cooperative.kernel.faults import warn_of_float64
from rocpy.cooperative.kernel.kernel import Kernel
from rocpy.cooperative.kernel.limits import MOST_THREADS
from rocpy.cooperative.kernel.mode import mode_of
from rocpy.cooperative.kernel.requirements import importing_numba
from rocpy.errors import InvalidOperandError, InvalidProblemError, LibraryError, UnsupportedError

_METADATA = 32  # NT_AMDGPU_METADATA: a note of the vendor "AMDGPU" whose text is a map in MessagePack
_OCCUPANCY = re.compile(r"; Occupancy: (\d+)")


@dataclass(frozen=True)
class KernelInfo:
    """The resources that a compiled kernel needs, according to its code object and the compiler.

    Attributes
    ----------
    name
        Name in the code object.
    vector_registers, scalar_registers, accumulation_registers
        Registers of a wave: VGPRs, SGPRs, AGPRs.
    lds_bytes
        Shared memory of a block, without the dynamic part.
    scratch_bytes
        Memory of a thread in addition to its registers; ideally 0.
    wave_size
        Lanes of a wave.
    waves
        Waves that fit on a SIMD unit, given the kernel's registers and shared memory.
    argument_bytes
        Size of its arguments in bytes, including those that a launch adds.
    most_threads
        Maximum number of threads in a block.
    """

    name: str
    vector_registers: int
    scalar_registers: int
    accumulation_registers: int
    lds_bytes: int
    scratch_bytes: int
    wave_size: int
    waves: int
    argument_bytes: int
    most_threads: int


@dataclass(frozen=True)
class CodeObject:
    """A kernel compiled for one architecture; created by `compile`.

    Attributes
    ----------
    code
        ELF file that ``rocpy.Module.from_code`` and HIP load.
    name
        Name of the kernel in it.
    arch
        Architecture.
    arguments
        Names and types of the arguments. In memory an array is its address, its extents and its strides in bytes, 8
        bytes each; a number is itself, a complex number two numbers.
    info
        Registers, shared memory, scratch, waves.
    written
        Paths of the arguments that the kernel may write to: an argument's number, and the index in it for each tuple.
    llvm, assembly
        The kernel as LLVM IR and as assembly, as text.
    """

    code: bytes
    name: str
    arch: str
    arguments: tuple[tuple[str, str], ...]
    info: KernelInfo
    llvm: str
    assembly: str
    written: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return f"<code object {self.name} for {self.arch}: {len(self.code)} bytes>"


@default_arithmetic  # the compiler rounds literals and folds constants
def compile(  # noqa: A001 - read as coop.compile
    kernel: Kernel, signature: Any, arch: str = "gfx942", *, threads: int = MOST_THREADS, cache: bool = True
) -> CodeObject:
    """Compile a kernel for an AMD GPU; no GPU and no ROCm are needed.

    Parameters
    ----------
    kernel
        A kernel of `jit`; the same source runs on the CPU.
    signature
        Types of the arguments, in Numba's notation: ``"void(float32[:,:],float32[:])"``, or a tuple of Numba's types.
        ``float32[:,::1]`` promises contiguous rows, which saves arithmetic.
    arch
        ``gfx906``, ``gfx908``, ``gfx90a``, ``gfx942``, ``gfx950``, ``gfx1010`` to ``gfx1013``, ``gfx1030`` to
        ``gfx1036``, ``gfx1100`` to ``gfx1103``, ``gfx1150`` to ``gfx1153``, ``gfx1200``, ``gfx1201``, ``gfx1250``; or a
        family of cards, whose code runs on each of them: ``gfx9-generic``, ``gfx9-4-generic``, ``gfx10-1-generic``,
        ``gfx10-3-generic``, ``gfx11-generic``, ``gfx12-generic``.
    threads
        Maximum number of threads in a block: a lower number leaves more registers to each and needs less shared memory
        for some primitives.
    cache
        Whether to cache the result on disk, in the user's cache folder.

    Returns
    -------
    CodeObject
        With ``code``, the bytes to load, and ``info``.

    Warns
    -----
    RocpyWarning
        The kernel's arrays are float32, but a literal or an integer makes it compute in float64; the warning names the
        first such line. ``coop.jit(float="float32")`` keeps it in float32.

    Raises
    ------
    KernelTypeError
        The kernel cannot be compiled for these types, or uses something that a GPU lacks.
    InvalidProblemError
        The signature, the architecture or the number of threads is invalid.
    UnsupportedError
        Numba or ziglang, which the extra ``cooperative`` installs, is missing.
    OutOfMemoryError
        A block needs more shared memory than the architecture has.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def scale(x, out, factor):
    ...     i = coop.grid(1)
    ...     if i < x.shape[0]:
    ...         out[i] = x[i] * factor
    >>> compiled = coop.compile(scale, "void(float32[::1],float32[::1],float32)", arch="gfx942")
    >>> compiled.info.wave_size, compiled.info.scratch_bytes
    (64, 0)
    """
    if not isinstance(kernel, Kernel):
        raise InvalidOperandError(f"kernel: got {type(kernel).__name__}, expected a kernel of coop.jit")
    device_library.wave_size(arch)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MOST_THREADS:
        raise InvalidProblemError(f"threads is {threads!r}; it must be from 1 to {MOST_THREADS}")
    compiler, msgpack = linker(), _msgpack()
    types = compiler.types_of(kernel, signature)
    key = device_library.key_of(
        "kernel",
        compiler.fingerprint_of(kernel.function),
        str(types),
        arch,
        str(threads),
        str(mode_of(kernel, device_library.wave_size(arch))),
    )
    cached = device_library.read_cached(key, ".kernel") if cache else None
    unpacked = None if cached is None else msgpack.unpackb(cached)
    if isinstance(unpacked, list) and len(unpacked) == 6:
        code, arguments, llvm, assembly, lines, written = unpacked
    else:
        linked = compiler.compile_kernel(kernel, types, arch, threads)
        code, arguments, llvm, assembly = linked.code, linked.arguments, linked.llvm, linked.assembly
        lines, written = linked.float64_lines, linked.written
        if cache:
            device_library.keep(key, ".kernel", msgpack.packb((code, arguments, llvm, assembly, lines, written)))
    warn_of_float64(kernel, lines)
    info = kernel_info(code, kernel.name, assembly)
    named = tuple((str(name), str(type_)) for name, type_ in arguments)
    return CodeObject(code, kernel.name, arch, named, info, llvm, assembly, tuple(map(tuple, written)))


def linker() -> Any:
    """Return the module that compiles; importing it imports Numba."""
    with importing_numba():
        import llvmlite
        import llvmlite.binding

    if llvmlite.binding.llvm_version_info[0] < device_library.LLVM_VERSION:
        raise UnsupportedError(
            f"kernels are compiled for AMD GPUs by LLVM {device_library.LLVM_VERSION} or newer, which llvmlite 0.50 "
            f"brings with Numba 0.68; this is llvmlite {llvmlite.__version__}: "
            f"{install_command('cooperative')} 'numba>=0.68'"
        )
    with importing_numba():
        from rocpy.cooperative.amdgpu import link

    return link


def _msgpack() -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"code objects need msgpack ({error}): {install_command('cooperative')}") from None
    return msgpack


def metadata(code: bytes) -> dict[str, Any]:
    """Return what a code object says of its kernels, as AMD's notes have it.

    Parameters
    ----------
    code
        An ELF file for AMD GPUs.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.sections import NoteSection
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"code objects are read by pyelftools ({error}): {install_command('cooperative')}"
        ) from None
    try:
        for section in ELFFile(io.BytesIO(code)).iter_sections():
            for note in section.iter_notes() if isinstance(section, NoteSection) else ():
                if note["n_name"] == "AMDGPU" and note["n_type"] == _METADATA:
                    description: dict[str, Any] = _msgpack().unpackb(_bytes(note["n_desc"]))
                    return description
    except ELFError as error:
        raise LibraryError(f"this is not a code object: {error}") from None
    raise LibraryError("this is not a code object: it has no AMD note")


def _bytes(text: Any) -> bytes:
    return bytes(text) if isinstance(text, (bytes, bytearray)) else str(text).encode("latin-1")


def kernel_info(code: bytes, name: str, assembly: str = "") -> KernelInfo:
    """Return what one kernel of a code object needs.

    Parameters
    ----------
    code
        The code object.
    name
        Name of the kernel.
    assembly
        Its assembly, whose comment tells how many waves fit; empty: that is 0.
    """
    kernels: Sequence[dict[str, Any]] = metadata(code)["amdhsa.kernels"]
    for each in kernels:
        if each[".name"] == name:
            waves = _OCCUPANCY.search(assembly)
            return KernelInfo(
                name,
                each[".vgpr_count"],
                each[".sgpr_count"],
                each.get(".agpr_count", 0),
                each[".group_segment_fixed_size"],
                each[".private_segment_fixed_size"],
                each[".wavefront_size"],
                int(waves[1]) if waves else 0,
                each[".kernarg_segment_size"],
                each[".max_flat_workgroup_size"],
            )
    raise LibraryError(f"the code object has no kernel {name}; it has {', '.join(each['.name'] for each in kernels)}")
