# SPDX-License-Identifier: MIT
"""Bad input to every public function: a typed error that names the operand, what was seen and what to do; no leaks."""

from __future__ import annotations

import gc
import inspect
import pickle
import platform
import sys

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import rocpy

A = np.ones((4, 5), dtype=np.float32)
B = np.ones((5, 6), dtype=np.float32)
BIAS = np.ones(6, dtype=np.float32)
D = np.ones((4, 6), dtype=np.float32)


def planned(*args, **options):
    with rocpy.Matmul(*args, **options) as mm:
        mm.plan()
        return mm.execute()


# The ways in that must refuse the same things.
WAYS = {"matmul": rocpy.matmul, "Matmul": planned, "explain": rocpy.explain}

# What is wrong: arguments, keywords, class of the error, and parts that its message must have.
WRONG_SHAPES = {
    "inner extents": ((A, A), {}, rocpy.InvalidProblemError, ("a", "b", "(4, 5)", "must be equal")),
    "inner extents that a transposition would fit": ((A, B.T), {}, rocpy.InvalidProblemError, ("b.T",)),
    "scalar a": ((np.float32(2), B), {}, (rocpy.InvalidProblemError, rocpy.InvalidOperandError), ("a",)),
    "0-d a": (
        (np.array(2, dtype=np.float32), B),
        {},
        rocpy.InvalidProblemError,
        ("a: got a scalar", "multiply by it with *"),
    ),
    "0-d b": ((A, np.array(2, dtype=np.float32)), {}, rocpy.InvalidProblemError, ("b: got a scalar",)),
    "batch axes": (
        (np.ones((2, 4, 5), dtype=np.float32), np.ones((3, 5, 6), dtype=np.float32)),
        {},
        rocpy.InvalidProblemError,
        ("(2,)", "(3,)", "broadcast"),
    ),
    "c": ((A, B, D.T), {}, rocpy.InvalidProblemError, ("c: shape (6, 4)", "(4, 6)")),
    "c with more axes": ((A, B, D[None]), {}, rocpy.InvalidProblemError, ("c: shape (1, 4, 6)",)),
    "bias length": (
        (A, B),
        {"epilogue": "bias", "bias": BIAS[:4]},
        rocpy.InvalidProblemError,
        ("bias: got shape (4,)", "N = 6"),
    ),
    "bias length one": (
        (A, B),
        {"epilogue": "bias", "bias": BIAS[:1]},
        rocpy.InvalidProblemError,
        ("bias: got shape (1,)",),
    ),
    "bias scalar": ((A, B), {"epilogue": "bias", "bias": np.array(1, dtype=np.float32)}, rocpy.RocpyError, ("bias",)),
    "bias batch": (
        (A, B),
        {"epilogue": "bias", "bias": np.ones((3, 6), dtype=np.float32)},
        rocpy.InvalidProblemError,
        ("bias: got shape (3, 6)",),
    ),
}
WRONG_COMBINATIONS = {
    "no bias": (
        (A, B),
        {"epilogue": "gelu_bias"},
        rocpy.InvalidProblemError,
        ("gelu_bias", "needs bias=", "N = 6", "Weight"),
    ),
    "bias for none": ((A, B), {"bias": BIAS}, rocpy.InvalidProblemError, ("bias", "takes no bias", "'bias'")),
    "bias for relu": ((A, B), {"epilogue": "relu", "bias": BIAS}, rocpy.InvalidProblemError, ("relu_bias",)),
    "no clamp": ((A, B), {"epilogue": "clamp"}, rocpy.InvalidProblemError, ("clamp=(low, high)",)),
    "clamp for none": ((A, B), {"clamp": (0, 1)}, rocpy.InvalidProblemError, ("clamp", "takes no bounds")),
    "clamp of one": ((A, B), {"epilogue": "clamp", "clamp": 3}, rocpy.InvalidProblemError, ("clamp: got 3",)),
    "clamp of three": (
        (A, B),
        {"epilogue": "clamp", "clamp": (1, 2, 3)},
        rocpy.InvalidProblemError,
        ("clamp: got (1, 2, 3)",),
    ),
    "clamp of text": ((A, B), {"epilogue": "clamp", "clamp": ("a", "b")}, rocpy.InvalidProblemError, ("clamp: got",)),
    "clamp NaN": ((A, B), {"epilogue": "clamp", "clamp": (np.nan, 1)}, rocpy.InvalidProblemError, ("clamp",)),
    "clamp reversed": ((A, B), {"epilogue": "clamp", "clamp": (1, -1)}, rocpy.InvalidProblemError, ("clamp",)),
    "beta without c": ((A, B), {"beta": 2.0}, rocpy.InvalidProblemError, ("beta = 2.0", "pass c=")),
    "unknown epilogue": ((A, B), {"epilogue": "gelu_relu"}, rocpy.InvalidProblemError, ("'gelu_relu'", "gelu_bias")),
    "epilogue number": ((A, B), {"epilogue": 2}, rocpy.InvalidProblemError, ("epilogue", "int")),
    "unhashable epilogue": ((A, B), {"epilogue": ["relu"]}, rocpy.InvalidProblemError, ("epilogue", "list")),
    "unknown compute": ((A, B), {"compute": "float8"}, rocpy.RocpyError, ("compute: got 'float8'",)),
    "unhashable dtype": ((A, B), {"dtype": ["float32"]}, rocpy.RocpyError, ("dtype",)),
    "unknown option": ((A, B), {"options": {"speed": 11}}, rocpy.InvalidProblemError, ("'speed'", "copies")),
    "wrong option": ((A, B), {"options": {"copies": 1}}, rocpy.InvalidProblemError, ("copies: got 1", "'allow'")),
    "alpha text": ((A, B), {"alpha": "1"}, rocpy.RocpyError, ("alpha", "'1'")),
    "alpha array": ((A, B), {"alpha": np.ones(3)}, rocpy.RocpyError, ("alpha",)),
    "alpha complex": ((A, B), {"alpha": 1j}, rocpy.RocpyError, ("alpha", "1j")),
    "beta text": ((A, B, D), {"beta": "1"}, rocpy.RocpyError, ("beta", "'1'")),
    "stream text": ((A, B), {"stream": "0"}, rocpy.RocpyError, ("stream",)),
}
WRONG_TYPES = {
    name: (
        (value, B) if place == "a" else (A, value) if place == "b" else (A, B, value),
        {},
        rocpy.InvalidOperandError,
        (place,),
    )
    for place in ("a", "b", "c")
    for name, value in (
        (f"{place} list", [[1.0]]),
        (f"{place} text", "x"),
        (f"{place} object", object()),
        (f"{place} dict", {}),
    )
}
WRONG_DTYPES = {
    "a int16": ((A.astype(np.int16), B.astype(np.int16)), {}, rocpy.RocpyError, ("a", "int16")),
    "a uint8": ((A.astype(np.uint8), B.astype(np.uint8)), {}, rocpy.RocpyError, ("a", "uint8")),
    "a complex, b real": ((A.astype(complex), B), {}, rocpy.InvalidProblemError, ("complex128", "float32", "cast")),
    "a bool": ((A > 0, B > 0), {}, rocpy.RocpyError, ("a", "bool")),
    "a object": ((A.astype(object), B), {}, rocpy.RocpyError, ("a",)),
    "a text": ((A.astype("U3"), B), {}, rocpy.RocpyError, ("a",)),
    "a structured": ((np.zeros((4, 5), dtype=[("x", "f4")]), B), {}, rocpy.RocpyError, ("a",)),
    "mixed": ((A, B.astype(np.float16)), {}, rocpy.InvalidProblemError, ("float32", "float16", "cast")),
    "c": ((A, B, D.astype(np.float16)), {}, rocpy.InvalidProblemError, ("c is float16", "float32")),
    "bias": (
        (A, B),
        {"epilogue": "bias", "bias": BIAS.astype(np.float16)},
        rocpy.InvalidProblemError,
        ("bias is float16",),
    ),
    "bias int": ((A, B), {"epilogue": "bias", "bias": BIAS.astype(int)}, rocpy.RocpyError, ("bias",)),
}
WRONG = {**WRONG_SHAPES, **WRONG_COMBINATIONS, **WRONG_TYPES, **WRONG_DTYPES}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WRONG)
def test_refused_with_a_message_that_helps(way, name):
    args, options, error, parts = WRONG[name]
    with pytest.raises(error) as caught:
        WAYS[way](*args, **options)
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in: {caught.value}"
    assert isinstance(caught.value, rocpy.RocpyError)
    assert len(str(caught.value)) > 15


