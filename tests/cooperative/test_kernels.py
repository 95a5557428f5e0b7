# SPDX-License-Identifier: MIT
"""Kernels launch on numpy, torch and DLPack arguments; what they may name works; mistakes are told in their terms."""

import math
import os
import textwrap
import threading

import numpy as np
import pytest
from dlpack_producers import OnlyDlpack

import rocpy
from rocpy import cooperative as coop
from rocpy.errors import (
    InvalidOperandError,
    InvalidProblemError,
    KernelError,
    KernelTypeError,
    UnsupportedError,
)

TILE = 8


def halve(value):
    return value / 2


@coop.jit
def row_sums(x, out):
    block = coop.this_block()
    acc = 0.0
    for j in range(coop.threadIdx.x, x.shape[1], coop.blockDim.x):
        acc += x[coop.blockIdx.x, j]
    total = coop.sum(block, acc)
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


@coop.jit
def scale(x, factor, out):
    i = coop.grid(1)
    if i < x.shape[0]:
        out[i] = halve(x[i]) * factor


@pytest.mark.parametrize("block", [1, 33, 256])
def test_the_example_of_the_guide(block, rng):
    x = rng.standard_normal((7, 500), dtype=np.float32)
    out = np.empty(7, np.float32)
    row_sums[x.shape[0], block](x, out)
    np.testing.assert_allclose(out, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.torch
def test_torch_arguments(torch):
    x = torch.randn(5, 100)
    out = torch.empty(5)
    row_sums[5, 64](x, out)
    assert torch.allclose(out, x.sum(1), atol=1e-4)
    with pytest.raises(InvalidOperandError, match="x requires a gradient"):
        row_sums[5, 64](x.requires_grad_(), out)
    with pytest.raises(InvalidOperandError, match="sparse"):
        row_sums[5, 64](torch.eye(5).to_sparse(), out)
    with pytest.raises(InvalidOperandError, match="x is on the meta device, which has no memory"):
        row_sums[5, 64](torch.empty(5, 100, device="meta"), out)


def test_dlpack_arguments():
    x, out = np.arange(10.0), np.zeros(10)
    scale[2, 8](OnlyDlpack(x), 3, OnlyDlpack(out))
    np.testing.assert_array_equal(out, x * 1.5)


def test_a_buffer_of_rocpys():
    x = rocpy.Buffer(80)
    view = np.from_dlpack(x)
    assert view.nbytes == 80


@pytest.mark.parametrize(
    ("dtype", "order"), [("int32", "C"), ("uint8", "F"), ("float64", "strided"), ("complex64", "C")]
)
def test_types_and_layouts_of_arguments(dtype, order):
    @coop.jit
    def copy(x, out):
        i, j = coop.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            out[i, j] = x[i, j]

    x = np.arange(24).reshape(4, 6).astype(dtype)
    out = np.zeros((4, 6), dtype, order="F" if order == "F" else "C")
    if order == "strided":
        x, out = np.repeat(x, 2, axis=1)[::-1, ::2], np.zeros((8, 6), dtype)[::2]
    copy[(1, 2), (4, 4)](x, out)
    np.testing.assert_array_equal(out, x)


def test_three_dimensional_indices():
    @coop.jit
    def place(out):
        x, y, z = coop.grid(3)
        wide, high, deep = coop.gridsize(3)
        out[z, y, x] = (z * high + y) * wide + x + deep - coop.gridDim.z * coop.blockDim.z

    out = np.zeros((4, 6, 10), np.int64)
    place[(5, 2, 1), (2, 3, 4)](out)
    np.testing.assert_array_equal(out.ravel(), np.arange(240))


def test_shared_memory_static_and_dynamic():
    @coop.jit
    def transpose(x, out):
        tile = coop.shared.array((TILE, TILE), np.float64)
        extra = coop.shared.array(0, np.int32)
        i, j = coop.threadIdx.x, coop.threadIdx.y
        tile[j, i] = x[j, i]
        if i == 0:
            extra[j] = j
        coop.syncthreads()
        out[j, i] = tile[i, j] + extra[j] + extra.shape[0]

    x = np.random.default_rng(0).random((TILE, TILE))
    out = np.empty_like(x)
    transpose[1, (TILE, TILE), None, 4 * TILE](x, out)
    np.testing.assert_array_equal(out, x.T + np.arange(TILE)[:, None] + TILE)


def test_too_much_shared_memory():
    @coop.jit
    def greedy(out):
        first = coop.shared.array(4096, np.float64)
        second = coop.shared.array(4097, np.float64)
        first[0] = second[0] = 1
        out[0] = first[0]

    with pytest.raises(KernelError, match="65544 bytes of shared memory, and a block may have 65536"):
        greedy[1, 1](np.zeros(1))


def test_tree_reduction_over_shared_memory(rng):
    @coop.jit
    def tree(x, out):
        held = coop.shared.array(256, np.float32)
        i = coop.threadIdx.x
        held[i] = x[coop.grid(1)]
        step = 128
        while step > 0:
            coop.syncthreads()
            if i < step:
                held[i] += held[i + step]
            step //= 2
        if i == 0:
            out[coop.blockIdx.x] = held[0]

    x = rng.integers(-50, 50, 20 * 256).astype(np.float32)
    out = np.empty(20, np.float32)
    tree[20, 256](x, out)
    np.testing.assert_array_equal(out, x.reshape(20, 256).sum(1))


def test_local_arrays_and_mathematics():
    @coop.jit
    def polynomial(x, out):
        powers = coop.local.array(4, np.float64)
        i = coop.threadIdx.x
        powers[0] = 1
        for k in range(1, 4):
            powers[k] = powers[k - 1] * x[i]
        out[i] = math.exp(powers[1]) + np.sqrt(powers[2]) + powers[3]

    x = np.linspace(0, 1, 16)
    out = np.empty(16)
    polynomial[1, 16](x, out)
    np.testing.assert_allclose(out, np.exp(x) + x + x**3, rtol=1e-14)


ATOMICS = {
    "add": (lambda o, v: coop.atomic.add(o, 0, v), np.sum, 0),
    "sub": (lambda o, v: coop.atomic.sub(o, 0, v), lambda x: -np.sum(x), 0),
    "max": (lambda o, v: coop.atomic.max(o, 0, v), np.max, -1000),
    "min": (lambda o, v: coop.atomic.min(o, 0, v), np.min, 1000),
    "and": (lambda o, v: coop.atomic.and_(o, 0, v), np.bitwise_and.reduce, -1),
    "or": (lambda o, v: coop.atomic.or_(o, 0, v), np.bitwise_or.reduce, 0),
    "xor": (lambda o, v: coop.atomic.xor(o, 0, v), np.bitwise_xor.reduce, 0),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in ATOMICS
        for dtype in ("int32", "float32")
        if dtype == "int32" or name[:3] in ("add", "sub", "max", "min")
    ],
)
def test_atomics(name, dtype, rng):
    change, oracle, start = ATOMICS[name]

    @coop.jit(threads=2)
    def gather(x, out):
        change(out, x[coop.grid(1)])

    x = rng.integers(-500, 500, 64 * 50).astype(dtype)
    out = np.full(1, start, dtype)
    gather[50, 64](x, out)
    assert out[0] == oracle(x)


