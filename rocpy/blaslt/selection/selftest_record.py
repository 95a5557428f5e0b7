# SPDX-License-Identifier: MIT
"""What `rocpy doctor --selftest` found right and wrong of this machine's library, kept in the user's cache."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from rocpy import _core, _json
from rocpy._locks import file_lock, hold_over_forks
from rocpy.errors import warn

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = 2
# How long a process waits for another one that writes the record.
BUSY_S = 10.0
# A record of another library, card or setting is none of this one's: the oldest beyond these are dropped.
MOST_SCOPES = 32
_lock = threading.Lock()
hold_over_forks(_lock)
_loaded: dict[str, dict[str, Verdict]] | None = None


class Verdict(NamedTuple):
    """What the self-test found of a class of products: whether all cases were right, how many, and what was not.

    ``problem`` is the JSON of the problem that tuning found an algorithm wrong for, on rocpy's own operands.
    """

    passed: bool
    cases: int
    reason: str = ""
    problem: str = ""


def record_path() -> Path:
    """Return the file of the record; each schema has one of its own, so that no rocpy writes over another's."""
    from rocpy.runtime import _disk_cache  # here: `import rocpy` does without what it brings

    return _disk_cache.cache_folder(f"selftest-{SCHEMA}.json")


def scope_of(version: int, arch: str) -> str:
    """Return what a record is filed under: file, build and version of the library, architecture, and its variables."""
    path = next((row[1] for row in _core.library_facts() if row[0] == "hipblaslt"), "")
    try:
        facts = os.stat(path)  # noqa: PTH116  (pathlib is not imported with the package)
        build = [facts.st_size, facts.st_mtime_ns]
    except OSError:
        build = []
    # What changes which kernels hipBLASLt runs, or how.
    variables = [
        os.environ.get("HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32", ""),
        os.environ.get("HIPBLASLT_TENSILE_LIBPATH", ""),
        os.environ.get("TENSILE_SOLUTION_SELECTION_METHOD", ""),
    ]
    return _json.dumps(
        {"path": path, "build": build, "version": version, "arch": arch, "variables": variables}, sort_keys=True
    )


def verdict(scope: str, name: str) -> Verdict | None:
    """Return what was kept of a class of products, ``None`` where nothing was."""
    return _rows(scope).get(name)


def _rows(scope: str) -> dict[str, Verdict]:
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _read(record_path())
        return _loaded.get(scope, {})


def forget_loaded() -> None:
    """Read the file again when it is next asked: it changed, or another one is meant."""
    global _loaded
    with _lock:
        _loaded = None


def of_tuning(scope: str) -> dict[str, Verdict]:
    """Return what tuning found wrong, by the names of classes and algorithms."""
    return {name: one for name, one in _rows(scope).items() if one.problem}


def keep(scope: str, verdicts: dict[str, Verdict], *, refuted: Iterable[str] = ()) -> Path:
    """Add what a self-test found to the file; what it found earlier of the same classes, or refuted, is gone."""
    from rocpy.runtime import _disk_cache

    path = record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    gone = frozenset(refuted)
    with file_lock(path.with_name(f"{path.name}.lock"), BUSY_S):
        verdicts_by_scope = _read(path)
        before = verdicts_by_scope.pop(scope, {})
        verdicts_by_scope[scope] = {**{name: one for name, one in before.items() if name not in gone}, **verdicts}
        retained = dict(list(verdicts_by_scope.items())[-MOST_SCOPES:])
        document = {"schema": SCHEMA, "scopes": {name: _as_json(rows) for name, rows in retained.items()}}
        _disk_cache.replace(path, _json.dumps(document, indent=1).encode())
    forget_loaded()
    return path


def note(scope: str, verdicts: dict[str, Verdict], *, refuted: Iterable[str] = ()) -> Path | None:
    """Add to the file as :func:`keep` does; where it cannot be written warn, and keep it while the process lives."""
    gone = frozenset(refuted)
    try:
        return keep(scope, verdicts, refuted=gone)
    except OSError as error:
        global _loaded
        with _lock:
            verdicts_by_scope = _read(record_path()) if _loaded is None else _loaded
            before = {name: one for name, one in verdicts_by_scope.get(scope, {}).items() if name not in gone}
            _loaded = {**verdicts_by_scope, scope: {**before, **verdicts}}
        warn(f"the self-test's record was not written, and counts in this process alone: {error}")
        return None


_ALGORITHM = "; algorithm "


def name_of_algorithm(products: str, number: int, name: str) -> str:
    """Return what one algorithm's result for a class of products is filed under."""
    return f"{products}{_ALGORITHM}{number} {name}"


def algorithm_of(row: str) -> tuple[int, str] | None:
    """Return id and name of the algorithm whose result is filed under a name; ``None`` for a class of products."""
    number, _, name = row.partition(_ALGORITHM)[2].partition(" ")
    return (int(number), name) if number.lstrip("-").isdecimal() else None


def wrong_algorithms(scope: str, products: str) -> frozenset[tuple[int, str]]:
    """Return id and name of the algorithms that were found wrong for a class of products."""
    rows = _rows(scope)
    if not rows:
        return frozenset()
    prefix = products + _ALGORITHM
    wrong = {algorithm_of(row) for row, one in rows.items() if row.startswith(prefix) and not one.passed}
    return frozenset(algorithm for algorithm in wrong if algorithm is not None)


def _as_json(verdicts: dict[str, Verdict]) -> dict[str, Any]:
    return {name: list(one) for name, one in verdicts.items()}


def _read(path: Path) -> dict[str, dict[str, Verdict]]:
    """Return what the file holds; a file of another schema or without sense counts as none, with a warning."""
    try:
        document = _json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _warn(path, str(error))
        return {}
    try:
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']!r}, and this rocpy reads {SCHEMA}")
        return {
            str(scope): {str(name): _verdict_of(row) for name, row in rows.items()}
            for scope, rows in document["scopes"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _warn(path, repr(error))
        return {}


def _verdict_of(row: Any) -> Verdict:
    passed, cases, reason, problem = row
    texts = isinstance(reason, str) and isinstance(problem, str)
    if not isinstance(passed, bool) or not isinstance(cases, int) or not texts:
        raise TypeError(f"{row!r} is not a result of a self-test")
    return Verdict(passed, cases, reason, problem)


def _warn(path: Path, reason: str) -> None:
    warn(f"the self-test's record {path} is ignored: {reason}; `rocpy doctor --selftest` rewrites it")
