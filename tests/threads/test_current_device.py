# SPDX-License-Identifier: MIT
"""A Device as a context manager is each thread's own: blocks of one object in several threads do not meet."""

from __future__ import annotations

HEAD = """
    import threading
    import pytest, rocpy
    shared = rocpy.Device(1)
"""


def test_threads_share_a_device_and_each_gets_its_own_back(run_python):
    code = """
    order = [threading.Event() for _ in range(3)]
    seen = {}

    def first():
        with shared:
            order[0].set()
            order[1].wait()
        seen["first"] = rocpy.Device.current().index
        order[2].set()

    def second():
        with rocpy.Device(2):
            order[0].wait()
            with shared:
                assert rocpy.Device.current() == shared
                order[1].set()
                order[2].wait()
            seen["second"] = rocpy.Device.current().index

    threads = [threading.Thread(target=function) for function in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"first": 0, "second": 2}, seen
    """
    run_python(HEAD + code, ROCPY_HOST_DEVICES="3")


def test_blocks_of_one_object_nest_also_after_an_error(run_python):
    code = """
    with rocpy.Device(2):
        with shared, rocpy.Device(0), shared:
            assert rocpy.Device.current() == shared
        assert rocpy.Device.current().index == 2
        with pytest.raises(KeyError):
            with shared:
                raise KeyError
        assert rocpy.Device.current().index == 2
    assert rocpy.Device.current().index == 0
    """
    run_python(HEAD + code, ROCPY_HOST_DEVICES="3")


def test_the_end_of_a_block_that_the_thread_did_not_enter_is_refused(run_python):
    code = """
    def leave():
        with pytest.raises(rocpy.InvalidProblemError, match="in no with block"):
            shared.__exit__(None, None, None)

    leave()
    with shared:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert rocpy.Device.current() == shared
    leave()
    """
    run_python(HEAD + code, ROCPY_HOST_DEVICES="3")
