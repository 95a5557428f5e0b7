# SPDX-License-Identifier: MIT
"""The state of every communicator of the machine, from RCCL's RAS socket or from the host platform, in one format."""

from __future__ import annotations

import json
import os
import socket
import zlib
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

from rocpy.errors import InvalidArgumentError, RcclSystemError
from rocpy.rccl.engine import library
from rocpy.rccl.handles.status import status
from rocpy.rccl.model.arguments import check_seconds
from rocpy.rccl.rendezvous.envelope import parse_json

__all__ = ["ask_ras", "diagnose", "machine_status", "ras_address", "ras_shape"]

DEFAULT_ADDRESS = ("localhost", 28028)
PROTOCOL = 2
MOST_BYTES = 64 << 20
MOST_LINE_BYTES = 64 << 10
LONGEST_S = 1e6

# Names that RAS counts by.
RAS_NAMES = {
    "all_gather": "AllGather",
    "all_reduce": "AllReduce",
    "all_to_all": "AllToAll",
    "all_to_all_v": "AllToAllv",
    "broadcast": "Broadcast",
    "gather": "Gather",
    "reduce": "Reduce",
    "reduce_scatter": "ReduceScatter",
    "scatter": "Scatter",
    "send": "Send",
    "recv": "Recv",
}


def ras_address(text: str | None = None) -> tuple[str, int]:
    """Return host and port of RCCL's RAS socket.

    Parameters
    ----------
    text
        ``host:port``; by default NCCL_RAS_ADDR, else localhost:28028.

    Raises
    ------
    InvalidArgumentError
        It is no address.

    Examples
    --------
    >>> from rocpy.rccl.monitoring.ras import ras_address
    >>> ras_address("node7:1234"), ras_address("[::1]:99")
    (('node7', 1234), ('::1', 99))
    """
    address = os.environ.get("NCCL_RAS_ADDR", "") if text is None else text
    if address == "":
        return DEFAULT_ADDRESS
    try:
        if not isinstance(address, str):
            raise ValueError
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as sockets will
    except ValueError:
        host, port = None, None
    if not host:
        raise InvalidArgumentError(f"address: got {address!r}, expected host:port")
    return host, DEFAULT_ADDRESS[1] if port is None else port


