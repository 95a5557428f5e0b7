# SPDX-License-Identifier: MIT
"""A call frame of XLA's foreign functions, made by hand: what drives the handler for a device where jax has none."""

from __future__ import annotations

import ctypes as c

TYPES = {"bool": 1, "float32": 11, "float64": 12, "bfloat16": 16, "int32": 4, "float16": 10}
# By the type of an attribute's value: the types in C and of XLA.
SCALARS = {bool: (c.c_bool, "bool"), int: (c.c_int32, "int32"), float: (c.c_double, "float64")}
POINTER, SIZE = c.c_void_p, c.c_size_t
BASE = [("struct_size", SIZE), ("extension", POINTER)]


def structure(name, *fields):
    return type(name, (c.Structure,), {"_fields_": list(fields)})


Buffer = structure("Buffer", *BASE, ("dtype", c.c_int), ("data", POINTER), ("rank", c.c_int64), ("dims", POINTER))
Array = structure("Array", *BASE, ("size", c.c_int64), ("types", POINTER), ("items", POINTER))
Attributes = structure(
    "Attributes", *BASE, ("size", c.c_int64), ("types", POINTER), ("names", POINTER), ("items", POINTER)
)
Span = structure("Span", ("text", c.c_char_p), ("length", SIZE))
Scalar = structure("Scalar", ("dtype", c.c_int), ("value", POINTER))
Version = structure("Version", *BASE, ("major", c.c_int), ("minor", c.c_int))
ErrorArguments = structure("ErrorArguments", *BASE, ("message", c.c_char_p), ("code", c.c_int))
StreamArguments = structure("StreamArguments", *BASE, ("context", POINTER), ("stream", POINTER))
OrdinalArguments = structure("OrdinalArguments", *BASE, ("context", POINTER), ("ordinal", c.c_int32))
Metadata = structure(
    "Metadata", ("struct_size", SIZE), ("version", Version), ("traits", c.c_uint32), ("state", c.c_int64)
)
Extension = structure(
    "Extension", *[("struct_size", SIZE), ("type", c.c_int), ("next", POINTER)], ("metadata", POINTER)
)
FUNCTIONS = 18  # of XLA_FFI_Api, version 0.3
Api = structure("Api", *BASE, ("version", Version), ("internal", POINTER), ("functions", POINTER * FUNCTIONS))
Frame = structure(
    "Frame", *BASE, ("api", POINTER), ("context", POINTER), ("stage", c.c_int), ("arguments", Array),
    ("results", Array), ("attributes", Attributes), ("future", POINTER),
)  # fmt: skip
ERROR_CREATE, STREAM_GET, ORDINAL_GET = 0, 4, 17
Function = c.CFUNCTYPE(POINTER, POINTER)


class Caller:
    """Calls a handler as XLA does, on one stream of one device.

    Parameters
    ----------
    handler
        The capsule that is registered with jax.
    stream, device
        What the handler is told when it asks.
    """

    def __init__(self, handler, stream=0, device=0):
        c.pythonapi.PyCapsule_GetPointer.restype = POINTER
        c.pythonapi.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
        self.call = Function(c.pythonapi.PyCapsule_GetPointer(handler, None))
        self.errors = []

        def create(arguments):
            fields = c.cast(arguments, c.POINTER(ErrorArguments)).contents
            self.errors.append((fields.code, fields.message.decode()))
            return 1

        def stream_get(arguments):
            c.cast(arguments, c.POINTER(StreamArguments)).contents.stream = stream

        def ordinal_get(arguments):
            c.cast(arguments, c.POINTER(OrdinalArguments)).contents.ordinal = device

        self.functions = {ERROR_CREATE: create, STREAM_GET: stream_get, ORDINAL_GET: ordinal_get}
        self.functions = {slot: Function(function) for slot, function in self.functions.items()}
        self.api = Api(struct_size=c.sizeof(Api))
        for slot, function in self.functions.items():
            self.api.functions[slot] = c.cast(function, POINTER)

    def metadata(self):
        """Return the version that the handler was built for."""
        metadata_ = Metadata(struct_size=c.sizeof(Metadata))
        extension = Extension(struct_size=24, type=1, metadata=c.addressof(metadata_))
        frame = Frame(struct_size=c.sizeof(Frame), extension=c.addressof(extension), api=c.addressof(self.api))
        assert self.call(c.addressof(frame)) is None
        return metadata_.version.major, metadata_.version.minor

    def __call__(self, operands, results, /, **attributes):
        """Call with (address, shape, dtype name) of each array; returns None, or code and text of the error."""
        retained = []

        def pointers(items):
            retained.append((POINTER * max(1, len(items)))(*(c.addressof(item) for item in items)))
            return c.addressof(retained[-1])

        def types(values):
            retained.append((c.c_int * max(1, len(values)))(*values))
            return c.addressof(retained[-1])

        def buffers(arrays):
            descriptors = []
            for address, shape, dtype in arrays:
                retained.append((c.c_int64 * max(1, len(shape)))(*shape))
                descriptors.append(
                    Buffer(c.sizeof(Buffer), None, TYPES[dtype], address, len(shape), c.addressof(retained[-1]))
                )
            retained.append(descriptors)
            return Array(c.sizeof(Array), None, len(descriptors), types([1] * len(descriptors)), pointers(descriptors))

        def value_of(value):
            if isinstance(value, str):
                text = value.encode()
                return 4, Span(text, len(text))
            kind, dtype = SCALARS[type(value)]
            retained.append(kind(value))
            return 3, Scalar(TYPES[dtype], c.addressof(retained[-1]))

        names = [Span(name.encode(), len(name)) for name in sorted(attributes)]
        values = [value_of(attributes[name]) for name in sorted(attributes)]
        retained.append((names, values))
        frame = Frame(
            struct_size=c.sizeof(Frame), api=c.addressof(self.api), stage=3, arguments=buffers(operands),
            results=buffers(results),
            attributes=Attributes(
                c.sizeof(Attributes), None, len(names), types([kind for kind, _ in values]), pointers(names),
                pointers([value for _, value in values]),
            ),
        )  # fmt: skip
        self.errors.clear()
        failed = self.call(c.addressof(frame))
        assert (failed is None) == (not self.errors)
        return self.errors[0] if failed else None
