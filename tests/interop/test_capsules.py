# SPDX-License-Identifier: MIT
"""DLPack, the array interfaces and buffers of all sorts: read rightly or refused by name, and never leaked."""

import array
import ctypes
import gc

import numpy as np
import pytest
from dlpack_producers import IS_COPIED, READ_ONLY, OnlyDlpack, Producer, capsule_name
from hypothesis import given
from hypothesis import strategies as st

import rocpy
from rocpy._operand import allocate_like, describe
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError


@pytest.mark.parametrize("versioned", [True, False])
def test_capsules_are_read_and_given_back_once(versioned):
    producer = Producer(versioned=versioned)
    seen = describe(producer)
    kept = seen.pop("kept")
    assert seen == {
        "data": ctypes.addressof(producer.memory),
        "dtype": "float32",
        "shape": (2, 3),
        "strides": (3, 1),
        "device_type": 1,
        "device_id": 0,
        "provider": "capsule",
        "read_only": False,
        "copied": False,
    }
    assert producer.requests == [{"max_version": (1, 3)}] + [{}] * (not versioned)
    assert producer.deleted == 0
    del kept
    gc.collect()
    assert (producer.exports, producer.deleted) == (1, 1)


def test_a_capsule_itself_is_taken_and_marked_as_used():
    for versioned in (True, False):
        producer = Producer()
        capsule = producer.capsule(versioned)
        describe(capsule)
        assert capsule_name(capsule).startswith(b"used_dltensor")
        with pytest.raises(InvalidOperandError, match="x: its DLPack capsule has been consumed already"):
            describe(capsule, "x")
        assert producer.deleted == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"strides": None}, {"strides": (3, 1)}),
        ({"strides": None, "shape": (2, 0, 3)}, {"shape": (2, 0, 3)}),
        ({"strides": (1, 2)}, {"strides": (1, 2)}),
        ({"strides": (0, 0)}, {"strides": (0, 0)}),
        ({"strides": (-3, 1), "byte_offset": 12}, {"strides": (-3, 1)}),
        ({"shape": (), "strides": None}, {"shape": (), "strides": ()}),
        ({"shape": None, "ndim": 0}, {"shape": ()}),
        ({"shape": (0, 4), "null_data": True}, {"data": 0, "shape": (0, 4)}),
        ({"flags": READ_ONLY}, {"read_only": True}),
        ({"flags": IS_COPIED}, {"copied": True}),
        ({"version": (1, 99), "flags": 1 << 40}, {"read_only": False}),
        ({"dtype": (4, 16, 1)}, {"dtype": "bfloat16"}),
        ({"dtype": (10, 8, 1)}, {"dtype": "float8_e4m3fn"}),
        ({"device": (10, 3)}, {"device_type": 10, "device_id": 3}),
        ({"no_deleter": True}, {"shape": (2, 3)}),
    ],
    ids=str,
)
def test_fields_of_a_capsule(fields, expected):
    producer = Producer(**fields)
    seen = describe(producer)
    assert {key: seen[key] for key in expected} == expected
    if producer.byte_offset:
        assert seen["data"] == ctypes.addressof(producer.memory) + producer.byte_offset
    del seen
    gc.collect()
    assert producer.deleted == (0 if producer.no_deleter else 1)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"version": (2, 0)}, UnsupportedError, r"DLPack 2\.0, but rocpy supports 1\.3"),
        ({"version": (0, 8)}, UnsupportedError, r"DLPack 0\.8"),
        ({"shape": None, "ndim": 2}, InvalidOperandError, "shape pointer is null"),
        ({"ndim": -1}, InvalidOperandError, "number of dimensions is negative or above 32"),
        ({"shape": (1,) * 33}, InvalidOperandError, "number of dimensions is negative or above 32"),
        ({"ndim": 1 << 30}, InvalidOperandError, "number of dimensions is negative or above 32"),
        ({"shape": (2, -3)}, InvalidOperandError, "extent of its shape is negative"),
        ({"shape": (1 << 40, 1 << 40)}, InvalidOperandError, "exceed the address space"),
        ({"strides": (1 << 62, 1)}, InvalidOperandError, "exceed the address space"),
        ({"strides": (-(1 << 63), 1)}, InvalidOperandError, "exceed the address space"),
        ({"null_data": True}, InvalidOperandError, "data pointer is null although it has elements"),
        ({"byte_offset": 1}, InvalidOperandError, "not a multiple of the element size"),
        ({"dtype": (2, 32, 4)}, InvalidOperandError, r"DLPack type float32x4\): its element type"),
        ({"dtype": (6, 8, 1)}, InvalidOperandError, "DLPack type bool"),
        ({"dtype": (17, 4, 1)}, InvalidOperandError, "DLPack type float4_e2m1fn"),
        ({"dtype": (3, 64, 1)}, InvalidOperandError, "DLPack type opaque handle"),
        ({"dtype": (200, 7, 1)}, InvalidOperandError, "DLPack type type code 200"),
        ({"name": b"not a tensor"}, InvalidOperandError, "expected a DLPack capsule"),
    ],
    ids=str,
)
@pytest.mark.parametrize("versioned", [True, False])
def test_bad_capsules_are_refused_and_given_back(fields, error, message, versioned):
    if "version" in fields and not versioned:
        pytest.skip("a legacy capsule has no version")
    producer = Producer(versioned=versioned, **fields)
    with pytest.raises(error, match=f"(?s)weight: .*{message}"):
        describe(producer, "weight")
    gc.collect()
    assert producer.deleted == (0 if producer.name else 1)


