# SPDX-License-Identifier: MIT
"""Run code objects for AMD GPUs with no GPU: the host platform's instruction emulator, for tests.

It executes the machine code of gfx90a, gfx942, gfx950, gfx1100 and gfx1201 and checks every access to memory; it says
nothing about speed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rocpy import errors
from rocpy.errors import InvalidOperandError, InvalidProblemError, KernelError, KernelIndexError, UnsupportedError
from rocpy.runtime.kernels.arguments import extents, pack
from rocpy.testing import _emulator

__all__ = ["Opcode", "Report", "decode", "opcodes", "run"]

_ILLEGAL_ADDRESS, _LAUNCH_FAILURE = 700, 719


@dataclass(frozen=True)
class Opcode:
    """An instruction that the decoder knows.

    Attributes
    ----------
    name
        Its name, as LLVM's assembler has it.
    encoding
        Its encoding: ``"VOP2"``, ``"DS"``, ...
    executed
        Whether it runs; a kernel that reaches one that does not is stopped.
    numbers
        Its number in each architecture that has it.

    Examples
    --------
    >>> from rocpy.testing import amdgpu
    >>> next(one for one in amdgpu.opcodes() if one.name == "v_add_f32").numbers["gfx1201"]
    3
    """

    name: str
    encoding: str
    executed: bool
    numbers: dict[str, int]


@dataclass(frozen=True)
class Report:
    """What a run did.

    Attributes
    ----------
    instructions
        How many instructions ran, of all waves.
    opcodes
        How often each ran, by name.
    trace
        The first instructions in their order, as many as asked for, with block, wave, offset and active lanes.

    Examples
    --------
    >>> from rocpy.testing import amdgpu
    >>> amdgpu.Report(2, {"s_nop": 1, "s_endpgm": 1}, ()).opcodes["s_nop"]
    1
    """

    instructions: int
    opcodes: dict[str, int]
    trace: tuple[str, ...] = field(default=(), repr=False)


def _memory(argument: Any) -> tuple[int, int, bool] | None:
    if isinstance(argument, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(argument)
        return low, high - low, bool(argument.flags.writeable)
    if hasattr(argument, "data_ptr"):  # a torch tensor, whose storage a kernel may reach through any stride
        storage = argument.untyped_storage()
        return storage.data_ptr(), storage.nbytes(), True
    if hasattr(argument, "handle") and hasattr(argument, "nbytes"):
        return argument.handle, argument.nbytes, True
    if hasattr(argument, "__dlpack__"):
        return _memory(np.from_dlpack(argument))
    return None


def run(
    code: bytes,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *arguments: Any,
    memory: Sequence[Any] = (),
    shared_bytes: int = 0,
    trace: int = 0,
    limit: int = 0,
) -> Report:
    """Run a kernel of a code object to its end, and say what it did.

    It may touch the arrays among its arguments, `memory`, and its own shared and private memory; anything else stops
    it.

    Parameters
    ----------
    code
        The code object, an ELF file for AMD GPUs.
    kernel
        The kernel's name in it.
    grid, block
        Blocks of the grid and threads of a block, up to three extents each.
    *arguments
        What the kernel takes, as :meth:`rocpy.Kernel.launch` has it.
    memory
        More arrays that it may touch, for pointers within its arguments.
    shared_bytes
        Dynamic shared memory of a block.
    trace
        How many instructions the report lists.
    limit
        Stop it after so many instructions; 0: never.

    Returns
    -------
    Report
        What ran.

    Raises
    ------
    KernelIndexError
        It touched memory that is not its own; the message has kernel, block, wave, offset and instruction.
    KernelError
        It was stopped otherwise: an instruction that is unknown or not emulated, a barrier that some waves never reach,
        the limit.
    UnsupportedError
        The platform has no emulator, or it does not know the architecture.
    InvalidProblemError
        There is no such kernel, or it takes other arguments.
    InvalidOperandError
        The code is no code object.

    Examples
    --------
    >>> import rocpy
    >>> from rocpy.testing import amdgpu
    >>> try:
    ...     amdgpu.run(b"no code object", "kernel", 1, 64)
    ... except rocpy.RocpyError as error:
    ...     print(error)
    code: not an ELF file
    """
    try:
        image = bytes(memoryview(code))
    except TypeError:
        raise InvalidOperandError(f"code: got {type(code).__name__}, expected bytes") from None
    if not 0 <= shared_bytes < 1 << 31:
        raise InvalidProblemError(f"shared_bytes: got {shared_bytes!r}, expected a number of bytes")
    values, owners = pack(arguments)
    ranges = [span for one in (*arguments, *memory) if (span := _memory(one)) is not None]
    status, text = _emulator.run(
        image,
        kernel,
        extents(grid, "grid"),
        extents(block, "block"),
        values,
        ranges,
        shared_bytes=shared_bytes,
        trace_lines=trace,
        limit=limit,
    )
    del owners
    report = json.loads(text)
    if status:
        raise _error_of(status, report["message"])
    return Report(report["instructions"], report["opcodes"], tuple(report["trace"]))


def _error_of(status: int, message: str) -> errors.RocpyError:
    if status == _ILLEGAL_ADDRESS:
        return KernelIndexError(message)
    if status == _LAUNCH_FAILURE:
        return KernelError(message)
    if status == 209:  # hipErrorNoBinaryForGpu
        return UnsupportedError(f"code: {message}")
    if status == 200:  # hipErrorInvalidImage
        return InvalidOperandError(f"code: {message}")
    return InvalidProblemError(message)


def decode(architecture: str, code: bytes) -> list[tuple[int, int, str]]:
    """Take machine code apart, in the syntax of LLVM's assembler.

    Parameters
    ----------
    architecture
        Such as ``"gfx942"``.
    code
        The machine code, without headers.

    Returns
    -------
    list of tuple
        Offset, length in bytes and text of each instruction; the text is empty where there is none.

    Examples
    --------
    >>> from rocpy.testing import amdgpu
    >>> amdgpu.decode("gfx942", bytes.fromhex("01050002000081bf"))
    [(0, 4, 'v_add_f32_e32 v0, v1, v2'), (4, 4, 's_endpgm')]
    """
    return [
        (one["offset"], one["bytes"], one["text"]) for one in json.loads(_emulator.decode(architecture, bytes(code)))
    ]


def opcodes() -> list[Opcode]:
    """Return every instruction that the decoder knows, and whether it is executed.

    Returns
    -------
    list of Opcode
        By encoding, in the order of the tables.

    Examples
    --------
    >>> from rocpy.testing import amdgpu
    >>> {one.encoding for one in amdgpu.opcodes()} >= {"SOP2", "VOP3", "DS", "GLOBAL"}
    True
    """
    return [Opcode(**one) for one in json.loads(_emulator.opcodes())]
