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


EPILOGUE = """
    @rocpy.epilogue
    def shrink(x):
        return np.tanh(x)
"""
PRODUCT = "rocpy.matmul(ones, ones, epilogue=shrink)"
# First uses, each with a module that it imports: rocpy's own, and another package's in a function of rocpy.
FIRST_USES = {
    "a name": ("", "rocpy.tuning", "rocpy.tuning.database"),
    "a statement": ("", "import rocpy.tuning", "rocpy.tuning.database"),
    "a product with an epilogue of the user's": (EPILOGUE, PRODUCT, "rocpy.blaslt.custom.plan"),
    "a part of a package": ("", "rocpy.grouped_matmul([ones], [ones])", "rocpy.blaslt.grouped.function"),
    "a function": ("", "rocpy.explain(ones, ones)", "rocpy.blaslt.front.explain_product"),
    "a module of Python's": ("", "hasattr(rocpy, 'no_such_name')", "difflib"),
}  # fmt: skip


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_a_fork_while_a_slow_module_is_imported_waits_for_it(run_python, use):
    """The import is held up: without waiting the child would find a lock of a thread that it does not have.

    Modules that hold a lock over a fork are imported before, as a rule, and once while the fork waits.
    """
    before, statement, module = use
    early = "" if use is FIRST_USES["a module of Python's"] else "import concurrent.futures.thread, logging"
    code = f"""
    {early}   # whose locks a fork holds, and an import may need
    from rocpy._import_hook import when_imported
    begun = threading.Event()

    def hold_up():
        begun.set()
        time.sleep(0.2)
        import concurrent.futures.thread, logging
        logging.getLogger("slow")

    {before}
    def use():
        {statement}

    assert "{module}" not in sys.modules
    assert ("logging" in sys.modules) is {bool(early)}
    when_imported("{module}", hold_up)   # within the import
    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(20)
    started = time.monotonic()
    in_child(use)
    assert time.monotonic() - started < 30   # not until waiting is given up
    thread.join()
    """
    assert run_python(HEAD + code).stderr == ""


def test_a_fork_does_not_wait_for_a_module_that_a_program_imports(run_python):
    """Its body may be the whole program."""
    code = """
    from rocpy._import_hook import when_imported
    begun, end, ended = threading.Event(), threading.Event(), []

    def run():
        rocpy.matmul(ones, ones)
        begun.set()
        ended.append(end.wait(20))

    def use():
        import this

    when_imported("this", run)   # within the import
    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(20)
    in_child(lambda: rocpy.tuning)
    end.set()
    thread.join()
    assert ended == [True]
    """
    run_python(HEAD + code)


def test_a_kernel_that_another_thread_compiles(run_python):
    code = """
    from rocpy import cooperative

    @cooperative.jit
    def fill(x):
        x[cooperative.grid(1)] = 1

    def use():
        fill[1, 64](np.zeros(64, np.float32))

    from rocpy.cooperative.cpu import compile, launcher
    begun, compiled = threading.Event(), compile.compiled

    def slowly(*args):
        begun.set()
        time.sleep(0.1)
        return compiled(*args)

    compile.compiled = slowly
    thread = threading.Thread(target=use)
    thread.start()
    assert begun.wait(20)
    in_child(use)
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
