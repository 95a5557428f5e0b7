# SPDX-License-Identifier: MIT
"""The host platform's RCCL through unmodified hip-python: ranks as threads, one thread for all ranks, refusals."""

import ctypes
import json
import os
import pathlib
import threading

import numpy as np
import pytest

pytest.importorskip("rocm.bindings.rccl", exc_type=ModuleNotFoundError)

import host_platform
from hipblaslt_support.host import hip_python, host_folder

RANKS = 3
COUNT = 1000


@pytest.fixture(scope="module")
def rccl():
    """hip-python's module, bound to the host platform."""
    hip_python()
    before = os.environ.get("ROCM_PATH")
    os.environ["ROCM_PATH"] = str(host_folder())
    try:
        from rocm.bindings import rccl

        rccl.ncclGetVersion()
    finally:
        if before is None:
            del os.environ["ROCM_PATH"]
        else:
            os.environ["ROCM_PATH"] = before
    mapped = pathlib.Path("/proc/self/maps").read_text()
    assert str(host_folder() / "lib" / "librccl.so") in mapped
    return rccl


@pytest.fixture
def hip():
    return hip_python()[0]


def good(answer):
    """The values of a call that succeeded."""
    status, *values = answer
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else values


def text(answer):
    """The text that a call answers with: hip-python says success whatever it is."""
    return bytes(good(answer)).decode() if isinstance(answer[1], bytes) else str(answer[1])


