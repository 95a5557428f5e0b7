# SPDX-License-Identifier: MIT
"""Measurements in a process of their own, so that a peer's library that crashes ends no more than its own."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_LONGEST_NAME = 100  # bytes


class CrashError(Exception):
    """The process ended by a signal: while it did which task, and by which signal."""

    def __init__(self, task: str, number: int) -> None:
        self.task, self.signal = task, signal.Signals(number).name
        super().__init__(f"{task or 'a benchmark'}: ended by {self.signal}")


def in_child(work: Callable[[Callable[[str], None]], Any]) -> Any:
    """Return what `work` returns in a forked process; raise `CrashError` if a signal ends it.

    `work` gets a function to call with the name of the task that it begins. The caller must have started no threads:
    they would not exist in the child.
    """
    context = multiprocessing.get_context("fork")
    task = context.Array("c", _LONGEST_NAME)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(work, task, sender))
    child.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        result = None
    child.join()
    if child.exitcode:
        if child.exitcode < 0:
            raise CrashError(task.value.decode(), -child.exitcode)
        raise SystemExit(child.exitcode)
    return result


def _send(work: Callable[[Callable[[str], None]], Any], task: Any, sender: Connection) -> None:
    def starting(name: str) -> None:
        task.value = name.encode()[: _LONGEST_NAME - 1]

    sender.send(work(starting))
    sender.close()
