# SPDX-License-Identifier: MIT
"""Mistakes of programs written for nccl4py: each is refused by name, and nothing waits for what cannot come."""

import threading
import time

import numpy as np
import pytest
from dlpack_producers import OnlyDlpack

import rocpy
from rocpy.compat import nccl


@pytest.fixture
def comm():
    """One rank alone."""
    made = nccl.Communicator.init(1, 0, nccl.get_unique_id())
    yield made
    made.destroy()


@pytest.fixture
def comms():
    """Two ranks of one thread; what is left of them is aborted."""
    made = nccl.Communicator.init_all(2)
    for one in made:
        one.own.timeout_s = 20.0
    yield made
    for one in made:
        one.abort()


class ByInterface:
    """An array that has nothing but numpy's array interface."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array


# ---- operands ----


@pytest.mark.parametrize("kind", [np.asarray, OnlyDlpack, ByInterface])
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_arrays_of_any_protocol(comm, kind, shape):
    x, y = np.arange(4.0).reshape(shape), np.full(6, 9.0)
    comm.allreduce(kind(x), kind(y), nccl.SUM)
    assert y.tolist() == [0, 1, 2, 3, 9, 9]
    assert nccl.cupy.resolve_array(kind(x)) == (x.ctypes.data, 4, nccl.FLOAT64, rocpy.Device.current().index)


@pytest.mark.parametrize("count", [0, 1])
def test_few_elements(comm, count):
    x, y = np.arange(count, dtype=np.int32), np.full(count, 9, np.int32)
    for call in (comm.allreduce, comm.reduce_scatter):
        if count == 0 and call == comm.reduce_scatter:
            with pytest.raises(nccl.NcclInvalid, match="has 0 elements, expected at least 1"):
                call(x, y, nccl.SUM)
        else:
            call(x, y, nccl.SUM)
    comm.allgather(x, y)
    comm.broadcast(x, y, 0)
    with nccl.group():
        comm.send(x, 0)
        comm.recv(y, 0)
    assert (y == x).all()
    if count == 0:
        for call in (comm.alltoall, lambda a, b: comm.scatter(a, b, 0)):
            with pytest.raises(nccl.NcclInvalid, match="has 0 elements"):
                call(x, y)


@pytest.mark.parametrize("dtype", [complex, np.int16, np.longdouble, "U1", "M8[s]", object, [("a", "i4")]])
def test_types_that_rccl_lacks(comm, dtype):
    with pytest.raises(nccl.NcclInvalid, match="sendbuf"):
        comm.allreduce(np.zeros(2, dtype), np.zeros(2), nccl.SUM)


def test_booleans_travel_as_bytes(comm):
    x, y = np.array([True, False, True]), np.zeros(3, bool)
    comm.allgather(x, y)
    assert y.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("op", "expected"), [("SUM", [1, 1, 0]), ("PROD", [1, 0, 0]), ("MAX", [1, 1, 0]), ("AVG", [1, 0, 0])]
)
def test_reductions_to_booleans_are_booleans(comms, op, expected):
    x, y = (np.array(each, bool) for each in ([1, 1, 0], [1, 0, 0]))
    results = [np.zeros(3, bool) for _ in comms]
    with nccl.group():
        for comm, sent, result in zip(comms, (x, y), results, strict=True):
            comm.allreduce(sent, result, getattr(nccl, op))
    assert [result.view(np.uint8).tolist() for result in results] == [expected] * 2


def test_booleans_are_counted_in_bytes(comm):
    out = np.zeros(3, np.uint8)
    comm.allreduce(np.array([True, False, True]), out, nccl.SUM)
    assert out.tolist() == [1, 0, 1]


@pytest.mark.parametrize("call", ["allreduce", "reduce_scatter"])
def test_numbers_are_not_reduced_to_booleans(comm, call):
    with pytest.raises(nccl.NcclInvalid, match="recvbuf: has booleans, and sendbuf numbers"):
        getattr(comm, call)(np.zeros(3, np.uint8), np.zeros(3, bool), nccl.SUM)


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, :2], lambda a: a[::2], lambda a: a[::-1]])
def test_memory_that_is_not_contiguous(comm, view):
    given = view(np.ones((4, 4)))
    with pytest.raises(nccl.NcclInvalid, match="sendbuf: is not C-contiguous"):
        comm.allreduce(given, np.zeros(given.size), nccl.SUM)
    with pytest.raises(nccl.NcclInvalid, match="recvbuf: is not C-contiguous"):
        comm.allreduce(np.ones(given.size), given, nccl.SUM)
    with pytest.raises(nccl.NcclInvalid, match="buffer: is not C-contiguous"):
        comm.register_buffer(given)


@pytest.mark.parametrize("array", [None, 3, [1.0], "ab", b"ab", np.float64(2)])
def test_what_is_no_array(comm, array):
    with pytest.raises(nccl.NcclInvalid, match="sendbuf: got"):
        comm.send(array, 0)


def test_sizes_and_types_that_disagree(comm):
    x = np.ones(4)
    for call, words in [
        (lambda: comm.allreduce(x, np.ones(4, "f4"), nccl.SUM), "FLOAT32, sendbuf has FLOAT64"),
        (lambda: comm.allreduce(x, np.ones(3), nccl.SUM), "has 3 elements, expected at least 4"),
        (lambda: comm.broadcast(x, np.ones(5), 0), "has 5 elements, expected exactly 4"),
        (lambda: comm.scatter(x, np.ones(5), 0), "has 5 elements, expected exactly 4"),
        (lambda: comm.gather(x, np.ones(3), 0), "expected at least 4"),
        (lambda: comm.allreduce(x, np.broadcast_to(np.ones(1), 4), nccl.SUM), "recvbuf: .* read-only"),
    ]:
        with pytest.raises(nccl.NcclInvalid, match=words):
            call()


@pytest.mark.parametrize("op", [None, "sum", 99, -1, 1.0, nccl.CTAPolicy.ZERO])
def test_operators_that_are_none(comm, op):
    with pytest.raises(nccl.NcclInvalid, match="op: got"):
        comm.allreduce(np.ones(1), np.ones(1), op)


@pytest.mark.parametrize("stream", [True, "x", -5, 12345])
def test_streams_that_are_none(comm, stream):
    with pytest.raises(nccl.NcclInvalid, match="stream"):
        comm.allreduce(np.ones(1), np.ones(1), nccl.SUM, stream=stream)


@pytest.mark.parametrize("scalar", [None, "x", [1.0], 1 + 2j, np.ones(2)])
def test_scalars_that_are_none(comm, scalar):
    with pytest.raises(nccl.NcclInvalid, match="scalar: "):
        comm.create_pre_mul_sum(scalar)


def test_operators_of_scalars(comm):
    y = np.zeros(2)
    in_memory = nccl.mem_alloc(8)
    in_memory.copy_from(np.full(1, 4.0).view(np.uint8))
    for scalar, expected in [(2, [2, 2]), (2.5, [2.5, 2.5]), (np.array(3.0), [3, 3]), (OnlyDlpack(np.ones(1)), [1, 1])]:
        op = comm.create_pre_mul_sum(scalar, nccl.FLOAT64)
        comm.allreduce(np.ones(2), y, op)
        assert y.tolist() == expected
        assert int(op) == op.op
        op.close()
        with pytest.raises(nccl.NcclInvalid, match="closed"):
            comm.allreduce(np.ones(2), y, op)
    with pytest.raises(nccl.NcclInvalid, match="datatype: got FLOAT32, but the scalar is UINT8"):
        comm.create_pre_mul_sum(nccl.mem_alloc(1), nccl.FLOAT32)
    with pytest.raises(nccl.NcclInvalid, match=r"2\.5 is not a value of int32"):
        comm.create_pre_mul_sum(2.5, nccl.INT32)


def test_signals_of_one_rank_add_up(comm):
    if rocpy.platform.missing()["rccl"]:
        pytest.skip("this release's RCCL has no signals")
    for _ in range(3):
        comm.signal(0)
    comm.wait_signal([nccl.WaitSignalDesc(0, 1), nccl.WaitSignalDesc(0, 2)])
    for wrong in (3, [3], None):
        with pytest.raises(nccl.NcclInvalid, match="descs: got"):
            comm.wait_signal(wrong)


# ---- how communicators are made ----


@pytest.mark.parametrize("color", [-2, 2**31, "a", 1.5])
def test_colors_that_are_none(comm, color):
    with pytest.raises(nccl.NcclInvalid, match="color: got"):
        comm.split(color)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda comm: comm.split(0, 2**40), "key: got"),
        (lambda comm: comm.split(0, config={"min_ctas": 1}), "config: got dict"),
        (lambda comm: comm.shrink(3), "exclude_ranks: got 3"),
        (lambda comm: comm.grow(2, rank=1), "rank: a new rank"),
        (lambda comm: comm.initialize(1, 0, nccl.get_unique_id()), "has been initialized"),
        (lambda _: nccl.Communicator.init(2**31, 0, nccl.get_unique_id()), "rank: got 0 of nranks"),
        (lambda _: nccl.Communicator.init(1, 0, nccl.UniqueId()), "was not made by ncclGetUniqueId"),
        (lambda _: nccl.Communicator.init(1, 0, b"x"), "unique_id: got bytes"),
        (lambda _: nccl.Communicator.init_all(["a"]), "devices: got"),
        (lambda _: nccl.UniqueId.from_bytes(b"x"), "got 1 bytes, expected 128"),
        (lambda _: nccl.mem_alloc(None), "size: got None"),
        (lambda _: nccl.mem_free(None), "buf: got NoneType"),
        (lambda comm: comm.register_window(nccl.mem_alloc(64), "x"), "flags: got"),
        (lambda comm: comm.get_mem_stat(9), "stat: got 9"),
        (lambda comm: comm.team_rank_to_world(comm.team_world, 1), "team_rank: got 1"),
    ],
)
def test_arguments_that_cannot_be(comm, call, words):
    with pytest.raises(nccl.NcclInvalid, match=words):
        call(comm)


def test_ranks_that_cannot_come_or_go(comm):
    if rocpy.platform.missing()["rccl"]:
        pytest.skip("this release's RCCL grows no communicators")
    with pytest.raises(nccl.NcclInvalid, match="exclude_ranks: got"):
        comm.shrink(["a"])
    for wrong in ("many", 1, 2**31):
        with pytest.raises(nccl.NcclInvalid, match=f"nranks: got {wrong!r}"):
            comm.grow(wrong)


def test_no_devices():
    assert nccl.Communicator.init_all(0) == nccl.Communicator.init_all([]) == []


def test_pointers_of_other_libraries():
    with pytest.raises(rocpy.UnsupportedError, match="other libraries"):
        nccl.Communicator(0x1234)
    assert not nccl.Communicator(0).is_valid


# ---- groups ----


def test_ends_in_a_group(comms):
    y = [np.zeros(2), np.zeros(2)]
    with nccl.group():
        for comm in comms:
            op = comm.create_pre_mul_sum(0.5)
            comm.register_buffer(y[comm.rank])
            comm.allreduce(np.ones(2), y[comm.rank], op)
            comm.finalize()
            comm.destroy()  # the operator is needed until the group ends
    assert [one.tolist() for one in y] == [[1.0, 1.0]] * 2
    assert [comm.is_valid for comm in comms] == [False, False]


def test_finalize_in_a_group_then_destroy(comms):
    nccl.group_start()
    for comm in comms:
        comm.finalize()
    nccl.group_end()
    for rank, comm in enumerate(comms):
        assert (comm.is_valid, comm.ptr, comm.rank, comm.nranks) == (True, 0, rank, 2)
        assert comm.get_async_error() == nccl.Result.Success
        with pytest.raises(nccl.NcclInvalid, match="has been closed, finalized or aborted"):
            comm.allreduce(np.ones(1), np.ones(1), nccl.SUM)
        comm.finalize()
        comm.destroy()
        comm.destroy()
        assert not comm.is_valid
        with pytest.raises(nccl.NcclInvalid):
            _ = comm.rank


def test_a_group_that_one_rank_misses(comms):
    comms[0].own.timeout_s = 0.2
    with pytest.raises(nccl.NCCLError, match="waiting for ranks"), nccl.group():
        comms[0].finalize()
    assert not comms[0].is_valid


def test_a_group_whose_block_raises(comms):
    def body():
        with nccl.group():
            for comm in comms:
                comm.allreduce(np.ones(1), np.ones(1), nccl.SUM)
                comm.destroy()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()
    assert [comm.is_valid for comm in comms] == [True, True]


def test_communicators_of_a_group():
    unique_id, made = nccl.get_unique_id(), []
    with nccl.group():
        for rank in range(2):
            with rocpy.Device(rank):
                made.append(nccl.Communicator.init(2, rank, unique_id))
    with nccl.group():
        parts = [comm.split(0 if comm.rank else None, config=nccl.NCCLConfig(comm_name="part")) for comm in made]
        with pytest.raises(nccl.NcclInvalid, match="does not exist until its group ends"):
            parts[1].send(np.ones(1), 0)
    assert [part.is_valid for part in parts] == [False, True]
    assert parts[1].own.name == "part"
    parts[1].destroy()
    has_windows = "ncclCommWindowRegister" not in rocpy.platform.missing()["rccl"]
    with nccl.group():
        windows = [comm.register_window(nccl.mem_alloc(4096)) for comm in made]
        assert [window.handle for window in windows] == [0, 0]
    assert all(window.is_valid == (window.handle != 0) == has_windows for window in windows)
    with nccl.group():
        for comm in made:
            comm.destroy()


def test_groups_are_of_their_thread():
    errors = []

    def end():
        try:
            nccl.group_end()
        except nccl.NCCLError as error:
            errors.append(error)

    nccl.group_start()
    nccl.group_start()
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert "no group is open in this thread" in str(errors[0])
    nccl.group_end()
    nccl.group_end()
    with pytest.raises(nccl.NCCLError, match="no group is open"):
        nccl.group_end()


def test_simulation_drops_the_group(comms):
    nccl.group_start()
    for comm in comms:
        comm.destroy()
    with pytest.raises(rocpy.UnsupportedError, match="cannot estimate"):
        nccl.group_end(simulate=True)
    assert comms[0].is_valid
    with pytest.raises(nccl.NCCLError, match="no group is open"):
        nccl.group_end()


# ---- other threads ----


@pytest.mark.parametrize("waits_in", ["allreduce", "finalize"])
def test_another_thread_aborts(comms, waits_in):
    errors = []

    def wait():
        try:
            if waits_in == "finalize":
                comms[0].finalize()
            else:
                comms[0].allreduce(np.ones(1), np.ones(1), nccl.SUM)
        except rocpy.RocpyError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    if waits_in == "allreduce":
        while comms[0].own.status()["ranks"][0]["op"] == "none":
            time.sleep(0.001)
    comms[0].abort()
    thread.join(30)
    assert not thread.is_alive()
    assert waits_in == "finalize" or len(errors) == 1
    assert not comms[0].is_valid


WRONG_TYPES = {
    "team": lambda comm: comm.team_rank_to_world(3, 0),
    "team_rank": lambda comm: comm.team_rank_to_world(comm.team_world, "x"),
    "nccl_result": lambda comm: nccl.get_error_string("x"),
    "nccl_result: got None": lambda comm: nccl.get_error_string(None),
    "nccl_result: got 10": lambda comm: nccl.get_error_string(10**30),
    "root: got array": lambda comm: comm.broadcast(np.ones(2), np.ones(2), np.ones(2)),
    "root: got": lambda comm: comm.reduce(np.ones(2), np.ones(2), nccl.SUM, root=np.ones(2)),
    "signal_index": lambda comm: comm.signal(0, signal_index=np.ones(2)),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_arguments_of_another_type_are_refused_by_name(comm, name):
    with pytest.raises(nccl.NcclInvalid, match=rf"^{name}"):
        WRONG_TYPES[name](comm)


def test_an_offset_is_a_number_of_bytes(comm):
    window = comm.register_window(nccl.mem_alloc(4096))
    assert window.get_peer_device_pointer(0, 8) == window.user_ptr + 8
    with pytest.raises(nccl.NcclInvalid, match="^offset: got 'x'"):
        window.get_peer_device_pointer(0, "x")


LINE = np.arange(5.0)
CONSTANT = np.broadcast_to(np.float64(1), (4,))
OPERANDS = {
    "recvbuf: overlaps sendbuf in": lambda comm: comm.allreduce(LINE[:3], LINE[1:4], nccl.SUM),
    "recvbuf: overlaps sendbuf": lambda comm: comm.alltoall(LINE, LINE),
    "recvbuf: .* is read-only; pass a writable array$": lambda comm: comm.allreduce(LINE[:4], CONSTANT, nccl.SUM),
    "recvbuf: .* is read-only; pass a writable array *$": lambda comm: comm.recv(CONSTANT, 0),
    "buffer: .* is read-only; pass a writable array$": lambda comm: comm.register_buffer(CONSTANT),
    "buffer: its memory .* use memory of mem_alloc$": lambda comm: comm.register_window(LINE[1:]),
    "size: got -1": lambda _: nccl.mem_alloc(-1),
    "size: got 4611686018427387904": lambda _: nccl.mem_alloc(2**62),
    "op: .* dtype than that of sendbuf$": lambda comm: comm.allreduce(
        LINE, np.zeros(5), comm.create_pre_mul_sum(np.float32(2))
    ),
    "peer: got 4": lambda comm: comm.send(LINE, 4),
    "stream: ": lambda comm: comm.send(LINE, 0, stream="x"),
}


@pytest.mark.parametrize("text", OPERANDS)
def test_operands_have_the_names_of_nccl4py(comm, text):
    with pytest.raises(nccl.NcclInvalid, match=rf"^{text}"):
        OPERANDS[text](comm)


@pytest.mark.torch
def test_a_tensor_of_too_many_bytes(torch):
    with pytest.raises(nccl.NcclInvalid, match="^size: got"):
        nccl.torch.empty(2**40, 2**40)


@pytest.mark.parametrize("size", [2**44, 2**60])
def test_out_of_memory(comm, size):
    for call in (nccl.mem_alloc, lambda size: comm.own.empty(size, "uint8")):
        with pytest.raises(rocpy.OutOfMemoryError) as error:
            call(size)
        assert isinstance(error.value, nccl.NCCLError | MemoryError)
        assert (error.value.op, error.value.library) == ("mem_alloc", "rccl")
