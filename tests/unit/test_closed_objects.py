# SPDX-License-Identifier: MIT
"""What docs/concepts say of all objects alike: closing, what can be read afterwards, and how a stream is passed."""

from __future__ import annotations

import contextlib
import inspect

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy.errors import ClosedError, InvalidOperandError
from rocpy.rccl.carriers.communicator import CarriedCommunicator

X = np.ones((2, 2), np.float32)


def carried(_):
    class Carrier:
        rank, nranks, name = 0, 1, "a test"

    return CarriedCommunicator(Carrier(), 1.0, "test")


OBJECTS = {
    "Buffer": lambda _: rocpy.Buffer((2,), "float32"),
    "CarriedCommunicator": carried,
    "Communicator": lambda _: rccl.Communicator.init_all(1)[0],
    "Event": lambda _: rocpy.Event(),
    "Graph": lambda _: rocpy.Stream(nonblocking=True).capture(),
    "Matmul": lambda _: rocpy.Matmul(X, X),
    "Registration": lambda comm: comm.register_buffer(comm.empty(4, window=True)),
    "Stream": lambda _: rocpy.Stream(nonblocking=True, priority=-1),
    "Weight": lambda _: rocpy.Weight(X),
    "Window": lambda comm: comm.window(comm.empty(4, window=True)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_closed_object_cannot_be_entered(name):
    with rccl.Communicator.init_all(1)[0] as comm:
        opened = OBJECTS[name](comm)
        with opened as entered:
            assert entered is opened
        opened.close()
        with pytest.raises(ClosedError, match=name.removeprefix("Carried")), opened:
            pytest.fail("the block was entered")


@pytest.mark.parametrize("nonblocking", [True, False])
def test_what_a_stream_was_created_with_is_read_after_close(nonblocking):
    stream = rocpy.Stream(nonblocking=nonblocking, priority=-100)
    before = stream.nonblocking, stream.priority
    stream.close()
    assert (stream.nonblocking, stream.priority) == before
    assert before[0] is nonblocking
    assert before[1] > -100  # clamped


def test_streams_are_passed_by_keyword():
    for public in (*(getattr(rocpy, name) for name in rocpy.__all__), *(getattr(rccl, name) for name in rccl.__all__)):
        members = [getattr(public, name) for name in dir(public) if not name.startswith("_")]
        for function in (public, *members) if isinstance(public, type) else (public,):
            with contextlib.suppress(TypeError, ValueError):  # no function, or without a signature
                stream = inspect.signature(function).parameters.get("stream")
                by_keyword = stream is None or stream.kind is stream.KEYWORD_ONLY
                assert by_keyword or function in (rocpy.Graph, rocpy.Graph.launch), function


@pytest.mark.parametrize("make", [lambda dtype: rocpy.Buffer((2,), dtype), lambda dtype: rccl.empty(2, dtype)])
def test_an_unknown_dtype_of_memory_is_told_the_nearest(make):
    with pytest.raises(InvalidOperandError, match="'floot32'.*did you mean 'float32'"):
        make("floot32")
