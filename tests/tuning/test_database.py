# SPDX-License-Identifier: MIT
"""The tuning database: merging, many processes and kill -9, damaged, foreign and unwritable files, network mounts."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from made_up_records import SCOPE, record

import rocpy
from rocpy.errors import RocpyWarning
from rocpy.tuning import Database, _files, database


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_stored_is_found_by_another_database(tmp_path):
    Database([tmp_path / "t.sqlite3"]).store(record(1))
    other = Database([tmp_path / "t.sqlite3"])
    assert other.find(SCOPE, record(1).key) == record(1)
    assert other.find(SCOPE, record(2).key) is None
    assert other.find("{}", record(1).key) is None


@pytest.mark.parametrize("configured", [False, True])
def test_a_relative_file_in_a_folder_that_is_gone_is_memory_alone(tmp_path, monkeypatch, configured):
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setenv("ROCPY_TUNING_DB", "t.sqlite3")
    base = Database(None if configured else "t.sqlite3")
    with pytest.warns(RocpyWarning, match="cannot be written"):
        base.store(record(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        base.store(record(2))
    assert len(base.records()) == 2
    os.chdir(tmp_path)


def test_nothing_is_made_by_looking(tmp_path):
    base = Database([tmp_path / "deep" / "t.sqlite3"])
    assert base.is_empty()
    assert base.find(SCOPE, "{}") is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_stands_for_the_file_in_it(tmp_path):
    Database([tmp_path]).store(record())
    assert (tmp_path / database.FILE_NAME).is_file()


def test_the_newer_record_stays(tmp_path):
    path = tmp_path / "t.sqlite3"
    old, new = record(1, date=10.0, solution=5), record(1, date=20.0, solution=6)
    for first, second in ((old, new), (new, old)):
        Database([path]).clear()
        Database([path]).store(first)
        base = Database([path])
        base.store(second)
        assert base.find(SCOPE, old.key) == new
        assert Database([path]).find(SCOPE, old.key) == new


def test_the_first_is_written_and_the_rest_only_read(tmp_path, monkeypatch):
    a, b = tmp_path / "a.sqlite3", tmp_path / "b.sqlite3"
    Database([b]).store(record(1, solution=11), record(2, solution=12))
    before = b.read_bytes()
    monkeypatch.setenv("ROCPY_TUNING_DB", f"{a}{os.pathsep}{b}")
    base = Database()
    assert base.path == a
    base.store(record(1, solution=99, date=1.0))
    base.refresh()
    assert base.find(SCOPE, record(1).key).solution == 99, "what is written outranks what is only read"
    assert base.find(SCOPE, record(2).key).solution == 12
    assert b.read_bytes() == before
    assert [row.solution for row in Database([a]).records()] == [99]


def test_merge_counts_what_is_new_or_newer(tmp_path):
    base, other = Database([tmp_path / "a.sqlite3"]), Database([])
    base.store(record(1, date=10.0), record(2, date=10.0))
    other.store(record(1, date=5.0), record(2, date=15.0, solution=7), record(3))
    assert base.merge(other) == 2
    assert base.merge(other) == 0
    again = Database([tmp_path / "a.sqlite3"])
    assert {row.kernel: row.date for row in again.records()} == {"kernel1": 10.0, "kernel2": 15.0, "kernel3": 1000.0}


def test_clear_one_environment_or_all(tmp_path):
    base = Database([tmp_path / "t.sqlite3"])
    base.store(record(1), record(2), record(1, scope="{}"))
    assert base.clear(SCOPE) == 2
    assert [row.scope for row in Database([tmp_path / "t.sqlite3"]).records()] == ["{}"]
    assert base.clear() == 1
    assert Database([tmp_path / "t.sqlite3"]).is_empty()
    assert base.clear() == 0


def test_clear_counts_and_removes_what_it_deletes_and_no_record_of_files_that_are_only_read(tmp_path):
    a, b = tmp_path / "a.sqlite3", tmp_path / "b.sqlite3"
    Database([b]).store(record(1), record(2))
    base = Database([a, b])
    assert base.clear() == 0
    assert len(base.records()) == 2
    base.store(record(1, solution=99), record(3))
    assert base.clear() == 2
    assert sorted(row.solution for row in base.records()) == [1, 2], "what was outranked is known again"
    assert Database([a]).is_empty()


@pytest.mark.parametrize("date", [1.0, 2000.0])
@pytest.mark.parametrize("network", [False, True])
def test_what_is_stored_counts_as_it_does_when_the_files_are_read_again(tmp_path, monkeypatch, date, network):
    monkeypatch.setattr(database, "is_network", lambda path: network)
    a, b = tmp_path / "a.sqlite3", tmp_path / "b.sqlite3"
    Database([b]).store(record(1))
    base = Database([a, b])
    assert base.find(SCOPE, record(1).key) == record(1)
    base.store(record(1, solution=99, date=date))
    counted = base.find(SCOPE, record(1).key)
    base.refresh()
    assert base.find(SCOPE, record(1).key) == counted
    assert (counted.solution == 99) == (date > 1000 or not network)


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from rocpy.tuning import Database
from made_up_records import record
number = int(sys.argv[2])
print("ready", flush=True)
count = 0
while True:
    Database([sys.argv[1]]).store(record(number * 100000 + count))
    count += 1
    print(count, flush=True)
    if len(sys.argv) > 4 and count == int(sys.argv[4]):
        break
"""


