# SPDX-License-Identifier: MIT
"""The rules of the source tree hold, and each reports a violation planted for it. Needs no compiler, no package."""

import functools

import pytest
from layout_rules import RULES, read_tree, structure


@pytest.fixture(scope="module")
def tree():
    return read_tree()


@pytest.fixture(scope="module")
def problems_of(tree):
    """What a rule finds in the tree as it is, looked for once."""
    return functools.cache(lambda name: next(rule for rule in RULES if rule.name == name).problems(tree))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_holds(problems_of, rule):
    problems = problems_of(rule.name)
    assert not problems, f"{rule.check.__doc__}\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("rule", "planted"),
    [pytest.param(rule, planted, id=f"{rule.name}-{i}") for rule in RULES for i, planted in enumerate(rule.planted)],
)
def test_rule_reports_a_planted_violation(tree, problems_of, rule, planted):
    seeded = rule.problems({**tree, **planted})
    new = set(seeded) - set(problems_of(rule.name))
    first = next(iter(planted))
    related = (first, "docs/reference/environment.md")
    assert any(problem.startswith(related) for problem in new), f"{rule.name} let pass: {planted}"


def test_every_rule_has_a_planted_violation():
    assert [rule.name for rule in RULES if not rule.planted] == []


def test_tree_is_read(tree):
    assert {"pyproject.toml", "csrc/abi/hip.def", "rocpy/CMakeLists.txt"} <= set(tree)


@pytest.mark.parametrize("name", structure.OF_LIST)
def test_exceptions_still_break_their_rule(tree, monkeypatch, name):
    """What no longer breaks a rule leaves its list."""
    listed = getattr(structure, name)
    monkeypatch.setattr(structure, name, frozenset())
    if name == "CIRCLES":
        found = {module for component in structure.circles(structure.import_graph(tree)) for module in component}
        assert listed <= found
    else:
        problems = "\n".join(structure.OF_LIST[name](tree))
        assert [each for each in listed if not all(part in problems for part in each.split(":"))] == []
