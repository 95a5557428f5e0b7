# SPDX-License-Identifier: MIT
"""What Python's functions a call enters."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["profiled", "python_calls"]


@contextlib.contextmanager
def profiled(see: Callable[..., Any]) -> Iterator[None]:
    """Pass what happens to a profile function, without what earlier tests left to the collector."""
    # A generator in a circle that is not at its end must not be ended meanwhile.
    gc.collect()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before)
        gc.enable()


def python_calls(run: Callable[[], object]) -> int:
    """How many functions of Python's a call enters, whose plan is there."""
    run(), run()
    count = 0

    def see(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    with profiled(see):
        run()
    return count
