# SPDX-License-Identifier: MIT
"""Interpreter shutdown with handles alive and work queued: it ends, quietly and with its own status."""

from __future__ import annotations

import pytest

HEAD = """
    import atexit, sys, threading, time
    import numpy as np
    import rocpy
    a = np.random.default_rng(1).standard_normal((400, 400)).astype(np.float32)
"""

PROGRAMS = {
    "import only": "",
    "a product": "rocpy.matmul(a, a)",
    "platform chosen": "rocpy.platform.current()",
    "live plan": "mm = rocpy.Matmul(a, a); mm.plan(); mm.execute()",
    "live weight": "w = rocpy.Weight(a); rocpy.matmul(a, w)",
    "live stream": "stream = rocpy.Stream(); rocpy.matmul(a, a, stream=stream)",
    "queued work": "stream = rocpy.Stream(); found = [rocpy.matmul(a, a, stream=stream) for _ in range(50)]",
    "queued and dropped": "stream = rocpy.Stream(); [rocpy.matmul(a, a, stream=stream) for _ in range(50)]; del stream",
    "handles in a cycle": "box = [rocpy.Matmul(a, a), rocpy.Weight(a), rocpy.Stream()]; box.append(box)",
    "handles on a module": "sys.kept = (rocpy.Matmul(a, a), rocpy.Weight(a), rocpy.Stream())",
    "product at exit": "atexit.register(lambda: rocpy.matmul(a, a))",
    "daemon thread computing": """
    def busy():
        while True:
            rocpy.matmul(a, a)
    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.3)
    """,
    **{
        f"daemon threads that wait: {wait}": f"""
    def busy():
        while True:
            results = [rocpy.matmul(big, big, stream=stream) for _ in range(10)]
            event = stream.record()
            {wait}
    big, stream = np.ones((1024, 1024), np.float32), rocpy.Stream()
    for _ in range(2):
        threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.2)
    """
        for wait in ("stream.synchronize()", "event.synchronize()", "rocpy.Device(0).synchronize()")
    },
    "daemon threads without the GIL": """
    from rocpy import cooperative as coop
    kernel = coop.jit(lambda x: None)
    kernel[1, 1](a)
    def busy(function, *arguments):
        while True:
            function(*arguments)
    for call in ((kernel[1, 64], a), (rocpy.plan_cache.clear,), (rocpy.plan_cache.resize, 9)):
        threading.Thread(target=busy, args=call, daemon=True).start()
    time.sleep(0.2)
    """,
    # Python ends the worker that runs it where it asks for the GIL: nothing may wait for it.
    "queued host function in Python": """
    import ctypes
    owners = (rocpy.Buffer(4), rocpy.Buffer(4, location="host"), rocpy.Weight(a), rocpy.rccl.empty(4))
    stream = rocpy.Stream()
    rocpy.matmul(a, a, stream=stream)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.1))
    launch = ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).hipLaunchHostFunc
    launch.argtypes = [ctypes.c_void_p] * 3
    launch(stream.handle, function, None)
    """,
    "finaliser that computes": """
    class Late:
        def __del__(self, matmul=rocpy.matmul, a=a):
            try:
                matmul(a, a)
            except Exception:
                pass
    sys.late = Late()
    """,
}


@pytest.mark.parametrize(
    ("name", "stress"),
    [
        *((name, None) for name in PROGRAMS),
        *(pytest.param(name, "5", marks=[] if "queued" in name else pytest.mark.slow) for name in PROGRAMS),
    ],
)
def test_it_ends_quietly(run_python, name, stress):
    done = run_python(HEAD + "    " + PROGRAMS[name].lstrip() + "\n", timeout_s=60, ROCPY_HOST_STRESS=stress)
    assert done.stderr == ""


def test_an_uncaught_exit_ends_with_its_own_status(run_python):
    code = """
    stream = rocpy.Stream()
    rocpy.matmul(a, a, stream=stream)
    raise SystemExit(7)
    """
    done = run_python(HEAD + code, check=False)
    assert done.returncode == 7
    assert done.stderr == ""


def test_many_handles_at_exit(run_python):
    code = """
    small = a[:4, :4].copy()
    kept = []
    for n in range(300):
        mm = rocpy.Matmul(small, small)
        mm.plan()
        kept.append((mm, rocpy.Weight(small)))
    streams = [rocpy.Stream() for _ in range(20)]
    for stream in streams:
        rocpy.matmul(a, a, stream=stream)
    """
    assert run_python(HEAD + code).stderr == ""