def test_atomic_results_indices_and_refusals():
    @coop.jit
    def claim(order, slots, out):
        mine = coop.atomic.add(out, (0, 1), 1)
        slots[mine] = coop.threadIdx.x
        old = coop.atomic.cas(order, 0, 0, coop.threadIdx.x + 1)
        if old == 0:
            coop.atomic.exch(order, 1, coop.threadIdx.x)

    order, slots, out = np.zeros(2, np.int64), np.full(40, -1), np.zeros((1, 2), np.int64)
    claim[1, 40](order, slots, out)
    assert sorted(slots) == list(range(40))
    assert order[0] == order[1] + 1

    @coop.jit
    def wrong(x):
        coop.atomic.or_(x, 0, 1)

    with pytest.raises(KernelTypeError, match="elements are float64; bits are changed in integers only"):
        wrong[1, 1](np.zeros(1))


def test_an_exception_of_a_kernel_reaches_the_caller_with_its_line():
    @coop.jit
    def raising(x):
        if coop.blockIdx.x == 2 and coop.threadIdx.x == 3:
            raise ValueError("this value is wrong")
        x[coop.grid(1)] = 1

    x = np.zeros(40)
    with pytest.raises(ValueError, match="this value is wrong") as caught:
        raising[5, 8](x)
    last = caught.traceback[-1]
    assert str(last.path) == __file__
    assert "raise ValueError" in str(last.statement)
    assert caught.value.__notes__[0].startswith("raised by kernel raising, block (2, 0, 0), thread (3, 0, 0)")


