# SPDX-License-Identifier: MIT
"""Kept files: what is not whole counts as absent and is made anew, for every kind of file that rocpy keeps."""

from __future__ import annotations

import os
import pwd
import random

import pytest

from rocpy.cooperative.cpu.machine_code import folder_of
from rocpy.runtime import _disk_cache
from rocpy.tuning.database import Database

CONTENT = b"BC\xc0\xde" + bytes(range(256)) * 3


def damages(whole):
    """Return what a crash, a full disk or another program may leave of a file."""
    rng = random.Random(1)
    yield "empty", b""
    for length in (1, len(whole) // 2, len(whole) - 1, whole.index(b"\n"), whole.index(b"\n") + 1):
        yield f"cut off at {length}", whole[:length]
    yield "zeros", bytes(len(whole))
    yield "more at the end", whole + b"\0"
    yield "without the head", whole.partition(b"\n")[2]
    for _ in range(8):
        place = rng.randrange(len(whole))
        yield f"a bit at {place}", whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]
    yield "deep JSON", b"[" * 100_000


def test_what_is_not_whole_is_absent_and_is_written_over(tmp_path):
    path = tmp_path / "folder" / "code.bc"
    assert _disk_cache.read_bytes(path) is None
    _disk_cache.write_bytes(path, CONTENT)
    whole = path.read_bytes()
    assert _disk_cache.read_bytes(path) == CONTENT
    for name, damaged in damages(whole):
        path.write_bytes(damaged)
        assert _disk_cache.read_bytes(path) is None, name
        _disk_cache.write_bytes(path, CONTENT)
        assert _disk_cache.read_bytes(path) == CONTENT, name
    assert [file.name for file in path.parent.iterdir()] == ["code.bc"]


def test_records_that_cannot_be_read_are_absent(tmp_path):
    path = tmp_path / "kernel.json"
    record = {"code": CONTENT, "name": "kernel"}
    _disk_cache.write(path, record)
    assert _disk_cache.read(path) == record
    for name, damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        assert _disk_cache.read(path) is None, name
    for content in (b"[" * 100_000, b"[]", b"7", b"{}", b'{"code": 7}', b'{"code": "zz"}', b"\xff", b"null"):
        _disk_cache.write_bytes(path, content)  # whole, and no record
        assert _disk_cache.read(path) is None, content[:20]


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path):
    file = tmp_path / "a file"
    file.write_bytes(b"")
    _disk_cache.write_bytes(file / "below" / "code", CONTENT)
    assert _disk_cache.read_bytes(file / "below" / "code") is None
    _disk_cache.write_bytes(tmp_path / "empty", b"")
    assert not (tmp_path / "empty").exists()


def test_the_content_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), sync(handle))[1])
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda self, target: (order.append("replace"), replace(self, target))[1]
    )
    _disk_cache.write_bytes(tmp_path / "code", CONTENT)
    assert order == ["sync", "replace"]


def test_a_write_that_is_interrupted_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "code"
    _disk_cache.write_bytes(path, CONTENT)

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        _disk_cache.write_bytes(path, b"another")
    assert _disk_cache.read_bytes(path) == CONTENT
    assert [file.name for file in tmp_path.iterdir()] == ["code"]


def test_a_relative_cache_folder_counts_as_not_set(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _disk_cache.cache_folder("kernels") == tmp_path / ".cache" / "rocpy" / "kernels"


def test_a_user_without_a_home_folder_stores_nothing(tmp_path, monkeypatch):
    """As in a container that runs under a number that no user has."""

    def unknown(number):
        raise KeyError(number)

    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "HOME", "ROCPY_TUNING_DB", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert _disk_cache.user_folder() == _disk_cache.NOWHERE
    file = _disk_cache.cache_folder("kernels") / "code.bc"
    _disk_cache.write_bytes(file, CONTENT)
    assert _disk_cache.read_bytes(file) is None
    assert Database().path.parent == folder_of(os.devnull).parent == _disk_cache.NOWHERE
    assert list(tmp_path.iterdir()) == []
