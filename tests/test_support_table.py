# SPDX-License-Identifier: MIT
"""The tables of docs/support.md are those that the code gives now."""

import pytest
import support_table

import rocpy


def test_the_page_is_fresh():
    if rocpy.platform.current().name != "host":
        pytest.skip("the page is that of the host platform")
    page = support_table.PAGE.read_text(encoding="utf-8")
    assert support_table.fresh_page(page) == page, "run `make tables`"


def test_a_stale_page_is_noticed(monkeypatch, tmp_path):
    page = tmp_path / "support.md"
    parts = [f"<!-- begin: {name} -->\nold\n<!-- end: {name} -->\n" for name in ("support", "releases")]
    page.write_text("# x\n" + "".join(parts), encoding="utf-8")
    monkeypatch.setattr(support_table, "PAGE", page)
    monkeypatch.setattr(support_table, "tables", lambda: "new")
    assert support_table.main(["--check"]) == 1
    assert support_table.main([]) == 0
    assert support_table.main(["--check"]) == 0


def test_a_table_tells_fused_composed_and_refused():
    family = next(row for row in support_table.FAMILIES if row.name == "bfloat16")
    lines = support_table.table(family)
    assert any("`gelu_bias`" in line and "fused" in line for line in lines)
    assert any("`gelu_erf`" in line and "tile program" in line for line in lines)
    assert support_table.cell(family, "float64", "default") == "no"
