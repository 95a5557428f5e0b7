# SPDX-License-Identifier: MIT
"""Arguments that are wrong: typed errors that name the argument, and nothing is sent."""

import ml_dtypes
import numpy as np
import pytest
from one_thread import require_calls

import rocpy
from rocpy import rccl
from rocpy.rccl.rendezvous.bootstrap import LaunchFacts, open_channel


@pytest.fixture
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        yield comm


@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [
        (65000, "float8_e5m2"),
        (500, "float8_e4m3fn"),
        (-500.0, "float8_e4m3fn"),
        (float("inf"), "float8_e4m3fn"),
        (70000, "float16"),
        (1e39, "float32"),
        (1e39, "bfloat16"),
        (ml_dtypes.bfloat16(1e38), "float16"),
        (300, "uint8"),
    ],
)
def test_scalars_that_a_type_does_not_hold(comm, scalar, dtype):
    with pytest.raises(rccl.InvalidArgumentError, match=f"scalar: .* is not a value of {dtype}"):
        comm.premul_sum(scalar, dtype)


@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [(448, "float8_e4m3fn"), (65504, "float16"), (0.1, "float8_e5m2"), (float("inf"), "float16"), (np.nan, "float32")],
)
def test_scalars_that_a_type_holds(comm, scalar, dtype):
    comm.premul_sum(scalar, dtype).close()


@pytest.mark.parametrize("counts", [[3.7], ["3"], [True], [float("nan")], [None], [2**63], [-1], [1, 2], 3, None])
def test_counts(comm, counts):
    x = np.arange(3)
    with pytest.raises(rocpy.InvalidProblemError, match="send_counts: got"):
        comm.all_to_all_v(x, counts)
    if counts is not None:
        with pytest.raises(rocpy.InvalidProblemError, match="recv_counts: got"):
            comm.all_to_all_v(x, [3], counts)


def test_counts_of_any_integer_type(comm):
    assert comm.all_to_all_v(np.arange(3), np.array([3], np.uint8)).tolist() == [0, 1, 2]


def test_counts_beyond_any_memory():
    comms = rccl.Communicator.init_all(2)
    with pytest.raises(rocpy.InvalidProblemError, match="more than any memory"):
        comms[0].all_to_all_v(np.ones((3, 8)), [3, 0], [3, 2**47])
    for comm in comms:
        comm.abort()


def test_own_counts_that_differ_are_refused_before_the_call(comm):
    x = np.arange(4)
    with pytest.raises(rocpy.InvalidProblemError, match=r"recv_counts\[0\]: got 3, expected 4, as in send_counts\[0\]"):
        comm.all_to_all_v(x, [4], [3])
    assert comm.all_to_all_v(x, [4], [4]).tolist() == x.tolist()


def test_counts_are_refused_before_they_are_exchanged():
    comms = rccl.Communicator.init_all(2, timeout_s=5)
    with pytest.raises(rocpy.InvalidProblemError, match="send_counts: 2 rows in total, but x has 3"):
        comms[0].all_to_all_v(np.arange(3), [1, 1])
    with rccl.group():
        assert {id(comm.all_reduce(np.ones(1))) for comm in comms}
    for comm in comms:
        comm.abort()


class Store:
    """A store of torch.distributed."""

    get = set = check = None


