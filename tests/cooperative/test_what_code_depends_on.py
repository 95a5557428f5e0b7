# SPDX-License-Identifier: MIT
"""What compiled code depends on: all that a kernel names, which its hash tells apart, as it is at that moment."""

import enum
import functools
import types
from collections import namedtuple

import numba
import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.cooperative.cpu import compile as compiler
from rocpy.cooperative.cpu import machine_code
from rocpy.cooperative.kernel.fingerprint import fingerprint_of

_Pair = namedtuple("_Pair", "a b")  # noqa: PYI024 - as kernels of others have them
_Swapped = namedtuple("_Pair", "b a")  # noqa: PYI024


def _module(**attributes):
    module = types.ModuleType("config")
    vars(module).update(attributes)
    return module


def _enum(value):
    return enum.Enum("Choice", {"A": value, "B": 100})


def _function(text, **names):
    values = {"__name__": "example", **names}
    exec(text, values)
    return values["f"]


def _helper(text):
    return _function(f"def f({text}): return a")


# Two values of the name g, and the expression of it that a function returns.
_APART = {
    "tuple": ((1, 23), (12, 3), "g[0]"),
    "nested tuple": (((1, 2), 3), (1, (2, 3)), "g[0]"),
    "tuple of words": (("a", "bc"), ("ab", "c"), "g"),
    "list": ([1, 23], [12, 3], "g"),
    "tuple and list": ((1, 2), [1, 2], "g"),
    "dict": ({1: 23}, {12: 3}, "g"),
    "named tuple": (_Pair(1, 2), _Swapped(1, 2), "g.a"),
    "number and word": (1, "1", "g"),
    "array": (np.array([1, 2]), np.array([1, 3]), "g[1]"),
    "module": (_module(N=1), _module(N=777), "g.N"),
    "module in a module": (_module(sub=_module(N=1)), _module(sub=_module(N=777)), "g.sub.N"),
    "compiled function of a module": (
        _module(h=numba.njit(_helper("a"))),
        _module(h=numba.njit(_helper("a, b=2"))),
        "g.h(1)",
    ),
    "kernel of a module": (_module(h=coop.jit(_helper("a"))), _module(h=coop.jit(_helper("a, b=2"))), "g.h(1)"),
    "compiled function that is passed on": (
        _module(h=numba.njit(_helper("a"))),
        _module(h=numba.njit(_helper("a, b=2"))),
        "max(1, key=g.h)",
    ),
    "compiled function of a class": (
        type("C", (), {"h": staticmethod(numba.njit(_helper("a")))}),
        type("C", (), {"h": staticmethod(numba.njit(_helper("a, b=2")))}),
        "g.h(1)",
    ),
    "attribute by its name": (_module(N=1), _module(N=777), "(g, getattr(g, 'N'))[1]"),
    "function of a module": (_module(h=_helper("a")), _module(h=_helper("a, b=2")), "g.h(1)"),
    "enum": (_enum(1), _enum(2), "g.A.value"),
    "member of an enum": (_enum(1).A, _enum(2).A, "g.value"),
    "class": (type("C", (), {"N": 1}), type("C", (), {"N": 2}), "g.N"),
    "derived class": (type("C", (type("B", (), {"N": 1}),), {}), type("C", (type("B", (), {"N": 2}),), {}), "g.N"),
    "default of a helper": (_helper("a=(1, 23)"), _helper("a=(12, 3)"), "g()"),
    "keyword default of a helper": (_helper("*, a=1"), _helper("*, a=2"), "g()"),
    "parameters of a helper": (_function("def f(a, b): return a"), _function("def f(b, a): return b"), "g(a=1, b=2)"),
    "compiled helper": (numba.njit(_helper("a, b=1")), numba.njit(_helper("a, b=2")), "g(1)"),
    "options of a compiled helper": (numba.njit(_helper("a")), numba.njit(fastmath=True)(_helper("a")), "g(1)"),
    "vectorized helper": (numba.vectorize(_helper("a, b=1")), numba.vectorize(_helper("a, b=2")), "g(1)"),
    "kernel": (coop.jit(_helper("a, b=1")), coop.jit(_helper("a, b=2")), "g(1)"),
}


@pytest.mark.parametrize("kind", _APART)
def test_whatever_a_kernel_names_tells_it_apart(kind):
    one, other, expression = _APART[kind]
    text = f"def f(): return {expression}"
    in_closure = f"def f(g):\n    def inner(): return {expression}\n    return inner"
    as_default = f"def f(h=g): return {expression.replace('g', 'h', 1)}"
    for make in (
        lambda g: _function(text, g=g),
        _function(in_closure),
        lambda g: _function(as_default, g=g),
        lambda g: _function("def f(): return helper()", helper=_function(text, g=g)),
    ):
        assert fingerprint_of(make(one)) == fingerprint_of(make(one))
        assert fingerprint_of(make(one)) != fingerprint_of(make(other))


