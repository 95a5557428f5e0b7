# SPDX-License-Identifier: MIT
"""Communicators that another library carries: the results and the refusals of RCCL's, over a transport of threads."""

import copy
import pickle
from collections import defaultdict, deque

import ml_dtypes
import numpy as np
import pytest
from rccl_ranks import good, on_threads
from thread_carrier import ThreadCarrier, on_carried

import rocpy
from rocpy import rccl
from rocpy.rccl.carriers.communicator import CarriedCommunicator
from rocpy.rccl.model.dtypes import NAMES, numpy_type
from rocpy.testing.cases_collectives import collective_cases, collective_inputs

NRANKS = 3
OPS = ("sum", "prod", "max", "min", "avg")
INF, NAN = np.inf, np.nan
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def everywhere(body, nranks=NRANKS):
    """What body(comm) gives on every rank, over RCCL and carried."""
    return good(on_threads(nranks, body)), good(on_carried(nranks, body))


def is_same(one, other):
    """Whether two results are the same bits, but for those of NaN."""
    if one is None or other is None:
        return one is other
    values = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (one, other)]
    is_negative = [np.signbit(x) & ~np.isnan(x) if x.dtype.kind == "f" else x < 0 for x in values]
    return (
        one.dtype == other.dtype
        and np.array_equal(*values, equal_nan=one.dtype.kind in "fV")
        and np.array_equal(*is_negative)
    )


def test_results_are_those_of_the_host_platform():
    cases = [case for case in collective_cases(NRANKS) if case.op != "premul"]
    inputs = [collective_inputs(case) for case in cases]

    def body(comm):
        settings = [{k: v for k, v in (("op", case.op), ("root", case.root)) if v is not None} for case in cases]
        return [
            getattr(comm, case.collective)(x[comm.rank], **chosen)
            for case, x, chosen in zip(cases, inputs, settings, strict=True)
        ]

    over_rccl, carried = everywhere(body)
    for rank in range(NRANKS):
        for case, one, other in zip(cases, over_rccl[rank], carried[rank], strict=True):
            assert is_same(one, other), (case.name, rank)


SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1e-45, 1.5, -448, 57344, 65504, 3e38, -3e38]


@pytest.mark.parametrize("dtype", NAMES)
def test_special_values_are_those_of_the_host_platform(dtype):
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        values = np.array([limits.min, limits.max, limits.max - 1, limits.min + 1, 3, 7], dtype)
    else:
        with np.errstate(all="ignore"):
            values = np.array(SPECIAL).astype(numpy_type(dtype))
    rows = [
        np.ascontiguousarray(x).ravel() for x in np.broadcast_arrays(values[:, None, None], values[:, None], values)
    ]
    over_rccl, carried = everywhere(lambda comm: [comm.all_reduce(rows[comm.rank], op=op) for op in OPS])
    for rank in range(NRANKS):
        for op, one, other in zip(OPS, over_rccl[rank], carried[rank], strict=True):
            assert is_same(one, other), op
            assert other.tobytes() == carried[0][OPS.index(op)].tobytes(), op


