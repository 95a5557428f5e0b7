# SPDX-License-Identifier: MIT
"""Fixtures of the tests of tuning."""

import pytest

from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import Database, database


@pytest.fixture
def memory_only(monkeypatch, fresh_plan_cache):
    """Let the process's database have no file, and nothing in it."""
    monkeypatch.setattr(database, "_current", Database([]))
    _tuning_state.changed()
    yield
    _tuning_state.changed()