def test_the_first_block_that_fails_is_reported():
    @coop.jit(threads=4)
    def raising(x):
        if coop.blockIdx.x >= 100:
            raise ValueError("late")
        x[0] = 1

    for _ in range(5):
        with pytest.raises(ValueError, match="late") as caught:
            raising[400, 4](np.zeros(1))
        assert "block (100, 0, 0)" in caught.value.__notes__[0]


SINGLE = np.zeros(1)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (1, "launched with 1 settings"),
        ((1, 1, None, 0, 0), "launched with 5 settings"),
        ((1, 1025), "at most 1024"),
        ((1, (32, 33, 1)), "at most 1024"),
        ((1, 0), "extents must be 1 or more"),
        ((-1, 1), "extents must be 0 or more"),
        ((1.5, 1), "must be an integer"),
        (((1, 1, 1, 1), 1), "tuple of one to three"),
        ((2**31, 1), "below 2\\*\\*31"),
        (((2**20, 2**20), 1), "at most 2147483647"),
        ((1, 1, None, -1), "dynamic shared memory"),
        ((1, 1, None, 70000), "dynamic shared memory"),
    ],
)
def test_wrong_launches(configuration, message):
    with pytest.raises(InvalidProblemError, match=message):
        scale[configuration](SINGLE, 1, SINGLE)


def test_wrong_arguments():
    with pytest.raises(InvalidProblemError, match=r"scale\(x, factor, out\) was called with 2"):
        scale[1, 1](SINGLE, 1)
    with pytest.raises(InvalidOperandError, match="factor is str"):
        scale[1, 1](SINGLE, "one", SINGLE)
    with pytest.raises(InvalidProblemError, match="give it a grid and a block"):
        scale(SINGLE, 1, SINGLE)
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    with pytest.raises(KernelTypeError, match="out: "):
        scale[1, 1](SINGLE, 1, frozen)


def test_an_empty_grid_does_nothing():
    out = np.ones(3)
    scale[0, 8](np.zeros(3), 1, out)
    np.testing.assert_array_equal(out, 1)


