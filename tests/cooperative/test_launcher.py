# SPDX-License-Identifier: MIT
"""How kernels are launched: threads that take turns or have fibers, arguments as words, code on disk."""

import functools
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from failing_memory import each_failure

from rocpy import cooperative as coop
from rocpy.cooperative.cpu.machine_code import Form
from rocpy.cooperative.kernel.fingerprint import own_sources
from rocpy.errors import DivergentBarrierError, InvalidOperandError, InvalidProblemError, KernelTypeError


def _forms(kernel):
    return {each[1] for each in kernel.launcher._compiled.values()}


def _pairs_meet(held, rank):
    coop.syncthreads()
    total = held[rank ^ 1] + held[rank]
    coop.syncthreads()
    return total


def _countdown(n, held, rank):
    if n == 0:
        return held[rank]
    coop.syncthreads()
    return _countdown(n - 1, held, rank)


def test_barriers_in_functions_and_loops():
    @coop.jit
    def kernel(x, out):
        held = coop.shared.array(64, np.int64)
        i = coop.threadIdx.x
        own = coop.ThreadData(3, np.int64)
        held[i] = x[i]
        for k in range(3):
            own[k] = _pairs_meet(held, i) + k
            held[i] += 1
        coop.syncthreads()
        out[i] = own[0] + 10 * own[1] + 100 * own[2]

    x, out = np.arange(64), np.empty(64, np.int64)
    kernel[1, 64](x, out)
    pair = x + (x ^ 1)
    np.testing.assert_array_equal(out, pair + 10 * (pair + 3) + 100 * (pair + 6))
    assert _forms(kernel) == {Form.LOOPS}


def test_functions_that_call_themselves_are_refused():
    @coop.jit
    def kernel(x, held):
        x[0] = _countdown(x[0], held, 0)

    with pytest.raises(KernelTypeError, match="_countdown calls itself"):
        kernel[1, 1](np.zeros(1, np.int64), np.zeros(1))


def test_debug_mode_has_fibers_and_kernels_without_barriers_are_loops():
    @coop.jit(debug=True)
    def waiting(x):
        coop.syncthreads()
        x[coop.threadIdx.x] = 1

    waiting[1, 4](np.zeros(4))
    assert _forms(waiting) == {Form.FIBERS}

    @coop.jit
    def kernel(out):
        out[coop.grid(1)] = coop.grid(1)

    out = np.empty(600, np.int64)
    kernel[3, 200](out)
    np.testing.assert_array_equal(out, np.arange(600))
    assert _forms(kernel) == {Form.LOOPS}


def test_threads_that_leave_and_threads_that_raise():
    @coop.jit
    def kernel(x, out, culprit):
        i = coop.threadIdx.x
        if i % 2:
            return
        coop.syncthreads()
        if i == culprit:
            raise ValueError("value", x[i], i)
        out[i] = x[i]

    x, out = np.arange(8.0), np.zeros(8)
    kernel[1, 8](x, out, -1)
    np.testing.assert_array_equal(out, [0, 0, 2, 0, 4, 0, 6, 0])
    with pytest.raises(ValueError, match="value") as raised:
        kernel[3, 8](x, out, 4)
    assert raised.value.args == ("value", 4.0, 4)
    assert "block (0, 0, 0), thread (4, 0, 0)" in raised.value.__notes__[0]
    kernel[1, 8](x, out, -1)  # the next launch finds everything in order


def test_a_primitive_that_a_thread_has_left():
    @coop.jit
    def kernel(x):
        if coop.threadIdx.x != 5:
            x[coop.threadIdx.x] = coop.sum(coop.this_block(), x[coop.threadIdx.x], all=True)

    with pytest.raises(DivergentBarrierError, match=r"thread .* left the kernel|have left|do not come"):
        kernel[1, 16](np.ones(16))


def test_arrays_of_a_thread_live_across_barriers():
    @coop.jit
    def kernel(x, out):
        own = coop.local.array((4, 8), np.float64)
        i = coop.threadIdx.x
        for a in range(4):
            for b in range(8):
                own[a, b] = x[i] * (a + 1) + b
        total = coop.sum(coop.this_block(), own[3, 7], all=True)
        out[i] = own[2, 5] + total

    x, out = np.arange(300.0), np.empty(300)
    kernel[1, 300](x, out)
    np.testing.assert_array_equal(out, 3 * x + 5 + (4 * x + 7).sum())


RECORD = np.dtype([("a", np.int32), ("b", np.float64)])


@coop.jit
def spread(numbers, pair, record, table, out):
    out[0] = numbers[0] + numbers[1][0]
    out[1] = pair.real + 10 * pair.imag
    out[2] = record.a + record.b
    out[3] = table[0].a


def test_arguments_of_every_kind():
    record = np.array([(3, 0.5)], RECORD)
    out = np.zeros(4)
    spread[1, 1]((2, np.array([5.0])), 3 + 4j, record[0], record, out)
    assert out.tolist() == [7.0, 43.0, 3.5, 3.0]
    spread[1, 1]((np.float32(2), np.array([5], np.uint8)), np.complex64(1 - 1j), record[0], record[::-1], out)
    assert out.tolist() == [7.0, -9.0, 3.5, 3.0]


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        7,
        -7,
        2**63 + 5,
        1.5,
        np.int8(-3),
        np.uint16(65535),
        np.float32(0.25),
        np.float64(3),
        np.bool_(True),
    ],
    ids=repr,
)
def test_numbers_as_arguments(value):
    @coop.jit
    def kernel(given, out):
        out[0] = given

    out = np.zeros(1, np.uint64 if isinstance(value, int) and value >= 2**63 else np.float64)
    kernel[1, 1](value, out)
    assert out[0] == value


