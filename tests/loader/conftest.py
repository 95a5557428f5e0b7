# SPDX-License-Identifier: MIT
"""A fake machine for each test of the loader."""

import pytest
from fake_rocm import Machine


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)
