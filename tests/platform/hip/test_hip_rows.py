# SPDX-License-Identifier: MIT
"""Every row of hip.def is called through hip-python, unmodified, by the tests of this folder; the list is printed."""

import importlib.util
import inspect
from pathlib import Path

import generate_abi
import host_platform

# Rows whose linked name is not the name that hip-python has.
NAMES = {"hipGetDevicePropertiesR0600": "hipGetDeviceProperties"}


def scenarios():
    """Yield the tests that need nothing but the `hip` fixture."""
    for path in sorted(Path(__file__).parent.glob("test_hip_*.py")):
        if path.name != Path(__file__).name:
            spec = importlib.util.spec_from_file_location(path.stem + "_once_more", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            for name, function in vars(module).items():
                if name.startswith("test_") and list(inspect.signature(function).parameters) == ["hip"]:
                    yield function


def test_every_row_is_called():
    module = host_platform.load()
    called = {}
    for test in scenarios():
        recorder = host_platform.Recorder(module)
        recorder.hipSetDevice(0)
        recorder.hipGetLastError()
        test(recorder)
        for name in recorder.called:
            called.setdefault(name, test.__name__)
    rows = [row.name for row in generate_abi.parse_rows(generate_abi.ABI / "hip.def")]
    for row in rows:
        print(f"{row:32} {called.get(NAMES.get(row, row), '-')}")
    assert [row for row in rows if NAMES.get(row, row) not in called] == []
