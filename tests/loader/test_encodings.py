# SPDX-License-Identifier: MIT
"""Paths that are not ASCII where the encoding of the locale is, as in a container that sets none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocpy.cli import rocm_tree
from rocpy.tuning import _files

ASCII = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}
HEAD = """
    import os, sys
    import numpy as np
    assert sys.getfilesystemencoding() == "ascii", sys.getfilesystemencoding()
    import rocpy
    a = np.ones((32, 32), np.float32)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A ROCm tree in a folder whose name is not ASCII."""
    folder = tmp_path / "röcm 中"
    rocm_tree.lay_out(folder, rocm_tree.DEFAULT_RELEASE)
    return folder


def test_products_of_a_library_in_such_a_folder(run_python, tree):
    code = """
    from rocpy.blaslt.selection import selftest_record
    rocpy.matmul(a, a)
    platform = rocpy.platform.current()
    files = [library.path for library in platform.libraries.values() if library.path]
    assert len(files) > 1
    for file in files:
        assert os.fsencode(file).startswith(os.environb[b"ROCM_PATH"]), ascii(file)
        assert os.path.exists(file)
    assert '"build": []' not in selftest_record.scope_of(1, "cpu")
    print(platform)
    """
    variables = rocm_tree.environment(tree, rocm_tree.DEFAULT_RELEASE) | {"ROCPY_PLATFORM": "amd"}
    run_python(HEAD + code, **ASCII, **variables)


def test_errors_that_name_such_a_folder_can_be_printed(run_python, tmp_path):
    folder = tmp_path / "röcm" / "lib"
    folder.mkdir(parents=True)
    (folder / "libamdhip64.so").symlink_to("libamdhip64.so")
    code = """
    try:
        rocpy.matmul(a, a)
    except rocpy.LibraryError as error:
        assert os.environb[b"ROCM_PATH"] in os.fsencode(str(error))
        print(error)
    else:
        raise AssertionError
    """
    run_python(HEAD + code, ROCM_PATH=str(folder.parent), ROCPY_PLATFORM="amd", **ASCII)


def test_a_tuning_database_in_such_a_folder(run_python, tmp_path):
    folder = tmp_path / "größe"
    folder.mkdir()
    code = """
    with rocpy.Matmul(a, a) as mm:
        mm.plan()
        mm.autotune(5000.0, max_algorithms=2)
    assert os.path.exists(os.environb[b"ROCPY_TUNING_DB"])
    """
    run_python(HEAD + code, ROCPY_TUNING_DB=str(folder / "db"), ROCPY_PLATFORM="host", **ASCII)


@pytest.mark.parametrize("name", ["plain", "größe", "中", "a b"])
def test_the_file_system_of_a_mount(name):
    mount = f"1 2 0:1 / /mnt/{name.replace(' ', chr(92) + '040')} rw - nfs4 server:/x rw"
    assert _files.file_system(Path(f"/mnt/{name}/db"), "0 0 0:0 / / rw - ext4 /dev/x rw\n" + mount) == "nfs4"