def ask_ras(address: tuple[str, int], *, timeout_s: float = 10.0, verbose: bool = False) -> dict[str, Any]:
    """Ask RCCL's RAS server for the status of all communicators of its job.

    Parameters
    ----------
    address
        Host and port.
    timeout_s
        How long to wait: the server itself collects for half of it.
    verbose
        Whether details are asked for that may slow the job.

    Returns
    -------
    dict
        RCCL's own document.

    Raises
    ------
    RcclSystemError
        Nobody answers, or not as RAS does.
    """
    where = f"{address[0]}:{address[1]}"
    seconds = min(check_seconds(timeout_s), LONGEST_S)
    deadline = monotonic() + seconds
    try:
        connection = socket.create_connection(address, timeout=seconds)
    except OSError as error:
        raise RcclSystemError(
            f"no RAS server at {where}: {error}; a process that uses RCCL 2.24 or newer serves it unless "
            "NCCL_RAS_ENABLE=0, at NCCL_RAS_ADDR",
            op="status",
        ) from None
    with connection:
        talk = _Talk(connection, deadline, where)
        talk.say(f"CLIENT PROTOCOL {PROTOCOL}")
        greeting = talk.line()
        if not greeting.startswith("SERVER PROTOCOL"):
            raise RcclSystemError(f"{where} answered {greeting[:60]!r}, so it is not a RAS server", op="status")
        for setting in (f"TIMEOUT {max(1, int(seconds / 2))}", "SET FORMAT json"):
            talk.say(setting)
            answer = talk.line()
            if answer != "OK":
                raise RcclSystemError(
                    f"{where} refuses {setting!r}: {answer[:120]!r}; JSON requires RCCL 2.28.9", op="status"
                )
        talk.say("VERBOSE STATUS" if verbose else "STATUS")
        text = talk.rest()
    document = parse_json(text)
    if document is None:
        raise RcclSystemError(f"{where} returned no JSON document: {text[:120]!r}", op="status")
    if not _is_status(document):
        raise RcclSystemError(f"{where} returned a document that does not list RAS communicators", op="status")
    return _completed(cast("dict[str, Any]", document))


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document in which what a server left out is marked as unknown."""
    for one in document["communicators"]:
        rows = [*one.setdefault("ranks", []), *one.setdefault("missing_ranks", [])]
        one.setdefault("hash", "?")
        one.setdefault("size", len(rows))
        for row in rows:
            for name, unknown in (("host", "?"), ("pid", 0), ("cuda_dev", -1)):
                row.setdefault(name, unknown)
        for row in one["ranks"]:
            row.setdefault("collective_counts", {})
    return document


def _is_status(document: Any) -> bool:
    """Whether what a server gave has the shape that `diagnose` and the command line read."""

    def rows(one: dict[str, Any], name: str) -> list[Any] | None:
        value = one.get(name, [])
        return value if isinstance(value, list) and all(isinstance(row, dict) for row in value) else None

    communicators = rows(document, "communicators") if isinstance(document, dict) else None
    if communicators is None or "communicators" not in document:
        return False
    for one in communicators:
        ranks, missing = rows(one, "ranks"), rows(one, "missing_ranks")
        if ranks is None or missing is None or not all(type(row.get("rank")) is int for row in [*ranks, *missing]):
            return False
        for row in ranks:
            counts = row.get("collective_counts", {})
            tables = (counts, row.get("status", {}), row.get("last", {}))
            if not all(isinstance(table, dict) for table in tables) or not all(
                type(count) is int for count in counts.values()
            ):
                return False
    return True


class _Talk:
    """Lines to and from a server, with one deadline for all of them."""

    def __init__(self, connection: socket.socket, deadline: float, where: str) -> None:
        self._connection, self._deadline, self._where = connection, deadline, where
        self._text = b""

    def say(self, line: str) -> None:
        try:
            self._connection.sendall(line.encode() + b"\n")
        except OSError as error:
            raise RcclSystemError(f"the RAS server at {self._where} disconnected: {error}", op="status") from None

    def _more(self) -> bool:
        self._connection.settimeout(max(self._deadline - monotonic(), 0.001))
        try:
            part = self._connection.recv(65536)
        except OSError:
            raise RcclSystemError(f"the RAS server at {self._where} did not answer in time", op="status") from None
        if len(self._text) + len(part) > MOST_BYTES:
            raise RcclSystemError(
                f"{self._where} sent more data than a RAS server would send; is another program listening there?",
                op="status",
            )
        self._text += part
        return bool(part)

    def line(self) -> str:
        while b"\n" not in self._text and len(self._text) <= MOST_LINE_BYTES:
            if not self._more():
                break
        line, _, self._text = self._text.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def rest(self) -> str:
        while self._more():
            pass
        return self._text.decode("utf-8", "replace")


def machine_status(*, address: str | None = None, timeout_s: float = 10.0) -> dict[str, Any]:
    """Return the state of every communicator of the machine's jobs, in the format of RCCL's RAS documents.

    The host platform reads the memory that the ranks of this user's processes share, without their participation, so
    that a stopped or hanging process is seen too. On AMD, RCCL's RAS server answers, for the job that owns the socket.

    Parameters
    ----------
    address
        ``host:port`` of a RAS server, which is then queried on every platform. By default NCCL_RAS_ADDR, on AMD only.
    timeout_s
        How long to wait for the server.

    Returns
    -------
    dict
        ``communicators``, each with ``hash``, ``size``, ``ranks`` and ``missing_ranks``; a rank has ``host``, ``pid``,
        ``status`` and ``collective_counts``. The host platform adds a ``name`` and, to each rank, ``last``: its current
        or last call.

    Raises
    ------
    RcclSystemError
        There is no RAS server, or it does not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     _ = comm.all_reduce(np.ones(3))
    ...     document = rccl.machine_status()
    >>> sorted(document)[:2]
    ['communicators', 'communicators_count']
    """
    check_seconds(timeout_s)
    if address is None:
        text = library.machine_text()
        if text:
            return ras_shape([*_merged(status()), *json.loads(text)], library.library_version())
    return ask_ras(ras_address(address), timeout_s=timeout_s)


def ras_shape(reports: list[dict[str, Any]], version: int) -> dict[str, Any]:
    """Return what the host platform tells of its communicators as RCCL's RAS would.

    Parameters
    ----------
    reports
        One for each communicator.
    version
        RCCL's, as ncclGetVersion has it.

    Examples
    --------
    >>> from rocpy.rccl.monitoring.ras import ras_shape
    >>> ras_shape([{"name": "a", "nranks": 1, "ranks": []}], 23004)["communicators"][0]["missing_ranks_count"]
    1
    """
    host = socket.gethostname()
    used: set[str] = set()
    communicators = [_communicator(one, host, used) for one in reports]
    return {
        "nccl_version": f"{version // 10000}.{version // 100 % 100}.{version % 100}",
        "communicators_count": len(communicators),
        "communicators": communicators,
    }


def _merged(own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return this process's communicators, once each: several of its threads may be ranks of one."""
    merged: list[dict[str, Any]] = []
    ranks: list[set[int]] = []
    for one in own:
        for index, other in enumerate(merged):
            if _identity(one) == _identity(other) and one["rank"] not in ranks[index]:
                ranks[index].add(one["rank"])
                break
        else:
            merged.append(one)
            ranks.append({one["rank"]})
    return merged