def on_threads(body):
    """Run body(rank) on a thread for each rank, and let the first failure out."""
    failures = []

    def run(rank):
        try:
            body(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


def address(array):
    return array.ctypes.data


def test_version_and_texts(rccl):
    assert good(rccl.ncclGetVersion()) == 23004
    assert text(rccl.ncclGetErrorString(rccl.ncclResult_t.ncclInvalidUsage)).startswith("invalid usage")


def test_collectives_of_threads(rccl, hip):
    float32, total = rccl.ncclDataType_t.ncclFloat32, rccl.ncclRedOp_t.ncclSum
    ident = good(rccl.ncclGetUniqueId())
    inputs = [np.random.default_rng(rank).integers(-8, 8, RANKS * COUNT).astype(np.float32) for rank in range(RANKS)]

    def body(rank):
        good(hip.hipSetDevice(rank))
        comm = good(rccl.ncclCommInitRank(RANKS, ident, rank))
        assert good(rccl.ncclCommCount(comm)) == RANKS
        assert good(rccl.ncclCommUserRank(comm)) == rank
        assert good(rccl.ncclCommCuDevice(comm)) == rank
        send, recv = inputs[rank].copy(), np.zeros(RANKS * COUNT, np.float32)
        part = slice(rank * COUNT, (rank + 1) * COUNT)
        everything = np.sum(inputs, axis=0)

        def call(function, *arguments):
            recv[:] = np.nan
            good(function(address(send), address(recv), COUNT, float32, *arguments, comm, None))
            good(hip.hipStreamSynchronize(None))

        call(rccl.ncclAllReduce, total)
        assert (recv[:COUNT] == everything[:COUNT]).all()
        call(rccl.ncclReduceScatter, total)
        assert (recv[:COUNT] == everything[part]).all()
        call(rccl.ncclAllGather)
        assert (recv.reshape(RANKS, -1) == [given[:COUNT] for given in inputs]).all()
        call(rccl.ncclAlltoAll)
        assert (recv.reshape(RANKS, -1) == [given[part] for given in inputs]).all()
        call(rccl.ncclBroadcast, 1)
        assert (recv[:COUNT] == inputs[1][:COUNT]).all()
        call(rccl.ncclReduce, rccl.ncclRedOp_t.ncclMax, 2)
        assert rank != 2 or (recv[:COUNT] == np.max(inputs, axis=0)[:COUNT]).all()
        call(rccl.ncclGather, 0)
        assert rank != 0 or (recv.reshape(RANKS, -1) == [given[:COUNT] for given in inputs]).all()
        call(rccl.ncclScatter, 2)
        assert (recv[:COUNT] == inputs[2][part]).all()
        good(rccl.ncclGroupStart())
        good(rccl.ncclSend(address(send), COUNT, float32, (rank + 1) % RANKS, comm, None))
        good(rccl.ncclRecv(address(recv), COUNT, float32, (rank - 1) % RANKS, comm, None))
        good(rccl.ncclGroupEnd())
        good(hip.hipStreamSynchronize(None))
        assert (recv[:COUNT] == inputs[(rank - 1) % RANKS][:COUNT]).all()
        half = good(rccl.ncclCommSplit(comm, rank % 2, 0, None))
        assert good(rccl.ncclCommCount(half)) == (2 if rank % 2 == 0 else 1)
        good(rccl.ncclCommDestroy(half))
        good(rccl.ncclCommFinalize(comm))
        good(rccl.ncclCommDestroy(comm))

    on_threads(body)


def test_one_thread_drives_all_ranks(rccl, hip):
    handles = (ctypes.c_void_p * RANKS)()
    good(rccl.ncclCommInitAll(ctypes.addressof(handles), RANKS, list(range(RANKS))))
    comms = [rccl.ncclComm(handle) for handle in handles]
    data = [np.full(COUNT, rank + 1, np.int32) for rank in range(RANKS)]
    good(rccl.ncclGroupStart())
    for rank, comm in enumerate(comms):
        here = address(data[rank])
        good(
            rccl.ncclAllReduce(here, here, COUNT, rccl.ncclDataType_t.ncclInt32, rccl.ncclRedOp_t.ncclProd, comm, None)
        )
    good(rccl.ncclGroupEnd())
    for rank in range(RANKS):
        good(hip.hipSetDevice(rank))
        good(hip.hipStreamSynchronize(None))
        assert (data[rank] == 6).all()
    good(hip.hipSetDevice(0))
    for comm in comms:
        good(rccl.ncclCommAbort(comm))


BROADCAST_OF_ONE_THREAD = """
import ctypes
from rocm.bindings import rccl

ranks, count, last = ok(hip.hipGetDeviceCount()), 1 << 16, 0
handles = (ctypes.c_void_p * ranks)()
ok(rccl.ncclCommInitAll(ctypes.addressof(handles), ranks, list(range(ranks))))
comms = [rccl.ncclComm(handle) for handle in handles]
data = [np.full(count, 42.5 if rank == 0 else 0, np.float32) for rank in range(ranks)]
device = []
for rank in range(ranks):
    ok(hip.hipSetDevice(rank))
    device.append(ok(hip.hipMalloc(4 * count)))
    ok(hip.hipMemcpy(device[rank], data[rank], 4 * count, hip.hipMemcpyKind.hipMemcpyHostToDevice))
ok(rccl.ncclGroupStart())
for rank in range(ranks):
    ok(hip.hipSetDevice(rank))
    ok(rccl.ncclBcast(device[rank], count, rccl.ncclDataType_t.ncclFloat, 0, comms[rank], None))
ok(rccl.ncclGroupEnd())
# No device is chosen and none is waited for: each copy follows the null stream of the device that it reads.
stale = []
for rank in range(ranks):
    ok(hip.hipMemcpy(data[rank], device[rank], 4 * count, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    stale += [rank] if (data[rank] != 42.5).any() else []
for comm in comms:
    ok(rccl.ncclCommDestroy(comm))
answer = stale
"""


@pytest.mark.parametrize("seed", ["", "1", "2", "3"])
def test_a_broadcast_that_one_thread_reads_from_every_device(rccl, seed):
    assert host_platform.run(BROADCAST_OF_ONE_THREAD, ROCPY_HOST_STRESS=seed) == []


def test_refusals(rccl):
    ident = good(rccl.ncclGetUniqueId())
    refused = rccl.ncclResult_t.ncclInvalidArgument
    assert rccl.ncclCommInitRank(0, ident, 0)[0] == refused
    assert rccl.ncclCommInitRank(2, ident, 2)[0] == refused
    assert rccl.ncclCommInitRank(1, rccl.ncclUniqueId(), 0)[0] == refused
    assert "ncclGetUniqueId" in text(rccl.ncclGetLastError(None))
    assert rccl.ncclGroupEnd()[0] == rccl.ncclResult_t.ncclInvalidUsage
    assert rccl.ncclCommSuspend(None, 1)[0] == refused
    assert rccl.ncclCommRevoke(None, 1)[0] == refused
    assert "NCCL_REVOKE_DEFAULT" in text(rccl.ncclGetLastError(None))


def test_windows_and_puts(rccl, hip):
    ident = good(rccl.ncclGetUniqueId())
    uint8 = rccl.ncclDataType_t.ncclUint8
    barrier = threading.Barrier(RANKS)

    def body(rank):
        good(hip.hipSetDevice(rank))
        comm = good(rccl.ncclCommInitRank(RANKS, ident, rank))
        memory = int(good(rccl.ncclMemAlloc(8192)))
        window = good(rccl.ncclCommWindowRegister(comm, memory, 8192, 0))
        assert int(good(rccl.ncclWinGetUserPtr(comm, window))) == memory
        mine = np.ctypeslib.as_array((ctypes.c_uint8 * 8192).from_address(memory))
        mine[:4096] = rank + 1
        barrier.wait()
        following = (rank + 1) % RANKS
        good(rccl.ncclPutSignal(memory, 4096, uint8, following, window, 4096, 0, 0, 0, comm, None))
        good(rccl.ncclSignal(following, 0, 0, 0, comm, None))
        wanted = (ctypes.c_int * 4)(2, (rank - 1) % RANKS, 0, 0)
        good(rccl.ncclWaitSignal(1, ctypes.addressof(wanted), comm, None))
        good(hip.hipStreamSynchronize(None))
        assert (mine[4096:] == (rank - 1) % RANKS + 1).all()
        assert rccl.ncclSignal(following, 1, 0, 0, comm, None)[0] == rccl.ncclResult_t.ncclInvalidArgument
        barrier.wait()
        good(rccl.ncclCommWindowDeregister(comm, window))
        handle = good(rccl.ncclCommRegister(comm, memory, 8192))
        good(rccl.ncclCommDeregister(comm, handle))
        assert rccl.ncclCommDeregister(comm, handle)[0] == rccl.ncclResult_t.ncclInvalidArgument
        good(rccl.ncclCommDestroy(comm))
        good(rccl.ncclMemFree(memory))
        assert rccl.ncclMemFree(memory)[0] == rccl.ncclResult_t.ncclInvalidArgument

    on_threads(body)


def test_growing_revoking_and_suspending(rccl, hip):
    ident = good(rccl.ncclGetUniqueId())
    usage = rccl.ncclResult_t.ncclInvalidUsage
    grown_ident = []
    barrier = threading.Barrier(RANKS)

    def body(rank):
        good(hip.hipSetDevice(rank))
        # Two ranks first, the third joins them.
        comm = good(rccl.ncclCommInitRank(RANKS - 1, ident, rank)) if rank < RANKS - 1 else None
        if rank == 0:
            grown_ident.append(good(rccl.ncclCommGetUniqueId(comm)))
        barrier.wait()
        given = grown_ident[0] if rank in (0, RANKS - 1) else None
        grown = good(rccl.ncclCommGrow(comm, RANKS, given, -1 if comm is not None else rank, None))
        assert good(rccl.ncclCommUserRank(grown)) == rank
        assert good(rccl.ncclCommCount(grown)) == RANKS
        data = np.full(4, rank + 1, np.int32)

        def add(to):
            return rccl.ncclAllReduce(
                address(data), address(data), 4, rccl.ncclDataType_t.ncclInt32, rccl.ncclRedOp_t.ncclSum, to, None
            )

        good(add(grown))
        good(hip.hipStreamSynchronize(None))
        assert (data == 6).all()
        good(rccl.ncclCommSuspend(grown, 1))
        assert add(grown)[0] == usage
        good(rccl.ncclCommResume(grown))
        assert rccl.ncclCommResume(grown)[0] == usage
        good(add(grown))
        good(hip.hipStreamSynchronize(None))
        barrier.wait()
        good(rccl.ncclCommRevoke(grown, 0))
        assert rccl.ncclCommRevoke(grown, 0)[0] == rccl.ncclResult_t.ncclInvalidArgument
        assert add(grown)[0] == usage
        assert rccl.ncclCommFinalize(grown)[0] == usage
        half = good(rccl.ncclCommSplit(grown, rank % 2, 0, None))
        assert good(rccl.ncclCommCount(half)) == (2 if rank % 2 == 0 else 1)
        for one in (half, grown, comm):
            if one is not None:
                good(rccl.ncclCommDestroy(one))

    on_threads(body)


def test_there_are_no_parameters(rccl):
    handle = (ctypes.c_void_p * 1)()
    assert rccl.ncclParamGetI32(ctypes.addressof(handle))[0] == rccl.ncclResult_t.ncclInvalidArgument


def ranks_of_one_thread(rccl, count=2):
    handles = (ctypes.c_void_p * count)()
    good(rccl.ncclCommInitAll(ctypes.addressof(handles), count, list(range(count))))
    return [rccl.ncclComm(handle) for handle in handles]


def sum_of_ranks(rccl, hip, comms):
    """Whether a sum over all ranks, by one thread, comes out right."""
    data = [np.full(4, rank + 1, np.int32) for rank in range(len(comms))]
    int32, total = rccl.ncclDataType_t.ncclInt32, rccl.ncclRedOp_t.ncclSum
    for rank, comm in enumerate(comms):
        good(rccl.ncclAllReduce(address(data[rank]), address(data[rank]), 4, int32, total, comm, None))
    for rank in range(len(comms)):
        good(hip.hipSetDevice(rank))
        good(hip.hipStreamSynchronize(None))
    good(hip.hipSetDevice(0))
    return all((one == sum(range(1, len(comms) + 1))).all() for one in data)


def test_splits_of_a_group_are_in_the_order_of_their_calls(rccl, hip):
    comms = ranks_of_one_thread(rccl, 4)
    for _ in range(5):
        made = [[], []]
        good(rccl.ncclGroupStart())
        for rank, comm in enumerate(comms):
            made[0].append(good(rccl.ncclCommSplit(comm, 0, rank, None)))
            made[1].append(good(rccl.ncclCommSplit(comm, 0, -rank, None)))
        good(rccl.ncclGroupEnd())
        numbers = [[good(rccl.ncclCommUserRank(comm)) for comm in one] for one in made]
        assert numbers == [[0, 1, 2, 3], [3, 2, 1, 0]]
        for comm in (*made[0], *made[1]):
            good(rccl.ncclCommDestroy(comm))
    assert sum_of_ranks(rccl, hip, comms)
    for comm in comms:
        good(rccl.ncclCommDestroy(comm))


class SimInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("time", ctypes.c_float),
    ]


