# SPDX-License-Identifier: MIT
"""The tuning database: records by environment and problem, in files that many processes share, and in memory."""

from __future__ import annotations

import math
import os
import socket
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from rocpy import platform
from rocpy._messages.pickling import refuse_pickling
from rocpy.errors import InvalidOperandError, warn
from rocpy.runtime import _disk_cache
from rocpy.tuning._files import SCHEMA, Record, RecordFile, check_record, is_network, try_read, try_write

__all__ = ["Database", "Record", "current"]

FILE_NAME = f"tuning-{SCHEMA}.sqlite3"


class Database:
    """Tuning records, from one file that is written and others that are only read.

    Parameters
    ----------
    paths
        A file or folder, or several, the first of which is written. The default is ``ROCPY_TUNING_DB``, or one file in
        the user's cache folder if that is unset. With an empty list, and with ``ROCPY_TUNING_DB=:``, the records are
        in memory only.

    Notes
    -----
    Files are read once, at the first query; :meth:`refresh` reads them again. Any number of processes may write to one
    file, and may be killed while they write. On a network file system each machine writes its own file next to the
    named one and reads all of them. A damaged database of rocpy's is moved aside, a file that is something else is left
    as it is and ignored, and if a file cannot be written, or another process holds its lock for 10 seconds, the records
    are kept in memory, each with one :class:`rocpy.RocpyWarning`. Relative paths are those of the folder in which the
    database was created.

    Examples
    --------
    >>> from rocpy.tuning import Database
    >>> Database([]).records()
    []
    """

    def __init__(self, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None) -> None:
        self.files = _files(_default_paths() if paths is None else _checked(paths))
        self._known: dict[tuple[str, str], Record] | None = None
        self._sources: dict[tuple[str, str], RecordFile | None] = {}  # of what is known, None for memory alone
        self._warned = False
        self._wait_s: float | None = None  # 0 while the file cannot be written: others are waited for once
        self._make_locks()
        _databases.add(self)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()  # of what is known
        self._writing = threading.Lock()  # so that file and memory change in one order; taken before the other

    def __repr__(self) -> str:
        return f"<rocpy.tuning.Database in {'memory' if self.path is None else self.path}>"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "open its files in the other process: Database([path])")

    @property
    def path(self) -> Path | None:
        """The file that is written, ``None`` for records in memory."""
        return next((file.path for file in self.files if file.writable), None)

    def find(self, scope: str, key: str) -> Record | None:
        """Return the record of a problem in an environment, if there is one."""
        return self._load().get((scope, key))

    def file_of(self, scope: str, key: str) -> Path | None:
        """Return the file that stores a record; ``None`` if it is in memory only, or there is none."""
        self._load()
        file = self._sources.get((scope, key))
        return None if file is None else file.path

    def is_empty(self) -> bool:
        """Whether there is no record at all."""
        return not self._load()

    def records(self, scope: str | None = None) -> list[Record]:
        """Return the records, of one environment or of all."""
        known = self._load()
        with self._lock:
            return [record for record in known.values() if scope is None or record.scope == scope]

    def store(self, *records: Record) -> None:
        """Store records, in memory and in the file that is written; a newer one replaces an older one.

        Raises
        ------
        InvalidOperandError
            If one is no record.
        InvalidProblemError
            If one has a value that no record has, such as a time of 0; then none is stored.
        """
        for number, record in enumerate(records):
            check_record(record, f"record {number}")
        with self._writing:
            # The file first: who reads it again meanwhile finds them.
            written = self._write(records)
            with self._lock:
                known = self._read_all()
                for record in records:
                    self._take(known, record, written)

    def merge(self, other: Database) -> int:
        """Add another database's records and return how many were new or newer."""
        if not isinstance(other, Database):
            raise InvalidOperandError(f"other: got {type(other).__name__}, expected a Database")
        known = {(record.scope, record.key): record.date for record in self.records()}
        fresh = [record for record in other.records() if record.date > known.get((record.scope, record.key), -math.inf)]
        if fresh:
            self.store(*fresh)
        return len(fresh)

    def clear(self, scope: str | None = None) -> int:
        """Delete the records of one environment, or all, from memory and from the file that is written.

        Returns
        -------
        int
            How many are gone. Those of files that are only read, or that cannot be written, stay.
        """
        self._load()  # what is in the file alone is counted too
        wanted = "*" if scope is None else scope
        with self._writing:
            exists = self.path is not None and self.path.is_file()
            written = not exists or self._write((), clear=wanted) is not None
            with self._lock:
                known = self._read_all()
                memory = {key: record for key, record in known.items() if self._sources[key] is None}
                erased = {key for key, file in self._sources.items() if written and file is not None and file.writable}
                gone = {key for key in memory.keys() | erased if scope is None or key[0] == scope}
                self._known = None  # a record of a file that is only read may have been outranked
                known = self._read_all()
                for key in memory.keys() - gone:
                    self._take(known, memory[key], None)
        return len(gone)

    def refresh(self) -> None:
        """Read the files again, since other processes may have written to them."""
        with self._lock:
            self._known = None

    def _load(self) -> dict[tuple[str, str], Record]:
        with self._lock:
            return self._read_all()

    def _read_all(self) -> dict[tuple[str, str], Record]:
        """Return what is known, read from the files first where that was not done; call with the lock held."""
        if self._known is None:
            known: dict[tuple[str, str], Record] = {}
            self._sources.clear()
            for file in reversed(self.files):  # what is written outranks what is only read
                for record in self._read(file):
                    self._take(known, record, file)
            self._known = known
        return self._known

    def _take(self, known: dict[tuple[str, str], Record], record: Record, file: RecordFile | None) -> None:
        """Take a record of a file, or of memory alone, unless one that is known outranks it.

        Within a file, and on a network file system, the newer one counts; else what is taken later does, as
        :meth:`_read_all` orders the files and what is written outranks what is only read.
        """
        where = record.scope, record.key
        old, source = known.get(where), self._sources.get(where)
        if file is None:
            by_date = source is None or source.writable
        else:
            by_date = file is source or file.shared
        if old is None or not by_date or record.date >= old.date:
            known[where] = record
            self._sources[where] = file

    def _read(self, file: RecordFile) -> Sequence[Record]:
        records, error = try_read(file)
        if error is not None:
            warn(f"tuning database {file.path} is ignored: {error}")
        return records

    def _write(self, records: Sequence[Record], clear: str | None = None) -> RecordFile | None:
        """Write to the file that is written, and return it; ``None`` where there is none or it cannot be written."""
        file = next((file for file in self.files if file.writable), None)
        if file is None:
            return None
        error = try_write(file, records, clear, self._wait_s)
        self._wait_s = None if error is None else 0.0
        if error is None:
            return file
        if not self._warned:
            self._warned = True
            warn(
                f"tuning database {file.path} cannot be written ({error}): what is measured is kept until the process "
                "ends; name a file that can be written in ROCPY_TUNING_DB"
            )
        return None


