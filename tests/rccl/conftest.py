# SPDX-License-Identifier: MIT
"""Fixtures of the tests of collectives."""

import os

import pytest

from rocpy import rccl


@pytest.fixture
def open_files():
    """A count of this process's open files."""
    return lambda: len(os.listdir("/proc/self/fd"))


@pytest.fixture
def comms():
    """Two ranks of this process, which wait for 0.3 s."""
    made = rccl.Communicator.init_all(2, timeout_s=0.3)
    yield made
    for comm in made:
        comm.abort()