SIM_MAGIC = 0x74685283


def test_a_simulated_group_has_ended(rccl, hip):
    comms, done = ranks_of_one_thread(rccl), rccl.ncclResult_t.ncclSuccess
    simulate = ctypes.CDLL(str(host_folder() / "lib" / "librccl.so")).ncclGroupSimulateEnd
    for magic, wanted in ((123, rccl.ncclResult_t.ncclInvalidArgument), (SIM_MAGIC, done)):
        info = SimInfo(ctypes.sizeof(SimInfo), magic, 23004, 0)
        good(rccl.ncclGroupStart())
        alone = good(rccl.ncclCommInitRank(1, good(rccl.ncclGetUniqueId()), 0))
        assert simulate(ctypes.byref(info)) == wanted
        assert sum_of_ranks(rccl, hip, comms)
        # What was to be created is there, or says why not.
        state = ctypes.c_int(-1)
        good(rccl.ncclCommGetAsyncError(alone, ctypes.addressof(state)))
        assert state.value == wanted
        good(rccl.ncclCommDestroy(alone))
    assert simulate(None) == rccl.ncclResult_t.ncclInvalidUsage
    for comm in comms:
        good(rccl.ncclCommDestroy(comm))


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("numbers", ctypes.c_int * 4),
        ("net", ctypes.c_void_p),
        ("more_numbers", ctypes.c_int * 2),
        ("name", ctypes.c_void_p),
    ]


