# SPDX-License-Identifier: MIT
"""What a budget limits beside the trials of a race."""

import numpy as np

import rocpy
from rocpy.tuning import Database, _live, database


def test_a_product_that_takes_longer_than_the_budget_is_neither_checked_nor_tried(
    tmp_path, monkeypatch, fresh_plan_cache
):
    def reached(*_, **__):
        raise AssertionError("it takes several products")

    for name in ("sample_of", "Retrial", "trials"):
        monkeypatch.setattr(_live, name, reached)
    base = Database([tmp_path / "tuning.sqlite3"])
    monkeypatch.setattr(database, "_current", base)
    a = np.ones((64, 64), np.float32)
    with rocpy.Matmul(a, a) as product:
        report = product.autotune(budget_ms=1e-6)
        assert (report.decided, report.best.rank, report.gain) == (False, 0, 1.0)
        assert "too few trials within the budget" in str(report)
        assert product.choice[1] == "heuristic"
    assert base.is_empty()