def start(path, number, *more):
    tests = Path(__file__).resolve().parents[1] / "support"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER, str(path), str(number), str(tests), *map(str, more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_write_one_file_and_nothing_is_lost(tmp_path):
    path = tmp_path / "t.sqlite3"
    writers = [start(path, number, 12) for number in range(8)]
    for writer in writers:
        _, complaint = writer.communicate(timeout=120)
        assert writer.returncode == 0, complaint
        assert complaint == ""
    assert len(Database([path]).records()) == 8 * 12


def test_eight_processes_killed_while_they_write_lose_no_finished_record(tmp_path):
    path = tmp_path / "t.sqlite3"
    writers = [start(path, number) for number in range(8)]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        time.sleep(0.5)
        for writer in writers[:4]:
            writer.send_signal(signal.SIGKILL)
        for writer in writers[4:]:  # goes on although the others died, perhaps with the lock
            seen = int(writer.stdout.readline())
            for line in writer.stdout:
                if int(line) >= seen + 3:
                    break
    finally:
        for writer in writers:
            writer.kill()
    finished = {}
    for number, writer in enumerate(writers):
        rest = writer.communicate(timeout=60)[0].split()
        finished[number] = int(rest[-1]) if rest and rest[-1].isdigit() else 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {row.solution for row in Database([path]).records()}
    for number, count in finished.items():
        assert {number * 100000 + i for i in range(count)} <= found
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


DAMAGES = {
    "zeros": lambda path: path.write_bytes(bytes(9000)),
    "header overwritten": lambda path: overwrite(path, 0, b"\0" * 100),
    "pages overwritten": lambda path: overwrite(path, 100, os.urandom(8000)),
    "cut": lambda path: os.truncate(path, 5000),
}


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def written(path):
    Database([path]).store(*(record(i) for i in range(20)))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(tmp_path, damage):
    path = tmp_path / "t.sqlite3"
    written(path)
    DAMAGES[damage](path)
    base = Database([path])
    with pytest.warns(RocpyWarning, match=r"moved to t.sqlite3.damaged-"):
        assert base.records() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        base.store(record(1))
        assert Database([path]).records() == [record(1)]
    assert sum("damaged" in name and not name.endswith(("-wal", "-shm")) for name in files(tmp_path)) == 1


def test_a_file_damaged_after_it_was_read_is_moved_aside_when_it_is_written(tmp_path):
    path = tmp_path / "t.sqlite3"
    written(path)
    base = Database([path])
    assert len(base.records()) == 20
    DAMAGES["header overwritten"](path)
    with pytest.warns(RocpyWarning, match="moved to"):
        base.store(record(50))
    assert len(base.records()) == 21, "in memory nothing is lost"
    assert Database([path]).records() == [record(50)]


def test_a_damaged_file_that_is_only_read_stays_where_it_is(tmp_path):
    path = tmp_path / "b.sqlite3"
    written(path)
    DAMAGES["header overwritten"](path)
    before = path.read_bytes()
    with pytest.warns(RocpyWarning, match="is ignored"):
        assert Database([tmp_path / "a.sqlite3", path]).records() == []
    assert path.read_bytes() == before


def test_another_programs_database_is_neither_read_nor_written(tmp_path):
    path = tmp_path / "mail.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mail (subject TEXT)")
        connection.commit()
    before = path.read_bytes()
    base = Database([path])
    with pytest.warns(RocpyWarning, match="another program's"):
        assert base.records() == []
    with pytest.warns(RocpyWarning, match="cannot be written"):
        base.store(record(1))
    assert base.records() == [record(1)]
    assert path.read_bytes() == before


def test_an_empty_file_is_an_empty_database(tmp_path):
    path = tmp_path / "t.sqlite3"
    path.touch()
    base = Database([path])
    assert base.records() == []
    base.store(record(1))
    assert Database([path]).records() == [record(1)]


