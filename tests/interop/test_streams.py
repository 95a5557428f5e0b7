# SPDX-License-Identifier: MIT
"""Streams, events, devices and buffers, what else is taken for a stream, and what a stream keeps alive."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from blocked_streams import blocked

import rocpy
from rocpy._operand import resolve_stream
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, RocpyWarning
from rocpy.runtime.handles.keep_alive import held_count
from rocpy.runtime.stream import hold_objects


class Payload:
    """Something that a stream may hold."""


def busy(stream, mebibytes=256):
    """Give the stream something that takes a while; the buffer is returned to keep it."""
    buffer = rocpy.Buffer(mebibytes << 20)
    buffer.fill(1, stream=stream)
    return buffer


def hip_library():
    return ctypes.CDLL(rocpy.platform.current().libraries["hip"].path)


def test_stream_life():
    with rocpy.Stream() as stream:
        assert stream.handle != 0
        assert stream.__cuda_stream__() == (0, stream.handle)
        assert stream.device == rocpy.Device(0)
        assert (stream.nonblocking, stream.done, stream.is_closed) == (False, True, False)
        assert "handle=0x" in repr(stream)
    assert stream.is_closed
    assert "closed" in repr(stream)
    stream.close()
    for use in (
        lambda: stream.handle,
        stream.synchronize,
        lambda: stream.done,
        stream.record,
        lambda: stream.wait(rocpy.Event()),
        lambda: resolve_stream(stream),
        stream.__enter__,
    ):
        with pytest.raises(ClosedError, match="Stream has been closed"):
            use()


def test_stream_options():
    assert rocpy.Stream(nonblocking=True).nonblocking
    last = rocpy.Device.count() - 1
    stream = rocpy.Stream(rocpy.Device(last))
    assert stream.device_index == last
    assert rocpy.Device.current().index == 0
    assert isinstance(rocpy.Stream(priority=-1).priority, int)
    for bad in (rocpy.Device.count(), -1):
        with pytest.raises(InvalidProblemError, match="there is no device"):
            rocpy.Stream(bad)
    with pytest.raises(InvalidOperandError, match="device: got str"):
        rocpy.Stream("0")
    with pytest.raises(InvalidProblemError, match="priority"):
        rocpy.Stream(priority=1.5)


class CudaStream:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class Attributes:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Number:
    def __int__(self):
        return 7


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (np.uint64(5), 5),
        (1 << 63, 1 << 63),
        (CudaStream((0, 5)), 5),
        (Attributes(cuda_stream=9), 9),
        (Attributes(ptr=11), 11),
        (Number(), 7),
    ],
)
def test_what_is_taken_for_a_stream(stream, handle):
    assert resolve_stream(stream) == handle


@pytest.mark.parametrize(
    "stream",
    [
        "null",
        1.0,
        True,
        -1,
        1 << 64,
        object(),
        np.zeros(1),
        CudaStream((1, 5)),
        CudaStream(5),
        CudaStream((0, "x")),
        Fraction(1, 3),
        Fraction(0),
        Decimal("0.9"),
        Decimal("NaN"),
        10**400,
        [],
    ],
)
def test_what_is_no_stream(stream):
    with pytest.raises(InvalidOperandError, match="stream: "):
        resolve_stream(stream)


def test_hip_python_streams_are_taken():
    hip = pytest.importorskip("rocm.bindings.hip")
    rocpy.platform.current()
    status, stream = hip.hipStreamCreate()
    assert int(status) == 0
    assert resolve_stream(stream) == int(stream)
    hip.hipStreamDestroy(stream)


def test_events():
    with rocpy.Stream() as first, rocpy.Stream() as second, rocpy.Event() as start, rocpy.Event() as stop:
        assert first.record(start) is start
        kept = busy(first)
        first.record(stop)
        second.wait(stop)
        second.synchronize()
        assert stop.done
        assert start.elapsed_ms(stop) > 0
        plain = first.record()
        plain.synchronize()
        assert (plain.timing, plain.done) == (False, True)
        with pytest.raises(InvalidProblemError, match="timing=True"):
            start.elapsed_ms(plain)
        for one, other, named in (
            (rocpy.Event(), start, "elapsed_ms: the earlier event was never recorded"),
            (start, rocpy.Event(), "elapsed_ms: later was never recorded"),
            (start, rocpy.Event(device=1), "later: is an event of device 1, and the earlier one of device 0"),
        ):
            with pytest.raises(InvalidProblemError, match=named):
                one.elapsed_ms(other)
        with rocpy.Stream(nonblocking=True) as third, rocpy.Event() as captured:
            with third.capture() as graph:
                third.record(captured)
            graph.launch()
            for one, other, named in ((captured, start, "the earlier event"), (start, captured, "later")):
                with pytest.raises(InvalidProblemError, match=f"elapsed_ms: {named} was never recorded"):
                    one.elapsed_ms(other)
        with pytest.raises(InvalidProblemError, match="event: is of device 1, and the stream of device 0"):
            first.record(rocpy.Event(device=1))
        kept.close()
    start.close()
    for use in (
        lambda: start.handle,
        start.synchronize,
        lambda: start.done,
        lambda: start.elapsed_ms(stop),
        start.__enter__,
    ):
        with pytest.raises(ClosedError, match="Event has been closed"):
            use()
    with rocpy.Stream() as stream, pytest.raises(ClosedError):
        stream.record(start)


def test_devices():
    device = rocpy.Device()
    assert device == rocpy.Device.current()
    assert device != 0
    assert {device, rocpy.Device(device.index)} == {device}
    assert device.memory.free_bytes <= device.memory.total_bytes
    assert device.properties["name"] == device.name
    assert device.properties["arch"] == device.arch
    device.synchronize()
    other = rocpy.Device(rocpy.Device.count() - 1)
    assert weakref.ref(other)() is other
    with other:
        assert rocpy.Device.current() == other
        for noun in (rocpy.Stream(), rocpy.Event(), rocpy.Buffer(3), rocpy.Stream().capture()):
            assert noun.device == other
        rocpy.Stream().record(rocpy.Event()).synchronize()
        with device, device:
            assert rocpy.Device.current() == device
        assert rocpy.Device.current() == other
    assert rocpy.Device.current() == device
    for bad in ("0", 1.0, True):
        with pytest.raises(InvalidOperandError):
            rocpy.Device(bad)
    with pytest.raises(InvalidProblemError, match=rf"no device 4096; the platform has {rocpy.Device.count()}"):
        rocpy.Device(4096)


@pytest.mark.parametrize("location", ["device", "host", "managed"])
def test_buffers(location):
    with rocpy.Buffer((3, 4), "float32", location=location) as buffer:
        assert (buffer.shape, buffer.dtype, buffer.nbytes, buffer.location) == ((3, 4), np.float32, 48, location)
        x = np.random.default_rng(0).standard_normal((4, 3)).astype("f4").T
        buffer.copy_from(x)
        assert np.array_equal(buffer.to_numpy(), x)
        other = rocpy.Buffer((3, 4), "float32")
        buffer.copy_to(other)
        assert np.array_equal(other.to_numpy(), x)
        with rocpy.Stream() as stream:
            buffer.fill(0, stream=stream)
            assert not buffer.to_numpy(stream=stream).any()
        for bad, error in (
            (np.zeros((4, 3), "f4"), InvalidProblemError),
            (np.zeros((3, 4), "f8"), InvalidOperandError),
            (np.zeros((3, 8), "f4")[:, ::2], InvalidOperandError),
            ([[0.0] * 4] * 3, InvalidOperandError),
        ):
            with pytest.raises(error):
                buffer.copy_to(bad)
        with pytest.raises(InvalidProblemError, match="got 256, expected a byte"):
            buffer.fill(256)
    for use in (
        lambda: buffer.handle,
        buffer.to_numpy,
        buffer.__dlpack__,
        buffer.__dlpack_device__,
        lambda: buffer.fill(0),
    ):
        with pytest.raises(ClosedError, match="Buffer has been closed"):
            use()
    buffer.close()


def test_empty_and_scalar_buffers():
    for shape in ((0,), (2, 0), ()):
        with rocpy.Buffer(shape, "float64") as buffer:
            assert buffer.to_numpy().shape == shape
            assert buffer.handle != 0


def test_held_objects_live_until_their_work_is_done():
    with rocpy.Stream() as stream, rocpy.Stream() as other:
        payload = Payload()
        alive = weakref.ref(payload)
        with blocked(stream):
            hold_objects(stream, payload)
            del payload
            other.synchronize()
            hold_objects(other, Payload())
            gc.collect()
            assert not stream.done
            assert alive() is not None
            assert held_count() >= 1
        assert alive() is None
        other.synchronize()
    assert held_count() == 0


def test_held_objects_leave_with_later_calls_on_other_streams():
    with rocpy.Stream() as first, rocpy.Stream() as second:
        payload = Payload()
        alive = weakref.ref(payload)
        hold_objects(first, payload)
        del payload
        done = first.record()
        done.synchronize()
        hold_objects(second, Payload())
        assert alive() is None
        second.synchronize()
    assert held_count() == 0


def test_work_outlives_a_closed_stream():
    stream = rocpy.Stream()
    payload = Payload()
    alive = weakref.ref(payload)
    leave = rocpy.Event()
    hold_objects(stream, payload)
    stream.record(leave)
    del payload
    stream.close()
    leave.synchronize()
    with rocpy.Stream() as other:
        other.synchronize()
    assert alive() is None


def test_exports_wait_for_the_work_on_the_buffer():
    if not rocpy.platform.current().host_memory:
        pytest.skip("device memory is no numpy array")
    with rocpy.Stream(nonblocking=True) as stream, rocpy.Buffer(8) as buffer:
        buffer.fill(0, stream=stream)
        stream.synchronize()
        with blocked(stream):
            buffer.fill(7, stream=stream)
            assert not stream.done
            unsynchronised = np.from_dlpack(Raw(buffer))
            assert not unsynchronised.any()
        assert np.from_dlpack(buffer).tolist() == [7] * 8
        assert np.asarray(buffer).tolist() == [7] * 8


class Raw:
    """A buffer that is exported as it is: stream -1 asks for no synchronisation."""

    def __init__(self, buffer):
        self.buffer = buffer

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.buffer.__dlpack__(stream=-1)


def test_destructors_of_held_objects_may_come_back():
    class Reentrant:
        def __del__(self):
            hold_objects(stream, Payload())
            stream.synchronize()

    stream = rocpy.Stream()
    for _ in range(20):
        hold_objects(stream, Reentrant())
    for _ in range(3):
        stream.synchronize()
    assert held_count() <= 1
    stream.synchronize()
    stream.close()


def test_holding_is_flat_in_memory():
    resource = pytest.importorskip("resource")

    def run(count):
        for _ in range(count // 1000):
            for _ in range(1000):
                hold_objects(stream, bytearray(4096))
            stream.synchronize()  # a stream that is slow has no more to hold than these

    with rocpy.Stream() as stream:
        run(2000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(8000)  # of which 8 MB are a fourth
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
    assert held_count() == 0


def test_making_and_dropping_is_flat():
    def descriptors():
        return sum(len(list(Path("/proc/self", kind).iterdir())) for kind in ("fd", "task"))

    for _ in range(5):
        rocpy.Stream().close()
    before = descriptors()
    for _ in range(200):
        stream, event, buffer = rocpy.Stream(), rocpy.Event(), rocpy.Buffer(1 << 12)
        stream.record(event)
        del stream, event, buffer
    rocpy.Device().synchronize()
    assert descriptors() <= before + 2


def test_threads_hold_at_once():
    errors = []

    def work():
        try:
            with rocpy.Stream() as stream:
                for _ in range(300):
                    hold_objects(stream, Payload())
                stream.synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert held_count() == 0


def test_failed_destructors_warn_and_leak():
    stream = rocpy.Stream()
    destroy_behind(stream.handle)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del stream
        gc.collect()
    assert [(w.category, "could not be released" in str(w.message)) for w in seen] == [(RocpyWarning, True)]


def destroy_behind(handle):
    """Destroy a stream behind its owner's back."""
    destroy = hip_library().hipStreamDestroy
    destroy.argtypes = [ctypes.c_void_p]
    assert destroy(handle) == 0


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_exit_with_live_objects_and_queued_work():
    code = (
        "import numpy, rocpy\n"
        "from rocpy.runtime.stream import hold_objects\n"
        "stream = rocpy.Stream(); event = rocpy.Event(); buffer = rocpy.Buffer(64 << 20)\n"
        "for _ in range(20): buffer.fill(3, stream=stream)\n"
        "hold_objects(stream, numpy.zeros(1000), buffer)\n"
        "stream.record(event)\n"
        "values = rocpy.Buffer(4)\n"
        "class Last:\n"
        "    def __del__(self): values.copy_from(values.to_numpy() * 0 + 7); print(values.to_numpy()[0])\n"
        "last = Last()\n"
        "print('end')\n"
    )
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n7\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_leaves_the_parents_objects_alone():
    code = (
        "import os, rocpy\n"
        "from rocpy.runtime.handles.keep_alive import held_count\n"
        "from rocpy.runtime.stream import hold_objects\n"
        "stream = rocpy.Stream(); event = rocpy.Event(); buffer = rocpy.Buffer(1 << 20)\n"
        "buffer.fill(3, stream=stream); hold_objects(stream, buffer)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    assert held_count() == 0\n"
        "    try:\n"
        "        stream.synchronize()\n"
        "    except rocpy.errors.ClosedError as error:\n"
        "        assert 'fork' in str(error)\n"
        "        with rocpy.Stream() as fresh:\n"
        "            hold_objects(fresh, object()); fresh.synchronize()\n"
        "        del stream, event, buffer\n"
        "        os._exit(0)\n"
        "    os._exit(1)\n"
        "_, status = os.waitpid(pid, 0)\n"
        "stream.synchronize()\n"
        "raise SystemExit(os.waitstatus_to_exitcode(status))\n"
    )
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_import_opens_no_library():
    done = run_python("import rocpy, rocpy._operand, rocpy._core; raise SystemExit(rocpy._core.is_loaded())")
    assert (done.returncode, done.stderr) == (0, "")


def test_order_under_stress():
    code = (
        "import numpy, rocpy\n"
        "for round in range(20):\n"
        "    with rocpy.Stream(nonblocking=True) as a, rocpy.Stream(nonblocking=True) as b, rocpy.Buffer(4096) as x:\n"
        "        x.fill(1, stream=a); b.wait(a.record())\n"
        "        x.fill(2, stream=b); a.wait(b.record()); x.fill(3, stream=a)\n"
        "        assert (x.to_numpy(stream=a) == 3).all()\n"
    )
    done = run_python(code, ROCPY_HOST_STRESS="7")
    assert (done.returncode, done.stderr) == (0, "")
