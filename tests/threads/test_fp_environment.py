# SPDX-License-Identifier: MIT
"""Results do not depend on the caller's floating-point environment, and that environment is as before afterwards."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import fp_environment
import fp_program
import numpy as np
import pytest

import rocpy

SUPPORT = Path(fp_program.__file__).parent
NAMES = list(fp_environment.ENVIRONMENTS)
# The last has all at once.
QUICK = [NAMES[-1], "up", "zero"]


def with_slow(names, quick):
    """Mark what is not in the quick run."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def with_torch(request):
    """Import torch, where it is and is wanted, so that the program uses it whichever tests ran before."""
    wanted = not request.config.getoption("--without-torch") and importlib.util.find_spec("torch") is not None
    if wanted:
        importlib.import_module("torch")
    return wanted


@pytest.fixture(scope="module", params=fp_program.PARTS, ids=lambda part: part.__name__)
def part(request, with_torch):
    """Calls of one part of the library, and their bits in the default environment."""
    chosen = fp_program.calls(request.param)
    if not chosen:
        assert not with_torch
        pytest.skip("torch: not installed, or not wanted in this run")
    return chosen, fp_program.digests(chosen)


@pytest.mark.parametrize("name", with_slow(NAMES, QUICK))
def test_results_have_the_bits_of_the_default_environment(part, name):
    chosen, wanted = part
    found = {}
    for title, call in chosen.items():
        with fp_environment.environment(name) as word:
            result = call()
            after = fp_environment.read()
        assert (after ^ word) & ~fp_environment.FLAGS == 0, title
        found[title] = fp_program.digests({title: lambda result=result: result})[title]
    assert found == wanted


@pytest.mark.parametrize("peer", ["", pytest.param("torch", marks=[pytest.mark.torch, pytest.mark.slow])])
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", with_slow(NAMES, QUICK[:1]))
def test_results_of_a_process_that_begins_in_another_environment(name, when, peer):
    # The pool's and the streams' threads are made by the first product, and inherit the environment of its thread.

    def run(*arguments: str) -> dict[str, object]:
        environment = {**os.environ, "ROCPY_NUM_THREADS": "4", "PYTHONPATH": str(SUPPORT)}
        done = subprocess.run(
            [sys.executable, str(SUPPORT / "fp_program.py"), *arguments, peer],
            capture_output=True, text=True, env=environment, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    wanted, found = run("", when), run(name, when)
    assert found["digests"] == wanted["digests"]
    assert (found["before"] ^ found["after"]) & ~fp_environment.FLAGS == 0


def test_the_environment_is_another_one():
    # What the tests above rest on: numpy does compute otherwise in these environments.
    x = np.array([1.1, 1.3, -1.1, -1.3, 2.0**-100], np.float32)
    y = np.array([1.9, 0.7, 1.9, 0.7, 2.0**-40], np.float32)
    wanted = (x * y).view(np.uint32).tolist()
    for name in NAMES:
        if name in ("unmasked", "all of it"):  # numpy ends by a signal there
            continue
        with fp_environment.environment(name):
            found = np.multiply(x, y)
        if name not in ("daz", "x87"):  # a subnormal result of numbers that are none; numpy does not use the unit
            assert found.view(np.uint32).tolist() != wanted, name


@pytest.mark.torch
def test_torch_flushes_subnormal_numbers_and_products_do_not():
    torch = pytest.importorskip("torch")
    a = torch.full((300, 40), 2.0**-70)
    wanted = rocpy.matmul(a, a.mT)
    assert float(wanted[0, 0]) == 40 * 2.0**-140
    torch.set_flush_denormal(True)
    try:
        found = rocpy.matmul(a, a.mT)
        flushed = float((a * a)[0, 0])
    finally:
        torch.set_flush_denormal(False)
    assert flushed == 0.0
    assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))


