# SPDX-License-Identifier: MIT
"""Asks the hipBLASLt in use what its headers leave open: alpha in device memory, and a workspace that is too small."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import numpy as np

import rocpy
from rocpy import _core

N = 64
# Numbers of hipBLASLt 1.4.1: hipDataType, hipblasComputeType_t, attributes, pointer modes.
R_32F, COMPUTE_32F = 0, 2
DESC_POINTER_MODE, PREFERENCE_WORKSPACE = 13, 1
HOST, DEVICE, ALPHA_VECTOR = 0, 1, 4
RESULT_BYTES, WORKSPACE_OFFSET = 56, 24


class Library:
    """The hipBLASLt that rocpy has opened, through ctypes; a status that is not 0 raises."""

    def __init__(self) -> None:
        rocpy.platform.current()
        path = next(fact[1] for fact in _core.library_facts() if fact[0] == "hipblaslt")
        self.library = ctypes.CDLL(path)

    def status(self, name: str, *arguments: object) -> int:
        """Return the status of a call."""
        return int(getattr(self.library, f"hipblasLt{name}")(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that must succeed."""
        status = self.status(name, *arguments)
        if status:
            raise SystemExit(f"hipblasLt{name}: status {status}")

    def make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Return an object that a create function made."""
        made = ctypes.c_void_p()
        self.call(f"{name}Create", ctypes.byref(made), *arguments)
        return made


def buffer(values: np.ndarray) -> rocpy.Buffer:
    """Return device memory with these values."""
    made = rocpy.Buffer(values.shape, values.dtype)
    made.copy_from(values)
    return made


class Product:
    """d = alpha a b of small float32 matrices of ones, column-major, on the default stream."""

    def __init__(self, library: Library, size: int = N) -> None:
        self.library = library
        self.size = size
        self.handle = library.make("")
        self.desc = library.make("MatmulDesc", COMPUTE_32F, R_32F)
        extents = (ctypes.c_uint64(size), ctypes.c_uint64(size), ctypes.c_int64(size))
        self.layout = library.make("MatrixLayout", R_32F, *extents)
        self.a = buffer(np.ones((size, size), np.float32))
        self.d = buffer(np.zeros((size, size), np.float32))

    def algorithms(self, workspace_bytes: int) -> Iterator[tuple[bytes, int]]:
        """Give the heuristic's results: the algorithm's bytes and the workspace that it needs."""
        preference = self.library.make("MatmulPreference")
        limit = ctypes.c_uint64(workspace_bytes)
        size = ctypes.c_size_t(8)
        self.library.call("MatmulPreferenceSetAttribute", preference, PREFERENCE_WORKSPACE, ctypes.byref(limit), size)
        results, found = ctypes.create_string_buffer(RESULT_BYTES * 32), ctypes.c_int(0)
        layouts = (self.layout,) * 4
        self.library.call(
            "MatmulAlgoGetHeuristic", self.handle, self.desc, *layouts, preference, 32, results, ctypes.byref(found)
        )
        for place in range(found.value):
            raw = results.raw[place * RESULT_BYTES : (place + 1) * RESULT_BYTES]
            yield raw[:WORKSPACE_OFFSET], int.from_bytes(raw[WORKSPACE_OFFSET : WORKSPACE_OFFSET + 8], "little")
        self.library.call("MatmulPreferenceDestroy", preference)

    def run(self, algorithm: bytes, alpha: object, workspace: rocpy.Buffer | None, workspace_bytes: int) -> int:
        """Launch, wait, and return the status."""
        beta = ctypes.c_float(0.0)
        a, d = ctypes.c_void_p(self.a.handle), ctypes.c_void_p(self.d.handle)
        memory = ctypes.c_void_p(workspace.handle if workspace is not None else None)
        status = self.library.status(
            "Matmul", self.handle, self.desc, alpha, a, self.layout, a, self.layout, ctypes.byref(beta), d,
            self.layout, d, self.layout, ctypes.create_string_buffer(algorithm, len(algorithm)), memory,
            ctypes.c_size_t(workspace_bytes), ctypes.c_void_p(None),
        )  # fmt: skip
        rocpy.Device(0).synchronize()
        return status


def alpha_in_device_memory(library: Library) -> str:
    """Say what pointer mode DEVICE makes of alpha: a vector along the library's m, or one scalar."""
    product = Product(library)
    mode = ctypes.c_int32(DEVICE)
    library.call("MatmulDescSetAttribute", product.desc, DESC_POINTER_MODE, ctypes.byref(mode), ctypes.c_size_t(4))
    # As many values as a vector has: neither reading is beyond the memory's end.
    alpha = buffer(np.arange(1, N + 1, dtype=np.float32))
    found = next(iter(product.algorithms(0)), None)
    if found is None:
        return "no algorithm takes it"
    status = product.run(found[0], ctypes.c_void_p(alpha.handle), None, 0)
    if status:
        return f"refused at launch, status {status}"
    rows = product.d.to_numpy()[0] / N
    if np.array_equal(rows, np.arange(1, N + 1)):
        return "a vector along m"
    return "one scalar" if np.array_equal(rows, np.ones(N)) else f"neither: the first values are {rows[:4]}"


def workspace_too_small(library: Library) -> str:
    """Say what a launch answers whose workspace is smaller than its algorithm asked for."""
    for size in (N, 512, 1024, 2048):
        product = Product(library, size)
        for algorithm, needed in product.algorithms(128 << 20):
            if needed > 256:
                small = rocpy.Buffer((256,), "int8")
                status = product.run(algorithm, ctypes.byref(ctypes.c_float(1.0)), small, 256)
                return f"status {status} (256 bytes given, {needed} needed, {size}^3)"
    return "no algorithm offered needs a workspace"


QUESTIONS = {
    "alpha in pointer mode DEVICE": alpha_in_device_memory,
    "launch with too small a workspace": workspace_too_small,
}


def main() -> int:
    """Print one line for each question. A launch may crash the library: the answer is then in the exit code."""
    library = Library()
    print(f"platform: {rocpy.platform.current().name}, {rocpy.Device(0).name}")
    for question, ask in QUESTIONS.items():
        print(f"{question}: ", end="", flush=True)
        with contextlib.redirect_stderr(sys.stdout):
            print(ask(library), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
