# SPDX-License-Identifier: MIT
"""What the processes of a job say to each other before they have a communicator: notes to rank 0, and its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rocpy.errors import CollectiveTimeoutError, InvalidUsageError, RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Channel", "Judge", "LocalChannel", "Message", "absence", "checked_answer", "is_note"]

Message = dict[str, Any]
Judge = "Callable[[list[Message]], Message]"

# Fields of a note and their types, step by step; a note of another shape is nonsense.
NOTES: dict[str, dict[str, tuple[type, ...]]] = {
    "id": {
        "nranks": (int,),
        "version": (int,),
        "machine": (str,),
        "network": (str,),
        "host": (str,),
        "pid": (int,),
        "patience_s": (int, float),
    },
    "ready": {"failure": (str, type(None)), "patience_s": (int, float)},
}


class Channel(Protocol):
    """A connection to rank 0."""

    def exchange(self, step: str, note: Message, judge: Callable[[list[Message]], Message], deadline: float) -> Message:
        """Give this rank's note; return what rank 0 answers to the notes of all ranks.

        Parameters
        ----------
        step
            Which of the exchanges of a rendezvous this is, as `NOTES` has them.
        note
            What this rank says.
        judge
            On rank 0, makes the answer of the ranks' notes; ``problem`` in it is raised on all of them.
        deadline
            When to give up, as `time.monotonic` counts.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come.
        InvalidUsageError
            The ranks do not agree.
        RemoteError
            A rank failed or went away.
        """

    def close(self) -> None:
        """Leave; once the last exchange has been made, nobody misses this rank."""


class LocalChannel:
    """The channel of a rank that is alone."""

    def exchange(
        self,
        step: str,  # noqa: ARG002
        note: Message,
        judge: Callable[[list[Message]], Message],
        deadline: float,  # noqa: ARG002
    ) -> Message:
        """Answer the only note."""
        return checked_answer(judge([note]), 0, "rank 0")

    def close(self) -> None:
        """Do nothing."""


def is_note(step: str, message: Mapping[str, Any] | None) -> bool:
    """Whether a message is a note of a step: `bool` is no number here."""
    return message is not None and all(type(message.get(name)) in types for name, types in NOTES[step].items())


def absence(missing: Sequence[int], where: str, hint: str = "") -> CollectiveTimeoutError:
    """Return the error that names who did not come."""
    return CollectiveTimeoutError(
        f"the ranks {list(missing)} did not reach {where} in time; check their output, and the number of processes "
        f"started{hint}",
        waiting_for=missing,
        op="init",
    )


def checked_answer(answer: Message, rank: int, where: str) -> Message:
    """Return an answer, or raise what is wrong: on every rank the same."""
    if "missing" in answer:
        raise absence(answer["missing"], where, answer.get("hint", ""))
    if "problem" in answer:
        raise InvalidUsageError(answer["problem"], op="init", rank=rank)
    if "gone" in answer:
        raise RemoteError(answer["text"], op="init", rank=answer["gone"])
    return answer
