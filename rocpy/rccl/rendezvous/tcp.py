# SPDX-License-Identifier: MIT
"""A rendezvous over TCP: rank 0 serves all connections at once, and drops those that do not carry the job's mark.

Every line is a JSON object of bounded length. Rank 0 sends a challenge; a rank answers with a nonce of its own and its
note, sealed for both; from then on each side numbers and seals what it says. So nothing passes that was sealed
for another connection, direction or line, and a rank knows that it talks to its own job's rank 0.
"""

from __future__ import annotations

import json
import secrets
import selectors
import socket
import threading
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rocpy.errors import RcclSystemError, RemoteError
from rocpy.rccl.rendezvous.channel import absence, checked_answer, is_note
from rocpy.rccl.rendezvous.envelope import MAX_BYTES, open_envelope, parse_json, seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.rccl.rendezvous.channel import Message

__all__ = ["ClientChannel", "ServerChannel"]

# Of a line before its sender is known, and of a note.
NOTE_BYTES = 64 << 10
# Connections of strangers at one time; the oldest goes first.
MAX_STRANGERS = 128
ACCEPTS = 16
STRANGER_S = 5.0
# How long an answer may take to go out.
FLUSH_S = 5.0
RETRY_S = 0.02
MAX_RETRY_S = 0.5
# How long after a failure rank 0 waits to tell it to ranks that are still to come, and how long in the background.
SEE_OFF_S = 2.0
LINGER_S = 30.0

_lingering: dict[tuple[str, int], ServerChannel] = {}


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


