# SPDX-License-Identifier: MIT
"""From what RCCL answered, and what the ranks are known to do, to the exception that says who is missing."""

from __future__ import annotations

from typing import Any

from rocpy.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidArgumentError,
    InvalidUsageError,
    RcclError,
    RcclInternalError,
    RcclOutOfMemoryError,
    RcclSystemError,
    RemoteError,
    RocpyError,
)

NAMES = {
    1: "ncclUnhandledCudaError",
    2: "ncclSystemError",
    3: "ncclInternalError",
    4: "ncclInvalidArgument",
    5: "ncclInvalidUsage",
    6: "ncclRemoteError",
    7: "ncclInProgress",
    8: "ncclTimeout",
}
CLASSES: dict[int, type[RcclError]] = {
    2: RcclSystemError,
    3: RcclInternalError,
    4: InvalidArgumentError,
    5: InvalidUsageError,
    6: RemoteError,
    8: CollectiveTimeoutError,
}
# What RCCL says, or the system, where a call of HIP's or of the system's failed because there is no memory.
NO_MEMORY = ("out of memory", "cannot allocate memory")


def raise_first(errors: list[BaseException]) -> None:
    """Raise the first of errors that were collected, if there are any, and forget them.

    Their tracebacks refer to the frames that have the list: what those hold would live until the cycle collector runs.

    Parameters
    ----------
    errors
        Is cleared.
    """
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()


def attributed(text: str, *, is_of_thread: bool, communicators: int) -> str:
    """Return RCCL's last error as what it is.

    Parameters
    ----------
    text
        What ncclGetLastError gave.
    is_of_thread
        The library keeps a text for each thread and communicator, as the host platform does; AMD's keeps one for the
        process, and which of two failing calls wrote it nobody can tell.
    communicators
        How many the process has.

    Examples
    --------
    >>> from rocpy.rccl.model.failures import attributed
    >>> attributed("no device", is_of_thread=False, communicators=1)
    'no device'
    >>> attributed("no device", is_of_thread=False, communicators=2)
    'no device (the last error of this process, which may be about another of its 2 communicators)'
    """
    if not text or is_of_thread or communicators < 2:
        return text
    return f"{text} (the last error of this process, which may be about another of its {communicators} communicators)"


def waiting_for(status: dict[str, Any]) -> list[int]:
    """Return the ranks that this one waits for, or else those that are absent or behind in their steps."""
    ranks = status["ranks"]
    if status.get("waiting_for"):
        return list(status["waiting_for"])
    last = max(rank["step"] for rank in ranks)
    return [
        rank["rank"]
        for rank in ranks
        if rank["rank"] != status["rank"] and (rank["state"] == "absent" or rank["step"] < last)
    ]


def last_deeds(status: dict[str, Any], ranks: list[int]) -> str:
    """Return what ranks last did, for people."""
    told = []
    for row in status.get("ranks", []):
        if row["rank"] not in ranks:
            continue
        if row["state"] == "absent":
            deed = "has not joined"
        elif row["op"] == "none":
            deed = "has made no call yet"
        else:
            deed = f"{'is in' if row['busy'] else 'last finished'} {row['op']} number {row['seq']}"
        if row["process"] in ("stopped", "dead"):
            deed += f" (process {row['pid']} is {row['process']})"
        told.append(f"rank {row['rank']} {deed}")
    return "; ".join(told)


def timeout_error(
    op: str,
    seq: int | None,
    rank: int,
    seconds: float,
    status: dict[str, Any],
    missing: list[int] | None = None,
    elsewhere: str = "",
) -> CollectiveTimeoutError:
    """Return the error of a wait that this process gave up.

    Parameters
    ----------
    op, seq
        What was waited for.
    rank
        This rank.
    seconds
        How long.
    status
        What the platform knows of the ranks.
    missing
        Who is waited for, where it is not those that are behind in their steps.
    elsewhere
        What other communicators of this rank's device wait for.
    """
    if missing is None:
        missing = waiting_for(status) if status["ranks"] else []
    if missing:
        late = f"waiting for ranks {missing}: {last_deeds(status, missing)}"
    elif status["ranks"]:
        late = elsewhere or "it waits for work of this rank's stream, not for a rank"
    else:
        late = "this platform cannot report which rank it waits for"
    number = "" if seq is None else f" number {seq}"
    own = next((row for row in status["ranks"] if row["rank"] == status["rank"]), None)
    if own is not None and own["busy"] and own["op"] != op:
        number += f" (behind {own['op']} number {own['seq']})"
    return CollectiveTimeoutError(
        f"rank {rank}: {op}{number} did not complete within {seconds:g} s; {late}",
        waiting_for=missing,
        op=op,
        seq=seq,
        rank=rank,
        status=8,
        status_name="ncclTimeout",
        library="rccl",
    )


def error_of(
    code: int, *, op: str, seq: int | None, rank: int | None, text: str = "", status: dict[str, Any] | None = None
) -> RocpyError:
    """Return the exception of a code.

    Parameters
    ----------
    code
        What RCCL answered.
    op, seq, rank
        The operation, its number, and the rank that called.
    text
        RCCL's last error.
    status
        What the platform knows of the communicator: its failure tells kinds that share a code apart.
    """
    failure = (status or {}).get("failure") or {}
    if failure.get("code", code) != code:
        failure = {}  # what it came to before is not why this call is refused
    kind = failure.get("kind")
    shown = failure.get("text") or text or "RCCL gave no further text"
    if kind and failure.get("op", "none") != "none":
        op, seq = failure["op"], failure["seq"] or None
    number = "" if seq is None else f" number {seq}"
    where = "" if rank is None else f"rank {rank}: "
    message = f"{where}{op}{number} failed: {NAMES.get(code, f'code {code}')} ({code}): {shown}"
    facts: dict[str, Any] = {
        "op": op,
        "seq": seq,
        "rank": rank,
        "library": "rccl",
        "status": code,
        "status_name": NAMES.get(code),
    }
    ranks = failure.get("ranks", [])
    if kind == "mismatch":
        return CollectiveMismatchError(message, signatures=failure["signatures"], **facts)
    error = CLASSES.get(code, RcclError)
    if code in (1, 2) and any(words in shown.lower() for words in NO_MEMORY):
        error = RcclOutOfMemoryError
    if error is CollectiveTimeoutError:
        return CollectiveTimeoutError(message, waiting_for=ranks, **facts)
    if error is RemoteError:
        facts["rank"] = ranks[0] if ranks else None
        return RemoteError(message, **facts)
    return error(message, **facts)
