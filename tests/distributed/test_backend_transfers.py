# SPDX-License-Identifier: MIT
"""Sends and receives of torch's backend that fail: which ranks errors name, how many tags there are, what ends them."""

import datetime as dt
import resource
import time
import warnings
from functools import partial

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

from rocpy.errors import (
    ClosedError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidUsageError,
    RemoteError,
    UnsupportedError,
)
from rocpy.torch.process_group.naming import rename_ranks

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:the process group was not shut down cleanly")]


@pytest.fixture
def groups(torch):
    """Run body(group, rank) on ranks of a group that is a part of another."""
    import torch.distributed as dist
    from rank_threads import on_rank_threads

    from rocpy.torch.process_group.backend import create

    def run(global_ranks, body, timeout_s=20.0):
        store = dist.HashStore()

        def of_rank(rank):
            group = create(store, rank, len(global_ranks), dt.timedelta(seconds=timeout_s), global_ranks)
            try:
                return body(group, rank)
            finally:
                group.abort()

        return on_rank_threads(len(global_ranks), of_rank, 60)

    return run


def test_a_first_transfer_names_the_rank_that_does_not_come(torch, groups):
    def body(group, rank):
        group.barrier().wait()
        if rank != 0:
            return None
        group.set_timeout(dt.timedelta(seconds=0.2))
        begin = time.monotonic()
        seen = []
        for op, peer in (("recv", 2), ("send", 1)):
            said = f"rank 0: {op} number 1 did not complete within 0.2 s; waiting for rank {peer} to call"
            with pytest.raises(CollectiveTimeoutError, match=said) as late:
                getattr(group, op)([torch.zeros(2)], peer).wait()
            seen.append((late.value.op, late.value.seq, late.value.rank, late.value.waiting_for))
        assert time.monotonic() - begin < 0.9
        return seen

    assert good(groups([0, 1, 2], body))[0] == [("recv", 1, 0, (2,)), ("send", 1, 0, (1,))]


def test_a_connected_pair_names_the_rank_that_does_not_send(torch, groups):
    def body(group, rank):
        if rank == 2:
            group.send([torch.ones(2)], 1).wait()
        if rank == 1:
            group.recv([torch.zeros(2)], 2).wait()
            group.set_timeout(dt.timedelta(seconds=0.2))
            with pytest.raises(CollectiveTimeoutError, match="rank 1: recv .* waiting for rank 2; rank 2 last") as late:
                group.recv([torch.zeros(2)], 2).wait()
            assert (late.value.waiting_for, late.value.rank) == ((2,), 1)
        group.set_timeout(dt.timedelta(seconds=20))
        group.barrier().wait()

    good(groups([0, 1, 2], body))


def test_a_mismatch_names_the_ranks_that_call(torch, groups):
    def body(group, rank):
        seen = ()
        if rank == 2:
            with pytest.raises(RemoteError, match="rank 2: send number 1 failed.*rank 1") as failed:
                group.send([torch.ones(200_000)], 1).wait()
            seen = failed.value.rank
        if rank == 1:
            with pytest.raises(CollectiveMismatchError, match=r"rank 2 calls send\(.*to rank 1, which calls") as failed:
                group.recv([torch.zeros(2)], 2).wait()
            seen = failed.value.rank, failed.value.signatures[0]
        group.barrier().wait()
        return seen

    assert good(groups([0, 1, 2], body)) == [(), (1, "send(count=200000, dtype=float32)"), 1]


