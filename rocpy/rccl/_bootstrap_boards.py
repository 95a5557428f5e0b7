# SPDX-License-Identifier: MIT
"""Meetings by notes that all processes can read: files of a folder, keys of a torch store, messages of mpi4py."""

from __future__ import annotations

import json
import os
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.errors import CollectiveTimeoutError, InvalidUsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Board", "FolderBoard", "MpiBoard", "StoreBoard", "late", "meet_on"]

ANSWER = "id"


class Board(Protocol):
    """Where the processes leave notes for each other."""

    name: str
    poll_s: float

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

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.name = str(folder)

    def put(self, note: str, text: str) -> None:
        """Write a file; a reader sees all of it or nothing."""
        beside = self._folder / f".{note}.{os.getpid()}"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._folder / note)

    def get(self, note: str) -> str | None:
        """Read a file."""
        try:
            return (self._folder / note).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

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
        text = bytes(self._store.get(key)).decode() if self._store.check([key]) else self._DROPPED
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
        readers = range(1, count) if note == ANSWER else [0] if rank != 0 else []
        self._sent += [self._comm.isend(text, dest=reader, tag=self._TAG) for reader in readers]

    def get(self, note: str) -> str | None:
        """Look whether a note has come."""
        for request in self._sent:
            request.test()  # lets the messages move
        if note not in self._texts:
            source = 0 if note == ANSWER else int(note.removeprefix("rank-"))
            if note not in self._awaited:
                self._awaited[note] = self._comm.irecv(source=source, tag=self._TAG)
            has_come, text = self._awaited[note].test()
            if has_come:
                self._texts[note] = text
        return self._texts.get(note)

    def drop(self, note: str) -> None:  # noqa: ARG002
        """Let what was sent arrive; a message is gone when it has been read."""
        patience = monotonic() + 1
        while not all(request.test()[0] for request in self._sent) and monotonic() < patience:
            sleep(self.poll_s)


def late(missing: Sequence[int], where: str) -> CollectiveTimeoutError:
    """Return the error that names who did not come."""
    return CollectiveTimeoutError(
        f"the ranks {list(missing)} did not come to {where} in time; look at their output, and at the number of "
        "processes started",
        waiting_for=missing,
        op="init",
    )


def meet_on(
    board: Board,
    rank: int,
    nranks: int,
    said: Mapping[str, Any],
    deadline: float,
    judge: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:
    """Leave a note, as rank 0 answer all of them, and return the answer.

    Parameters
    ----------
    board
        Where the notes are.
    rank, nranks
        Who this is, and how many there are.
    said
        This rank's note.
    deadline
        When to give up, as `time.monotonic` counts.
    judge
        On rank 0, makes the answer of what the ranks said; ``problem`` in it is raised on all of them.

    Raises
    ------
    CollectiveTimeoutError
        Ranks have not come.
    InvalidUsageError
        The ranks do not agree.
    """
    notes = [f"rank-{index}" for index in range(nranks)]
    board.put(notes[rank], json.dumps(said))
    if rank == 0:
        board.put(ANSWER, json.dumps(_answer(board, notes, deadline, judge)))
    # Rank 0 keeps the same deadline and names who is missing: it is let speak first.
    while (text := board.get(ANSWER)) is None:
        if monotonic() > deadline + 1:
            board.drop(notes[rank])
            raise late([0], board.name)
        sleep(board.poll_s)
    answer: dict[str, Any] = json.loads(text)
    board.drop(notes[rank])
    if rank == 0 and not isinstance(board, MpiBoard):
        # The answer stays until all have read it; the board may be used again afterwards.
        patience = max(deadline, monotonic() + 1) if "missing" not in answer else monotonic() + 1.5
        while any(board.get(note) is not None for note in notes) and monotonic() < patience:
            sleep(board.poll_s)
        board.drop(ANSWER)
    if "missing" in answer:
        raise late(answer["missing"], board.name)
    if "problem" in answer:
        raise InvalidUsageError(answer["problem"], op="init", rank=rank)
    return answer


def _answer(
    board: Board, notes: Sequence[str], deadline: float, judge: Callable[[list[dict[str, Any]]], dict[str, Any]]
) -> dict[str, Any]:
    texts: list[str | None] = [None] * len(notes)
    while True:
        texts = [board.get(note) if text is None else text for note, text in zip(notes, texts, strict=True)]
        missing = [index for index, text in enumerate(texts) if text is None]
        if not missing:
            return judge([json.loads(text) for text in texts if text is not None])
        if monotonic() > deadline:
            return {"missing": missing}
        sleep(board.poll_s)