class Failing:
    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **keywords):
        raise self.error


@pytest.mark.parametrize(
    "error", [BufferError("busy"), RuntimeError("no"), ValueError("bad"), TypeError("never"), KeyError("x")]
)
def test_producers_that_fail_are_named(error):
    with pytest.raises(InvalidOperandError, match=r"x: .*Failing does not export its memory by DLPack") as caught:
        describe(Failing(error), "x")
    assert caught.value.__cause__ is error


def test_interrupts_pass_through():
    with pytest.raises(KeyboardInterrupt):
        describe(Failing(KeyboardInterrupt()))


@pytest.mark.parametrize("value", [None, 1, "text", [1], object()])
def test_producers_that_give_no_capsule_are_refused(value):
    class Odd:
        def __dlpack__(self, **keywords):
            return value

    with pytest.raises(InvalidOperandError, match="expected a DLPack capsule"):
        describe(Odd())


integers = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 5)


@given(
    shape=st.none() | st.lists(integers, max_size=40).map(tuple),
    data=st.data(),
    dtype=st.tuples(
        st.integers(0, 20), st.sampled_from([0, 1, 4, 8, 16, 32, 64, 128, 255]), st.sampled_from([0, 1, 1, 1, 2, 65535])
    ),
    device=st.tuples(st.integers(-1, 20), st.integers(-1, 9)),
    versioned=st.booleans(),
    version=st.tuples(st.sampled_from([0, 1, 1, 1, 2]), st.integers(0, 5)),
    flags=st.integers(0, 7),
    byte_offset=st.sampled_from([0, 0, 1, 4, 8, 1 << 63]),
    null_data=st.booleans(),
)
def test_any_capsule_is_read_or_refused(shape, data, **fields):
    strides = data.draw(st.none() | st.lists(integers, min_size=len(shape or ()), max_size=len(shape or ())).map(tuple))
    if shape is None:
        fields["ndim"] = data.draw(st.integers(-2, 40))
    producer = Producer(shape=shape, strides=strides, **fields)
    try:
        seen = describe(producer)
    except (InvalidOperandError, UnsupportedError):
        pass
    else:
        reach = sum(abs(s) * (e - 1) for s, e in zip(seen["strides"], seen["shape"], strict=True) if e)
        assert len(seen["shape"]) <= 32
        assert all(extent >= 0 for extent in seen["shape"])
        assert seen["shape"] == (shape or ())
        assert 0 in seen["shape"] or reach < 1 << 62
        assert seen["data"] or 0 in seen["shape"]
        del seen
    gc.collect(0)
    assert producer.deleted == 1