def test_a_name_is_the_communicators_own():
    """The caller may use the string's memory for something else after the call; children inherit the name as it was."""
    library, made = ctypes.CDLL(str(host_folder() / "lib" / "librccl.so")), [ctypes.c_void_p() for _ in range(2)]
    unset, text, ident = -(1 << 31), ctypes.create_string_buffer(b"parent"), UniqueId()
    numbers = (ctypes.c_int * 4)(*[unset] * 4), None, (ctypes.c_int * 2)(unset, unset)
    config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 23004, *numbers, ctypes.addressof(text))
    assert library.ncclGetUniqueId(ctypes.byref(ident)) == 0
    assert library.ncclCommInitRankConfig(ctypes.byref(made[0]), 1, ident, 0, ctypes.byref(config)) == 0
    text.value = b"others"
    assert library.ncclCommSplit(made[0], 0, 0, ctypes.byref(made[1]), None) == 0
    for comm in made:
        status = ctypes.create_string_buffer(1 << 16)
        assert library.rocpyExtCommStatus(comm, status, ctypes.c_size_t(1 << 16), ctypes.byref(ctypes.c_size_t())) == 0
        assert json.loads(status.value)["name"] == "parent"
        assert library.ncclCommDestroy(comm) == 0


def test_portions_beyond_any_memory(rccl):
    comm = ranks_of_one_thread(rccl, 1)[0]
    data, count, far = np.zeros(4, np.float32), (ctypes.c_size_t * 1)(), (ctypes.c_size_t * 1)()

    def status():
        tables = ctypes.addressof(count), ctypes.addressof(far)
        float32 = rccl.ncclDataType_t.ncclFloat32
        return rccl.ncclAlltoAllv(address(data), *tables, address(data[2:]), *tables, float32, comm, None)[0]

    for count[0], far[0] in ((1 << 63, 0), ((1 << 64) - 1, 0), (1, 1 << 63), (1, (1 << 64) - 1)):
        assert status() == rccl.ncclResult_t.ncclInvalidArgument
    count[0], far[0] = 0, 1 << 63  # of nothing
    assert status() == 0
    good(rccl.ncclCommDestroy(comm))


def test_two_ranks_whose_counts_overflow_together(rccl):
    comms = ranks_of_one_thread(rccl)
    data, counts, none = np.zeros(4, np.float32), (ctypes.c_size_t * 2)(1 << 63, 1 << 63), (ctypes.c_size_t * 2)()
    tables = ctypes.addressof(counts), ctypes.addressof(none)
    for comm in comms:
        answer = rccl.ncclAlltoAllv(
            address(data), *tables, address(data), *tables, rccl.ncclDataType_t.ncclFloat32, comm, None
        )
        assert answer[0] == rccl.ncclResult_t.ncclInvalidArgument
        good(rccl.ncclCommDestroy(comm))
