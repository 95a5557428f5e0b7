# SPDX-License-Identifier: MIT
"""A plan that is used while it is in use says by whom: by the thread itself, in a logging handler, or by another."""

import logging
import threading

import numpy as np
import pytest

import rocpy


class Handler(logging.Handler):
    """Uses the plan that is being made, and notes how that is refused."""

    def __init__(self, use):
        super().__init__()
        self.use, self.refused = use, []

    def emit(self, record):
        try:
            self.use()
        except rocpy.RocpyError as error:
            self.refused.append(str(error))


def in_another_thread(use):
    raised = []

    def run():
        try:
            use()
        except rocpy.RocpyError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@pytest.fixture
def logger():
    logger = logging.getLogger("rocpy")
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    logger.setLevel(level)
    logger.propagate = propagate


USES = {
    "execute": lambda mm: mm.execute(),
    "plan": lambda mm: mm.plan(),
    "pin": lambda mm: mm.pin(0),
    "reset_operands": lambda mm: mm.reset_operands(alpha=2.0),
    "release_operands": lambda mm: mm.release_operands(),
    "close": lambda mm: mm.close(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("around", "who"), [(lambda use: use(), "this thread"), (in_another_thread, "another thread")])
def test_who_uses_the_plan(logger, use, around, who):
    a = np.ones((4, 4))
    with rocpy.Matmul(a, a) as mm:
        handler = Handler(lambda: around(lambda: USES[use](mm)))
        logger.addHandler(handler)
        try:
            mm.plan()
        finally:
            logger.removeHandler(handler)
        assert handler.refused
        assert all(f"in use by {who}" in text for text in handler.refused)
        np.testing.assert_array_equal(mm.execute(), a @ a)
