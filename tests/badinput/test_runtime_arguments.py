# SPDX-License-Identifier: MIT
"""Arguments of streams, buffers and launches: typed errors that name the argument, what was seen, and the two sides."""

import threading

import numpy as np
import pytest

import rocpy
from rocpy.runtime.kernels.arguments import pack


@pytest.mark.parametrize("location", [3, None, [], "Device", np.ones(2)])
def test_a_location(location):
    with pytest.raises(rocpy.InvalidProblemError, match="^location: got .*expected one of device, host, managed"):
        rocpy.Buffer(4, location=location)


@pytest.mark.parametrize("pair", ["a", 1, (), ("a", "b"), {}, (1,), (1, 0, 0), (1.0, 0), {1: 0}])
@pytest.mark.parametrize("name", ["max_version", "dl_device"])
def test_a_version_and_a_device_of_dlpack(name, pair):
    with rocpy.Buffer(4) as buffer, pytest.raises(rocpy.InvalidOperandError, match=f"^{name}: got .*two integers"):
        buffer.__dlpack__(**{name: pair})


@pytest.mark.parametrize("stream", ["x", 1.5, True, -2, [], np.ones(1)])
def test_a_stream_of_dlpack(stream):
    with rocpy.Buffer(4) as buffer:
        with pytest.raises(rocpy.InvalidOperandError, match="^stream: "):
            buffer.__dlpack__(stream=stream)
        for number in (None, -1, 0, 1, 2, np.int64(-1), np.int64(2)):
            assert buffer.__dlpack__(stream=number) is not None


@pytest.mark.parametrize("value", [256, -1, 1.5, "a", None, True, np.array([3]), np.array([1, 2]), [3], 2**70])
def test_a_byte(value):
    with (
        rocpy.Buffer(4) as buffer,
        pytest.raises(rocpy.InvalidProblemError, match="^value: got .*a byte from 0 to 255"),
    ):
        buffer.fill(value)


@pytest.mark.parametrize("array", [np.ones(3, bool), np.zeros(2, "m8[s]")])
def test_an_element_type_of_no_buffer(array):
    with pytest.raises(
        rocpy.InvalidOperandError, match="^array: (ndarray of bool cannot be a Buffer: its element type|.*export)"
    ):
        rocpy.Buffer.from_dlpack(array)


@pytest.mark.parametrize("method", ["copy_to", "copy_from"])
def test_the_two_sides_of_a_copy(method):
    own, other = rocpy.Buffer(4, "uint8"), rocpy.Buffer(4, "float32")
    with pytest.raises(rocpy.InvalidOperandError, match="^array: dtype float32; the Buffer has uint8$"):
        getattr(own, method)(other)


@pytest.mark.parametrize(("priority", "like"), [(2**31, 2**31 - 1), (2**70, 2**31 - 1), (-(2**31) - 1, -(2**31))])
def test_priorities_are_clamped(priority, like):
    with rocpy.Stream(priority=priority) as one, rocpy.Stream(priority=like) as other:
        assert one.priority == other.priority


@pytest.mark.parametrize("array", [np.zeros(8)[::2], np.zeros((2, 2)).T, np.zeros(2, ">f4")])
def test_an_array_of_a_launch(array):
    with pytest.raises(rocpy.InvalidOperandError, match=r"^argument 1: (?!array)"):
        pack([3, array])


def test_read_only_arrays_are_arguments():
    array = np.zeros(4)
    array.flags.writeable = False
    (packed,), _ = pack([array])
    assert packed == array.ctypes.data.to_bytes(8, "little")


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_no_thread_may_wait_for_the_device_of_a_capture(mode):
    refusals = []
    buffer, stream = rocpy.Buffer(4), rocpy.Stream(nonblocking=True)

    def wait():
        for call in (rocpy.Device(0).synchronize, lambda: np.asarray(buffer), lambda: np.from_dlpack(buffer)):
            try:
                call()
            except rocpy.UnsupportedError as error:
                refusals.append(error.status_name)

    def run():
        with stream.capture(mode):
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()

    with pytest.raises(rocpy.LibraryError, match="hipErrorStreamCaptureInvalidated"):
        run()
    stream.close()
    buffer.close()
    assert refusals == ["hipErrorStreamCaptureUnsupported"] * 3


def test_dlpack_devices_of_the_host_platform():
    with rocpy.Buffer(4, device=1) as buffer:
        if not rocpy.platform.current().host_memory:
            return
        assert buffer.__dlpack_device__() == (1, 0)
        assert buffer.__dlpack__(dl_device=(10, 1)) is not None
        for other in ((10, 0), (2, 1), (1, 1)):
            with pytest.raises(BufferError, match="DLPack device"):
                buffer.__dlpack__(dl_device=other)


SWITCHES = {
    "amax": lambda x: rocpy.matmul(np.ones((2, 2)), np.ones((2, 2)), amax=x),
    "timing": lambda x: rocpy.Event(timing=x),
    "nonblocking": lambda x: rocpy.Stream(nonblocking=x),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_an_array_is_no_switch(name):
    with pytest.raises(rocpy.InvalidOperandError, match=f"^{name}: got ndarray, expected True or False$"):
        SWITCHES[name](np.ones(2))


def test_an_array_is_no_mode_of_a_capture():
    with (
        rocpy.Stream() as stream,
        pytest.raises(rocpy.InvalidProblemError, match="^mode: got ndarray, expected one of"),
    ):
        stream.capture(mode=np.ones(2))


def test_an_extent_beyond_any_memory():
    with pytest.raises(rocpy.InvalidProblemError, match="^shape: got an extent of 63 bits, more than any memory$"):
        rocpy.Buffer(2**62)


@pytest.mark.parametrize(
    ("algorithm", "shown"),
    [
        (2**63, "algorithm 9223372036854775808 is"),
        (10**400, "algorithm of 1329 bits is"),
        ("\ud800", r"'\\ud800' is not"),
    ],
)
def test_absurd_algorithms_can_be_printed(algorithm, shown):
    with pytest.raises(rocpy.InvalidProblemError, match=shown) as refused:
        rocpy.matmul(np.ones((2, 2)), np.ones((2, 2)), algorithm=algorithm)
    str(refused.value).encode()


def test_what_is_no_event():
    with rocpy.Stream() as stream, rocpy.Event() as event:
        for call in (stream.record, stream.wait, event.elapsed_ms):
            with pytest.raises(rocpy.InvalidOperandError, match="^(event|later): got int, expected a rocpy.Event$"):
                call(3)


def test_a_graph_says_what_state_it_is_in():
    graph = rocpy.Stream(nonblocking=True).capture()
    with pytest.raises(rocpy.InvalidProblemError, match="has captured nothing yet"):
        graph.launch()
    with graph, pytest.raises(rocpy.InvalidProblemError, match="is being captured"):
        graph.close()
    with pytest.raises(rocpy.InvalidProblemError, match="has been captured"):
        graph.__enter__()
