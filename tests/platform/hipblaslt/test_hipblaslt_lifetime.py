# SPDX-License-Identifier: MIT
"""Objects of the host platform's hipBLASLt over time: made and dropped, by many threads, across fork, at exit."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import Call, Compute, Problem, Type, hip, lt, unwrap
from hipblaslt_support.host import ROOT, host_folder


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def make_and_drop():
    desc = unwrap(lt.hipblasLtMatmulDescCreate(Compute.HIPBLAS_COMPUTE_32F, Type.HIP_R_32F))
    layouts = [unwrap(lt.hipblasLtMatrixLayoutCreate(Type.HIP_R_32F, 4, 4, 4)) for _ in range(4)]
    preference = unwrap(lt.hipblasLtMatmulPreferenceCreate())
    unwrap(lt.hipblasLtMatmulPreferenceDestroy(preference))
    for layout in layouts:
        unwrap(lt.hipblasLtMatrixLayoutDestroy(layout))
    unwrap(lt.hipblasLtMatmulDescDestroy(desc))


def test_memory_stays_flat():
    for _ in range(2000):
        make_and_drop()
    before = resident_bytes()
    for _ in range(20000):
        make_and_drop()
    assert resident_bytes() - before < 1 << 20


def test_many_at_once_are_distinct_and_all_live():
    count = 5000
    made = [unwrap(lt.hipblasLtMatrixLayoutCreate(Type.HIP_R_32F, i, 4, 4)) for i in range(count)]
    assert len({int(layout) for layout in made}) == count
    for layout in made[::7]:
        calls.unwrap(lt.hipblasLtMatrixLayoutDestroy(layout))
    attribute = calls.LayoutAttribute.HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT
    value = np.zeros(1, np.int32)
    for index, layout in enumerate(made):
        status, _ = lt.hipblasLtMatrixLayoutGetAttribute(layout, attribute, value, 4)
        assert int(status) == (1 if index % 7 == 0 else 0)
    for index, layout in enumerate(made):
        if index % 7:
            unwrap(lt.hipblasLtMatrixLayoutDestroy(layout))


def test_objects_made_by_many_threads():
    errors = []
    barrier = threading.Barrier(8)

    def work(seed):
        try:
            a, b = (np.random.default_rng(seed + i).standard_normal((1, 8, 8)).astype(np.float32) for i in range(2))
            barrier.wait()
            with calls.handle() as handle:
                for _ in range(100):
                    seen = calls.run(handle, Problem(8, 8, 8), a, b)
                    np.testing.assert_allclose(seen, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


SCRIPT = """
import os, sys, threading
import numpy as np
from hipblaslt_support import calls
from hipblaslt_support.calls import Call, Problem, hip, unwrap

def product(handle):
    ones = np.ones((1, 16, 16))
    assert (calls.run(handle, Problem(16, 16, 16), ones, ones) == 16).all()

{body}
"""


def run_script(body):
    environment = {
        **os.environ,
        "ROCPY_TEST_HOST_DIR": str(host_folder()),
        "PYTHONPATH": str(ROOT / "tests" / "support"),
    }
    source = SCRIPT.format(body=body)
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_forked_child_makes_objects_and_products_of_its_own():
    body = """
handle = unwrap(calls.lt.hipblasLtCreate())
product(handle)
stop = threading.Event()
def churn():
    while not stop.is_set():
        with calls.handle() as own:
            product(own)
threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        product(handle)
        with calls.handle() as own:
            product(own)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
for thread in threads:
    thread.join()
print("done")
"""
    assert run_script(body) == "done\n"


def test_exit_with_products_queued_and_nothing_destroyed():
    body = """
handle = unwrap(calls.lt.hipblasLtCreate())
stream = unwrap(hip.hipStreamCreateWithFlags(1))
size = 512
# Device memory that nobody frees: a numpy array is gone when the interpreter ends, with products still to come.
a, d = unwrap(hip.hipMalloc(4 * size * size)), unwrap(hip.hipMalloc(4 * size * size))
call = Call(Problem(size, size, size))
one, layouts = np.ones(1, np.float32), call.layouts
for _ in range(50):
    (status,) = calls.lt.hipblasLtMatmul(handle, call.desc, one, a, layouts["a"], a, layouts["b"], one, d, layouts["c"],
                                         d, layouts["d"], None, None, 0, stream)
    assert int(status) == 0
print("done")
"""
    assert run_script(body) == "done\n"


def test_destroying_the_handle_waits_for_its_products():
    handle = unwrap(lt.hipblasLtCreate())
    size = 256
    a, d = np.ones(size * size, np.float32), np.zeros(size * size, np.float32)
    stream = unwrap(hip.hipStreamCreateWithFlags(1))
    with Call(Problem(size, size, size)) as call:
        for _ in range(10):
            assert call.matmul(handle, 1.0, a, a, 0.0, d, d, stream=stream) == 0
    unwrap(lt.hipblasLtDestroy(handle))
    assert int(hip.hipStreamQuery(stream)[0]) == 0
    assert (d == size).all()
    unwrap(hip.hipStreamDestroy(stream))