def _checked(paths: object) -> list[Path]:
    """Return the paths that a caller named."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(several, Iterable) or isinstance(several, bytes):
        raise InvalidOperandError(f"paths: got {type(paths).__name__}, expected a path or a sequence of paths")
    checked = []
    for path in several:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(text, str) or "\0" in text:
            raise InvalidOperandError(f"paths: {path!r} is not the path of a file or folder")
        checked.append(_absolute(Path(text)))
    return checked


def _absolute(path: Path) -> Path:
    """Return the file that a path names now, wherever the process goes."""
    try:
        return path.absolute()
    except OSError:  # its folder is gone
        return path


def _default_paths() -> list[Path]:
    configured = platform.environment("ROCPY_TUNING_DB")
    if configured:
        return [_absolute(Path(part).expanduser()) for part in configured.split(os.pathsep) if part]
    return [_disk_cache.user_folder() / FILE_NAME]


def _files(paths: Sequence[Path]) -> list[RecordFile]:
    files = []
    for index, path in enumerate(paths):
        file = path / FILE_NAME if _is_folder(path) else path
        if is_network(file):
            files += _shared(file, written=index == 0)
        else:
            files.append(RecordFile(file, writable=index == 0))
    return files


def read_records(path: Path) -> list[Record]:
    """Return the records of a file that is only read.

    Raises
    ------
    InvalidProblemError
        If it is damaged, or is no database of tuning records.
    """
    return RecordFile(path, writable=False, shared=is_network(path)).read_strictly()


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _shared(path: Path, *, written: bool) -> list[RecordFile]:
    """Return this machine's own file on a network file system, then the named one and those of other machines."""
    own = path.with_name(f"{path.stem}.{socket.gethostname()}{path.suffix}")
    others = {path, *path.parent.glob(f"{path.stem}.*{path.suffix}")} - {own}
    return [
        RecordFile(own, writable=written, shared=True),
        *(RecordFile(other, writable=False, shared=True) for other in sorted(others)),
    ]


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_current: Database | None = None
_current_lock = threading.Lock()


def current() -> Database:
    """Return the database of this process, created at the first call from ``ROCPY_TUNING_DB``.

    Returns
    -------
    Database
        The same object at each call.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.tuning.current() is rocpy.tuning.current()
    True
    """
    global _current
    if _current is None:
        with _current_lock:
            if _current is None:
                _current = Database()
    return _current


def use(database: Database) -> None:
    """Use another database in this process from now on."""
    global _current
    _current = database


def _after_fork() -> None:
    # A lock that another thread held at the fork would never be given back.
    global _current_lock
    _current_lock = threading.Lock()
    for database in list(_databases):
        database._make_locks()


os.register_at_fork(after_in_child=_after_fork)
