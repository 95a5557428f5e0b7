# SPDX-License-Identifier: MIT
"""One file of tuning records: SQLite under a lock, moved aside when it is damaged, read where it cannot be written."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocpy._locks import file_lock
from rocpy.errors import InvalidOperandError, InvalidProblemError, warn

if TYPE_CHECKING:
    import sqlite3


# What a record and its keys mean; a file of another schema has another name.
SCHEMA = 1
# "rcpy" in the file's header, so that another program's database is never written.
APPLICATION_ID = 0x72637079
_HEADER = b"SQLite format 3\0"
_TABLE = b"CREATE TABLE records (scope TEXT NOT NULL, key TEXT NOT NULL"
_OCTAL = re.compile(rb"\\([0-7]{3})")  # as /proc writes spaces in paths
_LOOKED_AT_BYTES = 1 << 16
# How long a process waits for others that write a file.
BUSY_S = 10.0
# No product is done in less; a quotient by less is no gain.
SHORTEST_US = 1e-6
LAST_DATE = 253402300799.0  # in the year 9999
NETWORK_TYPES = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
COLUMNS = "scope, key, problem, kernel, solution, workspace_bytes, measured_us, spread, baseline_us, date"


# The largest integers that the library has for a solution and for bytes, and SQLite for any.
LARGEST_SOLUTION, LARGEST_BYTES = (1 << 31) - 1, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Record:
    """The measurement of one problem in one environment.

    Parameters
    ----------
    scope, key
        The environment and the problem, each a JSON object.
    problem
        The :class:`rocpy.blaslt.Problem` as JSON, for display and for measuring it again.
    kernel, solution
        Name of the kernel, ``""`` if the library does not report it, and its solution index.
    workspace_bytes
        Scratch memory that it needs, in bytes.
    measured_us, spread
        Median time in microseconds, and half the distance of the quartiles relative to it.
    baseline_us
        Median time of the heuristic's first choice in the same run, in microseconds.
    date
        Seconds since 1970.

    Examples
    --------
    >>> from rocpy.tuning import Record
    >>> Record("{}", "{}", "{}", "kernel", 7, 0, 80.0, 0.01, 100.0, 0.0).gain
    1.25
    """

    scope: str
    key: str
    problem: str
    kernel: str
    solution: int
    workspace_bytes: int
    measured_us: float
    spread: float
    baseline_us: float
    date: float

    @property
    def gain(self) -> float:
        """How many times faster than the heuristic's first choice."""
        return self.baseline_us / self.measured_us