class Interface:
    """A producer of the array interfaces that says what it is told to say."""

    def __init__(self, kind, **changes):
        self.memory = np.arange(12, dtype="f4").reshape(3, 4)
        described = {
            "version": 3, "shape": (3, 4), "typestr": "<f4", "data": (self.memory.ctypes.data, False), "strides": None,
        }  # fmt: skip
        described.update(changes)
        setattr(self, kind, {key: value for key, value in described.items() if value is not KeyError})


def test_array_interface():
    x = Interface("__array_interface__")
    seen = describe(x)
    assert (seen["data"], seen["shape"], seen["provider"]) == (x.memory.ctypes.data, (3, 4), "array_interface")
    assert type(allocate_like(x, (2, 2))) is np.ndarray
    seen = describe(Interface("__array_interface__", typestr=">f4"))
    assert seen["copied"] is True
    with pytest.raises(InvalidOperandError, match="x: "):
        describe(Interface("__array_interface__", typestr="nonsense"), "x")
    with pytest.raises(InvalidOperandError, match="x: "):
        describe(Interface("__array_interface__", shape=KeyError), "x")
    with pytest.raises(InvalidOperandError, match="x: .*mask of its __array_interface__ would be lost"):
        describe(Interface("__array_interface__", mask=np.ones((3, 4), bool)), "x")


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"offset": 8}, False),
        ({"shape": (3, 3), "offset": 12}, True),
        ({"shape": (4, 4)}, False),
        ({"shape": (10**9, 4)}, False),
        ({"strides": (20, 4)}, False),
        ({"shape": (3, 3), "strides": (20, 4)}, False),
        ({"shape": (3, 2), "strides": (20, 4)}, True),
        ({"strides": (-16, 4)}, False),
        ({"strides": (-16, 4), "offset": 32}, True),
        ({"shape": (0, 10**9)}, True),
        ({"shape": (12,), "typestr": "<f8"}, False),
    ],
    ids=str,
)
def test_an_array_interface_lies_in_its_buffer(changes, fits):
    data = np.arange(12, dtype="f4").tobytes()
    x = Interface("__array_interface__", **{"data": data, **changes})
    described = x.__array_interface__
    if fits:
        assert describe(x)["read_only"]
        buffer = rocpy.Buffer(described["shape"], described["typestr"])
        buffer.copy_from(x)
        np.testing.assert_array_equal(buffer.to_numpy(), np.asarray(x))
    else:
        with pytest.raises(InvalidOperandError, match=r"^x: .* the data of its __array_interface__ has 48 bytes, and"):
            describe(x, "x")
        # Of no size: refused before a shape is compared, and nothing is read.
        with pytest.raises(InvalidOperandError, match=r"^array: .* the data of its __array_interface__ has 48 bytes"):
            rocpy.Buffer((0,), "float32").copy_from(x)


def test_array_struct():
    class Struct:
        memory = np.arange(6, dtype="f8").reshape(2, 3)
        __array_struct__ = memory.__array_struct__

    assert describe(Struct())["data"] == Struct.memory.ctypes.data


def test_device_interface_of_foreign_memory_is_refused_or_placed():
    with pytest.raises(InvalidOperandError, match="HIP does not know its address"):
        describe(Interface("__cuda_array_interface__"))
    with rocpy.Buffer((3, 4), "float32") as buffer:
        x = Interface("__cuda_array_interface__", data=(buffer.handle, True), stream=1)
        seen = describe(x)
        assert (seen["data"], seen["shape"], seen["strides"], seen["read_only"]) == (
            buffer.handle,
            (3, 4),
            (4, 1),
            True,
        )
        assert seen["device_type"] == (1 if rocpy.platform.current().host_memory else 10)
        seen = describe(
            Interface("__cuda_array_interface__", data=(buffer.handle, False), shape=(2, 2), strides=(16, 8))
        )
        assert seen["strides"] == (4, 2)
        empty = Interface("__cuda_array_interface__", data=(buffer.handle, False), shape=(0, 4))
        assert describe(empty)["device_type"] == seen["device_type"]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": KeyError},
        {"data": 5},
        {"shape": None},
        {"shape": (-1, 4)},
        {"shape": (1,) * 33},
        {"shape": (1 << 70,)},
        {"typestr": "O"},
        {"typestr": ">f4"},
        {"typestr": 3},
        {"typestr": None},
        {"shape": (1.9, 4)},
        {"strides": (16.0, 4)},
        {"data": (1.5, False)},
        {"strides": (2, 4)},
        {"strides": (4,)},
        {"data": (0, False)},
        {"data": (2, False)},
        {"data": (-8, False)},
        {"mask": "a mask"},
    ],
    ids=str,
)
def test_malformed_device_interfaces_are_refused(changes):
    with pytest.raises(InvalidOperandError, match="bias: "):
        describe(Interface("__cuda_array_interface__", **changes), "bias")


