# SPDX-License-Identifier: MIT
"""What is called between `_start_coalescing` and `_end_coalescing` of a process group, and the Work of all of it."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from rocpy.torch.process_group.lanes import LaneWork

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Coalescing"]


class Coalescing:
    """Each thread's own block of coalesced calls of a group.

    torch's context manager does not call `_end_coalescing` where an exception leaves its block: the generator that it
    runs is over all the same, and so is the block.
    """

    def __init__(self) -> None:
        self._thread = threading.local()

    @property
    def works(self) -> list[LaneWork] | None:
        """What this thread has called in its block; None outside of one."""
        block: tuple[list[LaneWork], Callable[[], bool]] | None = getattr(self._thread, "block", None)
        if block is None:
            return None
        works, is_over = block
        if is_over():
            self._thread.block = None
            return None
        return works

    def start(self) -> None:
        """Begin this thread's block; called by `_start_coalescing` alone, whose caller runs the block."""
        if self.works is not None:
            raise RuntimeError("_start_coalescing was called twice without _end_coalescing")
        self._thread.block = [], _end_of_manager(sys._getframe(2))

    def end(self) -> LaneWork:
        """End this thread's block; return a Work that ends with all of its calls."""
        works = self.works
        if works is None:
            raise RuntimeError("_end_coalescing was called without _start_coalescing")
        self._thread.block = None
        return _joint_work(works)


def _end_of_manager(frame: Any) -> Callable[[], bool]:
    """Return what says whether the context manager is over of whose generator a frame is; never, if it is of none."""
    caller = frame.f_back
    generator = getattr(caller.f_locals.get("self"), "gen", None) if caller is not None else None
    if getattr(generator, "gi_frame", None) is not frame:
        return lambda: False
    manager = weakref.ref(generator)

    def is_over() -> bool:
        generator = manager()
        return generator is None or generator.gi_frame is None

    return is_over


def _joint_work(works: Sequence[LaneWork]) -> LaneWork:
    """Return a Work that ends when all of some have, with the first error."""
    combined = LaneWork([tensor for work in works for tensor in work.result()])
    lock = threading.Lock()

    def progress() -> tuple[float, Any]:
        lanes = [work.progress() for work in works if work.progress is not None]
        return max(limit for limit, _ in lanes), [mark for _, mark in lanes]

    combined.progress = progress if any(work.progress is not None for work in works) else None
    left = len(works)

    def one_is_through() -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            combined.finish(next((error for work in works if (error := work.exception()) is not None), None))

    if not works:
        combined.finish()
    for work in works:
        work.follow(one_is_through)
    return combined
