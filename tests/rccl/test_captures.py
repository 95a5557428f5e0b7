# SPDX-License-Identifier: MIT
"""Collectives on a captured stream: refused where the library takes none, communicator and capture as before."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy import rccl


def test_a_collective_on_a_captured_stream_is_refused_unspoilt():
    if not rocpy.platform.current().is_emulated:
        pytest.skip("RCCL captures collectives")
    x, b, d = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    with rccl.Communicator.init_all(1)[0] as comm, rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            with pytest.raises(rocpy.errors.RcclError, match="does not capture collectives"):
                comm.all_reduce(x, stream=stream)
            rocpy.matmul(x, b, out=d, stream=stream)
        graph.launch()
        stream.synchronize()
        assert (d == 3).all()
        graph.close()
        np.testing.assert_array_equal(comm.all_reduce(x), x)


def test_memory_that_is_collected_during_a_capture_leaves_it_whole():
    x, b, d = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), np.zeros((2, 4), np.float32)
    with rccl.Communicator.init_all(1)[0] as comm, rocpy.Stream(nonblocking=True) as stream:
        arrays = [comm.empty(4), rccl.empty(4)]
        with stream.capture() as graph:
            arrays.clear()
            rocpy.matmul(x, b, out=d, stream=stream)
        graph.launch()
        stream.synchronize()
        assert (d == 3).all()
        graph.close()
