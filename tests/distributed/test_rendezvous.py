# SPDX-License-Identifier: MIT
"""A rendezvous among strangers, floods and impostors, and ranks absent, late, wrong or twice: one culprit on all."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rocpy import rccl
from rocpy.rccl.rendezvous.bootstrap import LaunchFacts, agree, introduction, open_channel
from rocpy.rccl.rendezvous.envelope import job_key, seal
from rocpy.rccl.rendezvous.tcp import ClientChannel


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Ranks:
    """Ranks on threads of this process that meet at a port; `found` has what each got or raised."""

    def __init__(self, store):
        self.store, self.found, self.threads = store, {}, []

    def start(self, rank, nranks, *, seconds=20.0, make_id=lambda: b"i" * 128, name=None, step=None):
        facts = LaunchFacts(rank, nranks, rank, "test")

        def run():
            try:
                channel = open_channel(facts, self.store)
                deadline = time.monotonic() + seconds
                try:
                    agreement = agree(channel, facts, deadline, make_id, introduction())
                    self.found[name or rank] = agreement if step is None else step(channel, deadline)
                finally:
                    channel.close()
            except BaseException as error:
                self.found[name or rank] = error

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()
        return self

    def join(self):
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads), "a rank hangs"
        return self.found


def connect(port):
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def sealed_note(port, **changes):
    """A connection of a process of the job that says of itself what is given, as its first note."""
    connection = connect(port)
    challenge = json.loads(connection.makefile().readline())["challenge"]
    note = {**introduction(), "nranks": 2, "rank": 1, "patience_s": 20.0, **changes}
    line = seal(job_key(["test"]), ["rank", challenge, "n", "0"], note)
    connection.sendall(json.dumps({**line, "nonce": "n"}).encode() + b"\n")
    return connection


def test_idle_connections_and_a_flood_delay_nobody(port):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 3)
    idle = [connect(port) for _ in range(300)]
    is_over = threading.Event()

    def flood():
        while not is_over.is_set():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.001)

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    found = all_ranks.start(1, 3).start(2, 3).join()
    is_over.set()
    for thread in threads:
        thread.join()
    for connection in idle:
        connection.close()
    assert [agreement.unique_id for agreement in found.values()] == [b"i" * 128] * 3


NONSENSE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"[" * 100_000 + b"\n",
    b'{"body": ' + b"[" * 50_000 + b"\n",
    b"x" * 1_000_000,
    b"\xff\xfe\n",
    b'{"rank": 7, "nranks": 9, "machine": [], "version": 23004}\n',
    b'{"body": 1, "mac": [], "nonce": {}}\n',
    b'{"body": "{}", "mac": "\\ud800", "nonce": "n"}\n',
    b"\n" * 1000,
    b"",
]


def test_nonsense_is_dropped_and_counted(port):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 3, seconds=1.5)
    strangers = [connect(port) for _ in NONSENSE]
    for stranger, said in zip(strangers, NONSENSE, strict=True):
        try:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # dropped before it was through
    found = all_ranks.start(1, 3, seconds=10).join()
    for stranger in strangers:
        stranger.close()
    for error in found.values():
        assert isinstance(error, rccl.CollectiveTimeoutError)
        assert error.waiting_for == (2,)
        assert f"{len(NONSENSE)} connections without this job's token were dropped" in str(error)


@pytest.mark.parametrize(
    "wrong", [{"machine": ["a"]}, {"nranks": "2"}, {"rank": True}, {"rank": 1e400}, {"patience_s": None}, {"pid": {}}]
)
def test_a_note_of_another_shape_is_nonsense_even_with_the_mark(port, wrong):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 2)
    stranger = sealed_note(port, **wrong)
    assert stranger.recv(100) == b""
    stranger.close()
    assert {agreement.unique_id for agreement in all_ranks.start(1, 2).join().values()} == {b"i" * 128}


@pytest.mark.parametrize("has_secret", [True, False])
def test_an_impostor_needs_the_secret(port, monkeypatch, has_secret):
    public = job_key(["test"])
    if has_secret:
        monkeypatch.setenv("ROCPY_RCCL_SECRET", "seven sisters")
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 2)
    impostor = ClientChannel(("127.0.0.1", port), 1, public)
    note = {**introduction(), "nranks": 2}
    if not has_secret:
        # What a hostile peer can do is no secret: see SECURITY.md.
        answer = impostor.exchange("id", note, dict, time.monotonic() + 20)
        assert answer["id"] == (b"i" * 128).hex()
        all_ranks.join()
    else:
        with pytest.raises(rccl.CollectiveTimeoutError, match="another ROCPY_RCCL_SECRET"):
            impostor.exchange("id", note, dict, time.monotonic() + 1)
        assert {agreement.unique_id for agreement in all_ranks.start(1, 2).join().values()} == {b"i" * 128}
    impostor.close()


def test_an_impostor_of_rank_0_is_not_believed(port, monkeypatch):
    with socket.create_server(("127.0.0.1", port)) as server:
        monkeypatch.setenv("ROCPY_RCCL_SECRET", "seven sisters")
        all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(1, 2, seconds=0.5)
        connection, _ = server.accept()
        connection.sendall(b'{"rocpy": 1, "challenge": "c"}\n')
        line = json.loads(connection.makefile().readline())
        key = job_key(["test"])  # with the secret in the environment; the impostor has another
        assert key != job_key(["other"])
        answer = seal(job_key(["other"]), ["rank 0", "c", line["nonce"], "0"], {"welcome": 1})
        connection.sendall(json.dumps(answer).encode() + b"\n")
        error = all_ranks.join()[1]
        connection.close()
    assert isinstance(error, rccl.CollectiveTimeoutError)
    assert error.waiting_for == (0,)


def test_what_was_sealed_for_one_connection_does_not_pass_on_another(port):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 2)
    first = connect(port)
    challenge = json.loads(first.makefile().readline())["challenge"]
    note = {**introduction(), "nranks": 2, "rank": 1, "patience_s": 20.0}
    line = {**seal(job_key(["test"]), ["rank", challenge, "n", "0"], note), "nonce": "n"}
    second = connect(port)
    second.sendall(json.dumps(line).encode() + b"\n")
    assert b"welcome" not in second.makefile("rb").read()
    first.close()
    second.close()
    assert all_ranks.start(1, 2).join()[1].unique_id == b"i" * 128


def culprits(found):
    """The texts of errors, each once."""
    assert all(isinstance(error, rccl.RcclError) for error in found.values()), found
    return {str(error) for error in found.values()}


@pytest.fixture(params=["tcp", "file"])
def store(request, port, tmp_path):
    return f"tcp://127.0.0.1:{port}" if request.param == "tcp" else f"file://{tmp_path / 'meeting'}"


def test_an_absent_rank(store):
    # Whoever loses patience first decides for all; nobody blames rank 0, or the impatient one.
    found = Ranks(store).start(0, 4, seconds=10).start(1, 4, seconds=0.5).start(3, 4, seconds=10).join()
    assert {error.waiting_for for error in found.values()} == {(2,)}


def test_a_rank_that_comes_late(port):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 3, seconds=0.4).start(1, 3, seconds=10)
    all_ranks.join()
    found = all_ranks.start(2, 3, seconds=10).join()
    assert {error.waiting_for for error in found.values()} == {(2,)}
    # Another rendezvous at the same address begins anew.
    again = Ranks(f"tcp://127.0.0.1:{port}").start(1, 2).start(0, 2).join()
    assert {agreement.unique_id for agreement in again.values()} == {b"i" * 128}


def test_a_second_rendezvous_while_a_late_rank_is_awaited(port):
    first = Ranks(f"tcp://127.0.0.1:{port}").start(0, 3, seconds=0.4).start(1, 3, seconds=10)
    assert {error.waiting_for for error in first.join().values()} == {(2,)}
    second = Ranks(f"tcp://127.0.0.1:{port}").start(1, 3)
    time.sleep(0.3)  # rank 1 knocks at what is left of the first rendezvous, and is not told of it again
    assert second.found == {}
    found = second.start(0, 3).start(2, 3).join()
    assert {agreement.unique_id for agreement in found.values()} == {b"i" * 128}


def test_a_rank_that_counts_otherwise(store):
    found = Ranks(store).start(0, 3, seconds=5).start(1, 3, seconds=5).start(2, 4, seconds=5).join()
    (text,) = culprits(found)
    assert text.startswith("rank 2 (process")
    assert "expects 4 ranks, rank 0 expects 3" in text


def test_a_rank_that_comes_twice(port):
    # Rank 3 never comes: with all four there, the order of their arrival would decide.
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 4)
    connection = sealed_note(port, nranks=4, pid=4711)
    connection.recv(10)
    found = all_ranks.start(1, 4).start(2, 4).join()
    connection.close()
    (text,) = culprits(found)
    assert "rank 1 joined twice: process 4711 on" in text


def test_a_rank_that_is_none(port):
    all_ranks = Ranks(f"tcp://127.0.0.1:{port}").start(0, 2)
    connection = sealed_note(port, rank=7)
    found = all_ranks.start(1, 2).join()
    connection.close()
    (text,) = culprits(found)
    assert "joined as rank 7, which is not one of the 2 ranks" in text


def test_a_failure_of_rank_0_reaches_the_others_at_once(store):
    def refuse():
        raise RuntimeError("no entropy")

    found = (
        Ranks(store)
        .start(0, 3, seconds=3600, make_id=refuse)
        .start(1, 3, seconds=3600)
        .start(2, 3, seconds=3600)
        .join()
    )
    assert isinstance(found.pop(0), RuntimeError)
    for error in found.values():
        assert isinstance(error, rccl.RemoteError)
        assert error.rank == 0
        assert "no entropy" in str(error)


def test_a_rank_that_goes_away_is_named_at_once(port):
    def ready(channel, deadline):
        return channel.exchange("ready", {"failure": None}, lambda _: {}, deadline)

    all_ranks = Ranks(f"tcp://127.0.0.1:{port}")
    all_ranks.start(0, 3, seconds=3600, step=ready).start(1, 3, seconds=3600, step=ready)
    # Rank 2 leaves after the first step.
    found = all_ranks.start(2, 3, seconds=3600).join()
    assert found.pop(2).unique_id == b"i" * 128
    for error in found.values():
        assert isinstance(error, rccl.RemoteError)
        assert error.rank == 2


def test_nonsense_on_a_board_is_no_note(tmp_path):
    folder = tmp_path / "meeting"
    folder.mkdir()
    (folder / "id-rank-1").write_bytes(b"[" * 100_000)
    (folder / "id-answer").write_text('{"id": "00"}')
    (folder / "ready-rank-1").mkdir()
    os.mkfifo(folder / "ready-answer")
    found = Ranks(f"file://{folder}").start(0, 2).start(1, 2).join()
    assert {agreement.unique_id for agreement in found.values()} == {b"i" * 128}


def test_what_an_earlier_rendezvous_left_on_a_board_is_not_believed(tmp_path):
    folder = tmp_path / "meeting"
    folder.mkdir()
    key = job_key(["test"])
    stale = {**introduction(), "nranks": 2, "patience_s": 9.0, "nonce": "old"}
    (folder / "id-rank-1").write_text(json.dumps(seal(key, ["id-rank-1"], stale)))
    old = {"id": "00", "locations": [["", "", ""]], "location_of": [0, 0], "nonces": ["older", "old"]}
    (folder / "id-answer").write_text(json.dumps(seal(key, ["id-answer"], old)))

    def ready(channel, deadline):
        return channel.exchange("ready", {"failure": None}, lambda _: {"all": "here"}, deadline)

    all_ranks = Ranks(f"file://{folder}").start(0, 2, step=ready)
    time.sleep(0.2)
    found = all_ranks.start(1, 2, step=ready).join()
    assert [answer["all"] for answer in found.values()] == ["here", "here"]


PROGRAM = """
import sys
from rocpy import rccl
try:
    rccl.Communicator.from_env(timeout_s=3600, device=0 if {rank} == 1 else None)
except rccl.RcclError as error:
    print(type(error).__name__, error.rank, error)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_rank_that_cannot_begin_is_named_on_all(port):
    environment = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port - 1)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM.format(rank=rank)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(99 if rank == 0 else rank)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path("/"),
        )
        for rank in range(2)
    ]
    found = [process.communicate(timeout=100)[0] for process in processes]
    assert "99" in found[0]
    assert found[1].startswith("RemoteError 0 ")
    assert "rank 0 could not start" in found[1]
    assert "99" in found[1]
