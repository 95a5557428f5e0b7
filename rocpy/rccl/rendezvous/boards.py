# SPDX-License-Identifier: MIT
"""A rendezvous by notes that all processes can read: files of a folder, keys of a torch store, messages of mpi4py."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.errors import InvalidArgumentError, RcclSystemError, RocpyError
from rocpy.rccl.rendezvous.channel import absence, checked_answer, is_note
from rocpy.rccl.rendezvous.envelope import MAX_BYTES, open_envelope, parse_json, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocpy.rccl.rendezvous.channel import Message

__all__ = ["Board", "BoardChannel", "FolderBoard", "MpiBoard", "StoreBoard"]

ANSWER = "answer"
STEPS = ("id", "ready")


class Board(Protocol):
    """Where the processes leave notes for each other."""

    name: str
    poll_s: float
    is_readable_by_all: bool

    def put(self, note: str, text: str) -> None:
        """Leave a note."""

    def get(self, note: str) -> str | None:
        """Return a note's text, ``None`` while there is none."""

    def drop(self, note: str) -> None:
        """Take a note away."""


class FolderBoard:
    """Notes as files of a folder.

    Parameters
    ----------
    folder
        Made if it is not there.
    """

    poll_s = 0.02
    is_readable_by_all = True

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"store: {folder} cannot be a folder: {error}") from None
        self._folder = folder
        self.name = str(folder)

    def put(self, note: str, text: str) -> None:
        """Write a file; a reader sees all of it or nothing."""
        temporary = self._folder / f".{note}.{os.getpid()}"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._folder / note)

    def get(self, note: str) -> str | None:
        """Read a file; anything else of that name is no note."""
        try:
            descriptor = os.open(self._folder / note, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return file.read(MAX_BYTES).decode("utf-8", "replace")

    def drop(self, note: str) -> None:
        """Remove a file."""
        (self._folder / note).unlink(missing_ok=True)


class StoreBoard:
    """Notes as keys of a store of torch.distributed: TCPStore, FileStore, PrefixStore.

    Parameters
    ----------
    store
        Has ``set``, ``get`` and ``check``.
    prefix
        Before each key.
    """

    poll_s = 0.002
    is_readable_by_all = True
    _DROPPED = "-"

    def __init__(self, store: Any, prefix: str = "") -> None:
        self._store = store
        self._prefix = f"rocpy/{prefix}"
        self.name = f"the store, under {self._prefix}"

    def put(self, note: str, text: str) -> None:
        """Set a key."""
        self._store.set(self._prefix + note, text)

    def get(self, note: str) -> str | None:
        """Get a key."""
        key = self._prefix + note
        text = (
            bytes(self._store.get(key)[:MAX_BYTES]).decode("utf-8", "replace")
            if self._store.check([key])
            else self._DROPPED
        )
        return None if text == self._DROPPED else text

    def drop(self, note: str) -> None:
        """Mark a key as dropped: one that went between a rank's ``check`` and ``get`` would be waited for there."""
        self._store.set(self._prefix + note, self._DROPPED)


class MpiBoard:
    """Notes as messages between the ranks of an mpi4py communicator: rank 0 reads the others', they read its answer.

    Parameters
    ----------
    comm
        The communicator; rocpy never imports mpi4py, because that would initialise MPI.
    """

    poll_s = 0.001
    is_readable_by_all = False
    _TAG = 28028

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.name = "the mpi4py communicator"
        self._texts: dict[str, str] = {}
        self._sent: list[Any] = []
        self._awaited: dict[str, Any] = {}

    def put(self, note: str, text: str) -> None:
        """Send a note to those who read it."""
        self._texts[note] = text
        rank, count = self._comm.Get_rank(), self._comm.Get_size()
        readers = range(1, count) if note.endswith(ANSWER) else [0] if rank != 0 else []
        self._sent += [self._comm.isend(text, dest=reader, tag=self._TAG) for reader in readers]

    def get(self, note: str) -> str | None:
        """Look whether a note has come."""
        for request in self._sent:
            request.test()  # lets the messages move
        if note not in self._texts:
            source = 0 if note.endswith(ANSWER) else int(note.rsplit("-", 1)[1])
            if note not in self._awaited:
                self._awaited[note] = self._comm.irecv(source=source, tag=self._TAG)
            has_come, text = self._awaited[note].test()
            if has_come and isinstance(text, str):
                self._texts[note] = text
        return self._texts.get(note)

    def drop(self, note: str) -> None:  # noqa: ARG002
        """Let what was sent arrive; a message is gone when it has been read."""
        patience = monotonic() + 1
        while not all(request.test()[0] for request in self._sent) and monotonic() < patience:
            sleep(self.poll_s)


class BoardChannel:
    """A rendezvous on a board.

    Notes and answers carry the job's mark; those that do not are no notes. An answer names the ranks that it is for by
    numbers that they have drawn, so that nobody takes one that an earlier rendezvous left behind.

    Parameters
    ----------
    board
        Where the notes are.
    rank, nranks
        Who this is, and how many there are.
    key
        The job's.
    """

    def __init__(self, board: Board, rank: int, nranks: int, key: bytes) -> None:
        self._board, self._rank, self._nranks, self._key = board, rank, nranks, key
        self._nonce = secrets.token_hex(8)
        self._nonces: list[str | None] = [None] * nranks
        self._answers: dict[str, Message] = {}
        self._steps: list[str] = []
        self._seen_off_by = 0.0
        self._has_failed = False

    # ---- what is on the board ----

    def _asked(self, action: Callable[..., Any], *arguments: str) -> Any:
        """Do something with the board; what goes wrong there is an error of the store."""
        try:
            return action(*arguments)
        except RocpyError:
            raise
        except Exception as error:
            raise RcclSystemError(
                f"store: rank {self._rank} cannot use {self._board.name}: {error}", op="init", rank=self._rank
            ) from error

    def _get(self, note: str) -> str | None:
        text: str | None = self._asked(self._board.get, note)
        return text

    def _drop(self, note: str) -> None:
        self._asked(self._board.drop, note)

    def _read(self, note: str) -> Message | None:
        text = self._get(note)
        return None if text is None else open_envelope(self._key, [note], parse_json(text))

    def _write(self, note: str, message: Message) -> None:
        self._asked(self._board.put, note, json.dumps(seal(self._key, [note], message)))

    def _note_of(self, step: str, rank: int) -> Message | None:
        note = self._read(f"{step}-rank-{rank}")
        return note if is_note(step, note) and isinstance((note or {}).get("nonce"), str) else None

    def _put_answer(self, step: str) -> None:
        self._write(f"{step}-{ANSWER}", {**self._answers[step], "nonces": self._nonces})

    # ---- exchanges ----

    def exchange(self, step: str, note: Message, judge: Callable[[list[Message]], Message], deadline: float) -> Message:
        """Leave a note, as rank 0 answer all of them, and return the answer; as `Channel` has it."""
        self._steps.append(step)
        said = {**note, "patience_s": max(deadline - monotonic(), 0.0), "nonce": self._nonce}
        self._write(f"{step}-rank-{self._rank}", said)
        answer = self._decide(step, said, judge, deadline) if self._rank == 0 else self._await(step, deadline)
        return checked_answer(answer, self._rank, self._board.name)

    def _decide(self, step: str, own: Message, judge: Callable[[list[Message]], Message], deadline: float) -> Message:
        try:
            answer = self._collect(step, own, judge, deadline)
        except BaseException as error:
            self._answers[step] = {"gone": 0, "text": f"rank 0 failed during init: {type(error).__name__}: {error}"}
            self._put_answer(step)
            self._seen_off_by, self._has_failed = monotonic() + 1.5, True
            raise
        self._answers[step] = answer
        self._put_answer(step)
        # The answer stays until all have read it; the board may be used again afterwards.
        self._has_failed = bool({"missing", "problem", "gone"} & answer.keys())
        self._seen_off_by = monotonic() + 1.5 if self._has_failed else max(deadline, monotonic() + 1)
        return answer

    def _collect(self, step: str, own: Message, judge: Callable[[list[Message]], Message], deadline: float) -> Message:
        notes: dict[int, Message] = {0: own}
        self._nonces[0] = self._nonce
        while True:
            for rank in range(self._nranks):
                received = None if rank in notes else self._note_of(step, rank)
                if received is not None:
                    notes[rank], self._nonces[rank] = received, received["nonce"]
                    deadline = min(deadline, monotonic() + received["patience_s"])
                elif rank not in notes and step != STEPS[0]:
                    self._renew(rank)
            missing = [rank for rank in range(self._nranks) if rank not in notes]
            if not missing:
                return judge([notes[rank] for rank in range(self._nranks)])
            if monotonic() > deadline:
                return {"missing": missing}
            sleep(self._board.poll_s)

    def _renew(self, rank: int) -> None:
        """Answer again where the first note of a rank was an earlier rendezvous's, and its own has come since."""
        first = self._note_of(STEPS[0], rank)
        if first is not None and first["nonce"] != self._nonces[rank]:
            self._nonces[rank] = first["nonce"]
            self._put_answer(STEPS[0])

    def _await(self, step: str, deadline: float) -> Message:
        # Rank 0, where it is here, keeps the same deadline and names who is missing: it speaks first.
        while monotonic() <= deadline or (monotonic() <= deadline + 1 and self._may_be_here(step, 0)):
            answer = self._read(f"{step}-{ANSWER}")
            nonces = (answer or {}).get("nonces")
            if answer is not None and isinstance(nonces, list) and nonces[self._rank : self._rank + 1] == [self._nonce]:
                return answer
            sleep(self._board.poll_s)
        if not self._board.is_readable_by_all or not self._may_be_here(step, 0):
            raise absence([0], self._board.name)
        # Rank 0 is here, and waits longer than this rank.
        self._steps.remove(step)
        missing = [rank for rank in range(self._nranks) if self._note_of(step, rank) is None]
        raise absence(missing or [0], self._board.name)

    def _may_be_here(self, step: str, rank: int) -> bool:
        return not self._board.is_readable_by_all or self._note_of(step, rank) is not None

    def close(self) -> None:
        """Take the notes away, once they have been read; a board that fails keeps them, and it has been said why."""
        with suppress(RcclSystemError):
            self._clear()

    def _clear(self) -> None:
        if self._rank != 0 or not self._board.is_readable_by_all:
            for step in self._steps:
                self._drop(f"{step}-rank-{self._rank}")
            return
        if self._answers:
            others = [f"{self._steps[-1]}-rank-{rank}" for rank in range(1, self._nranks)]
            while any(map(self._get, others)) and monotonic() < self._seen_off_by:
                sleep(self._board.poll_s)
        for step in self._steps:
            self._drop(f"{step}-rank-0")
            self._drop(f"{step}-{ANSWER}")
            # Of ranks that gave up while rank 0 was here; one that has come anew has drawn another number.
            for rank in range(1, self._nranks) if self._has_failed else ():
                left = self._note_of(step, rank)
                if left is not None and left["nonce"] == self._nonces[rank]:
                    self._drop(f"{step}-rank-{rank}")
