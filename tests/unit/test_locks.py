# SPDX-License-Identifier: MIT
"""Locks that whoever forks holds meanwhile."""

FORKS = """
import os, threading
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
# Hooks that are registered while another thread forks, as by the import of a module by its first use: the second half
# of that fork calls them.
REGISTERED_DURING_A_FORK = """
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
        run_python(FORKS.format(kind=kind, body=HELD_BY_ANOTHER_THREAD))


def test_hooks_that_come_during_a_fork_leave_the_lock_alone(run_python):
    for kind in ("Lock", "RLock"):
        for taken in (False, True):
            run_python(FORKS.format(kind=kind, body=REGISTERED_DURING_A_FORK.format(taken=taken)))
