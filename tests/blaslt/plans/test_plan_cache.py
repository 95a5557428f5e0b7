# SPDX-License-Identifier: MIT
"""The function form's plan cache: what shares a plan, what must not, its size, and many threads in it."""

from __future__ import annotations

import itertools
import threading
import types

import numpy as np
import pytest

import rocpy
from rocpy.testing import cases as case_list
from rocpy.testing import evaluate, make_operands
from rocpy.testing.runner import check_outputs, dtype_of, keywords, reference

pytestmark = pytest.mark.usefixtures("fresh_plan_cache")


def info():
    return types.SimpleNamespace(**rocpy.plan_cache.info())


def product(m=4, k=5, n=6, dtype=np.float32, **options):
    return rocpy.matmul(np.ones((m, k), dtype=dtype), np.ones((k, n), dtype=dtype), **options)


def test_a_second_call_hits():
    product()
    assert (info().misses, info().hits, info().size) == (1, 0, 1)
    for calls in range(1, 4):
        product()
        assert (info().misses, info().hits, info().size) == (1, calls, 1)


def test_clear_empties():
    product()
    rocpy.plan_cache.clear()
    assert (info().misses, info().hits, info().size) == (0, 0, 0)
    product()
    assert (info().misses, info().size) == (1, 1)


def test_values_do_not_make_a_plan_but_what_decides_it_does():
    a, b = np.ones((4, 5), dtype=np.float32), np.ones((5, 6), dtype=np.float32)
    bias, square = np.ones(6, dtype=np.float32), np.ones((4, 6), dtype=np.float32)
    rocpy.matmul(a, b, square)
    size = info().size
    for alpha, beta in ((2.0, 1.0), (0.5, -1.0), (3, 4)):
        rocpy.matmul(a, b, square, alpha=alpha, beta=beta)
    assert info().size == size
    different = (
        lambda: rocpy.matmul(a, b),
        lambda: rocpy.matmul(a, b, epilogue="relu"),
        lambda: rocpy.matmul(a, b, epilogue="bias", bias=bias),
        # Where it is composed, the plan of the product that it begins with is kept too.
        *(
            [
                lambda: rocpy.matmul(a, b, epilogue="clamp", clamp=(0, 1)),
                lambda: rocpy.matmul(a, b, epilogue="clamp", clamp=(0, 2)),
            ]
            if rocpy.blaslt.supported("float32", epilogue="clamp").lowering == "native"
            else ()
        ),
        lambda: rocpy.matmul(a[:3], b),
        # Copied to a device with memory of its own it is as dense as any other.
        *([lambda: rocpy.matmul(np.asfortranarray(a), b)] if rocpy.platform.current().host_memory else ()),
        lambda: rocpy.matmul(a.astype(np.float16), b.astype(np.float16)),
        lambda: rocpy.matmul(a.astype(np.float16), b.astype(np.float16), dtype="float32"),
        lambda: rocpy.matmul(a, b, options={"max_workspace_bytes": 0}),
    )
    for count, call in enumerate(different, start=size + 1):
        call()
        assert info().size == count


@pytest.mark.parametrize("form", ["product", "function", "groups"])
def test_every_limit_of_the_workspace_has_its_plans(form):
    a = np.ones((4, 4), np.float32)
    function = rocpy.epilogue(lambda x: np.tanh(x) * 2.5)
    call = {
        "product": lambda options: rocpy.matmul(a, a, options=options),
        "function": lambda options: rocpy.matmul(a, a, epilogue=function, options=options),
        "groups": lambda options: rocpy.grouped_matmul([a, a], [a, a], options=options),
    }[form]
    sizes = []
    limits = (0, 2**61 - 1, 2 * (2**61 - 1))  # whose hashes are equal
    assert len({hash(limit) for limit in limits}) == 1
    for limit in (*limits, *limits):
        call({"max_workspace_bytes": limit})
        sizes.append(info().size)
    assert sizes == [sizes[0], 2 * sizes[0], *[3 * sizes[0]] * 4]


def test_a_kept_plan_gives_the_right_answer_for_every_variant():
    # Calls that differ in one respect, twice and in a mixed order: a plan of one must never serve another.
    chosen = [case for case in case_list.select("quick", m=17, n=33, k=9) if case.dtype in ("float32", "bfloat16")][::5]
    prepared = [(case, make_operands(case)) for case in chosen]
    for case, arrays in itertools.chain(prepared, reversed(prepared)):
        given = dict(arrays)
        positional = [given.pop(key) for key in ("a", "b", "c") if key in given]
        outputs = rocpy.matmul(*positional, **given, **keywords(case))
        for name, found in check_outputs(reference(case, arrays), outputs, dtype_of(case.result_dtype)).items():
            assert found.ok, f"{case.name} {name}: {found.message}"