@pytest.mark.parametrize("other", ["coop.min", "coop.max", "np.sum"])
def test_what_is_kept_depends_on_the_names_of_attributes(other):
    def kernel(name):
        names = {"__name__": "kept", "coop": coop, "np": np}
        exec(f"def kernel(x):\n    return {name}(x)", names)
        return names["kernel"]

    assert fingerprint_of(kernel("coop.sum")) == fingerprint_of(kernel("coop.sum"))
    assert fingerprint_of(kernel("coop.sum")) != fingerprint_of(kernel(other))


def test_names_that_stand_for_one_function_are_told_apart():
    def make(first, second, third):
        return _function("def f(): return a() + b() - c()", a=first, b=second, c=third)

    one, other = _helper("a=1"), _helper("a=2")
    assert fingerprint_of(make(one, other, one)) != fingerprint_of(make(one, other, other))


def test_attributes_by_names_that_are_globals():
    text = "def f(): return getattr(g, WORD)"
    one, other = (fingerprint_of(_function(text, g=_module(N=value), WORD="N")) for value in (1, 777))
    assert one != other


def test_what_cannot_be_hashed_is_never_the_same():
    function = _function("def f(): return g", g=iter(i for i in "ab"))
    assert fingerprint_of(function) != fingerprint_of(function)


def _with_helper():
    """Return kernels that name a function which names a global, and a function that sets that."""
    names = {"__name__": "example", "coop": coop, "np": np, "G": 1}
    exec(
        """
def added(v): return v + G
def combined(a, b): return a + b + G - 1
def first(o): o[coop.threadIdx.x] = added(0)
def second(o): o[coop.threadIdx.x] = added(coop.threadIdx.x - coop.threadIdx.x)
def reduced(o): o[coop.threadIdx.x] = coop.reduce(coop.this_block(), np.int64(1), op=combined, all=True) - 1
def scanned(o): o[coop.threadIdx.x] = coop.inclusive_scan(coop.this_block(), np.int64(0), op=combined) + 1
""",
        names,
    )
    return names


def _run(kernel, dtype=np.int64, threads=2):
    out = np.zeros(threads, dtype)
    kernel[1, threads](out)
    return out.tolist()


@pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_kernel_is_compiled_with_the_globals_of_that_moment(debug):
    names = _with_helper()
    kernel = coop.jit(debug=debug)
    first, reduced = kernel(names["first"]), kernel(names["reduced"])
    assert _run(first) == [1, 1]
    assert _run(reduced) == [1, 1]
    names["G"] = 2
    assert _run(first) == [1, 1]  # compiled before
    assert _run(first, np.int32) == [2, 2]  # other types
    assert _run(kernel(names["second"])) == [2, 2]  # another kernel that names the same function
    assert _run(kernel(first.function)) == [2, 2]  # the same function again
    assert _run(kernel(names["reduced"])) == [2, 2]
    assert _run(kernel(names["scanned"])) == [1, 2]
    names["added"] = _helper("a, b=0")
    assert _run(kernel(first.function)) == [0, 0]


def test_a_function_passed_to_whole_arrays_is_compiled_with_the_globals_of_that_moment():
    names = _with_helper()
    assert _run(coop.jit(names["reduced"])) == [1, 1]
    names["G"] = 2
    x = np.ones((1, 2), np.int64)
    assert coop.block_reduce(x, names["combined"]).tolist() == [3]
    assert coop.block_scan(x, names["combined"]).tolist() == [[1, 3]]