def test_errors_of_a_subgroup_say_whose_ranks_they_name(torch, groups):
    def body(group, rank):
        if rank == 1:
            group.allreduce([torch.ones(2)]).wait()
            return None
        opts = torch.distributed.AllreduceOptions()
        opts.timeout = dt.timedelta(seconds=0.2)
        group.allreduce([torch.ones(2)], opts).wait()
        with pytest.raises(CollectiveTimeoutError, match=r"waiting for rank 7.*this group has \[3, 7\]") as late:
            group.allreduce([torch.ones(2)], opts).wait()
        assert (late.value.waiting_for, late.value.rank) == ((7,), 3)
        group.set_timeout(dt.timedelta(seconds=0.2))
        with pytest.raises(
            CollectiveTimeoutError, match=r"waiting for rank 7 to call send .*this group has \[3, 7\]"
        ) as late:
            group.recv([torch.zeros(2)], 1).wait()
        return late.value.waiting_for

    import threading

    is_over = threading.Event()

    def keeping_rank_1(group, rank):
        try:
            return body(group, rank)
        finally:
            if rank == 0:
                is_over.set()
            else:
                is_over.wait(60)

    assert good(groups([3, 7], keeping_rank_1))[0] == (7,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 0: waiting for rank 1", "rank 5: waiting for rank 3"),
        ("waiting for ranks [0, 1]: rank 1 is in", "waiting for ranks [5, 3]: rank 3 is in"),
        ("waiting for ranks 0, 1; ranks 0 and 1 both", "waiting for ranks 5, 3; ranks 5 and 3 both"),
        ("broadcast(count=1, root=1)", "broadcast(count=1, root=3)"),
        ("another waits for its ranks [0]", "another waits for its ranks [0]"),
        ("2 ranks, process 1, number 0", "2 ranks, process 1, number 0"),
    ],
)
def test_every_form_of_ranks_is_renamed(text, expected):
    error = InvalidUsageError(text, rank=1)
    rename_ranks(error, [5, 3], "!")
    assert (str(error), error.rank) == (expected + "!", 3)


def test_more_tags_than_files_are_refused_by_name(torch, monkeypatch):
    def body(group, rank):
        def transfer(tag):
            (group.send if rank == 0 else group.recv)([torch.ones(1)], 1 - rank, tag).wait()

        transfer(0)
        transfer(1)
        with pytest.raises(UnsupportedError, match=r"tag: got 2, which is new.*this process has 4.*ulimit"):
            transfer(2)
        transfer(0)  # tags that were used are used again
        group.barrier().wait()

    monkeypatch.setattr(resource, "getrlimit", lambda _: (9, 9))
    good(on_groups(2, body))


TRANSFERS = ("send", "recv")


@pytest.mark.parametrize("tag", [0, 1], ids=["connected", "new"])
@pytest.mark.parametrize("name", [*TRANSFERS, "barrier", "asynchronous"])
def test_what_is_called_after_the_end_is_refused_at_once(torch, name, tag):
    def body(group, rank):
        (group.send if rank == 0 else group.recv)([torch.ones(1)], 1 - rank, 0).wait()
        group.shutdown()
        opts = torch.distributed.BarrierOptions()
        opts.asyncOp = name == "asynchronous"
        x = torch.ones(1)
        call = partial(getattr(group, name), [x], 1 - rank, tag) if name in TRANSFERS else partial(group.barrier, opts)
        with pytest.raises(ClosedError, match="shut down"):
            call().wait()

    good(on_groups(2, body))


def test_a_receive_that_nobody_answers_ends_with_the_group(torch):
    def body(group, rank):
        work = group.recv([torch.ones(1)], 1, 0) if rank == 0 else None
        group.barrier().wait()
        group.set_timeout(dt.timedelta(seconds=0.2))
        group.shutdown()
        if work is not None:
            with pytest.raises(ClosedError, match="0-0 was shut down|1-0-0"):
                work.wait(dt.timedelta(seconds=20))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        good(on_groups(2, body))


def test_work_that_goes_on_is_done_before_the_end(torch):
    def body(group, rank):
        opts = torch.distributed.AllreduceOptions()
        opts.asyncOp = True
        x = torch.ones(200_000)
        works = [group.allreduce([x], opts) for _ in range(5)]
        group.shutdown()
        for work in works:
            work.wait()
        return x.unique().tolist()

    assert good(on_groups(2, body)) == [[32.0]] * 2


@pytest.mark.parametrize("devices", [{"cpu": "gloo", "cuda": "rocpy"}, {"cpu": "rocpy", "cuda": "gloo"}])
def test_another_backend_for_another_device_is_refused(torch, devices):
    import torch.distributed as dist

    text = ",".join(f"{device}:{name}" for device, name in devices.items())
    store = dist.HashStore()
    with pytest.raises(UnsupportedError, match=f"backend: got '{text}'.*new_group"):
        dist.init_process_group(text, store=store, rank=0, world_size=1)
    assert not dist.is_initialized()