def _identity(report: dict[str, Any]) -> str:
    """Return what tells a communicator from others from one look to the next: its name, and who is in it."""
    processes = [(row["rank"], row["pid"], row["device"]) for row in report["ranks"]]
    return f"{zlib.crc32(repr((report['name'], report['nranks'], processes)).encode()):08x}"


def _communicator(report: dict[str, Any], host: str, used: set[str]) -> dict[str, Any]:
    key = _identity(report)
    while key in used:
        key = f"{int(key, 16) + 1:08x}"
    used.add(key)
    rows = {row["rank"]: row for row in report["ranks"]}
    ranks, missing = [], []
    for rank in range(report["nranks"]):
        row = rows.get(rank, {"rank": rank, "state": "absent", "process": None, "pid": 0, "device": -1})
        identity = {"rank": rank, "host": host, "pid": row["pid"], "cuda_dev": row["device"], "nvml_dev": row["device"]}
        if row["state"] == "absent" or row["process"] == "dead":
            is_dead = row["process"] == "dead"
            missing.append({**identity, "unresponsive": True, "considered_dead": is_dead})
            continue
        ranks.append(
            {
                **identity,
                "status": {
                    "init_state": 0,
                    "async_error": 6 if row["state"] == "failed" else 0,
                    "finalize_called": row["state"] in ("finalized", "left"),
                    "destroy_flag": row["state"] == "left",
                    "abort_flag": row["state"] == "aborted",
                    "revoke_flag": row["state"] == "revoked",
                },
                "collective_counts": {
                    name: row.get("calls", {}).get(kind, 0) for kind, name in sorted(RAS_NAMES.items())
                },
                "last": {key: row[key] for key in ("op", "seq", "busy", "count", "dtype", "process") if key in row},
            }
        )
    return {
        "hash": f"0x{key}",
        "name": report["name"],
        "size": report["nranks"],
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }


def diagnose(document: dict[str, Any]) -> list[str]:
    """Return the problems that a status document shows, one sentence each.

    Parameters
    ----------
    document
        In the format of RCCL's RAS.

    Examples
    --------
    >>> from rocpy.rccl.monitoring.ras import diagnose
    >>> rows = [{"rank": r, "collective_counts": {"AllReduce": 5 - r}, "status": {}} for r in range(2)]
    >>> diagnose({"communicators": [{"hash": "0xa", "size": 2, "ranks": rows, "missing_ranks": []}]})
    ['communicator 0xa: ranks [1] are behind in AllReduce: 4 of 5 calls']
    """
    if not _is_status(document):
        raise InvalidArgumentError("document: is no status document of RCCL's RAS; machine_status() returns one")
    problems = []
    for one in document["communicators"]:
        where = f"communicator {one.get('hash', '?')}"
        for row in one.get("missing_ranks", []):
            what = "is dead" if row.get("considered_dead") else "has not joined, or does not answer"
            problems.append(f"{where}: rank {row['rank']} (process {row.get('pid') or 'unknown'}) {what}")
        rows = one.get("ranks", [])
        for name in sorted({name for row in rows for name in row.get("collective_counts", {})}):
            counts = {row["rank"]: row.get("collective_counts", {}).get(name, 0) for row in rows}
            most, least = max(counts.values()), min(counts.values())
            if most != least and name not in ("Send", "Recv"):
                behind = [rank for rank, count in counts.items() if count == least]
                problems.append(f"{where}: ranks {behind} are behind in {name}: {least} of {most} calls")
        for row in rows:
            state, last = row.get("status", {}), row.get("last", {})
            if state.get("abort_flag"):
                problems.append(f"{where}: rank {row['rank']} aborted")
            elif state.get("revoke_flag"):
                problems.append(f"{where}: rank {row['rank']} revoked it")
            elif state.get("async_error"):
                problems.append(f"{where}: rank {row['rank']} failed with code {state['async_error']}")
            if last.get("process") == "stopped":
                problems.append(f"{where}: the process {row['pid']} of rank {row['rank']} is stopped")
    return problems
