# SPDX-License-Identifier: MIT
"""What is said of a kernel that went wrong, or that may surprise: errors and warnings with block, thread and line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rocpy.errors import (
    DivergentBarrierError,
    GlobalMemoryRaceError,
    KernelDivisionError,
    KernelError,
    KernelIndexError,
    OutOfMemoryError,
    RocpyWarning,
    SharedMemoryRaceError,
    UninitializedResultError,
)

Location = tuple[str, str, int] | None
_PACKAGE = Path(__file__).parents[1]
_BARRIER = "put coop.syncthreads() between the two, or the barrier of a smaller group with both"
_LINE_OF_NUMBA = re.compile(r'\nFile "[^"]*", line \d+, $')


def warn_of_float64(kernel: Any, lines: Sequence[tuple[str, int]]) -> None:
    """Warn of the places where a kernel for float32 computes in float64, if there are any."""
    if not lines:
        return
    filename, line = lines[0]
    more = f" and {len(lines) - 1} other places" if len(lines) > 1 else ""
    warnings.warn_explicit(
        f"kernel {kernel.name} computes in float64 at {filename}:{line}{more}, though its arrays are float32: a float "
        'literal is float64, and so is an integer with a float32; write np.float32(...), or coop.jit(float="float32")',
        RocpyWarning,
        filename,
        line,
    )


def _parse_site(site: str) -> tuple[str | None, int | None]:
    filename, _, rest = site.rpartition(":")
    line, _, _ = rest.partition("#")
    return (filename, int(line)) if line.isdigit() else (None, None)


_CLASSES = {
    "divergence": DivergentBarrierError,
    "race": SharedMemoryRaceError,
    "global_race": GlobalMemoryRaceError,
    "division": KernelDivisionError,
    "uninitialised": UninitializedResultError,
    "shared_memory": KernelError,
    "unsupported": KernelError,
}


def raise_fault(kernel: Any, error: dict[str, Any], raised: BaseException | None, location: Location) -> None:
    """Raise what went wrong in a launch, or warn of what may surprise.

    Parameters
    ----------
    kernel
        The kernel.
    error
        As the runtime tells it.
    raised
        Exception that the kernel raised; None for any other fault, or where it is not known.
    place
        Function, file and line of its raise statement, where they are known.
    """
    fault, block, thread = error["fault"], error["block"], error["thread"]
    filename, line = _parse_site(error["site"])
    if fault == "out_of_memory":
        raise OutOfMemoryError(f"kernel {kernel.name}: {error['detail']}")
    where = {"kernel": kernel.name, "block": block, "thread": thread, "filename": filename, "line": line}
    subject = f"kernel {kernel.name}, block {block}, thread {thread}"
    if fault == "exception":
        _raise_exception(kernel, error, subject, where, raised, location)
    at = f" at {filename}:{line}" if filename else ""
    if fault == "skipped":
        _warn_of_skipped(kernel, error, filename, line)
        return
    other_file, other_line = _parse_site(error["other_site"])
    other = f" thread {error['other_thread']} at {other_file}:{other_line}" if error["other_thread"] else ""
    there = "in another call of that line" if (other_file, other_line) == (filename, line) else "there"
    text = {
        "divergence": f"{subject} waits{at}"
        + (f", but {error['detail']}" if error["detail"] else "")
        + (f";{other} waits {there}" if other else ""),
        "race": f"{subject}{at} {error['detail']}:{other}; {_BARRIER}",
        "global_race": f"{subject}{at} {error['detail']}, an element of an array: {_other(error, other)}",
        "division": f"{subject}{at} divides an integer by zero, whose result is 0 without debug=True",
        "uninitialised": f"{subject}{at}: {error['detail']}",
        "shared_memory": f"{subject}{at} asks for {error['detail']}",
        "unsupported": f"{subject}{at} uses {error['detail']}",
    }[fault]
    raise _CLASSES[fault](text, **where)


def _other(error: dict[str, Any], other: str) -> str:
    if error["other_block"] == error["block"]:
        return f"{other.strip()}; {_BARRIER}, or use coop.atomic"
    return f"block {error['other_block']},{other}; blocks run in any order: use coop.atomic, or separate launches"


def _warn_of_skipped(kernel: Any, error: dict[str, Any], filename: str | None, line: int | None) -> None:
    at = f" at {filename}:{line}" if filename else ""
    warnings.warn_explicit(
        f"kernel {kernel.name}, block {error['block']}: {error['detail']} have returned from the kernel before the "
        f"barrier{at}; the others do not wait for them here or on AMD GPUs, and CUDA leaves this undefined: let all "
        "threads reach the barrier",
        RocpyWarning,
        filename or kernel.function.__code__.co_filename,
        line or kernel.function.__code__.co_firstlineno,
    )


def _raise_exception(
    kernel: Any,
    error: dict[str, Any],
    subject: str,
    where: dict[str, Any],
    raised: BaseException | None,
    location: Location,
) -> NoReturn:
    if raised is None:
        raise KernelError(f"{subject} failed with status {error['code']}", **where)
    # Numba's text ends in a line of the function that it makes of an expression of arrays.
    raised.args = tuple(_LINE_OF_NUMBA.sub("", each) if isinstance(each, str) else each for each in raised.args)
    # A bounds check of Numba's has no place, one of a primitive's a place in this package: the kernel's line is meant.
    if isinstance(raised, IndexError) and (location is None or _PACKAGE in Path(location[1]).parents):
        at = f" at {where['filename']}:{where['line']}" if where["filename"] else ""
        raise KernelIndexError(f"{subject}{at}: {raised}", **where) from None
    filename, line = (location[1], location[2]) if location else (where["filename"], where["line"])
    raised.add_note(f"raised by {subject}" + (f", at {filename}:{line}" if filename else ""))
    if filename is None or line is None:
        raise raised
    # A frame whose place is that of the kernel's own raise statement.
    frame = compile("\n" * (line - 1) + "raise exception", filename, "exec").replace(co_name=kernel.name)
    exec(frame, {"exception": raised})  # noqa: S102 - one statement, written above
    raise raised
