# SPDX-License-Identifier: MIT
"""How processes find each other: a launcher's variables, and a meeting for one unique id, over TCP or by notes."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocpy import platform
from rocpy.errors import InvalidArgumentError, InvalidUsageError, RcclSystemError
from rocpy.rccl import _library
from rocpy.rccl._bootstrap_boards import Board, FolderBoard, MpiBoard, late, meet_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POLL_S = 0.02
# Of a line over TCP: the answer names the machine of each rank.
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class LaunchFacts:
    """What a launcher told this process: its rank, how many there are, and, perhaps, its number on this machine."""

    rank: int
    nranks: int
    local_rank: int | None
    launcher: str


@dataclass(frozen=True)
class Meeting:
    """What a rank knows when all have met.

    Parameters
    ----------
    facts
        Who this is; the number on its machine is known now.
    unique_id
        Of the communicator to be.
    hosts
        Names of the machines that the ranks are on, each once.
    """

    facts: LaunchFacts
    unique_id: bytes
    hosts: tuple[str, ...]


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
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID"),
        "SLURM_STEP_ID": os.environ.get("SLURM_STEP_ID"),
        "SLURM_STEP_NODELIST": os.environ.get("SLURM_STEP_NODELIST"),
        "SLURM_JOB_NODELIST": os.environ.get("SLURM_JOB_NODELIST"),
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
            local_rank = int(known[local_name]) if local_name in known else None
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
        wrong = next(one for one in chosen if not 0 <= one < there)
        raise InvalidUsageError(
            f"devices: {len(chosen)} ranks need a device each, and there is no device {wrong}, but {there}; on the "
            "host platform ROCPY_HOST_DEVICES sets how many"
        )
    return chosen


def introduction() -> dict[str, Any]:
    """Return what a rank says of itself at a meeting: all must have the same RCCL, and be within its reach."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    return {
        "version": _library.library_version(),
        "machine": machine,
        "host": socket.gethostname(),
        # The host platform's ranks share memory.
        "reach": "machine" if platform.current().is_emulated else "any",
    }


def default_address(facts: LaunchFacts, known: Mapping[str, str]) -> str:
    """Return where the processes of a launcher meet when nobody says it.

    Raises
    ------
    InvalidArgumentError
        The launcher tells no address.

    Examples
    --------
    >>> from rocpy.rccl._bootstrap import LaunchFacts, default_address
    >>> default_address(
    ...     LaunchFacts(0, 2, 0, "Slurm"),
    ...     {"SLURM_JOB_ID": "123", "SLURM_STEP_ID": "4", "SLURM_STEP_NODELIST": "gpu[07-09,12],login"},
    ... )
    'tcp://gpu07:37125'
    """
    if "MASTER_PORT" in known:
        # The launcher's own store listens at the port itself.
        return f"tcp://{known.get('MASTER_ADDR', 'localhost')}:{int(known['MASTER_PORT']) + 1}"
    nodes = known.get("SLURM_STEP_NODELIST") or known.get("SLURM_JOB_NODELIST")
    if facts.launcher == "Slurm" and nodes and "SLURM_JOB_ID" in known:
        # Steps of a job that run beside each other, and jobs on one node, get ports of their own.
        port = 20000 + (int(known["SLURM_JOB_ID"]) * 139 + int(known.get("SLURM_STEP_ID", "0")) * 7) % 40000
        return f"tcp://{first_host(nodes)}:{port}"
    raise InvalidArgumentError(
        f'{facts.launcher} tells no MASTER_PORT: pass store="tcp://host:port" or "file:///folder", or import '
        "mpi4py.MPI before, so that the processes meet by MPI"
    )


