# SPDX-License-Identifier: MIT
"""HIP's functions of the host platform as programs call them, those among them that rocpy itself does not."""

import ctypes

from rocpy.cli.rocm_tree import libraries


class PitchedPtr(ctypes.Structure):
    _fields_ = [
        ("ptr", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("xsize", ctypes.c_size_t),
        ("ysize", ctypes.c_size_t),
    ]


class MemsetParams(ctypes.Structure):
    _fields_ = [
        ("dst", ctypes.c_void_p),
        ("element_size", ctypes.c_uint),
        ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("width", ctypes.c_size_t),
    ]


class Memcpy3DParams(ctypes.Structure):
    _fields_ = [
        ("src_array", ctypes.c_void_p),
        ("src_pos", ctypes.c_size_t * 3),
        ("src", PitchedPtr),
        ("dst_array", ctypes.c_void_p),
        ("dst_pos", ctypes.c_size_t * 3),
        ("dst", PitchedPtr),
        ("extent", ctypes.c_size_t * 3),
        ("kind", ctypes.c_int),
    ]


class Hip:
    """HIP's functions on the host platform, each of which returns its status."""

    def __init__(self):
        self.library = ctypes.CDLL(str(libraries("7.2")["librocpy_host.so"]))

    def __getattr__(self, name):
        return getattr(self.library, f"rocpy_host_{name}")

    def created(self, name, *arguments):
        """Call what gives a handle back."""
        handle = ctypes.c_void_p()
        status = getattr(self, name)(ctypes.byref(handle), *arguments)
        assert status == 0, f"{name}: {status}"
        return handle

    def node(self, kind, graph, after, *arguments):
        count = ctypes.c_size_t(len(after))
        return self.created(f"hipGraphAdd{kind}", graph, (ctypes.c_void_p * len(after))(*after), count, *arguments)

    def ready(self, graph):
        return self.created("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))

    def run(self, ready):
        assert self.hipGraphLaunch(ready, None) == 0
        assert self.hipDeviceSynchronize() == 0

    def destroy(self, *, graphs, execs):
        for graph in graphs:
            assert self.hipGraphDestroy(graph) == 0
        for exec_ in execs:
            assert self.hipGraphExecDestroy(exec_) == 0
