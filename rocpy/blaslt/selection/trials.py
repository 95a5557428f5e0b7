# SPDX-License-Identifier: MIT
"""Trials: a thread or task that plans apart from others, whose plans these do not find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_on_trial: ContextVar[bool] = ContextVar("rocpy_trial", default=False)
# Not empty once a thread or task planned apart, or chose its own mode of tuning: until then the per-call path need not
# look at the context variables.
OVERRIDDEN: list[bool] = []


@contextmanager
def trial() -> Iterator[None]:
    """Plan apart from other threads and tasks, whose kept plans are not found here nor these there."""
    OVERRIDDEN[:] = [True]
    token = _on_trial.set(True)
    try:
        yield
    finally:
        _on_trial.reset(token)


def is_trial() -> bool:
    """Whether this thread or task plans apart from others."""
    return _on_trial.get()
