# SPDX-License-Identifier: MIT
"""Producers of DLPack capsules made with ctypes: any field can be wrong, and every call of a deleter is counted."""

import ctypes
from dataclasses import dataclass, field


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", DELETER)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype = ctypes.c_char_p
capsule_name.argtypes = [ctypes.py_object]

FLOAT32 = (2, 32, 1)
READ_ONLY = 1
IS_COPIED = 2
COMPACT = object()
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}


@dataclass
class Producer:
    """An array whose capsules say what they are told to say.

    What a capsule points to lives as long as the producer; `deleted` counts the deleter's calls, `given` the capsules.
    """

    shape: tuple | None = (2, 3)
    strides: tuple | object | None = COMPACT
    dtype: tuple = FLOAT32
    device: tuple = (1, 0)
    versioned: bool = True
    version: tuple = (1, 0)
    flags: int = 0
    byte_offset: int = 0
    ndim: int | None = None
    null_data: bool = False
    no_deleter: bool = False
    name: bytes | None = None
    memory: ctypes.Array = field(default_factory=lambda: (ctypes.c_double * 64)(*range(64)))
    deleted: int = 0
    exports: int = 0
    requests: list = field(default_factory=list)

    def tensor(self):
        ndim = len(self.shape or ()) if self.ndim is None else self.ndim
        extents = (ctypes.c_int64 * max(len(self.shape or ()), 1))(*(self.shape or ()))
        strides = self.strides
        if strides is COMPACT:
            strides, step = [], 1
            for extent in reversed(self.shape or ()):
                strides.insert(0, step)
                step *= max(extent, 1)
        steps = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        self.retained = (*getattr(self, "retained", ()), extents, steps)
        return DLTensor(
            data=None if self.null_data else ctypes.addressof(self.memory),
            device=DLDevice(*self.device),
            ndim=ndim,
            dtype=DLDataType(*self.dtype),
            shape=None if self.shape is None else extents,
            strides=steps,
            byte_offset=self.byte_offset,
        )

    def delete(self, _address):
        self.deleted += 1

    def capsule(self, versioned):
        deleter = DELETER() if self.no_deleter else DELETER(self.delete)
        if versioned:
            managed = DLManagedTensorVersioned(*self.version, None, deleter, self.flags, self.tensor())
        else:
            managed = DLManagedTensor(self.tensor(), None, deleter)
        self.retained = (*self.retained, managed, deleter, self.name)
        self.exports += 1
        return new_capsule(ctypes.addressof(managed), self.name or NAMES[versioned], None)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        self.requests.append(keywords)
        if "max_version" in keywords and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.capsule(self.versioned)


class OnlyDlpack:
    """An array that has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
