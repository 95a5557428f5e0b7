# SPDX-License-Identifier: MIT
"""Streams of launches: what every call takes for a stream, a launch on arrays in CPU memory takes, and waits for it."""

import numpy as np
import pytest

import rocpy
from rocpy import cooperative as coop


class Foreign:
    def __init__(self, pair):
        self.pair = pair

    def __cuda_stream__(self):
        return self.pair


STREAMS = {
    "Stream": lambda stream: stream,
    "handle": lambda stream: stream.handle,
    "protocol": lambda stream: Foreign((0, stream.handle)),
    "null": lambda _stream: 0,
}


@coop.jit
def increment(x):
    x[coop.threadIdx.x] += 1


@pytest.mark.parametrize("name", STREAMS)
def test_every_kind_of_stream(name):
    x = np.zeros(4)
    with rocpy.Buffer(4) as buffer, rocpy.Stream() as stream:
        buffer.fill(1, stream=stream)
        increment[1, 4, STREAMS[name](stream)](x)
        assert name == "null" or stream.done
    assert x.tolist() == [1] * 4


@pytest.mark.parametrize("name", ["handle", "protocol"])
def test_a_captured_stream_is_refused(name):
    stream = rocpy.Stream(nonblocking=True)
    launch = increment[1, 4, STREAMS[name](stream)]
    with stream.capture(), pytest.raises(rocpy.UnsupportedError, match="its stream is being captured"):
        launch(np.zeros(4))
    stream.close()


@pytest.mark.parametrize("stream", ["a", 1.5, True, Foreign(3), 12345])
def test_what_is_no_stream(stream):
    with pytest.raises(rocpy.InvalidOperandError, match="^stream: "):
        increment[1, 4, stream](np.zeros(4))
