# SPDX-License-Identifier: MIT
"""The translation of Cython modules in one process: what is current stays as it is, and what fails leaves nothing."""

import os
from pathlib import Path

import pytest

pytest.importorskip("Cython")
import translate_modules

FILES = {
    "__init__.py": "",
    "shared.pxd": "cdef int shared_value\n",
    "shared.pyx": "cdef int shared_value = 1\n",
    "user.pyx": "from package.shared cimport shared_value\n\ndef value():\n    return shared_value\n",
    "lone.pyx": "def value():\n    return 1\n",
}
NAMES = ("shared", "user", "lone")


def translate(*names: str) -> int:
    return translate_modules.main(["out", *(f"package/{name}.pyx" for name in names)])


def times() -> dict[str, int]:
    return {name: Path(f"out/package/{name}.cpp").stat().st_mtime_ns for name in NAMES}


def write_later(path: Path, text: str) -> None:
    """Write a file whose time is after that of all translations, however coarse the clock of the file system is."""
    path.write_text(text)
    later = max(times().values()) / 1e9 + 1
    os.utime(path, (later, later))


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (1, 1))
    assert translate(*NAMES) == 0
    return folder


def changed(before: dict[str, int]) -> set[str]:
    return {name for name, time in times().items() if time != before[name]}


def test_each_is_a_module_of_its_package(package):
    assert "PyInit_user" in Path("out/package/user.cpp").read_text()
    assert '"package.user"' in Path("out/package/user.cpp").read_text()


def test_what_is_current_stays(package):
    before = times()
    assert translate(*NAMES) == 0
    assert changed(before) == set()


def test_a_changed_source_is_translated_again(package):
    before = times()
    write_later(package / "lone.pyx", "def value():\n    return 2\n")
    assert translate(*NAMES) == 0
    assert changed(before) == {"lone"}


def test_what_imports_changed_declarations_is_translated_again(package):
    before = times()
    write_later(package / "shared.pxd", "cdef int shared_value\ncdef int another_value\n")
    assert translate(*NAMES) == 0
    assert changed(before) == {"shared", "user"}


def test_what_fails_leaves_nothing_and_fails_again(package, capsys):
    write_later(package / "lone.pyx", "cdef int broken(\n")
    for _ in range(2):
        assert translate(*NAMES) == 1
        assert not Path("out/package/lone.cpp").exists()
        assert "not translated: package/lone.pyx" in capsys.readouterr().err
    (package / "lone.pyx").write_text(FILES["lone.pyx"])
    assert translate(*NAMES) == 0