def test_code_on_disk_is_that_of_the_globals(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    source = tmp_path / "example.py"
    source.write_text("def f(o):\n    o[0] = config.N\n")
    config = _module(N=1)
    names = {"__name__": "example", "config": config}
    exec(compile(source.read_text(), str(source), "exec"), names)
    kernel, again = (coop.jit(cache=True)(names["f"]) for _ in range(2))
    assert _run(kernel, threads=1) == [1]
    assert _run(again, threads=1) == [1]
    assert again.launcher.cache_hits == 1
    config.N = 777
    assert _run(kernel, np.int32, threads=1) == [777]  # whose launcher was there before
    fresh = coop.jit(cache=True)(names["f"])
    assert _run(fresh, threads=1) == [777]
    assert fresh.launcher.cache_hits == 0


@pytest.fixture
def define(tmp_path, monkeypatch):
    """Return a function that defines what a source file, whose kernels are cached in a folder of their own, has."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def define(text):
        source = tmp_path / "exam[p]le.py"  # what a pattern of files reads otherwise
        source.write_text(text)
        names = {"__name__": "example"}
        exec(compile(text, str(source), "exec"), names)
        return names

    return define


def _file(n):
    return machine_code.Store("exam[p]le.py", "make.<locals>.f").file("int", str(n))


def _code(file):
    return machine_code.Compiled(file.name, b"code", machine_code.Form.LOOPS, (), 1, ())


def test_kernels_of_one_factory_stay_on_disk(tmp_path, monkeypatch):
    """They have one name and one kind of arguments; the files of such that were used longest ago go."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for n in range(40):
        _file(n).write(_code(_file(n)))
    assert [_file(n).read() for n in range(40)] == [_code(_file(n)) for n in range(40)]
    monkeypatch.setattr(machine_code, "_MOST_ALIKE", 20)
    for n in range(10):
        assert _file(n).read()
    for n in range(40, 50):
        _file(n).write(_code(_file(n)))
    assert [n for n in range(50) if _file(n).read()] == [*range(10), *range(40, 50)]
    assert len(list(tmp_path.glob("*/*.o"))) == 20


def test_kernels_of_one_factory_are_compiled_once(define):
    make = define("def make(n):\n    def f(o):\n        o[0] = n\n    return f\n")["make"]
    for n, hits in ((2, 0), (3, 0), (2, 1), (3, 1)):
        kernel = coop.jit(cache=True)(make(n))
        assert _run(kernel, threads=1) == [n]
        assert kernel.launcher.cache_hits == hits, n


_RAISING = "def make():\n    def f(o):\n        if o[0] < 0: raise ValueError('negative', o[0])\n{}    return f\n"
_engines = []


def _forget_loaded_code(monkeypatch):
    """Have code from disk loaded as a new process loads it."""
    _engines.append(machine_code.engine)  # its code is there until the process ends
    monkeypatch.setattr(machine_code, "engine", functools.cache(machine_code.engine.__wrapped__))
    monkeypatch.setattr(machine_code, "_loaded", {})
    monkeypatch.setattr(compiler, "ENVIRONMENTS", {})


@pytest.mark.parametrize(("more", "stored"), [("", 1), ("        if o[0] > 99: print(o)\n", 0)])
def test_cached_kernels_that_create_objects(define, tmp_path, monkeypatch, more, stored):
    """Kernels of equal contents share their code, and another process has it, unless it refers to objects of this."""
    make = define(_RAISING.format(more))["make"]
    for hits, in_new_process in ((0, False), (stored, False), (stored, bool(stored))):
        if in_new_process:
            _forget_loaded_code(monkeypatch)
        kernel = coop.jit(cache=True)(make())
        with pytest.raises(ValueError, match="negative") as caught:
            kernel[1, 1](np.full(1, -5.0))
        assert caught.value.args == ("negative", -5.0)
        assert kernel.launcher.cache_hits == hits
    assert len(list(tmp_path.glob("*/*.o"))) == stored


_OWN_CLASS = """
import enum
class Failed(Exception): pass
class Color(enum.Enum): RED = 1
def f(o):
    if o[0] < 0: raise {}
"""


@pytest.mark.parametrize("raised", ["Failed", "Failed('negative', o[0])", "ValueError(Color.RED)"])
def test_cached_kernels_raise_the_classes_they_name(define, tmp_path, raised):
    """Classes that are not what their module has by their name, as those of a notebook and of functions."""
    for _ in range(2):
        names = define(_OWN_CLASS.format(raised))
        kernel = coop.jit(cache=True)(names["f"])
        with pytest.raises((names["Failed"], ValueError)) as caught:
            kernel[1, 1](np.full(1, -5.0))
        assert "Color" not in raised or caught.value.args[0] is names["Color"].RED
        assert kernel.launcher.cache_hits == 0
    assert not list(tmp_path.glob("*/*.o"))


def test_constant_arrays_whose_address_is_in_the_code_stay_in_the_process(define, tmp_path):
    names = define("import numpy as np\nTABLE = np.arange(2.0**17)\ndef f(o):\n    o[0] = TABLE[int(o[0])]\n")
    for _ in range(2):
        values = np.full(1, 2.0**17 - 1)
        kernel = coop.jit(cache=True)(names["f"])
        kernel[1, 1](values)
        assert values[0] == 2.0**17 - 1
        assert kernel.launcher.cache_hits == 0
    assert not list(tmp_path.glob("*/*.o"))
