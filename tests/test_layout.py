# SPDX-License-Identifier: MIT
"""The rules of the source tree hold, and each reports a violation planted for it. Needs no compiler, no package."""

import functools

import pytest
from layout_rules import RULES, read_tree, structure
from layout_rules.native_functions import native_functions


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


NATIVE = r"""
#define OPEN {
namespace a::b {
extern "C" {
int plain(void) { return '{'; }
}
enum class Kind : uint8_t { one, two };
constexpr int table[] = {1, 2, 3};
const auto callback = [](int x) { return x; };
template <class T, int n = (1 > 0)>
struct alignas(64) Held : Base<T> {
  Held(int a, Pair<int, int> b) : Base<T>{a}, b_(b), c_{1'000'000} {}
  ~Held() { free(text); }
  bool operator()(int x) const { return x < 0; }
  bool operator==(const Held &other) const noexcept { return true; }
  int value{0};
  const char *text = R"(}}} " // {)";
};
#if defined(ONE)
static int chosen(int (*call)(int, int),
#else
static int chosen(int (*call)(int, int, int),
#endif
                  Map<int, Map<int, int>> map) {
  if (map.empty()) { return 1; }
  return [&](int x) { return x; }(2);  // }
}
auto Held<int>::far(int a) -> decltype(f(a)) {
  struct Local {
    void inner() {}
  };
}
}
"""


def test_native_functions_are_read():
    assert [(each.name, each.lines, each.parameters) for each in native_functions(NATIVE)] == [
        ("plain", 1, 0),
        ("Held", 1, 2),
        ("~Held", 1, 0),
        ("operator()", 1, 1),
        ("operator==", 1, 1),
        ("chosen", 8, 2),
        ("far", 5, 1),
    ]