def test_buffers():
    x = array.array("d", [1.0, 2.0, 3.0])
    seen = describe(x)
    assert (seen["data"], seen["dtype"], seen["shape"], seen["provider"]) == (
        x.buffer_info()[0],
        "float64",
        (3,),
        "buffer",
    )
    assert describe(x, output=True)["read_only"] is False
    assert describe(memoryview(np.zeros((2, 3), "f4")).toreadonly())["read_only"] is True
    assert describe((ctypes.c_float * 3 * 2)())["shape"] == (2, 3)
    assert describe(b"abcd")["dtype"] == "uint8"
    assert type(allocate_like(x, (2, 2))) is np.ndarray
    with pytest.raises(InvalidOperandError, match=r"x: .*cannot be an operand"):
        describe(array.array("u", "text"), "x")


def test_results_for_capsule_producers():
    made = allocate_like(Producer(), (2, 2))
    assert type(made) is np.ndarray  # in CPU memory, of a framework that takes no memory over
    assert (made.shape, made.dtype) == ((2, 2), np.float32)

    class Namespaced(Producer):
        def __array_namespace__(self):
            return np

    made = allocate_like(Namespaced(), (2, 2), "float64")
    assert type(made) is np.ndarray
    made[:] = 1
    assert made.ctypes.data % 64 == 0

    class Copying(Producer):
        def __array_namespace__(self):
            return self

        def from_dlpack(self, array):
            return np.from_dlpack(array).copy()

    with pytest.raises(UnsupportedError, match="Copying copies the memory that it wraps"):
        allocate_like(Copying(), (2, 2))


def test_results_of_device_arrays_are_on_their_device():
    class OnDevice(Producer):
        def __array_namespace__(self):
            return self

        def from_dlpack(self, array):
            return array

    made = allocate_like(OnDevice(device=(10, 0)), (2, 2))
    assert made.__dlpack_device__() == (10, 0)
    taken = describe(made)  # what the capsule says, not the object
    assert (taken["device_type"], taken["device_id"], taken["shape"]) == (10, 0, (2, 2))
    with pytest.raises(BufferError, match="not on"):
        rocpy.Buffer((2, 2), "float32").__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("wrap", [lambda producer: producer, OnlyDlpack], ids=["with shape", "bare"])
def test_what_its_producer_copies_is_exported_once(wrap):
    producer = Producer(flags=IS_COPIED)
    result = rocpy.matmul(wrap(producer), np.eye(3, dtype="f4"))
    np.testing.assert_array_equal(result, np.frombuffer(producer.memory, "f4")[:6].reshape(2, 3))
    gc.collect()
    assert (producer.exports, producer.deleted) == (1, 1)


def test_a_result_is_not_written_to_a_copy():
    ones = np.ones((2, 3), "f4")
    with pytest.raises(InvalidOperandError, match=r"^out: .* exports a copy of its memory by DLPack"):
        rocpy.matmul(ones, ones[:, :1] * ones[0], out=Producer(flags=IS_COPIED))


def test_buffer_goes_in_and_out():
    buffer = rocpy.Buffer((2, 3), "bfloat16")
    seen = describe(buffer, output=True)
    assert (seen["data"], seen["dtype"], seen["shape"], seen["strides"]) == (buffer.handle, "bfloat16", (2, 3), (3, 1))
    buffer.close()
    with pytest.raises(rocpy.errors.ClosedError):
        describe(buffer)


