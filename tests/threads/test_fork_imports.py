# SPDX-License-Identifier: MIT
"""A fork waits while another thread imports the part of rocpy that it names first: the child can name it too."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

HEAD = """
    import faulthandler, os, sys, threading, time, warnings
    warnings.simplefilter("ignore")   # newer Pythons warn of any fork in a process with threads

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            faulthandler.dump_traceback_later(20, exit=True)
            work()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    import numpy as np, rocpy
    ones = np.ones((4, 4), np.float32)
"""
NAMES = ["epilogue", "epilogues", "tuning", "rccl", "quantize", "cooperative", "distributed"]


@pytest.mark.parametrize("statement", ["rocpy.{name}", "from rocpy import {name}"])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_use_of_a_name(run_python, name, statement):
    code = f"""
    def use():
        {statement.format(name=name)}

    thread = threading.Thread(target=use)
    thread.start()
    time.sleep(0.002)
    in_child(use)
    thread.join()
    """
    run_python(HEAD + code)


def test_the_first_product_which_reads_stored_choices(run_python):
    code = """
    def use():
        rocpy.matmul(ones, ones)

    for pause in (0.0005, 0.001, 0.002):
        thread = threading.Thread(target=use)
        thread.start()
        time.sleep(pause)
        in_child(use)
        thread.join()
    """
    run_python(HEAD + code)


def test_a_fork_while_a_slow_part_is_imported_waits_for_it(run_python):
    """The parts are held up: without waiting the child would find a lock of a thread that it does not have."""
    code = """
    import importlib.abc, importlib.machinery
    begun = threading.Event()

    class Slow(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname, path, target=None):
            if fullname == "rocpy.tuning.database" and not begun.is_set():
                begun.set()
                time.sleep(0.3)

    sys.meta_path.insert(0, Slow())
    thread = threading.Thread(target=lambda: rocpy.tuning)
    thread.start()
    begun.wait()
    in_child(lambda: rocpy.tuning)
    thread.join()
    """
    run_python(HEAD + code)


def test_forks_of_a_thread_that_imports_and_of_several_threads_do_not_wait_for_one_another(run_python):
    code = """
    import importlib.abc

    class Forks(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname, path, target=None):
            if fullname == "rocpy.tuning.database":
                in_child(lambda: None)

    sys.meta_path.insert(0, Forks())
    started = time.monotonic()
    threads = [threading.Thread(target=in_child, args=(lambda: rocpy.epilogues,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    rocpy.tuning
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 15
    """
    run_python(HEAD + code)


def test_a_name_that_there_is_not_leaves_nothing_held(run_python):
    code = """
    for _ in range(3):
        assert not hasattr(rocpy, "nothing_of_the_kind")
    sys.modules["rocpy.rccl"] = None   # its import fails
    try:
        rocpy.rccl
    except (AttributeError, ImportError):
        pass
    in_child(lambda: rocpy.tuning)
    """
    run_python(HEAD + code)
