# SPDX-License-Identifier: MIT
"""A tuning database that another process locks, damages or forbids to write costs one warning, and no product."""

import fcntl
import sqlite3

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.errors import RocpyWarning
from rocpy.tuning import Database, Record, _files, database


def record(number, date=1.0):
    return Record("{}", str(number), "{}", "k", 1, 0, 80.0, 0.1, 100.0, date)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(_files, "BUSY_S", 0.05)


def flocked(path):
    file = path.with_name(f"{path.name}.lock").open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def in_transaction(path, kind):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"BEGIN {kind}")
    return connection


HOLDERS = {
    "flock": flocked,
    "BEGIN IMMEDIATE": lambda path: in_transaction(path, "IMMEDIATE"),
    "BEGIN EXCLUSIVE": lambda path: in_transaction(path, "EXCLUSIVE"),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_who_holds_the_file_is_waited_for_once(kind, tmp_path, monkeypatch):
    path = tmp_path / "d.sqlite3"
    Database(path).store(record(0))
    mine = Database(path)
    assert len(mine.records()) == 1
    holder = HOLDERS[kind](path)
    waited = []
    connect, lock = sqlite3.connect, _files.file_lock
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: (waited.append(k["timeout"]), connect(*a, **k))[1])
    monkeypatch.setattr(_files, "file_lock", lambda path, wait_s: (waited.append(wait_s), lock(path, wait_s))[1])
    with pytest.warns(RocpyWarning, match="cannot be written"):
        mine.store(record(1))
    assert max(waited) > 0
    waited.clear()
    mine.store(record(2), record(3))  # without another warning, which would be an error
    assert set(waited) == {0.0}
    assert len(mine.records()) == 4
    assert mine.file_of("{}", "0") == path
    assert mine.file_of("{}", "3") is None
    assert mine.clear() == 3  # those in memory
    holder.close()
    mine.refresh()
    assert [one.key for one in mine.records()] == ["0"]
    mine.store(record(4))
    assert mine.file_of("{}", "4") == path


# In a process without other packages' threads, of which Python and they warn at a fork.
HELD_WHILE_FORKED = """
import os, threading
from rocpy._locks import file_lock
read, write = os.pipe()
held, forked = threading.Event(), threading.Event()

def hold():
    with file_lock(path, 1.0):
        held.set()
        forked.wait(30)

holder = threading.Thread(target=hold)
holder.start()
held.wait(30)
child = os.fork()
if not child:
    os.close(write)
    os.read(read, 1)  # until the parent closes its end
    os._exit(0)
os.close(read)
forked.set()
holder.join()
try:
    with file_lock(path, 0.0):
        print("free")
finally:
    os.close(write)
    os.waitpid(child, 0)
"""
FORKED_WHILE_STORING = """
import os, threading, time, warnings
from rocpy.tuning import Database, Record, _files
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any fork in a process with threads
stop = threading.Event()

def record(number):
    return Record("{}", str(number), "{}", "k", 1, 0, 80.0, 0.1, 100.0, 1.0)

def work():
    mine = Database(path)
    for number in range(10**6):
        mine.store(record(number))
        if stop.is_set():
            return

writer = threading.Thread(target=work)
writer.start()
read, write = os.pipe()
children = []
for number in range(12):
    time.sleep(0.003 + number * 1e-4)
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    children.append(child)
stop.set()
writer.join()
warnings.simplefilter("error")
_files.BUSY_S = 0.05
Database(path).store(record(-1))
os.close(write)
for child in children:
    os.waitpid(child, 0)
print("free")
"""


@pytest.mark.parametrize("program", [HELD_WHILE_FORKED, FORKED_WHILE_STORING], ids=["held", "stores"])
def test_a_forked_child_keeps_no_lock(program, tmp_path, run_python):
    assert run_python(f"path = {str(tmp_path / 'file')!r}\n{program}").stdout == "free\n"


def damaged(tmp_path, where, shift, byte):
    path = tmp_path / "d.sqlite3"
    with sqlite3.connect(path) as connection:
        Database(path).store(record(0))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    content[content.index(where) + shift] = byte
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("first", ["read", "write"])
@pytest.mark.parametrize(("where", "shift", "byte"), [
    (b"CREATE TABLE records", 6, 0xFF), (b"CREATE TABLE records", 14, 0xFF), (b"tablerecords", 7, 0xFF),
    (b"tablerecords", 7, ord("S")), (b"tablerecords", 0, 0xFF), (b"scope TEXT", 0, ord("X")),
    (b"kernel TEXT", 0, ord("X")), (b"kernel TEXT", 0, 0xE9),
])  # fmt: skip
def test_a_damaged_schema_is_moved_aside(tmp_path, where, shift, byte, first):
    path = damaged(tmp_path, where, shift, byte)
    mine = Database(path)
    with pytest.warns(RocpyWarning, match="moved to"):
        mine.store(record(1)) if first == "write" else mine.records()
    mine.store(record(1))  # without another warning, which would be an error
    assert len(list(tmp_path.glob("*.damaged-*"))) >= 1
    assert [one.key for one in Database(path).records()] == ["1"]


def test_a_database_stays_the_file_that_a_relative_path_named(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("ROCPY_TUNING_DB", "variable")
    named, configured = Database("named"), Database()
    monkeypatch.chdir(tmp_path / "there")
    for each in (named, configured):
        each.store(record(0))
        each.refresh()
        assert len(each.records()) == 1
    assert {path.name for path in (tmp_path / "here").iterdir()} >= {"named", "variable"}
    assert not list((tmp_path / "there").iterdir())


@pytest.fixture
def tuned(monkeypatch, fresh_plan_cache):
    def tune(base):
        monkeypatch.setattr(database, "_current", base)
        _tuning_state.changed()
        a = np.ones((16, 16), np.float32)
        with rocpy.Matmul(a, a) as mm:
            return mm.autotune(50)

    return tune


def test_a_report_names_the_file_that_stores_the_choice(tmp_path, tuned):
    report = tuned(Database(tmp_path / "d.sqlite3"))
    assert report.stored == (str(tmp_path / "d.sqlite3") if report.decided else "")
    assert tuned(Database([])).stored == ""
    (tmp_path / "file").touch()
    with pytest.warns(RocpyWarning, match="cannot be"):
        assert tuned(Database(tmp_path / "file" / "d.sqlite3")).stored == ""


def test_a_report_tells_the_time_of_all_that_tuning_does(tuned, monkeypatch):
    """The comparison with float64 and the first executions too, not the race alone."""
    from rocpy.tuning import _live

    now = [0.0]

    def compared(product):
        now[0] += 1.0

    monkeypatch.setattr(_live, "_clock", lambda: now[0])
    monkeypatch.setattr(_live, "sample_of", compared)
    assert tuned(Database([])).elapsed_ms >= 1000.0
