# SPDX-License-Identifier: MIT
"""How many algorithms a plan has: as many as were asked for, a stored choice first."""

import numpy as np
import pytest
from several_algorithms import candidates

import rocpy
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import Database, _live, database


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("place", [0, 3])
def test_a_plan_after_tuning(tmp_path, monkeypatch, fresh_plan_cache, count, place):
    monkeypatch.setattr(database, "_current", Database([tmp_path / "tuning.sqlite3"]))
    _tuning_state.changed()
    a, b = np.ones((24, 32), np.float32), np.ones((32, 40), np.float32)
    with planned_product(a, b) as product:
        candidates(product, place + 1)
        report = _live.tune(product, budget_ms=1e4, measure=lambda one: (0.5, 0.5) if one == place else (1.0, 1.0))
    with rocpy.Matmul(a, b) as product:
        planned = product.plan(max_algorithms=count)
        assert len(planned) == len(product.algorithms) == count
        assert planned[0].name == report.best.name
        assert (product.execute() == 32).all()
        assert product.plan(algorithms=[report.best])[0].name == report.best.name