HUGE = 10**400
TOO_LARGE = {
    "barrier": (lambda comm: comm.barrier(timeout_s=HUGE), "timeout_s"),
    "init": (lambda _: rccl.Communicator.init(1, 0, rccl.UniqueId.make(), timeout_s=HUGE), "timeout_s"),
    "init_all": (lambda _: rccl.Communicator.init_all(1, timeout_s=HUGE), "timeout_s"),
    "from_env": (lambda _: rccl.Communicator.from_env(timeout_s=HUGE), "timeout_s"),
    "wait_signal": (lambda comm: comm.wait_signal({0: 2**31}), "peers"),
    "error_string": (lambda _: rccl.error_string(2**40), "code"),
}
OF_ANOTHER_TYPE = {
    "wait_signal": (lambda comm: comm.wait_signal(None), "peers"),
    "init_all": (lambda _: rccl.Communicator.init_all(2.0), "devices"),
    "init": (lambda _: rccl.Communicator.init(1, 0, None), "unique_id"),
    "init with a number": (lambda _: rccl.Communicator.init(1, 0, 128), "unique_id"),
    "init with less": (lambda _: rccl.Communicator.init(1, 0, b"short"), "unique_id"),
    "from_mpi": (lambda _: rccl.Communicator.from_mpi(5), "comm"),
    "from_store": (lambda _: rccl.Communicator.from_store(5, 0, 2), "store"),
    "diagnose": (lambda _: rccl.diagnose(5), "document"),
    "diagnose a list": (lambda _: rccl.diagnose({"communicators": 5}), "document"),
    "error_string": (lambda _: rccl.error_string("1"), "code"),
    "machine_status": (lambda _: rccl.machine_status(address=5), "address"),
    **{
        f"init with {config!r}": (
            lambda _, config=config: rccl.Communicator.init(1, 0, rccl.UniqueId.make(), config=config),
            "config",
        )
        for config in ([1], 0, "min_ctas", {"min_ctas": "4"}, {"min_ctas": 2.5}, {3: 4})
    },
    **{
        f"from_store as {rank!r} of {nranks!r}": (
            lambda _, rank=rank, nranks=nranks: rccl.Communicator.from_store(Store(), rank, nranks, timeout_s=0.1),
            "rank",
        )
        for rank, nranks in (("a", 2), (5, 2), (-1, 2), (0, "2"), (0, 2**40), (0.0, 1))
    },
    "split with a config": (lambda comm: comm.split(0, config=[1]), "config"),
    **{
        f"machine_status for {seconds!r} s{where}": (
            lambda _, seconds=seconds, where=where: rccl.machine_status(timeout_s=seconds, address=where),
            "timeout_s",
        )
        for seconds in ("a", -1, 0, float("nan"), None)
        for where in (None, "127.0.0.1:1")
    },
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_beyond_the_largest(comm, name):
    call, argument = TOO_LARGE[name]
    with pytest.raises(rccl.InvalidArgumentError, match=f"{argument}: got"):
        call(comm)


@pytest.mark.parametrize("name", OF_ANOTHER_TYPE)
def test_values_of_another_type(comm, name):
    call, argument = OF_ANOTHER_TYPE[name]
    with pytest.raises(rccl.InvalidArgumentError, match=f"{argument}: "):
        call(comm)


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_times_without_end(seconds):
    with pytest.raises(rccl.RcclSystemError, match="no RAS server at 127"):
        rccl.machine_status(timeout_s=seconds, address="127.0.0.1:1")


def test_ranks_of_any_integer_type():
    with rccl.Communicator.init(np.int64(1), np.uint8(0), rccl.UniqueId.make()) as comm:
        assert (comm.nranks, comm.rank) == (1, 0)


@pytest.mark.parametrize("name", ["nul\0here", "\udc80"])
def test_names_that_status_could_not_show(comm, name):
    for create in (
        lambda: rccl.Communicator.init(1, 0, rccl.UniqueId.make(), name=name),
        lambda: comm.split(0, name=name),
    ):
        with pytest.raises(rccl.InvalidArgumentError, match="^name: got"):
            create()


@pytest.mark.parametrize("value", [True, np.True_])
def test_truth_values_are_no_ranks_and_no_times(comm, comms, value):
    x = np.ones(2)
    for name, call in {
        "timeout_s": lambda: comm.all_reduce(x, timeout_s=value),
        "root": lambda: comm.broadcast(x, root=value),
        "peer": lambda: comm.send(x, value),
        "rank": lambda: rccl.Communicator.init(2, value, rccl.UniqueId.make()),
        "exclude_ranks": lambda: comms[0].shrink([value]),
    }.items():
        with pytest.raises(rccl.InvalidArgumentError, match=f"^{name}: got"):
            call()


@pytest.mark.parametrize("host", ["x" * 300, "\udc80", "a..b"])
def test_hosts_that_are_no_names(host):
    with pytest.raises(rccl.InvalidArgumentError, match="^address: got"):
        rccl.machine_status(address=f"{host}:80", timeout_s=0.1)
    with pytest.raises(rccl.InvalidArgumentError, match="^store: got"):
        open_channel(LaunchFacts(0, 2, 0, "test"), f"tcp://{host}:80")


def test_a_folder_that_is_no_name():
    with pytest.raises(rccl.InvalidArgumentError, match="^store: "):
        open_channel(LaunchFacts(0, 2, 0, "test"), "file:///a\0b")


def test_arguments_of_a_put(comm):
    require_calls()
    window = comm.window(comm.empty(4, window=True))
    with pytest.raises(rccl.InvalidArgumentError, match="offset: got"):
        comm.put_signal(window.array, 0, window, 2**62)
    with pytest.raises(rccl.InvalidArgumentError, match="window: got NoneType, expected a Window"):
        comm.put_signal(window.array, 0, None)


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, "U3"])
def test_arrays_of_types_that_rccl_lacks(comm, dtype):
    for call in (comm.broadcast, comm.all_reduce, comm.all_gather):
        with pytest.raises(rocpy.InvalidOperandError, match="x: RCCL has no collectives of"):
            call(np.ones(3, dtype))
    with pytest.raises(rocpy.InvalidOperandError, match="out: "):
        comm.all_reduce(np.ones(3), out=np.ones(3, dtype))


@pytest.mark.torch
def test_tensors_of_types_that_rccl_lacks(comm):
    import torch

    with pytest.raises(rocpy.InvalidOperandError, match=r"x: RCCL has no collectives of torch\.bool"):
        comm.broadcast(torch.ones(3, dtype=torch.bool))


class RunsCode:
    """An argument that does something when it is read."""

    def __init__(self, action, memory):
        self.action, self.memory = action, memory

    def __float__(self):
        self.action()
        return 5.0

    def __index__(self):
        self.action()
        return 0

    @property
    def __array_interface__(self):
        self.action()
        return self.memory.__array_interface__