class _Peer:
    """A connection that rank 0 serves."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.challenge = secrets.token_hex(16)
        self.since = monotonic()
        self.incoming = bytearray()
        self.outgoing = bytearray(_line({"rocpy": 1, "challenge": self.challenge}))
        self.rank = -1  # a stranger
        self.is_told = False
        self.nonce = ""
        self.sent = self.received = 0
        self.origin = ""

    def context(self, direction: str, number: int) -> list[str]:
        return [direction, self.challenge, self.nonce, str(number)]


class ServerChannel:
    """Rank 0's side.

    Parameters
    ----------
    address
        Where to listen.
    nranks
        How many ranks there are.
    key
        The job's.

    Raises
    ------
    RcclSystemError
        The address is taken, or is not this machine's.
    """

    def __init__(self, address: tuple[str, int], nranks: int, key: bytes) -> None:
        self._address, self._nranks, self._key = address, nranks, key
        self._where = f"rank 0 at {address[0]}:{address[1]}"
        earlier = _lingering.pop(address, None)
        if earlier is not None:
            earlier.stop()
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._selector = selectors.DefaultSelector()
            self._listener = socket.create_server(address, family=family, backlog=1024)
        except OSError as error:
            raise RcclSystemError(
                f"rank 0 cannot listen at {address[0]}:{address[1]}: {error}; pass store= with another port", op="init"
            ) from None
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._strangers: list[_Peer] = []
        self._members: list[_Peer] = []
        self._notes: dict[int, Message] = {}
        self._step = "id"
        self._answer: Message | None = None
        self._told: set[int] = set()
        self._deadline = 0.0
        self._is_lingering = False
        self._stopped = threading.Event()
        self.dropped = 0

    # ---- connections ----

    def _serve_once(self, longest_s: float) -> None:
        has_callers = False
        for event, _ in self._selector.select(max(min(longest_s, 0.5), 0)):
            if event.fileobj is self._listener:
                has_callers = True
            else:
                self._read(event.data)
        # After those who have said something, so that a crowd does not push them out.
        if has_callers:
            self._accept()
        now = monotonic()
        for peer in [peer for peer in self._strangers if now - peer.since > STRANGER_S]:
            self._drop(peer)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # too many files, or a caller that has gone already
                if self._strangers:
                    self._drop(self._strangers[0])
                return
            if len(self._strangers) >= MAX_STRANGERS:
                self._drop(self._strangers[0])
            connection.setblocking(False)
            peer = _Peer(connection)
            self._strangers.append(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)
            self._write(peer)

    def _close(self, peer: _Peer) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()
        for peers in (self._strangers, self._members):
            if peer in peers:
                peers.remove(peer)

    def _drop(self, peer: _Peer) -> None:
        """Close a connection that is not one of the job's."""
        self.dropped += 1
        self._close(peer)

    def _lose(self, peer: _Peer) -> None:
        """Close a connection that has ended, or that talks nonsense."""
        if peer.rank < 0:
            self._drop(peer)
            return
        self._close(peer)
        if self._answer is None:
            self._told.add(peer.rank)
            self._answer = {"gone": peer.rank, "text": f"rank {peer.rank} ({peer.origin}) disconnected during init"}

    def _write(self, peer: _Peer) -> None:
        try:
            while peer.outgoing:
                del peer.outgoing[: peer.connection.send(peer.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(peer)

    def _read(self, peer: _Peer) -> None:
        try:
            part = peer.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        peer.incoming += part
        while (end := peer.incoming.find(b"\n")) >= 0 and peer.connection.fileno() >= 0:
            line = bytes(peer.incoming[:end])
            del peer.incoming[: end + 1]
            self._hear(peer, parse_json(line) if end <= NOTE_BYTES else None)
        if peer.connection.fileno() >= 0 and (not part or len(peer.incoming) > NOTE_BYTES):
            self._lose(peer)

    # ---- notes ----

    def _hear(self, peer: _Peer, envelope: Any) -> None:
        if peer.rank < 0:
            nonce = envelope.get("nonce") if isinstance(envelope, dict) else None
            peer.nonce = nonce if isinstance(nonce, str) else ""
        message = open_envelope(self._key, peer.context("rank", peer.received), envelope)
        peer.received += 1
        step = "id" if peer.rank < 0 else self._step
        if message is None or not is_note(step, message) or (peer.rank < 0 and type(message.get("rank")) is not int):
            self._lose(peer)
        elif peer.rank < 0:
            self._admit(peer, message)
        else:
            self._take_note(peer.rank, message)

    def _admit(self, peer: _Peer, note: Message) -> None:
        rank = note["rank"]
        peer.origin = f"process {note['pid']} on {note['host']}"
        if self._is_lingering:
            # Who has been told already comes for another rendezvous, which is not here yet.
            if rank not in self._told:
                peer.rank = rank
                self._say(peer, {"welcome": rank})
                self._tell(peer)
            self._close(peer)
            return
        self._strangers.remove(peer)
        previous = next((member for member in self._members if member.rank == rank), None)
        problem = ""
        if note["nranks"] != self._nranks:
            problem = f"rank {rank} ({peer.origin}) expects {note['nranks']} ranks, rank 0 expects {self._nranks}"
        elif not 0 < rank < self._nranks:
            problem = (
                f"{peer.origin} joined as rank {rank}, which is not one of the {self._nranks} ranks or is rank 0 itself"
            )
        elif previous is not None and previous.nonce == peer.nonce:
            self._close(previous)  # the same process, over a new connection
        elif previous is not None:
            problem = f"rank {rank} joined twice: {previous.origin}, and {peer.origin}"
        if problem and self._answer is None:
            self._answer = {"problem": problem}
        peer.rank = rank
        self._members.append(peer)
        self._say(peer, {"welcome": rank})
        if self._answer is not None:
            self._tell(peer)
        else:
            self._take_note(rank, note)

    def _take_note(self, rank: int, note: Message) -> None:
        self._notes[rank] = note
        # Without one of them there is no communicator: whose patience ends first decides for all.
        self._deadline = min(self._deadline, monotonic() + note["patience_s"])

    def _say(self, peer: _Peer, message: Message) -> None:
        peer.outgoing += _line(seal(self._key, peer.context("rank 0", peer.sent), message))
        peer.sent += 1
        self._write(peer)

    # ---- what rank 0 does ----

    def exchange(self, step: str, note: Message, judge: Callable[[list[Message]], Message], deadline: float) -> Message:
        """Collect the notes of a step, answer all ranks, and return the answer; as `Channel` has it."""
        self._step, self._notes, self._deadline = step, {0: note}, deadline
        self._told = set()
        for member in self._members:
            member.is_told = False
        try:
            while self._answer is None and len(self._notes) < self._nranks:
                left = self._deadline - monotonic()
                if left <= 0:
                    missing = [rank for rank in range(self._nranks) if rank not in self._notes]
                    self._answer = {"missing": missing, "hint": self._hint()}
                    break
                self._serve_once(left)
            if self._answer is None:
                self._answer = judge([self._notes[rank] for rank in range(self._nranks)])
        except BaseException as error:
            self._answer = {"gone": 0, "text": f"rank 0 failed during init: {type(error).__name__}: {error}"}
            self._tell_all()
            raise
        self._tell_all()
        answer = self._answer
        if not {"missing", "problem", "gone"} & answer.keys():
            self._answer = None
            return answer
        self._see_off(deadline)
        return checked_answer(answer, 0, self._where)

    def _hint(self) -> str:
        if not self.dropped:
            return ""
        return f"; {self.dropped} connections without this job's token were dropped"

    def _tell(self, peer: _Peer) -> None:
        if not peer.is_told and self._answer is not None:
            peer.is_told = True
            self._told.add(peer.rank)
            self._say(peer, self._answer)

    def _tell_all(self) -> None:
        for peer in list(self._members):
            self._tell(peer)
        flushed_by = monotonic() + FLUSH_S
        while any(peer.outgoing for peer in self._members) and monotonic() < flushed_by:
            sleep(0.001)
            for peer in list(self._members):
                self._write(peer)

    def _all_told(self) -> bool:
        return self._told.issuperset(range(1, self._nranks))

    def _see_off(self, deadline: float) -> None:
        """After a failure tell it to those who are still to come: for a moment here, later in the background."""
        has_patience = self._answer is not None and "missing" not in self._answer
        until = min(deadline, monotonic() + SEE_OFF_S) if has_patience else 0.0
        while not self._all_told() and monotonic() < until:
            self._serve_once(until - monotonic())
        for peer in list(self._members):
            self._close(peer)
        if self._all_told():
            return
        self._is_lingering = True
        _lingering[self._address] = self
        lingers_until = monotonic() + LINGER_S

        def linger() -> None:
            while not self._stopped.is_set() and not self._all_told() and monotonic() < lingers_until:
                self._serve_once(0.1)
            self._release()

        self._thread = threading.Thread(target=linger, name="rocpy rendezvous", daemon=True)
        self._thread.start()

    def _release(self) -> None:
        for peer in [*self._strangers, *self._members]:
            self._close(peer)
        self._selector.close()
        self._listener.close()

    def stop(self) -> None:
        """End what goes on in the background."""
        self._stopped.set()
        self._thread.join()

    def close(self) -> None:
        """Leave; ranks that still wait see it by the end of the connection."""
        if not self._is_lingering:
            self._release()


class ClientChannel:
    """The side of the other ranks.

    Parameters
    ----------
    address
        Where rank 0 listens.
    rank
        Which this is.
    key
        The job's.
    """

    def __init__(self, address: tuple[str, int], rank: int, key: bytes) -> None:
        self._address, self._rank, self._key = address, rank, key
        self._where = f"rank 0 at {address[0]}:{address[1]}"
        self._nonce = secrets.token_hex(16)
        self._connection: socket.socket | None = None
        self._challenge = ""
        self._incoming = bytearray()
        self._sent = self._received = 0

    def _read_line(self, deadline: float) -> Any:
        """Return the next line's value; None at the end, after the deadline, and for nonsense."""
        assert self._connection is not None
        while (end := self._incoming.find(b"\n")) < 0:
            self._connection.settimeout(max(deadline - monotonic(), 0.001))
            try:
                part = self._connection.recv(65536)
            except OSError:
                return None
            if not part or len(self._incoming) > MAX_BYTES:
                return None
            self._incoming += part
        line = bytes(self._incoming[:end])
        del self._incoming[: end + 1]
        return parse_json(line)

    def _context(self, direction: str, number: int) -> list[str]:
        return [direction, self._challenge, self._nonce, str(number)]

    def _listen(self, deadline: float) -> Message | None:
        message = open_envelope(self._key, self._context("rank 0", self._received), self._read_line(deadline))
        self._received += 1
        return message

    def _say(self, note: Message, deadline: float) -> None:
        message = {**note, "rank": self._rank, "patience_s": max(deadline - monotonic(), 0.0)}
        assert self._connection is not None
        line = seal(self._key, self._context("rank", self._sent), message)
        self._sent += 1
        self._connection.settimeout(5)
        self._connection.sendall(_line({**line, "nonce": self._nonce}))

    def _introduce(self, note: Message, deadline: float) -> str:
        """Connect, and be let in: returns "" then, else why not."""
        self.close()
        try:
            self._connection = socket.create_connection(
                self._address, timeout=max(min(deadline - monotonic(), STRANGER_S), 0.001)
            )
            self._incoming, self._sent, self._received = bytearray(), 0, 0
            greeting = self._read_line(min(deadline, monotonic() + STRANGER_S))
            challenge = greeting.get("challenge") if isinstance(greeting, dict) else None
            if not isinstance(challenge, str):
                return "the server there is not a rendezvous of rocpy"
            self._challenge = challenge
            self._say(note, deadline)
            if (self._listen(min(deadline, monotonic() + STRANGER_S)) or {}).get("welcome") == self._rank:
                return ""
        except OSError as error:
            return str(error)
        return "the server there rejected this rank: it belongs to another job, or has another ROCPY_RCCL_SECRET"

    def exchange(
        self,
        step: str,
        note: Message,
        judge: Callable[[list[Message]], Message],  # noqa: ARG002
        deadline: float,
    ) -> Message:
        """Give a note and wait for the answer; as `Channel` has it."""
        if step == "id":
            pause, reason = RETRY_S, ""
            while failure := self._introduce(note, deadline):
                is_late = monotonic() > deadline
                # An attempt that the deadline cut short tells less than the one before it.
                reason = reason if reason and is_late else failure
                if is_late:
                    self.close()
                    hint = f" ({reason}); if it gave up earlier, this rank, {self._rank}, was late"
                    raise absence([0], f"{self._address[0]}:{self._address[1]}", hint)
                sleep(min(pause, max(deadline - monotonic(), 0)))
                pause = min(pause * 1.5, MAX_RETRY_S)
        else:
            with suppress(OSError):  # rank 0 may have said before what went wrong
                self._say(note, deadline)
        # Rank 0 keeps the same deadline and names who is missing: it speaks first.
        answer = self._listen(deadline + 1)
        if answer is None:
            self.close()
            if monotonic() >= deadline + 1:
                raise absence([0], self._where)
            raise RemoteError(f"{self._where} disconnected during init", op="init", rank=0)
        return checked_answer(answer, self._rank, self._where)

    def close(self) -> None:
        """Leave."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
