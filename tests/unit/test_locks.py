# SPDX-License-Identifier: MIT
"""Locks that whoever forks holds meanwhile, and locks that cannot be created."""

import threading

import pytest

from rocpy._locks import reentrant_lock

FORKS = """
import os, threading
{first}
from rocpy._locks import hold_over_forks

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

lock = threading.{kind}()
{body}
"""
HELD_BY_ANOTHER_THREAD = """
hold_over_forks(lock)
held, go = threading.Event(), threading.Event()
def hold():
    with lock:
        held.set()
        go.wait(0.3)
thread = threading.Thread(target=hold)
thread.start()
held.wait()
fork()  # not before the lock is given back
assert not thread.is_alive() or not go.is_set()
thread.join()
assert lock.acquire(timeout=5)
lock.release()
fork()
"""
# A lock that is named while another thread forks, as by the import of a module by its first use: between the two halves
# of that fork. Hooks from before this module's are called then.
REGISTER = """
import sys
seen = []
sys.unraisablehook = seen.append
registered = []
def register():
    if not registered:
        registered.append(True)
        hold_over_forks(lock)
        if {taken}:
            lock.acquire()
os.register_at_fork(before=register)
"""
NAMED_DURING_A_FORK = """
child = os.fork()
if child == 0:
    os._exit(len(seen))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert not seen, seen
if {taken}:
    assert lock.locked() if hasattr(lock, "locked") else True
    lock.release()  # still ours
fork()
assert not seen, seen
"""


def test_no_thread_holds_it_in_a_child(run_python):
    for kind in ("Lock", "RLock"):
        run_python(FORKS.format(kind=kind, first="", body=HELD_BY_ANOTHER_THREAD))


def test_a_lock_that_is_named_during_a_fork_is_left_alone(run_python):
    for kind in ("Lock", "RLock"):
        for taken in (False, True):
            first, body = REGISTER.format(taken=taken), NAMED_DURING_A_FORK.format(taken=taken)
            run_python(FORKS.format(kind=kind, first=first, body=body))


# Threads that import, take locks within their imports and import while they hold one, while others fork.
ALL_AT_ONCE = """
import importlib.abc, importlib.util, sys, time
hold_over_forks(lock)
outer = threading.RLock()
hold_over_forks(outer)
bodies = {}

class Parts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path, target=None):
        return importlib.util.spec_from_loader(fullname, self) if fullname in bodies else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        bodies[module.__name__]()

def import_part(body):
    name = f"rocpy.part{threading.get_ident()}"
    bodies[name] = body
    importlib.import_module(name)
    del sys.modules[name]

def take_lock():
    with lock:
        pass

def work(number):
    while time.monotonic() < until:
        if number % 3 == 0:
            import_part(take_lock)
        elif number % 3 == 1:
            with outer:
                import_part(lambda: time.sleep(0.001))
        else:
            fork()

sys.meta_path.insert(0, Parts())
until = time.monotonic() + 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(9)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import_part(fork)  # a thread that imports does not wait for itself
"""


def test_imports_locks_and_forks_do_not_wait_for_one_another_for_ever(run_python):
    for kind in ("Lock", "RLock"):
        code = FORKS.format(kind=kind, first="", body=ALL_AT_ONCE)
        run_python("import warnings\nwarnings.simplefilter('ignore')\n" + code)


@pytest.mark.parametrize(
    ("raised", "seen"), [(RuntimeError("can't allocate lock"), MemoryError), (RecursionError(), RecursionError)]
)
def test_what_a_lock_without_memory_or_stack_raises(monkeypatch, raised, seen):
    def refuse():
        raise raised

    monkeypatch.setattr(threading, "RLock", refuse)
    with pytest.raises(seen):
        reentrant_lock()