def first_host(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it.

    Examples
    --------
    >>> from rocpy.rccl._bootstrap import first_host
    >>> first_host("a[3,5-7]-ib,b2"), first_host("b2,a3")
    ('a3-ib', 'b2')
    """
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    if match is None:
        raise InvalidArgumentError(f"SLURM_STEP_NODELIST={nodes!r} names no host")
    return "".join(part or "" for part in match.groups())


def _judge(said: Sequence[Mapping[str, Any]], make_id: Callable[[], bytes], any_machine: bool) -> dict[str, Any]:
    """Return the answer to what the ranks said of themselves, in the order of the ranks."""
    first = said[0]
    for rank, theirs in enumerate(said):
        if theirs["nranks"] != first["nranks"]:
            return {"problem": f"rank {rank} expects {theirs['nranks']} ranks, rank 0 expects {first['nranks']}"}
        if theirs["version"] != first["version"]:
            both = f"rank {rank} has RCCL {theirs['version']}, rank 0 has {first['version']}"
            return {"problem": f"{both}: install the same on all machines"}
        if theirs["reach"] == "machine" and theirs["machine"] != first["machine"] and not any_machine:
            return {
                "problem": f"rank {rank} is on {theirs['host']}, rank 0 on {first['host']}, and the host platform's "
                "ranks share the memory of one machine: use Communicator.from_mpi with an mpi4py communicator or "
                "Communicator.from_torch with a gloo group, over which the collectives can go; RCCL on AMD GPUs "
                "reaches all machines"
            }
    machines = [theirs["machine"] for theirs in said]
    return {"id": make_id().hex(), "machines": machines, "hosts": [theirs["host"] for theirs in said]}


def _met(facts: LaunchFacts, answer: Mapping[str, Any]) -> Meeting:
    machines, hosts = answer["machines"], answer["hosts"]
    counted = machines[: facts.rank].count(machines[facts.rank])
    local_rank = counted if facts.local_rank is None else facts.local_rank
    names = dict(zip(machines, hosts, strict=True))
    return Meeting(
        LaunchFacts(facts.rank, facts.nranks, local_rank, facts.launcher),
        bytes.fromhex(answer["id"]),
        tuple(names.values()),
    )


def meet_on_board(
    board: Board,
    facts: LaunchFacts,
    deadline: float,
    make_id: Callable[[], bytes],
    said: Mapping[str, Any],
    *,
    any_machine: bool = False,
) -> Meeting:
    """Meet the other processes by notes.

    Parameters
    ----------
    board
        Where the notes are.
    facts
        Who this is.
    deadline
        When to give up, as `time.monotonic` counts.
    make_id
        Makes the unique id, on rank 0.
    said
        What this rank says of itself, as `introduction` gives it.
    any_machine
        Whether ranks on several machines may meet whatever the platform.

    Raises
    ------
    CollectiveTimeoutError
        Ranks have not come.
    InvalidUsageError
        The ranks do not agree on their number or on RCCL's version, or are out of the platform's reach.
    """
    note = {**said, "nranks": facts.nranks}
    answer = meet_on(board, facts.rank, facts.nranks, note, deadline, lambda notes: _judge(notes, make_id, any_machine))
    return _met(facts, answer)


def meet(
    facts: LaunchFacts,
    store: str | None,
    deadline: float,
    make_id: Callable[[], bytes],
    said: Mapping[str, Any],
) -> Meeting:
    """Meet the other processes at an address.

    Parameters
    ----------
    store
        ``tcp://host:port`` or ``file:///folder``; by default the launcher's address, or MPI where mpi4py has
        initialised it.
    facts, deadline, make_id, said
        As for `meet_on_board`, which this raises as.
    """
    if facts.nranks == 1:
        return _met(facts, _judge([{**said, "nranks": 1}], make_id, any_machine=False))
    if store is None:
        known = _snapshot()
        mpi = sys.modules.get("mpi4py.MPI")
        if facts.launcher in ("Open MPI", "MPICH") and mpi is not None and mpi.Is_initialized():
            return meet_on_board(MpiBoard(mpi.COMM_WORLD), facts, deadline, make_id, said)
        store = default_address(facts, known)
    parts = urlsplit(store)
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        place = (parts.hostname, parts.port)
        note = {**said, "nranks": facts.nranks}
        if facts.rank == 0:
            return _met(facts, _serve(place, facts, deadline, make_id, note))
        return _met(facts, _ask(place, facts, deadline, note))
    if parts.scheme == "file" and parts.path:
        return meet_on_board(FolderBoard(Path(parts.path)), facts, deadline, make_id, said)
    raise InvalidArgumentError(f'store: got {store!r}, expected "tcp://host:port" or "file:///folder"')


def _line(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """Read one line of JSON; None when the other side ends or is too slow."""
    text = b""
    while not text.endswith(b"\n"):
        connection.settimeout(max(deadline - monotonic(), 0.001))
        try:
            part = connection.recv(4096)
        except OSError:
            return None
        if not part or len(text) > MOST_BYTES:
            return None
        text += part
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _serve(
    place: tuple[str, int], facts: LaunchFacts, deadline: float, make_id: Callable[[], bytes], note: dict[str, Any]
) -> dict[str, Any]:
    here: dict[int, socket.socket] = {}
    said: dict[int, dict[str, Any]] = {0: note}
    answer: dict[str, Any] = {}
    try:
        listener = socket.create_server(place)
    except OSError as error:
        problem_text = f"rank 0 cannot listen at {place[0]}:{place[1]}: {error}; pass store= with another port"
        raise RcclSystemError(problem_text, op="init") from None
    try:
        with listener:
            while len(here) < facts.nranks - 1 and not answer:
                listener.settimeout(max(deadline - monotonic(), 0.001))
                try:
                    connection, _ = listener.accept()
                except OSError:
                    break
                asked = _line(connection, min(deadline, monotonic() + 5))
                if asked is None or not isinstance(asked.get("rank"), int) or not note.keys() <= asked.keys():
                    connection.close()  # somebody who came to the wrong door
                    continue
                rank = asked["rank"]
                if rank in here or not 0 < rank < facts.nranks:
                    answer = {"problem": f"rank {rank} came twice, or is none of the {facts.nranks} ranks"}
                    here.setdefault(facts.nranks + rank, connection)
                    continue
                here[rank], said[rank] = connection, asked
                if asked["nranks"] != facts.nranks:
                    break
        missing = [rank for rank in range(facts.nranks) if rank not in said]
        if not answer:
            alike = [theirs for theirs in said.values() if theirs["nranks"] == facts.nranks]
            if len(alike) < len(said):
                other = next(rank for rank, theirs in said.items() if theirs["nranks"] != facts.nranks)
                answer = {
                    "problem": f"rank {other} expects {said[other]['nranks']} ranks, rank 0 expects {facts.nranks}"
                }
            elif missing:
                answer = {"missing": missing}
            else:
                answer = _judge([said[rank] for rank in range(facts.nranks)], make_id, any_machine=False)
        for connection in here.values():
            with suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")
    finally:
        for connection in here.values():
            connection.close()
    return _heard(answer, facts, f"rank 0 at {place[0]}:{place[1]}")


def _heard(answer: dict[str, Any], facts: LaunchFacts, where: str) -> dict[str, Any]:
    if "problem" in answer:
        raise InvalidUsageError(answer["problem"], op="init", rank=facts.rank)
    if "missing" in answer:
        raise late(answer["missing"], where)
    return answer


def _ask(place: tuple[str, int], facts: LaunchFacts, deadline: float, note: dict[str, Any]) -> dict[str, Any]:
    where = f"{place[0]}:{place[1]}"
    while True:
        try:
            connection = socket.create_connection(place, timeout=max(min(deadline - monotonic(), 5), 0.001))
            break
        except OSError:
            if monotonic() > deadline:
                raise late([0], where) from None
            sleep(POLL_S)
    with connection:
        connection.sendall(json.dumps({**note, "rank": facts.rank}).encode() + b"\n")
        # Rank 0 keeps the same deadline and names who is missing: it is let speak first.
        answer = _line(connection, deadline + 1)
    if answer is None:
        raise late([0], where)
    return _heard(answer, facts, where)