@pytest.mark.parametrize("way", WAYS)
def test_nothing_leaks_when_refused(way):
    watched = [A, B, BIAS, D]
    gc.collect()  # what an earlier test left in a circle must not go between the two counts
    plans = rocpy.plan_cache.live_plans()
    before = [sys.getrefcount(item) for item in watched]
    for _ in range(30):
        for args, options, error, _ in WRONG.values():
            with pytest.raises(error):
                WAYS[way](*args, **options)
    gc.collect()
    after = [sys.getrefcount(item) for item in watched]
    assert after == before
    assert rocpy.plan_cache.live_plans() == plans
    assert (rocpy.matmul(A, B) == 5).all()


@pytest.mark.parametrize(
    "arguments",
    [
        {"out": np.empty((6, 4), dtype=np.float32)},
        {"out": np.empty((4, 6), dtype=np.int32)},
        {"out": [[0.0] * 6] * 4},
        {"out": "text"},
        {"out": np.broadcast_to(np.float32(0), (4, 6))},
        {"out": as_strided(np.zeros(6, dtype=np.float32), (4, 6), (0, 4))},
        {"out": A[:, :4]},
        {"out": np.empty((1, 4, 6), dtype=np.float32)},
    ],
)
def test_bad_out(arguments):
    with pytest.raises(rocpy.RocpyError, match="out"):
        rocpy.matmul(A, B, **arguments)
    with rocpy.Matmul(A, B) as mm:
        mm.plan()
        with pytest.raises(rocpy.RocpyError, match="out"):
            mm.execute(**arguments)
        assert (mm.execute() == 5).all()