def test_clamp_bounds_are_part_of_the_plan():
    a, b = np.full((2, 2), 3, dtype=np.float32), np.eye(2, dtype=np.float32)
    for low, high in ((0, 1), (0, 2), (-1, 5), (0, 1)):
        assert rocpy.matmul(a, b, epilogue="clamp", clamp=(low, high)).max() == min(3, high)


def test_failures_are_not_kept():
    a = np.ones((4, 5), dtype=np.float32)
    for _ in range(3):
        with pytest.raises(rocpy.InvalidProblemError):
            rocpy.matmul(a, a)
    assert info().size == 0


def test_least_recently_used_go_first(run_python):
    code = """
        import numpy as np
        import rocpy
        def product(n):
            return rocpy.matmul(np.ones((2, 3), np.float32), np.ones((3, n), np.float32))
        import types
        info = lambda: types.SimpleNamespace(**rocpy.plan_cache.info())
        for n in (1, 2, 3):
            product(n)
        assert info().size == 3 and info().capacity == 3, info()
        product(1)
        hits = info().hits
        product(4)                      # 2 leaves
        assert info().size == 3
        product(1); product(3); product(4)
        assert info().hits == hits + 3, info()
        misses = info().misses
        product(2)
        assert info().misses == misses + 1
        for n in range(1, 40):
            assert product(n).shape == (2, n)
        assert info().size == 3
    """
    run_python(code, ROCPY_PLAN_CACHE="3")


def test_size_zero_keeps_nothing(run_python):
    code = """
        import numpy as np
        import rocpy
        a = np.ones((3, 3), np.float32)
        for _ in range(5):
            assert (rocpy.matmul(a, a) == 3).all()
        assert rocpy.plan_cache.info()["size"] == 0
        assert rocpy.plan_cache.info()["hits"] == 0
    """
    run_python(code, ROCPY_PLAN_CACHE="0")


@pytest.mark.parametrize("value", ["-1", "many", "1e3"])
def test_a_size_that_is_no_number_is_told(run_python, value):
    done = run_python(
        "import numpy as np, rocpy; a = np.ones((3, 3), np.float32); print((rocpy.matmul(a, a) == 3).all())",
        ROCPY_PLAN_CACHE=value,
        check=False,
    )
    told = "ROCPY_PLAN_CACHE" in done.stderr
    assert told or done.stdout.strip() == "True"
    assert done.returncode >= 0, done.stderr


def test_many_threads_in_one_cache(rng):
    shapes = [(m, n, k) for m in (1, 3, 8) for n in (2, 5) for k in (4, 7)]
    operands = {}
    for shape in shapes:
        a = rng.standard_normal((shape[0], shape[2]), dtype=np.float32)
        b = rng.standard_normal((shape[2], shape[1]), dtype=np.float32)
        operands[shape] = a, b, rocpy.matmul(a, b, epilogue="gelu")
    rocpy.plan_cache.clear()
    failures = []
    start = threading.Barrier(8)

    def work(seed):
        order = np.random.default_rng(seed)
        start.wait()
        for step in range(300):
            a, b, expected = operands[shapes[order.integers(len(shapes))]]
            if not np.array_equal(rocpy.matmul(a, b, epilogue="gelu"), expected):
                failures.append((seed, step))
            if step % 50 == seed:
                rocpy.plan_cache.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_clear_while_a_plan_is_held():
    a, b = np.ones((4, 5), dtype=np.float32), np.ones((5, 6), dtype=np.float32)
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        rocpy.plan_cache.clear()
        found = check_outputs(evaluate(a, b), mm.execute(), np.float32)
    assert found["result"].ok


def test_resize():
    capacity = info().capacity
    try:
        rocpy.plan_cache.resize(2)
        for n in range(1, 6):
            product(n=n)
        assert (info().size, info().capacity) == (2, 2)
        rocpy.plan_cache.resize(0)
        assert info().size == 0
        product()
        assert info().size == 0
        with pytest.raises((ValueError, rocpy.InvalidProblemError)):
            rocpy.plan_cache.resize(-1)
    finally:
        rocpy.plan_cache.resize(capacity)


def test_plans_are_freed():
    before = rocpy.plan_cache.live_plans()
    for n in range(1, 20):
        product(n=n)
    assert rocpy.plan_cache.live_plans() == before + 19
    rocpy.plan_cache.clear()
    assert rocpy.plan_cache.live_plans() == before
