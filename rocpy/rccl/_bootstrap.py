# SPDX-License-Identifier: MIT
"""How processes find each other: a launcher's variables, and a meeting over TCP or in a folder for one unique id."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocpy.errors import CollectiveTimeoutError, InvalidArgumentError, InvalidUsageError, RcclSystemError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_S = 0.02


@dataclass(frozen=True)
class LaunchFacts:
    """What a launcher told this process: its rank, how many there are, and its number on this machine."""

    rank: int
    nranks: int
    local_rank: int
    launcher: str


# Launcher -> the variables of rank, number of ranks, and rank on the machine.
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


def _snapshot() -> Mapping[str, str]:
    names = {
        "RANK": os.environ.get("RANK"),
        "WORLD_SIZE": os.environ.get("WORLD_SIZE"),
        "LOCAL_RANK": os.environ.get("LOCAL_RANK"),
        "OMPI_COMM_WORLD_RANK": os.environ.get("OMPI_COMM_WORLD_RANK"),
        "OMPI_COMM_WORLD_SIZE": os.environ.get("OMPI_COMM_WORLD_SIZE"),
        "OMPI_COMM_WORLD_LOCAL_RANK": os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK"),
        "PMI_RANK": os.environ.get("PMI_RANK"),
        "PMI_SIZE": os.environ.get("PMI_SIZE"),
        "MPI_LOCALRANKID": os.environ.get("MPI_LOCALRANKID"),
        "SLURM_PROCID": os.environ.get("SLURM_PROCID"),
        "SLURM_NTASKS": os.environ.get("SLURM_NTASKS"),
        "SLURM_LOCALID": os.environ.get("SLURM_LOCALID"),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR"),
        "MASTER_PORT": os.environ.get("MASTER_PORT"),
    }
    return {name: value for name, value in names.items() if value is not None}


def launch_facts(variables: Mapping[str, str] | None = None) -> LaunchFacts:
    """Read a launcher's variables.

    Parameters
    ----------
    variables
        In place of the environment.

    Raises
    ------
    InvalidArgumentError
        There are none, or they are no numbers, or the rank is none of the ranks.

    Examples
    --------
    >>> from rocpy.rccl._bootstrap import launch_facts
    >>> launch_facts({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}).nranks
    4
    """
    known = _snapshot() if variables is None else variables
    for launcher, (rank_name, size_name, local_name) in LAUNCHERS.items():
        if rank_name not in known or size_name not in known:
            continue
        try:
            rank, nranks = int(known[rank_name]), int(known[size_name])
            local_rank = int(known.get(local_name, known[rank_name]))
        except ValueError:
            raise InvalidArgumentError(
                f"{rank_name}={known[rank_name]!r} and {size_name}={known[size_name]!r} must be numbers"
            ) from None
        if not 0 <= rank < nranks:
            raise InvalidArgumentError(f"{rank_name}={rank} is none of the {nranks} ranks that {size_name} tells")
        return LaunchFacts(rank, nranks, local_rank, launcher)
    raise InvalidArgumentError(
        "there are no variables of a launcher (RANK and WORLD_SIZE of torchrun, or those of Open MPI, MPICH or Slurm): "
        "start the program with one, or use Communicator.init with a UniqueId"
    )


def chosen_devices(devices: int | Sequence[int] | None, there: int) -> list[int]:
    """Return the devices of `init_all`: how many, which, or all.

    Raises
    ------
    InvalidUsageError
        There are fewer, or one is named twice.
    """
    if devices is None:
        return list(range(there))
    if isinstance(devices, int):
        chosen = list(range(devices))
        if devices < 1:
            raise InvalidArgumentError(f"devices: got {devices}, expected 1 or more")
    else:
        chosen = list(devices)
    if not chosen or len(set(chosen)) != len(chosen):
        raise InvalidUsageError(f"devices: got {chosen}; each rank needs a device of its own")
    if min(chosen) < 0 or max(chosen) >= there:
        raise InvalidUsageError(
            f"devices: {len(chosen)} ranks need the devices {chosen}, and there are {there}; on the host platform "
            "ROCPY_HOST_DEVICES sets how many"
        )
    return chosen


def _late(missing: Sequence[int], where: str) -> CollectiveTimeoutError:
    return CollectiveTimeoutError(
        f"the ranks {list(missing)} did not come to {where} in time; look at their output, and at the number of "
        "processes started",
        waiting_for=missing,
        op="init",
    )


def meet(facts: LaunchFacts, store: str | None, deadline: float, make_id: Callable[[], bytes], version: int) -> bytes:
    """Meet the other processes and get the unique id that rank 0 made.

    Parameters
    ----------
    facts
        Who this is.
    store
        ``tcp://host:port`` or ``file:///folder``; by default the launcher's address.
    deadline
        When to give up, as `time.monotonic` counts.
    make_id
        Makes an id, on rank 0.
    version
        RCCL's; all ranks must have the same.

    Raises
    ------
    CollectiveTimeoutError
        Ranks have not come.
    InvalidUsageError
        The ranks do not agree on their number or on RCCL's version.
    """
    if facts.nranks == 1:
        return make_id()
    if store is None:
        known = _snapshot()
        if "MASTER_PORT" not in known:
            raise InvalidArgumentError(
                f'{facts.launcher} tells no MASTER_PORT: pass store="tcp://host:port" or "file:///folder"'
            )
        # The launcher's own store listens at the port itself.
        store = f"tcp://{known.get('MASTER_ADDR', 'localhost')}:{int(known['MASTER_PORT']) + 1}"
    parts = urlsplit(store)
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        place = (parts.hostname, parts.port)
        if facts.rank == 0:
            return _serve(place, facts, deadline, make_id(), version)
        return _ask(place, facts, deadline, version)
    if parts.scheme == "file" and parts.path:
        return _meet_in_folder(Path(parts.path), facts, deadline, make_id, version)
    raise InvalidArgumentError(f'store: got {store!r}, expected "tcp://host:port" or "file:///folder"')


def _disagreement(rank: int, theirs: Mapping[str, Any], facts: LaunchFacts, version: int) -> str | None:
    if theirs["nranks"] != facts.nranks:
        return f"rank {rank} expects {theirs['nranks']} ranks, rank {facts.rank} expects {facts.nranks}"
    if theirs["version"] != version:
        both = f"rank {rank} has RCCL {theirs['version']}, rank {facts.rank} has {version}"
        return f"{both}: install the same on all machines"
    return None


def _line(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """Read one line of JSON; None when the other side ends or is too slow."""
    text = b""
    while not text.endswith(b"\n"):
        connection.settimeout(max(deadline - monotonic(), 0.001))
        try:
            part = connection.recv(4096)
        except OSError:
            return None
        if not part or len(text) > 65536:
            return None
        text += part
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _serve(place: tuple[str, int], facts: LaunchFacts, deadline: float, unique_id: bytes, version: int) -> bytes:
    here: dict[int, socket.socket] = {}
    problem: str | None = None
    try:
        listener = socket.create_server(place)
    except OSError as error:
        problem_text = f"rank 0 cannot listen at {place[0]}:{place[1]}: {error}; pass store= with another port"
        raise RcclSystemError(problem_text, op="init") from None
    try:
        with listener:
            while len(here) < facts.nranks - 1 and problem is None:
                listener.settimeout(max(deadline - monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except OSError:
                    break
                asked = _line(connection, min(deadline, monotonic() + 5))
                if asked is None or not isinstance(asked.get("rank"), int) or not {"nranks", "version"} <= asked.keys():
                    connection.close()  # somebody who came to the wrong door
                    continue
                rank = asked["rank"]
                problem = _disagreement(rank, asked, facts, version)
                if problem is None and (rank in here or not 0 < rank < facts.nranks):
                    problem = f"rank {rank} came twice, or is none of the {facts.nranks} ranks"
                here[rank] = connection
            missing = [rank for rank in range(1, facts.nranks) if rank not in here]
            answer: dict[str, Any] = {"id": unique_id.hex()}
            if problem is not None:
                answer = {"problem": problem}
            elif missing:
                answer = {"missing": missing}
            for connection in here.values():
                with suppress(OSError):
                    connection.sendall(json.dumps(answer).encode() + b"\n")
    finally:
        for connection in here.values():
            connection.close()
    if problem is not None:
        raise InvalidUsageError(problem, op="init", rank=facts.rank)
    if missing:
        raise _late(missing, f"rank 0 at {place[0]}:{place[1]}")
    return unique_id


def _ask(place: tuple[str, int], facts: LaunchFacts, deadline: float, version: int) -> bytes:
    where = f"{place[0]}:{place[1]}"
    while True:
        try:
            connection = socket.create_connection(place, timeout=max(min(deadline - monotonic(), 5), 0.001))
            break
        except OSError:
            if monotonic() > deadline:
                raise _late([0], where) from None
            sleep(POLL_S)
    with connection:
        connection.sendall(
            json.dumps({"rank": facts.rank, "nranks": facts.nranks, "version": version}).encode() + b"\n"
        )
        # Rank 0 keeps the same deadline and names who is missing: it is let speak first.
        answer = _line(connection, deadline + 1)
    if answer is None:
        raise _late([0], where)
    if "problem" in answer:
        raise InvalidUsageError(answer["problem"], op="init", rank=facts.rank)
    if "missing" in answer:
        raise _late(answer["missing"], where)
    return bytes.fromhex(answer["id"])


def _write_whole(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _judge(
    names: Sequence[Path], facts: LaunchFacts, deadline: float, make_id: Callable[[], bytes], version: int
) -> dict[str, Any]:
    """Wait, as rank 0, for what the ranks write, and return what they are to be told."""
    while not all(name.exists() for name in names):
        if monotonic() > deadline:
            return {"missing": [rank for rank, name in enumerate(names) if not name.exists()]}
        sleep(POLL_S)
    for rank, name in enumerate(names):
        problem = _disagreement(rank, json.loads(name.read_text(encoding="utf-8")), facts, version)
        if problem is not None:
            return {"problem": problem}
    return {"id": make_id().hex()}


def _meet_in_folder(
    folder: Path, facts: LaunchFacts, deadline: float, make_id: Callable[[], bytes], version: int
) -> bytes:
    """Meet by files: each rank writes one, rank 0 waits for all of them, writes the id, and clears up in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [folder / f"rank-{rank}" for rank in range(facts.nranks)]
    said = {"nranks": facts.nranks, "version": version}
    answer = folder / "id"
    _write_whole(names[facts.rank], json.dumps(said))
    if facts.rank == 0:
        _write_whole(answer, json.dumps(_judge(names, facts, deadline, make_id, version)))
    # Rank 0 keeps the same deadline and names who is missing: it is let speak first.
    while not answer.exists():
        if monotonic() > deadline + 1:
            names[facts.rank].unlink(missing_ok=True)
            raise _late([0], str(folder))
        sleep(POLL_S)
    content = json.loads(answer.read_text(encoding="utf-8"))
    names[facts.rank].unlink(missing_ok=True)
    if facts.rank == 0:
        # The answer stays until all have read it; the folder may be used again afterwards.
        patience = max(deadline, monotonic() + 1)
        while any(name.exists() for name in names) and monotonic() < patience:
            sleep(POLL_S)
        answer.unlink(missing_ok=True)
    if "missing" in content:
        raise _late(content["missing"], str(folder))
    if "problem" in content:
        raise InvalidUsageError(content["problem"], op="init", rank=facts.rank)
    return bytes.fromhex(content["id"])
