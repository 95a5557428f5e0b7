# SPDX-License-Identifier: MIT
"""The logger "rocpy": plans, fallbacks and tuning at INFO, copies and times at DEBUG.

A program that reads a log has imported logging; rocpy does not import it itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rocpy._messages.modules import imported

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["info", "timed"]


def _logger() -> Logger | None:
    logging = imported("logging")
    return None if logging is None else logging.getLogger("rocpy")


def info(message: str, *arguments: object) -> None:
    """Log at INFO, as ``logging.Logger.info`` does."""
    logger = _logger()
    if logger is not None:
        logger.info(message, *arguments)


@contextmanager
def timed(message: str, *arguments: object) -> Iterator[None]:
    """Log at DEBUG what the block did, with its time.

    Parameters
    ----------
    message, arguments
        As for ``logging.Logger.debug``.
    """
    logger = _logger()
    if logger is None or not logger.isEnabledFor(10):  # logging.DEBUG
        yield
        return
    begin = time.perf_counter()
    yield
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    logger.debug("%s (%.3f ms)", message % arguments if arguments else message, elapsed_ms)