def absurd(*shape, dtype=np.float32):
    """A view with absurd extents over one element."""
    return as_strided(np.ones(1, dtype=dtype), shape, (0,) * len(shape))


@pytest.mark.parametrize(
    "operands",
    [
        (absurd(2**40, 4), absurd(4, 4)),
        (absurd(4, 4), absurd(4, 2**40)),
        (absurd(4, 2**40), absurd(2**40, 4)),
        (absurd(2**40, 4, 4), absurd(4, 4)),
        (absurd(2**31, 1), absurd(1, 2**31)),
        (absurd(2**30, 1), absurd(1, 2**30)),
        (absurd(2**20, 2**20, 2, 2), absurd(2, 2)),
        (absurd(2**40), absurd(2**40)),
    ],
    ids=lambda operands: " @ ".join(str(item.shape) for item in operands),
)
def test_absurd_sizes_are_refused_and_not_allocated(run_python, operands):
    # In a process with little address space, so that an attempt to allocate would be seen and would do no harm.
    code = f"""
        import resource
        import numpy as np
        import rocpy
        rocpy.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
        one = np.ones(1, np.float32)
        view = np.lib.stride_tricks.as_strided
        shapes = {[item.shape for item in operands]}
        a, b = (view(one, shape, (0,) * len(shape)) for shape in shapes)
        for product in (rocpy.matmul, rocpy.explain):
            try:
                product(a, b)
            except rocpy.RocpyError as error:
                assert len(str(error)) > 20, error
                print(type(error).__name__, error)
            else:
                assert product is rocpy.explain, "accepted"
    """
    run_python(code, timeout_s=60)


def test_absurd_weights_are_refused(run_python):
    code = """
        import numpy as np
        import rocpy
        view = np.lib.stride_tricks.as_strided
        for shape in ((2**40, 4), (4, 2**40), (2**30, 2**30)):
            try:
                rocpy.Weight(view(np.ones(1, np.float32), shape, (0, 0)))
            except rocpy.RocpyError as error:
                print(type(error).__name__, error)
            else:
                raise SystemExit("accepted")
    """
    run_python(code, timeout_s=60)


