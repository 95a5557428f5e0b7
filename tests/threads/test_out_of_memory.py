# SPDX-License-Identifier: MIT
"""Processes whose address space ends: each allocation of the core and of the host platform that fails raises."""

from __future__ import annotations

import sys

import pytest

import rocpy

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address spaces are limited on Linux")

PROGRAM = """
import re, resource, traceback
import numpy as np
import rocpy

kind, spare = KIND, SPARE
x = np.ones((8, 8), np.float32)
rocpy.matmul(x, x)
rocpy.grouped_matmul([x], [x])
with rocpy.Matmul(x, x) as product:
    product.plan()
    product.execute()
rocpy.Weight(x).close()
with rocpy.Stream() as stream:
    rocpy.matmul(x, x, stream=stream)
    stream.synchronize()
size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + spare * 1024, -1))
kept, failures = [], 0


def step(i):
    a, b = np.ones((1 + i % 97, 8 + i // 97), np.float32), np.ones((8 + i // 97, 5), np.float32)
    if kind == "plans":
        product = rocpy.Matmul(a, b, epilogue="relu")
        kept.append(product)
        product.plan()
        product.execute()
    elif kind == "streams":
        stream = rocpy.Stream()
        kept.append(stream)
        kept.append(rocpy.matmul(a, b, stream=stream))
    elif kind == "weights":
        kept.append(rocpy.Weight(b))
        kept.append(rocpy.matmul(np.ones((4, 8 + i // 97), np.float32), kept[-1]))
    elif kind == "graphs":
        stream = rocpy.Stream()
        with stream.capture() as graph:
            for _ in range(20):
                rocpy.matmul(a, b, stream=stream)
        kept.extend((stream, graph))
    elif kind == "groups":
        kept.append(rocpy.grouped_matmul([a, a], [b, b]))
    else:
        kept.append(rocpy.matmul(a, b))
        kept.append(bytes(4000))


i = 0
while failures < 25 and i < 100_000:
    try:
        i += 1
        step(i)
    except MemoryError:
        failures += 1
        if kept:
            kept.pop()  # the handler itself needs some memory
    except SystemError as error:
        # CPython 3.11 forgets the exception where it has no memory for the frame of a Python function.
        if kept:
            kept.pop()
        called_by = traceback.extract_tb(error.__traceback__)[-1].filename
        # The second where the interpreter calls it itself, as an __init__; what is compiled is no "<function".
        forgotten = "error return without exception set|<function .* returned NULL without setting an exception"
        if not re.fullmatch(forgotten, str(error)) or not called_by.endswith(".py"):
            raise
        failures += 1
kept.clear()
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert failures == 25, failures
assert (rocpy.matmul(x, x) == 8).all()
print("done")
"""


@pytest.mark.parametrize("kind", ["plans", "streams", "weights", "graphs", "groups", "cache"])
@pytest.mark.parametrize("spare", [600, 5000])
def test_memory_that_runs_out_raises(kind, spare, run_python):
    if kind == "graphs" and not rocpy.platform.current().host_memory:
        pytest.skip("a graph holds no copies of arrays in CPU memory")
    done = run_python(f"KIND, SPARE = {kind!r}, {spare}\n{PROGRAM}", timeout_s=120, check=False)
    if "cannot allocate memory for thread-local data" in done.stderr:
        return  # the C library ends the process itself where a thread first uses a library and has no memory for that
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "done"


COMMUNICATORS = """
import re, resource
import numpy as np
from rocpy import rccl

rccl.Communicator.init_all(1)[0].abort()
for megabytes in (4, 12, 20):  # the stack of a thread has 8
    size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, -1))
    try:
        for comm in rccl.Communicator.init_all(3):
            comm.abort()
    except (rccl.RcclSystemError, MemoryError) as error:
        print(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
comms = rccl.Communicator.init_all(3)
with rccl.group():
    sums = [comm.all_reduce(np.ones(2)) for comm in comms]
    for comm in comms:
        comm.close()
assert [one.tolist() for one in sums] == [[3.0, 3.0]] * 3
"""


@pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="RCCL on GPUs has threads of its own")
def test_threads_that_cannot_be_created_are_said(run_python):
    done = run_python(COMMUNICATORS)
    assert "init_all failed: ncclSystemError (2): no thread could be created: Resource temporarily" in done.stdout