def test_defaults_of_arguments():
    @coop.jit
    def kernel(out, scale=3, shift=0.5):
        out[0] = 2 * scale + shift

    out = np.zeros(1)
    kernel[1, 1](out)
    assert out[0] == 6.5
    kernel[1, 1](out, 4)
    assert out[0] == 8.5


def test_arguments_that_no_kernel_takes():
    @coop.jit
    def kernel(given, out):
        out[0] = 1

    for given in (2**70, np.str_("text"), np.array([None])):
        with pytest.raises(KernelTypeError, match="kernel kernel cannot be compiled"):
            kernel[1, 1](given, np.zeros(1))


def test_arguments_by_name_and_of_subclasses(tmp_path):
    @coop.jit
    def kernel(x, out, scale=2):
        out[coop.threadIdx.x] = x[coop.threadIdx.x] * scale

    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=4)
    x[:] = range(4)
    out = np.zeros(4)
    kernel[1, 4](x, out=out, scale=3)
    assert out.tolist() == [0, 3, 6, 9]
    with pytest.raises(InvalidProblemError, match=r"kernel kernel: .*'factor'"):
        kernel[1, 4](x, out, factor=3)
    with pytest.raises(InvalidOperandError, match="x is a masked array"):
        kernel[1, 4](np.ma.ones(4), out)
    with pytest.raises(KernelTypeError, match="array of >f8; kernels take arrays of booleans and numbers"):
        kernel[1, 4](x.astype(">f8"), out)


def test_names_of_options_that_nvidia_has():
    @coop.jit
    def kernel(x, out):
        block, i = coop.this_block(), coop.threadIdx.x
        out[i, 0] = coop.reduce(block, x[i], binary_op="max", all=True)
        out[i, 1] = coop.exclusive_scan(block, x[i], scan_op="+", initial_value=10)
        out[i, 2] = coop.reduce(block, x[i], all=True)
        out[i, 3] = coop.inclusive_scan(block, x[i])
        items = coop.ThreadData(1, np.int64)
        items[0] = x[i]
        out[i, 4] = coop.merge_sort_keys(block, items, compare_op=">")[0]

    x, out = np.array([3, 1, 4, 1, 5]), np.zeros((5, 5), np.int64)
    kernel[1, 5](x, out)
    scan = np.cumsum(x)
    expected = np.stack([np.full(5, 5), scan - x + 10, np.full(5, 14), scan, np.sort(x)[::-1]], 1)
    np.testing.assert_array_equal(out, expected)


def test_kernels_that_print(capfd):
    @coop.jit(threads=1)
    def kernel(x):
        coop.syncthreads()
        if coop.threadIdx.x == 1:
            print("seen", x[1])

    kernel[1, 2](np.array([3, 4]))
    sys.stdout.flush()
    assert capfd.readouterr().out == "seen 4\n"


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import kept
x = np.ones(8, np.float32)
kept.total[1, 8](x)
assert x.tolist() == [8.0] * 8
print(kept.total.launcher.cache_hits, "numba" in sys.modules)
"""


@pytest.fixture
def kept(tmp_path):
    """Return a function that runs a cached kernel in a new process, and where its code is kept."""
    (tmp_path / "kept.py").write_text(
        textwrap.dedent("""
            from rocpy import cooperative as coop

            @coop.jit(cache=True)
            def total(x):
                x[coop.threadIdx.x] = coop.sum(coop.this_block(), x[coop.threadIdx.x], all=True)
        """)
    )

    def run():
        command = [sys.executable, "-P", "-c", PROGRAM.format(folder=str(tmp_path))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    return run, tmp_path / "__pycache__"


@pytest.mark.slow
def test_code_from_disk_needs_no_numba(kept):
    run, folder = kept
    assert run() == ["0", "True"]
    assert run() == ["1", "False"]
    (file,) = folder.glob("rocpy-kept.total-*.o")
    file.write_bytes(file.read_bytes()[:-100])  # as a full disk leaves it
    assert run() == ["0", "True"]
    assert run() == ["1", "False"]


def test_what_is_kept_depends_on_every_source_of_the_package():
    kernel = coop.jit(lambda x: None)
    kernel[1, 1](np.zeros(1))  # imports the compiler
    files = {Path(module.__file__) for name, module in sys.modules.items() if name.startswith("rocpy.cooperative")}
    sources = {path for path in files if path.suffix == ".py"}
    assert {path.parent.name for path in sources} >= {"api", "kernel", "numba", "cpu", "amdgpu", "cooperative"}
    assert sources <= set(own_sources().values())


# CPython closes generators, and has no memory for it either.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_that_runs_out_in_a_launch_is_a_memory_error():
    @coop.jit
    def kernel(x, out):
        out[0] = x

    launch = functools.partial(kernel[1, 1], 2.0, np.zeros(1))
    launch()
    assert {type(error) for error in each_failure(lambda: launch)} == {MemoryError, type(None)}