def test_numpy_takes_buffers_and_buffers_take_numpy():
    buffer = rocpy.Buffer((2, 3), "float32")
    buffer.copy_from(np.arange(6, dtype="f4").reshape(2, 3))
    if not rocpy.platform.current().host_memory:
        pytest.skip("device memory is no numpy array")
    shared = np.from_dlpack(buffer)
    assert shared.ctypes.data == buffer.handle
    assert np.asarray(buffer).ctypes.data == buffer.handle
    buffer.close()
    assert shared.tolist() == [[0, 1, 2], [3, 4, 5]]
    again = rocpy.Buffer.from_dlpack(shared)
    assert again.handle == shared.ctypes.data
    assert again.location == "foreign"
    with pytest.raises(InvalidOperandError, match="contiguous"):
        rocpy.Buffer.from_dlpack(shared.T)
    with pytest.raises(InvalidOperandError, match="expected an array"):
        rocpy.Buffer.from_dlpack([1, 2])


def test_buffer_takes_over_capsules_once():
    producer = Producer(flags=READ_ONLY)
    buffer = rocpy.Buffer.from_dlpack(producer)
    assert (buffer.read_only, buffer.shape, producer.deleted) == (True, (2, 3), 0)
    with pytest.raises(InvalidOperandError, match="read-only"):
        buffer.copy_from(np.zeros((2, 3), "f4"))
    with pytest.raises(BufferError, match="read-only"):
        buffer.__dlpack__()
    capsule = buffer.__dlpack__(max_version=(1, 0))
    buffer.close()
    assert producer.deleted == 0
    del capsule
    assert producer.deleted == 1
    for bad in ({"shape": (2, -1)}, {"device": (2, 0)}, {"strides": (1, 2)}):
        producer = Producer(**bad)
        with pytest.raises(InvalidOperandError, match="array: "):
            rocpy.Buffer.from_dlpack(producer)
        gc.collect()
        assert producer.deleted == 1


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_capsules_of_buffers(max_version):
    buffer = rocpy.Buffer(4, "float32")
    capsule = buffer.__dlpack__(max_version=max_version)
    assert capsule_name(capsule) == (b"dltensor_versioned" if max_version and max_version[0] >= 1 else b"dltensor")
    assert describe(capsule)["data"] == buffer.handle
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(2, 0))
    del buffer, capsule
    gc.collect()


@pytest.mark.parametrize(
    ("shape", "dtype", "location", "error"),
    [
        ((1 << 40, 1 << 40), "float32", "device", InvalidProblemError),
        ((1 << 60,), "uint8", "device", rocpy.errors.RocpyError),
        ((-1,), "float32", "device", InvalidProblemError),
        ((1.5,), "float32", "device", InvalidProblemError),
        ((1,) * 33, "float32", "device", InvalidProblemError),
        ((2,), "nonsense", "device", InvalidOperandError),
        ((2,), "bool", "device", InvalidOperandError),
        ((2,), "float32", "moon", InvalidProblemError),
    ],
)
def test_buffers_that_cannot_be_are_refused(shape, dtype, location, error):
    with pytest.raises(error):
        rocpy.Buffer(shape, dtype, location=location)


@pytest.mark.torch
def test_torch_takes_buffers():
    torch = pytest.importorskip("torch")
    buffer = rocpy.Buffer((2, 3), "bfloat16")
    buffer.fill(0)
    if rocpy.platform.current().host_memory:
        shared = torch.from_dlpack(buffer)
        assert (shared.data_ptr(), shared.dtype) == (buffer.handle, torch.bfloat16)
        back = rocpy.Buffer.from_dlpack(shared)
        assert back.handle == buffer.handle
        del buffer
        gc.collect()
        assert not shared.any()


def test_jax_arrays_are_never_outputs():
    jax = pytest.importorskip("jax")
    x = jax.numpy.zeros((2, 3))
    assert describe(x)["shape"] == (2, 3)
    with pytest.raises(InvalidOperandError, match="read-only"):
        describe(x, output=True)
    made = allocate_like(x, (2, 2))
    assert isinstance(made, jax.Array)