def test_names_mean_nothing_outside_kernels():
    for wrong in (coop.this_block, coop.syncthreads, lambda: coop.threadIdx.x, lambda: coop.sum(None, 1)):
        with pytest.raises(UnsupportedError, match="inside a kernel"):
            wrong()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("coop.sum(coop.this_block(), x)", "value is an array"),
        ("coop.sum(x[0], x[0])", "group is float64; pass coop.this_block"),
        ("coop.reduce(coop.this_block(), x[0], '-')", "op is '-'; the names are"),
        ("coop.reduce(coop.this_block(), x[0], '&')", "is for integers and booleans"),
        ("coop.reduce(coop.this_block())", "missing a required argument: 'value'"),
        ("coop.sum(coop.this_block(), x[0], all=x[0] > 0)", "all is bool; it must be a literal"),
        ("coop.shared.array(x.shape[0], np.float32)", "must be known when the kernel is compiled"),
        ("coop.shared.array(4, 'nothing')", "pass a type such as np.float32"),
        ("coop.local.array(-1, np.float32)", "extents must not be negative"),
        ("coop.ThreadData(0, np.float32)", "it must be one number, 1 or more"),
        ("undefined_name(x)", "undefined_name"),
        ("x.nothing()", "nothing"),
    ],
)
def test_typing_errors_speak_of_the_kernel(statement, message, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(
        f"import numpy as np\nfrom rocpy import cooperative as coop\n\n\ndef kernel(x):\n    y = {statement}\n"
    )
    names = {}
    exec(compile(source.read_text(), str(source), "exec"), names)
    with pytest.raises(KernelTypeError, match=message) as caught:
        coop.jit(names["kernel"])[1, 1](np.zeros(1))
    assert "kernel kernel cannot be compiled for (x: array(float64, 1d, C))" in str(caught.value)
    assert f"{source}:6" in str(caught.value)


def test_a_kernel_returns_nothing():
    @coop.jit
    def returning(x):
        return x[0]

    with pytest.raises(KernelTypeError, match="a kernel returns nothing, but this returns float64"):
        returning[1, 1](SINGLE)


def test_kernels_as_device_functions():
    @coop.jit
    def square(value):
        return value * value

    @coop.jit
    def squares(x):
        x[coop.threadIdx.x] = square(x[coop.threadIdx.x])

    x = np.arange(8.0)
    squares[1, 8](x)
    np.testing.assert_array_equal(x, np.arange(8.0) ** 2)


@pytest.mark.parametrize(
    "options",
    [
        {"warp_size": 16},
        {"threads": -1},
        {"threads": 2**31},
        {"threads": 2**40},
        {"stack_bytes": 1},
        {"seed": -1},
        {"seed": 1.5},
    ],
)
def test_wrong_options(options):
    with pytest.raises(InvalidProblemError, match=next(iter(options))):
        coop.jit(**options)


def test_only_functions_are_kernels():
    with pytest.raises(KernelTypeError, match="not int"):
        coop.jit(3)


def test_launches_from_several_threads(rng):
    x = rng.integers(0, 9, (50, 200)).astype(np.float32)
    failures = []

    def run():
        for _ in range(20):
            out = np.empty(50, np.float32)
            row_sums[50, 64](x, out)
            if not np.array_equal(out, x.sum(1)):
                failures.append(out)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_captured_stream_is_refused_and_the_capture_goes_on():
    out = np.zeros(2)
    with rocpy.Buffer(4, "float32") as buffer, rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            with pytest.raises(rocpy.UnsupportedError, match="kernel row_sums: its stream is being captured"):
                row_sums[2, 32, stream](np.ones((2, 10), np.float32), out)
            buffer.fill(7, stream=stream)
        assert graph.node_count == 1
        row_sums[2, 32, stream](np.ones((2, 10), np.float32), out)
    assert out.tolist() == [10, 10]


def test_streams_are_waited_for():
    with rocpy.Stream() as stream:
        out = np.empty(2, np.float32)
        row_sums[2, 32, stream](np.ones((2, 10), np.float32), out)
        np.testing.assert_array_equal(out, 10)
    with pytest.raises(InvalidOperandError, match="^stream: 0x7 is not a stream"):
        row_sums[2, 32, 7](np.ones((2, 10), np.float32), out)


def test_compiled_code_is_kept_on_disk(run_python, tmp_path):
    program = """
        import time, sys
        import numpy as np
        sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else {folder!r})
        import kept
        out = np.empty(3, np.float32)
        kept.total[3, 64](np.ones((3, 50), np.float32), out)
        assert out.tolist() == [50.0 * kept.FACTOR] * 3, out
        print(kept.total.launcher.cache_hits)
    """
    module = """
        import numpy as np
        from rocpy import cooperative as coop
        FACTOR = {factor}
        def scaled(value):
            return value * FACTOR
        @coop.jit(cache=True)
        def total(x, out):
            acc = 0.0
            for j in range(coop.threadIdx.x, x.shape[1], coop.blockDim.x):
                acc += x[coop.blockIdx.x, j]
            total = coop.sum(coop.this_block(), acc)
            if coop.threadIdx.x == 0:
                out[coop.blockIdx.x] = scaled(total)
    """
    source = tmp_path / "kept.py"
    hits = []
    for factor in (2, 2, 3):
        text = textwrap.dedent(module).format(factor=factor)
        source.write_text(text)
        os.utime(source, ns=(10**18, 10**18))  # the same stamp: what the kernel names decides
        # Python's own cache of the module goes by the stamp, and would give the earlier one.
        folders = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = run_python(program.format(folder=str(tmp_path)), **folders)
        hits.append(int(done.stdout))
    assert hits == [0, 1, 0]


def test_importing_is_light(run_python):
    run_python("""
        import sys
        import rocpy
        from rocpy import cooperative as coop

        @coop.jit
        def kernel(x):
            x[0] = 1

        assert not {"numba", "llvmlite", "torch"} & set(sys.modules)
    """)


def test_without_numba_the_extra_is_named(run_python):
    run_python("""
        import sys
        sys.modules["numba"] = sys.modules["llvmlite"] = None
        import numpy as np
        from rocpy import cooperative as coop, errors

        @coop.jit
        def kernel(x):
            x[0] = 1

        try:
            kernel[1, 1](np.zeros(1))
        except errors.UnsupportedError as error:
            assert "[cooperative]'" in str(error)
        else:
            raise SystemExit("not raised")
    """)