def replace_memory(tensor):
    tensor.untyped_storage().resize_(1 << 20)


@pytest.mark.parametrize("name", ["bias", "out", "rows"])
def test_memory_that_is_replaced_while_arguments_are_read(torch, comm, name):
    x = torch.ones(8)
    argument = RunsCode(lambda: replace_memory(x), np.zeros(8, np.float32))
    call = {
        "bias": lambda: comm.all_reduce(x, bias=argument),
        "out": lambda: comm.all_reduce(x, out=argument),
        "rows": lambda: comm.all_to_all_v(x, [8], [8], out=argument),
    }[name]
    with pytest.raises(rocpy.InvalidOperandError, match="^x: its memory was replaced"):
        call()


@pytest.mark.parametrize("name", ["bias", "root", "timeout_s", "peer"])
def test_a_communicator_that_is_closed_while_arguments_are_read(name):
    comm = rccl.Communicator.init(1, 0, rccl.UniqueId.make())
    x, argument = np.ones(8), RunsCode(comm.abort, np.zeros(8))
    call = {
        "bias": lambda: comm.all_reduce(x, bias=argument),
        "root": lambda: comm.broadcast(x, root=argument),
        "timeout_s": lambda: comm.all_reduce(x, timeout_s=argument),
        "peer": lambda: comm.send(x, argument),
    }[name]
    with pytest.raises(rocpy.ClosedError):
        call()


def close(*comms):
    for comm in comms:
        comm.abort()
    return len(comms)


# What takes an integer, one that it takes, and the argument's name in errors.
INTEGERS = {
    "init_all": (lambda x, comm: close(*rccl.Communicator.init_all(x)), 1, "devices"),
    "a device": (lambda x, comm: close(*rccl.Communicator.init_all([x])), 0, "devices"),
    "color": (lambda x, comm: close(comm.split(x)), 3, "color"),
    "key": (lambda x, comm: close(comm.split(0, x)), -3, "key"),
    "grow": (lambda x, comm: comm.grow(x, comm.growth_id(), timeout_s=0.01), 2, "nranks"),
    "error_string": (lambda x, comm: rccl.error_string(x), 0, "code"),
    "peers": (lambda x, comm: comm.wait_signal(x, timeout_s=0.01), 0, "peer"),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [np.int16, np.int64, np.array])
def test_integers_of_any_type(comm, name, kind):
    require_calls("ncclCommGrow", "ncclWaitSignal")
    use, number, _ = INTEGERS[name]
    if name in ("grow", "peers"):
        with pytest.raises(rccl.CollectiveTimeoutError):
            use(kind(number), comm)
        comm.abort()
    else:
        use(kind(number), comm)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("wrong", [2.5, "a 2", np.float32(1), [None]], ids=repr)
def test_what_is_no_integer(comm, name, wrong):
    require_calls("ncclCommGrow", "ncclWaitSignal")
    use, _, argument = INTEGERS[name]
    with pytest.raises(rccl.InvalidArgumentError, match=f"^{argument}s?: got"):
        use(wrong, comm)


@pytest.mark.parametrize("devices", [np.arange(2), range(2), [rocpy.Device(0), 1], (np.int64(1), 0), np.int64(2)])
def test_devices_of_any_type(devices):
    assert close(*rccl.Communicator.init_all(devices)) == 2


@pytest.mark.parametrize("devices", [True, [], (), [True], 0, -1, "2", 2.0, [[0]]])
def test_what_are_no_devices(devices):
    with pytest.raises(rccl.InvalidArgumentError, match="^devices: got .*expected"):
        rccl.Communicator.init_all(devices)


@pytest.mark.torch
def test_devices_as_a_tensor(torch):
    assert close(*rccl.Communicator.init_all(torch.tensor(2))) == 2
    assert close(*rccl.Communicator.init_all(torch.arange(1))) == 1


def test_an_array_is_no_switch_and_no_choice(comm):
    x = np.ones(2)
    counted = {
        "block": (lambda: comm.all_reduce(x, block=x), lambda: comm.all_to_all_v(x, [2], [2], block=x)),
        "window": (lambda: comm.empty(3, window=x),),
        "flags": (lambda: comm.window(x, flags=x), lambda: comm.window(x, flags=["default"])),
    }
    for name, calls in counted.items():
        for call in calls:
            with pytest.raises(rccl.InvalidArgumentError, match=f"^(rank 0: )?{name}: got (ndarray|list), expected"):
                call()
    assert comm.all_reduce(x).tolist() == [1, 1]


def test_what_is_no_type_and_no_id(comm):
    with pytest.raises(rocpy.InvalidOperandError, match="^dtype: "):
        comm.premul_sum(1.0, "\ud800")
    with pytest.raises(rccl.InvalidArgumentError, match="^data: got 100 bytes, expected 128 bytes$"):
        rccl.UniqueId(bytes(100))