def test_where_nothing_can_be_written_records_stay_in_memory_with_one_warning(tmp_path):
    (tmp_path / "file").touch()
    base = Database([tmp_path / "file" / "t.sqlite3"])  # a file where a folder is needed: not even root can write there
    with pytest.warns(RocpyWarning, match=r"cannot be written .* ROCPY_TUNING_DB"):
        base.store(record(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        base.store(record(2))
    assert len(base.records()) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_read(tmp_path):
    path = tmp_path / "t.sqlite3"
    written(path)
    tmp_path.chmod(0o555)
    try:
        base = Database([path])
        assert len(base.records()) == 20
        with pytest.warns(RocpyWarning, match="cannot be written"):
            base.store(record(99))
    finally:
        tmp_path.chmod(0o755)


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:26 / /lab/with\\040space rw shared:9 - nfs4 server:/lab rw,vers=4.2
31 30 0:27 / /lab/with\\040space/scratch rw - xfs /dev/sdb1 rw
32 21 0:28 / /remote rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/lab/with space/x/tuning", "nfs4"),
        ("/lab/with space/scratch/tuning", "xfs"),
        ("/lab/with spaces/tuning", "ext4"),
        ("/remote", "fuse.sshfs"),
        ("/usr/x", "ext4"),
    ],
)
def test_the_file_system_of_a_path(path, kind):
    assert _files.file_system(Path(path), MOUNTS) == kind
    assert (kind in _files.NETWORK_TYPES) == (kind in ("nfs4", "fuse.sshfs"))


def test_on_a_network_file_system_each_machine_writes_its_own_file_and_reads_all(tmp_path, monkeypatch):
    path = tmp_path / "t.sqlite3"
    Database([path]).store(record(0))  # from before, or from a machine that has the disk itself
    monkeypatch.setattr(database, "is_network", lambda _: True)
    for node in ("node1", "node2"):
        monkeypatch.setattr(database.socket, "gethostname", lambda node=node: node)
        base = Database([path])
        base.store(record(1, solution=1 if node == "node1" else 2, date=10.0 if node == "node1" else 20.0))
        assert base.path.name == f"t.{node}.sqlite3"
    monkeypatch.setattr(database.socket, "gethostname", lambda: "node3")
    base = Database([path])
    assert {row.solution for row in base.records()} == {0, 2}, "all files, the newer record of two"
    for node in ("node1", "node2"):
        with contextlib.closing(sqlite3.connect(tmp_path / f"t.{node}.sqlite3")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert not any("node3" in name for name in files(tmp_path))


def test_a_child_of_a_fork_uses_the_database(tmp_path, run_python):
    program = """
    import os, sys
    from rocpy.tuning import current
    import json
    base = current()
    assert base.is_empty()
    child = os.fork()
    if child == 0:
        base.clear()
        os._exit(0 if current() is base else 1)
    assert os.waitpid(child, 0)[1] == 0
    print("done")
    """
    assert run_python(program, ROCPY_TUNING_DB=str(tmp_path / "t.sqlite3")).stdout == "done\n"


def test_the_default_is_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCPY_TUNING_DB", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Database().path == tmp_path / "rocpy" / database.FILE_NAME


def test_records_tell_what_they_are_in_json(tmp_path):
    path = tmp_path / "t.sqlite3"
    Database([path]).store(record(1))
    found = Database([path]).records()[0]
    assert json.loads(found.scope)["arch"] == "gfx942"
    assert json.loads(found.problem)["m"] == 9
    assert found.gain == 1.25


UNSOUND = [
    {"measured_us": float("nan")}, {"measured_us": 0.0}, {"measured_us": -1.0}, {"baseline_us": float("inf")},
    {"kernel": None}, {"scope": None}, {"kernel": "\udcff"}, {"solution": 2**70}, {"workspace_bytes": 2**70},
    {"spread": -1.0}, {"date": float("nan")},
]  # fmt: skip


@pytest.mark.parametrize("changes", UNSOUND, ids=str)
def test_a_record_with_a_value_that_none_has_is_refused_and_the_file_is_left_as_it_is(tmp_path, changes):
    database = Database(tmp_path / "t.db")
    database.store(record(0), record(1))
    with pytest.raises(rocpy.InvalidProblemError, match=rf"^record 1: .*{next(iter(changes))}"):
        database.store(record(2), record(3, **changes))
    for seen in (database, Database(tmp_path / "t.db")):
        assert {each.kernel for each in seen.records()} == {"kernel0", "kernel1"}
    with pytest.raises(rocpy.InvalidProblemError, match="^record 0: "):
        rocpy.tuning.export_json([record(0, **changes)])


@pytest.mark.parametrize("thing", [None, "x", 1])
def test_what_is_no_record_or_database_is_refused(thing):
    database = Database([])
    with pytest.raises(rocpy.InvalidOperandError, match="^record 0: got "):
        database.store(thing)
    with pytest.raises(rocpy.InvalidOperandError, match="^other: got "):
        database.merge(thing)
    with pytest.raises(rocpy.InvalidOperandError, match="^record 0: got "):
        rocpy.tuning.export_json([thing])
    with pytest.raises(rocpy.InvalidOperandError, match="^problem: got "):
        rocpy.tuning.problem_key(thing)
    with pytest.raises(rocpy.InvalidOperandError, match="^item 0: got "):
        rocpy.tuning.Shapes([thing]).to_json()
