# SPDX-License-Identifier: MIT
"""Futures for torch's C++: DDP's own FP16 hook takes one of a list of tensors, and Python's are of Python objects."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["future_of_list", "is_for_half_hook"]

_SOURCE = """
def ended(end: Future[int], has_failed: Tensor, tensors: List[Tensor]) -> List[Tensor]:
    torch.jit.wait(end)
    if bool(has_failed.item()):
        raise RuntimeError("the collective failed; its error is raised where its Work is waited for")
    return tensors

def started(end: Future[int], has_failed: Tensor, tensors: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(ended, end, has_failed, tensors)
"""


@functools.cache
def _unit() -> Any:
    # TorchScript is the only language besides C++ whose futures have a type.
    return torch.jit.CompilationUnit(_SOURCE)


class Operation(Protocol):
    """What a future needs of an operation."""

    def follow(self, follower: Callable[[], None]) -> None:
        """Have something called when it is through."""

    def exception(self) -> BaseException | None:
        """Return what it failed with."""

    def result(self) -> list[torch.Tensor]:
        """Return its tensors."""


def is_for_half_hook(tensors: list[torch.Tensor]) -> bool:
    """Whether the caller's caller is C++, and the tensors are those of a hook that compresses gradients to float16."""
    if not tensors or any(tensor.dtype != torch.float16 for tensor in tensors):
        return False
    try:
        caller = sys._getframe(2)
    except ValueError:  # a thread of C++
        return True
    return "get_future" not in caller.f_code.co_names


def future_of_list(work: Operation) -> torch.futures.Future[Any]:
    """Return a future of an operation's tensors that C++ can read; it says that there is an error, but not which."""
    end: torch.futures.Future[Any] = torch.futures.Future()
    has_failed = torch.zeros(1, dtype=torch.uint8, device="cpu")
    result: torch.futures.Future[Any] = _unit().started(end, has_failed, work.result())

    def note_end() -> None:
        if work.exception() is not None:
            has_failed.fill_(1)
        end.set_result(None)

    work.follow(note_end)
    return result