@pytest.mark.parametrize("alpha", [np.nan, np.inf])
def test_scalars_that_are_not_finite_are_numbers(alpha):
    assert not np.isfinite(rocpy.matmul(A, B, alpha=alpha)).any()


@pytest.mark.parametrize("call", [rocpy.matmul, rocpy.Matmul, rocpy.explain, rocpy.Weight])
def test_missing_and_unknown_arguments_are_type_errors(call):
    with pytest.raises(TypeError):
        call()
    with pytest.raises(TypeError):
        call(A, B, bogus=1) if call is not rocpy.Weight else call(B, bogus=1)
    if call is rocpy.matmul:
        with pytest.raises(TypeError):
            call(a=A, b=B)


def test_signatures_are_visible():
    names = list(inspect.signature(rocpy.matmul).parameters)
    assert names[:3] == ["a", "b", "c"]
    assert names[-1] == "stream"
    assert set(names) >= {
        "alpha",
        "beta",
        "epilogue",
        "bias",
        "aux",
        "clamp",
        "dtype",
        "compute",
        "out",
        "options",
        "algorithm",
    }


def test_platform_functions_refuse_what_they_do_not_know():
    with pytest.raises(rocpy.InvalidProblemError, match="ROCPY_NONSENSE"):
        rocpy.platform.environment("ROCPY_NONSENSE")
    with pytest.raises(rocpy.RocpyError, match="nonsense"):
        rocpy.platform.use("nonsense")


@pytest.mark.parametrize("value", ["cuda", "AMD ", "1"])
def test_a_wrong_platform_variable_is_named(run_python, value):
    code = "import numpy as np, rocpy; rocpy.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))"
    done = run_python(code, ROCPY_PLATFORM=value, check=False)
    assert done.returncode == 1
    assert "ROCPY_PLATFORM" in done.stderr.splitlines()[-1]
    assert "host" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("value", ["0", "-3", "many", "99999"])
def test_wrong_thread_counts_are_one_typed_error(run_python, value):
    code = """
        import numpy as np, rocpy
        a = np.ones((300, 300), np.float32)
        try:
            rocpy.matmul(a, a)
        except rocpy.InvalidProblemError as error:
            assert "ROCPY_NUM_THREADS" in str(error), error
        else:
            raise SystemExit("it was accepted")
    """
    run_python(code, ROCPY_NUM_THREADS=value)


@pytest.mark.skipif(not rocpy.platform.current().is_emulated, reason="only the host platform has instruction sets")
def test_an_instruction_set_that_the_cpu_lacks_is_one_typed_error(run_python):
    code = """
        import numpy as np, os, rocpy
        a = np.ones((30, 30), np.float32)
        for isa in ("sse9", os.environ["ROCPY_HOST_ISA"]):
            os.environ["ROCPY_HOST_ISA"] = isa
            for _ in range(2):
                try:
                    rocpy.matmul(a, a)
                except rocpy.InvalidProblemError as error:
                    assert f"ROCPY_HOST_ISA: got '{isa}'" in str(error), error
                else:
                    raise SystemExit("it was accepted")
        del os.environ["ROCPY_HOST_ISA"]
        assert (rocpy.matmul(a, a) == 30).all()
    """
    run_python(code, ROCPY_HOST_ISA="neon" if platform.machine() == "x86_64" else "avx2")


def test_objects_that_cannot_be_pickled_say_so():
    with rocpy.Matmul(A, B) as mm, pytest.raises((TypeError, rocpy.RocpyError)):
        pickle.dumps(mm)


def test_errors_are_the_builtin_kinds_too():
    assert issubclass(rocpy.InvalidProblemError, ValueError)
    assert issubclass(rocpy.InvalidOperandError, TypeError)
    assert issubclass(rocpy.UnsupportedError, NotImplementedError)
    assert issubclass(rocpy.OutOfMemoryError, MemoryError)
    assert issubclass(rocpy.LibraryError, RuntimeError)
    assert issubclass(rocpy.ClosedError, RuntimeError)