def test_flags_of_the_caller_are_neither_set_nor_cleared():
    a = np.array([[1.1, 2.0**-70], [np.inf, 1.3]], np.float32)
    rocpy.quantize(a, "int8")  # the first call imports what it needs
    before = fp_environment.read()
    try:
        for word in (fp_environment.ENVIRONMENTS[NAMES[0]], fp_environment.ENVIRONMENTS[NAMES[-1]], before):
            fp_environment.write(word & ~fp_environment.FLAGS)
            rocpy.matmul(a, a, epilogue="gelu")
            rocpy.matmul(a, a, alpha=2.0**-100 / 3)
            rocpy.quantize(a, "int8")
            assert fp_environment.read() == word & ~fp_environment.FLAGS
            fp_environment.write(word | fp_environment.FLAGS)
            rocpy.matmul(a, a)
            assert fp_environment.read() == word | fp_environment.FLAGS
    finally:
        fp_environment.write(before)


def test_a_call_that_raises_puts_the_environment_back():
    with fp_environment.environment(NAMES[0]) as word:
        with pytest.raises(rocpy.errors.InvalidProblemError):
            rocpy.matmul(np.ones((2, 3)), np.ones((2, 3)))
        assert (fp_environment.read() ^ word) & ~fp_environment.FLAGS == 0
        with pytest.raises(rocpy.errors.InvalidProblemError):
            rocpy.quantize(np.ones((2, 3)), "int8", axis=7)
        assert (fp_environment.read() ^ word) & ~fp_environment.FLAGS == 0


@pytest.mark.torch
def test_every_gradient_of_the_layers_is_computed_in_the_default_environment(torch):
    for name in ("torch", "torch.operators.custom_blocks", "torch.operators.grouped", "distributed._autograd"):
        importlib.import_module(f"rocpy.{name}")
    ours = ("rocpy.torch.", "rocpy.distributed.")
    recorded = [each for each in torch.autograd.Function.__subclasses__() if each.__module__.startswith(ours)]
    assert len(recorded) >= 8
    for each in recorded:
        assert hasattr(each.backward, "__wrapped__"), each


THREADS_OF_TORCH = """
import numpy as np, torch
import fp_environment, rocpy
torch.set_num_threads(3)
with fp_environment.environment({name!r}):
    torch.ones(1 << 20).add_(1)  # torch's threads are made, and keep this environment
x = torch.tensor([1000.0, 1.1, -1.3, 2.0**-100]).repeat(1 << 18)
grown = rocpy.epilogue(lambda x, y: np.exp(x) * 0.5 + y * y)
found = grown.evaluate(x, y=x)
with np.errstate(all="ignore"):
    assert found[-4:].tolist() == found[:4].tolist() and found[0] == float("inf")
y = x.clone()
y[::4] = 0
assert (rocpy.epilogue(lambda x: x * 2.0**-40).evaluate(y).view(4, -1)[:, 3::4] == 2.0**-140).all()
"""


@pytest.mark.torch
@pytest.mark.parametrize("name", with_slow(NAMES, ["ftz"]))
def test_threads_of_torchs_own_that_keep_another_environment(run_python, name):
    run_python(THREADS_OF_TORCH.format(name=name), PYTHONPATH=str(SUPPORT))


@pytest.mark.parametrize("name", [NAMES[-1], "up"])
def test_numbers_are_narrowed_in_the_default_environment(name):
    from rocpy import cooperative as coop
    from rocpy import rccl

    def fill(out, factor):
        out[0], out[1], out[2] = factor, 0.7, factor * 0.1

    found = np.zeros(3, np.float32)
    kernel = coop.jit(threads=1, float="float32")(fill)
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        with fp_environment.environment(name):  # the kernel is compiled in it too
            kernel[1, 1](found, 0.3)
            factors = [comm.premul_sum(number) for number in (0.1, 0.3, 0.7)]
        multiplied = [float(comm.all_reduce(np.ones(1, np.float32), op=factor)[0]) for factor in factors]
    wanted = np.array([0.3, 0.7, 0.1], np.float32)
    np.testing.assert_array_equal(found, [wanted[0], wanted[1], wanted[0] * wanted[2]])
    np.testing.assert_array_equal(multiplied, np.array([0.1, 0.3, 0.7], np.float32))