def fault_of(record: Record) -> str:
    """Return what is wrong with a record's values, which a file may hold whatever wrote it; ``""`` for a sound one."""
    for name in ("scope", "key", "problem", "kernel"):
        value = getattr(record, name)
        if not isinstance(value, str):
            return f"{name} is {_shown(value)}, expected text"
        if not value.isascii() and value.encode("utf-8", "replace").decode() != value:
            return f"{name} is {_shown(value)}, which is not a string"
    for name, largest in (("solution", LARGEST_SOLUTION), ("workspace_bytes", LARGEST_BYTES)):
        value = getattr(record, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
            return f"{name} is {_shown(value)}, expected an integer from 0 to {largest}"
    for name in ("measured_us", "spread", "baseline_us", "date"):
        value = getattr(record, name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(_float(value)):
            return f"{name} is {_shown(value)}, expected a number"
    if not (record.measured_us >= SHORTEST_US and record.baseline_us >= SHORTEST_US):
        return (
            f"measured_us and baseline_us are {record.measured_us!r} and {record.baseline_us!r}; they must be above 0"
        )
    if record.spread < 0:
        return f"spread is {record.spread!r}; it must not be below 0"
    return "" if 0 <= record.date <= LAST_DATE else f"date is {record.date!r}; it must be from 1970 to 9999"


def check_record(record: object, name: str) -> None:
    """Refuse what is no record, or one with a value that no record has."""
    if not isinstance(record, Record):
        raise InvalidOperandError(f"{name}: got {type(record).__name__}, expected a rocpy.tuning.Record")
    fault = fault_of(record)
    if fault:
        raise InvalidProblemError(f"{name}: {fault}")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 1 << 128 else "an integer of many digits"
    return text if len(text) <= 80 else text[:77] + "..."


def warn_of_records(where: str, faults: Sequence[tuple[str, str]]) -> None:
    """Say in one warning which records were left out, the first of them by name and reason."""
    if faults:
        (name, reason), others = faults[0], len(faults) - 1
        warn(f"{where}: {name}: {reason}; it is ignored{f', and {others} more' if others else ''}")


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that a path is, or would be, on; ``""`` where the system does not tell.

    ``mounts`` is the text of ``/proc/self/mountinfo``.
    """
    if mounts is None:
        try:
            mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
        except OSError:
            return ""
    try:
        resolved = os.path.realpath(path)
    except OSError:  # a relative path, in a folder that is gone
        return ""
    filesystem, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = os.fsdecode(_OCTAL.sub(lambda digits: bytes([int(digits[1], 8)]), os.fsencode(fields[4])))
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two mounts on one point, the later one covers the other
            filesystem, longest = after.split()[0], len(point)
    return filesystem


def is_network(path: Path) -> bool:
    """Whether a path is on a file system that several machines share, where SQLite's locks cannot be trusted."""
    return file_system(path) in NETWORK_TYPES


class RecordFile:
    """The records in one SQLite file. No connection is kept, so that forks and threads need no care."""

    def __init__(self, path: Path, *, writable: bool, shared: bool = False) -> None:
        self.path = path
        self.writable = writable
        self.shared = shared  # on a network file system: no write-ahead log, whose memory is one machine's

    def read(self) -> list[Record]:
        """Return every record; a damaged file is moved aside if it is ours to write, and has none."""
        if not self.path.is_file():
            return []
        self.check()
        import sqlite3

        try:
            return self._read(immutable=False)
        except sqlite3.OperationalError as error:
            # In a folder that cannot be written there is no place for the log's index: read the file alone.
            with contextlib.suppress(sqlite3.Error):
                return self._read(immutable=True)
            self._complain(error)
        except sqlite3.DatabaseError as error:
            self._damaged(error)
        return []

    def read_strictly(self) -> list[Record]:
        """Return every record.

        Raises
        ------
        InvalidProblemError
            If it is damaged, which leaves it where it is, or is no file of tuning records.
        """
        import sqlite3

        self.check()
        try:
            return self._read(immutable=False)
        except sqlite3.Error as error:
            raise InvalidProblemError(f"{self.path} cannot be read as a database of tuning records: {error}") from None

    def check(self) -> None:
        """Refuse a file that is something else: it is the user's, to be neither moved nor written."""
        if self.path.is_file() and not self._is_ours():
            raise _foreign(self.path)

    def _is_ours(self) -> bool:
        """Whether a file, which may be damaged, was a database of tuning records, or has nothing in it yet."""
        try:
            with self.path.open("rb") as file:
                head = file.read(_LOOKED_AT_BYTES)
        except OSError:
            return True  # what cannot be opened is not taken for anything; SQLite says what is wrong with it
        if head.startswith(_HEADER) and int.from_bytes(head[68:72], "big") == APPLICATION_ID:
            return True
        # No number of a program, and no cell on the first page.
        is_new = head.startswith(_HEADER) and not any(head[68:72]) and not any(head[103:105])
        return is_new or not any(head) or _TABLE in head

    def write(self, records: Iterable[Record], *, clear: str | None = None, wait_s: float | None = None) -> None:
        """Add records, the newer one of two staying; first delete those of the scope ``clear``, or with "*" all.

        Others that write are waited for ``wait_s`` seconds, by default :data:`BUSY_S`.
        """
        import sqlite3

        rows = [tuple(getattr(record, name) for name in COLUMNS.split(", ")) for record in records]

        def change() -> None:
            with self._open("rwc", wait_s=max(0.0, until - time.monotonic())) as connection:
                if clear is not None:
                    connection.execute("DELETE FROM records WHERE ? IN (scope, '*')", (clear,))
                connection.executemany(
                    f"INSERT INTO records ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608
                    "ON CONFLICT (scope, key) DO UPDATE SET problem = excluded.problem, kernel = excluded.kernel, "
                    "solution = excluded.solution, workspace_bytes = excluded.workspace_bytes, "
                    "measured_us = excluded.measured_us, spread = excluded.spread, "
                    "baseline_us = excluded.baseline_us, date = excluded.date WHERE excluded.date >= records.date",
                    rows,
                )

        self.check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        wait_s = BUSY_S if wait_s is None else wait_s
        until = time.monotonic() + wait_s
        with self._lock(wait_s):
            try:
                change()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self._move_aside(error)
                change()

    def _read(self, *, immutable: bool) -> list[Record]:
        with self._open("ro", immutable=immutable) as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return []  # a writer was stopped before it made the table
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise _foreign(self.path)
            self._refuse_newer(connection)
            _check_columns(connection)
            rows = [Record(*row) for row in connection.execute(f"SELECT {COLUMNS} FROM records")]  # noqa: S608
        faults = {index: fault for index, record in enumerate(rows) if (fault := fault_of(record))}
        warn_of_records(
            f"tuning database {self.path}",
            [(f"record of {_shown(rows[index].key)}", fault) for index, fault in faults.items()],
        )
        return [record for index, record in enumerate(rows) if index not in faults] if faults else rows

    def _refuse_newer(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of a newer release, whose records mean something else: it is neither read nor written."""
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema > SCHEMA:
            raise InvalidProblemError(
                f"{self.path} was written by a newer rocpy (schema {schema}; this one supports {SCHEMA}) and is not "
                "used; name another file in ROCPY_TUNING_DB"
            )

    @contextlib.contextmanager
    def _open(self, mode: str, *, immutable: bool = False, wait_s: float | None = None) -> Iterator[sqlite3.Connection]:
        import sqlite3
        from urllib.parse import quote

        uri = f"file:{quote(bytes(self.path.absolute()))}?mode={mode}" + ("&immutable=1" if immutable else "")
        wait_s = BUSY_S if wait_s is None else wait_s
        connection = sqlite3.connect(uri, uri=True, timeout=wait_s, isolation_level=None)
        connection.text_factory = _text
        try:
            if mode == "ro":
                yield connection
                return
            self._prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except UnicodeDecodeError as error:  # sqlite3 cannot say what is wrong with a schema that is no text
            raise sqlite3.DatabaseError(f"malformed database schema: {error}") from None
        finally:
            connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the table of a new file, and refuse a file that is another program's."""
        if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            self._refuse_newer(connection)
            _check_columns(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise _foreign(self.path)
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if self.shared else 'WAL'}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS records (scope TEXT NOT NULL, key TEXT NOT NULL, problem TEXT NOT NULL, "
            "kernel TEXT NOT NULL, solution INTEGER NOT NULL, workspace_bytes INTEGER NOT NULL, "
            "measured_us REAL NOT NULL, spread REAL NOT NULL, baseline_us REAL NOT NULL, date REAL NOT NULL, "
            "PRIMARY KEY (scope, key)) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")

    def _lock(self, wait_s: float) -> contextlib.AbstractContextManager[None]:
        """Hold the file's lock; a file system without locks has SQLite's own alone."""
        return file_lock(self.path.parent / (self.path.name + ".lock"), wait_s)

    def _damaged(self, error: Exception) -> None:
        if not self.writable:
            self._complain(error)
            return
        import sqlite3

        try:
            with self._lock(BUSY_S):
                try:
                    self._read(immutable=False)  # another process may have put it right meanwhile
                except sqlite3.OperationalError:
                    return
                except sqlite3.DatabaseError as still:
                    self._move_aside(still)
        except OSError:
            self._complain(error)

    def _move_aside(self, error: Exception) -> None:
        """Rename a damaged file and its companions; called with the lock held."""
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        for suffix in ("-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
        warn(
            f"tuning database {self.path}: {error}; it was moved to {aside.name} and a new one was created: its "
            "problems "
            "are measured again on demand"
        )

    def _complain(self, error: Exception) -> None:
        warn(f"tuning database {self.path} cannot be read and is ignored: {error}")


def _check_columns(connection: sqlite3.Connection) -> None:
    """Refuse a table that is damaged, so that it has not the columns of one of ours."""
    import sqlite3

    names = {row[1] for row in connection.execute("PRAGMA table_info(records)")}
    missing = [name for name in COLUMNS.split(", ") if name not in names]
    if missing:
        raise sqlite3.DatabaseError(f"its table of records has no column {missing[0]}")


def _foreign(path: Path) -> InvalidProblemError:
    with path.open("rb") as file:
        seen = "another program's SQLite database" if file.read(len(_HEADER)) == _HEADER else "another kind of file"
    return InvalidProblemError(
        f"{path} is {seen}, not a database of tuning records; name another one (ROCPY_TUNING_DB, --database)"
    )


def _text(raw: bytes) -> str:
    # What is no UTF-8 becomes a fault of its record alone.
    return raw.decode("utf-8", "surrogateescape")


def try_read(file: RecordFile) -> tuple[Sequence[Record], Exception | None]:
    """Return a file's records, or the error that a disk, a lock or a foreign file raised."""
    try:
        return file.read(), None
    except _errors() as error:
        return (), error


def try_write(
    file: RecordFile, records: Sequence[Record], clear: str | None = None, wait_s: float | None = None
) -> Exception | None:
    """Write records, or clear those of a scope; return the error that a disk, a lock or a foreign file raised."""
    try:
        file.write(records, clear=clear, wait_s=wait_s)
    except _errors() as error:
        return error
    return None


def _errors() -> tuple[type[Exception], ...]:
    import sqlite3

    return OSError, sqlite3.Error, InvalidProblemError
