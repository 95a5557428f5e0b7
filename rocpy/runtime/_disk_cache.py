# SPDX-License-Identifier: MIT
"""What is compiled is kept in files of the user's cache folder: whole, with their length and digest, or not at all.

A reader takes a file only if its content is what was written: a file that is cut off, empty or changed counts as
absent, and is written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["NOWHERE", "cache_folder", "folder", "read", "read_bytes", "replace", "user_folder", "write", "write_bytes"]

# What each file begins with; another form of them has another number.
_MAGIC = b"rocpy kept file 1"


# Stands for a folder that nothing can be read from or written to.
NOWHERE = Path(os.devnull) / "rocpy"


def user_folder() -> Path:
    """Return this package's folder in the user's cache; ``NOWHERE`` for a user without a home folder."""
    import platformdirs

    # Without a home folder releases of platformdirs raise, or return a path that begins with a tilde. Where
    # XDG_CACHE_HOME is relative, it counts as not set.
    with contextlib.suppress(RuntimeError):
        path = Path(platformdirs.user_cache_dir("rocpy", appauthor=False))
        return path if path.is_absolute() else Path.home() / ".cache" / "rocpy"
    return NOWHERE


def cache_folder(name: str) -> Path:
    """Return a file or folder of the user's cache."""
    return user_folder() / name


def folder() -> Path:
    """Return where compiled kernels are kept."""
    return cache_folder("kernels")


def read_bytes(path: Path) -> bytes | None:
    """Return what was written to a file; ``None`` where there is none, or not all of it, or something else."""
    try:
        head, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if content and head == _head(content) else None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that a reader sees whole or not at all; a folder that cannot be written keeps nothing."""
    if not content:
        return  # nothing that a compiler makes is empty
    with contextlib.suppress(OSError):
        replace(path, _head(content) + b"\n" + content)


def replace(path: Path, content: bytes) -> None:
    """Write a file of the user's cache in one step: its name stands for the old content or for the new one.

    Raises
    ------
    OSError
        If the folder cannot be made or written.
    """
    import tempfile  # it brings random and more, which `import rocpy` is to do without

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".rocpy-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before its name: after a power failure the name must not stand for less
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _head(content: bytes) -> bytes:
    return b" ".join((_MAGIC, str(len(content)).encode(), hashlib.sha256(content).hexdigest().encode()))


def read(path: Path) -> dict[str, Any] | None:
    """Return a kept record, its ``code`` as bytes; ``None`` where there is none, or none that can be read."""
    content = read_bytes(path)
    if content is None:
        return None
    try:
        data: dict[str, Any] = json.loads(content)
        data["code"] = bytes.fromhex(data["code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return data


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Keep a record; a folder that cannot be written keeps nothing."""
    write_bytes(path, json.dumps({**record, "code": record["code"].hex()}).encode())
