# SPDX-License-Identifier: MIT
"""Fixtures of the host platform's tests: hip-python on it, with a record of what is called."""

import host_platform
import pytest


@pytest.fixture
def hip():
    """hip-python on the host platform; each test begins and ends on device 0, without a last error."""
    recorder = host_platform.Recorder(host_platform.load())
    recorder.hipSetDevice(0)
    recorder.hipGetLastError()
    yield recorder
    recorder.hipSetDevice(0)
    recorder.hipGetLastError()