def test_other_calls():
    def body(comm):
        parts = np.zeros((1, 2), np.uint64)
        comm.scatter(np.arange(6, dtype=np.uint64).reshape(3, 2) if comm.rank == 1 else None, root=1, out=parts)
        received = np.zeros(2, E4M3)
        if comm.rank == 0:
            comm.send(np.array([1, 448], E4M3), 2)
        if comm.rank == 2:
            assert comm.recv(received, 0) is received
        comm.barrier()
        x = np.full(3, comm.rank + 1.0)
        assert comm.all_reduce(x, out=x) is x
        gathered = np.zeros((3, 2))
        gathered[comm.rank] = comm.rank
        comm.all_gather(gathered[comm.rank], out=gathered)
        tens = np.arange(6.0).reshape(3, 2)
        comm.reduce_scatter(tens, out=tens[comm.rank])
        return [parts, received.astype(np.float32), x, gathered, tens[comm.rank].copy(), comm.all_gather(np.array(2.5))]

    over_rccl, carried = everywhere(body)
    for one, other in zip(over_rccl, carried, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert carried[2][1].tolist() == [1, 448]


# ---- refusals ----


@pytest.fixture(scope="module")
def pair():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        yield comm, CarriedCommunicator(ThreadCarrier(defaultdict(deque), 0, 1), 5.0, "")


def read_only(count):
    array = np.zeros(count)
    array.setflags(write=False)
    return array


LINE = np.arange(6.0)
OUT = np.zeros(2)
REFUSED = {
    "a read-only out": lambda comm: comm.all_reduce(np.ones(2), out=read_only(2)),
    "a read-only x of recv": lambda comm: comm.recv(read_only(2), 0),
    "a big-endian x of recv": lambda comm: comm.recv(np.ones(2, ">f4"), 0),
    "a mask": lambda comm: comm.all_reduce(np.ma.array([1.0, 2.0], mask=[1, 0])),
    "an out of another type": lambda comm: comm.all_reduce(np.array([1.5, 3e10]), out=np.zeros(2, np.int32)),
    "an out that is too short": lambda comm: comm.all_reduce(np.ones(4), out=np.zeros(3)),
    "an out that overlaps": lambda comm: comm.all_reduce(LINE[:3], out=LINE[1:4]),
    "an all_to_all in place": lambda comm: comm.all_to_all(LINE, out=LINE),
    "a list": lambda comm: comm.all_reduce([1, 2]),
    "None": lambda comm: comm.all_reduce(None),
    "no array to scatter": lambda comm: comm.scatter(out=OUT),
    "rows of others": lambda comm: comm.broadcast(np.ones((4, 4))[:, 0]),
    **{
        f"{dtype} in {name}": lambda comm, name=name, dtype=dtype: getattr(comm, name)(np.ones(2, dtype))
        for dtype in ("?", "i2", "c8", "O", "U3")
        for name in ("all_reduce", "broadcast", "all_gather")
    },
    "a root": lambda comm: comm.broadcast(np.ones(1), root=7),
    "a root that is no number": lambda comm: comm.reduce(np.ones(1), root="0"),
    "a peer": lambda comm: comm.send(np.ones(1), -1),
    "a time": lambda comm: comm.barrier(timeout_s=0),
    "a shape": lambda comm: comm.reduce_scatter(np.array(1.0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_those_of_rccl(pair, name):
    texts = []
    for comm in pair:
        with pytest.raises(rocpy.RocpyError) as error:
            REFUSED[name](comm)
        texts.append((type(error.value), str(error.value)))
    assert texts[0] == texts[1]
    assert LINE.tolist() == [0, 1, 2, 3, 4, 5]
    assert pair[1].status()["seq"] == 0


@pytest.mark.parametrize("name", ["send", "recv"])
def test_a_rank_that_sends_to_itself_alone_is_refused(pair, name):
    for comm in pair:
        with pytest.raises(rccl.InvalidUsageError, match="sends to itself only within a group"):
            getattr(comm, name)(np.zeros(2), 0)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(pair, way):
    for comm in pair:
        with pytest.raises(TypeError, match="belongs to this process and cannot be pickled or copied"):
            way(comm)


def test_big_endian_arrays(pair):
    for comm in pair:
        assert comm.all_reduce(np.array([1, 2], ">f4")).tolist() == [1, 2]


def test_an_operator_suggests_what_was_meant(pair):
    with pytest.raises(rccl.InvalidArgumentError, match="op: got 'summ', expected one of .*did you mean 'sum'"):
        pair[1].all_reduce(np.ones(1), op="summ")


def test_buffers_are_refused(pair):
    with pytest.raises(rocpy.InvalidOperandError, match="^x: is a Buffer"):
        pair[1].all_reduce(rocpy.Buffer(2, "float32"))
    with pytest.raises(rocpy.InvalidOperandError, match="^out: is a Buffer"):
        pair[1].all_reduce(np.ones(2, np.float32), out=rocpy.Buffer(2, "float32"))


@pytest.mark.torch
def test_tensors_that_require_a_gradient(pair, torch):
    for comm in pair:
        with pytest.raises(rocpy.UnsupportedError, match="^x: it requires grad"):
            comm.all_reduce(torch.ones(2, requires_grad=True))
    x = torch.ones(3, dtype=torch.bfloat16)
    version = x._version
    assert pair[1].all_reduce(x, out=x) is x
    assert x._version > version
    assert type(pair[1].all_gather(x)) is torch.Tensor


# ---- failures ----


def test_a_rank_that_does_not_come():
    out = np.full(2, 7.0)

    def body(comm):
        if comm.rank == 0:
            comm.all_reduce(np.ones(2), out=out, timeout_s=0.02)

    late, _ = on_carried(2, body)
    assert isinstance(late, rccl.CollectiveTimeoutError)
    assert (late.op, late.seq, late.rank) == ("all_reduce", 1, 0)
    assert out.tolist() == [7, 7]


class Broken(ThreadCarrier):
    def test(self, request):
        raise RuntimeError("connection closed by peer")


@pytest.mark.parametrize("name", ["all_reduce", "barrier", "send"])
def test_what_a_transport_raises_is_named(name):
    comm = CarriedCommunicator(Broken(defaultdict(deque), 0, 2), 5.0, "")
    arguments = {"all_reduce": [np.ones(2)], "barrier": [], "send": [np.ones(2), 1]}[name]
    with pytest.raises(rccl.RcclSystemError, match=f"{name} number 1 failed: threads: connection closed") as error:
        getattr(comm, name)(*arguments)
    assert (error.value.op, error.value.seq) == (name, 1)


@pytest.mark.parametrize("argument", [{"block": False}, {"stream": 1}, {"bias": np.ones(2)}], ids=str)
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather"])
def test_arguments_that_only_rccl_can_follow(name, argument):
    comm = CarriedCommunicator(ThreadCarrier(defaultdict(deque), 0, 1), 5.0, "")
    with pytest.raises(rocpy.UnsupportedError, match=f"^{name}: {next(iter(argument))}=.*threads carries"):
        getattr(comm, name)(np.ones(2), **argument)
    with pytest.raises(TypeError, match="unexpected keyword argument 'blocks'"):
        getattr(comm, name)(np.ones(2), blocks=True)
    assert getattr(comm, name)(np.ones(2), block=True, stream=None).tolist() == [1.0, 1.0]
