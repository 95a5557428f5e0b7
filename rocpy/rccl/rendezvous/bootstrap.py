# SPDX-License-Identifier: MIT
"""How processes find each other: a launcher's variables, and a rendezvous for one unique id, over TCP or by notes."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rocpy._integers import integer_of
from rocpy._messages.modules import imported
from rocpy.errors import InvalidArgumentError, InvalidUsageError, RcclInternalError
from rocpy.rccl.engine import library
from rocpy.rccl.rendezvous.boards import Board, BoardChannel, FolderBoard, MpiBoard
from rocpy.rccl.rendezvous.channel import LocalChannel
from rocpy.rccl.rendezvous.envelope import job_key
from rocpy.rccl.rendezvous.tcp import ClientChannel, ServerChannel
from rocpy.runtime.device import Device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rocpy.rccl.rendezvous.channel import Channel


@dataclass(frozen=True)
class LaunchFacts:
    """What a launcher told this process: its rank, how many there are, and, perhaps, its number on this machine."""

    rank: int
    nranks: int
    local_rank: int | None
    launcher: str


@dataclass(frozen=True)
class Agreement:
    """What a rank knows of the others once all have joined the rendezvous.

    Parameters
    ----------
    facts
        Who this is; the number on its machine is known now.
    unique_id
        Of the communicator to be.
    locations
        Of each rank: its machine (as it was booted), its network namespace, and the name of its host.
    """

    facts: LaunchFacts
    unique_id: bytes
    locations: tuple[tuple[str, str, str], ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that the ranks are on, each once."""
        return tuple(dict.fromkeys(host for _, _, host in self.locations))

    def obstacle(self, absent: Sequence[int]) -> str:
        """Return why ranks share no memory with this one, for people.

        Parameters
        ----------
        absent
            The ranks that were not found in this rank's shared memory, although they have begun.
        """
        machine, network, host = self.locations[self.facts.rank]
        there = [self.locations[rank] for rank in absent]
        names = ", ".join(dict.fromkeys(name for _, _, name in there))
        text = f"rank {self.facts.rank} on {host} shares no memory with ranks {list(absent)} on {names}: "
        if any(its_machine != machine for its_machine, _, _ in there):
            return text + "they are on several machines, and the host platform's ranks share the memory of one"
        if any(its_network != network for _, its_network, _ in there):
            return text + (
                "they are in several network namespaces of one machine, as containers with networks of their own are; "
                "start the containers with one network (docker run --network host, or --network container:NAME)"
            )
        return text + "the cause is not known: they may run as different users, or in separate sandboxes"


# Launcher -> the variables of rank, number of ranks, and rank on the machine.
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


# Variables that all processes of a launcher's job share, besides the address.
JOB_NAMES = {"torchrun": ("TORCHELASTIC_RUN_ID",), "Slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID")}


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
        "TORCHELASTIC_RUN_ID": os.environ.get("TORCHELASTIC_RUN_ID"),
        "SLURM_STEP_NODELIST": os.environ.get("SLURM_STEP_NODELIST"),
        "SLURM_JOB_NODELIST": os.environ.get("SLURM_JOB_NODELIST"),
    }
    return {name: value for name, value in names.items() if value is not None}


def _number(variables: Mapping[str, str], name: str, least: int = 0, most: int = 2**32 - 1) -> int:
    """Return a variable's number."""
    text = variables[name].strip()
    if not text.isdecimal() or len(text) > 10 or not least <= int(text) <= most:
        raise InvalidArgumentError(f"{name}={text!r} must be a number from {least} to {most}")
    return int(text)


def launch_facts(variables: Mapping[str, str] | None = None) -> LaunchFacts:
    """Read a launcher's variables.

    Parameters
    ----------
    variables
        In place of the environment.

    Raises
    ------
    InvalidArgumentError
        There are none, or they are no numbers, or the rank is not one of the ranks.

    Examples
    --------
    >>> from rocpy.rccl.rendezvous.bootstrap import launch_facts
    >>> launch_facts({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}).nranks
    4
    """
    environment = _snapshot() if variables is None else variables
    for launcher, (rank_name, size_name, local_name) in LAUNCHERS.items():
        if rank_name not in environment or size_name not in environment:
            continue
        rank, nranks = _number(environment, rank_name), _number(environment, size_name)
        local_rank = _number(environment, local_name) if local_name in environment else None
        if not 0 <= rank < nranks:
            raise InvalidArgumentError(f"{rank_name}={rank} is not one of the {nranks} ranks of {size_name}")
        return LaunchFacts(rank, nranks, local_rank, launcher)
    raise InvalidArgumentError(
        "no launcher's variables are set (RANK and WORLD_SIZE of torchrun, or those of Open MPI, MPICH or Slurm): "
        "start the program with one, or use Communicator.init with a UniqueId"
    )


def chosen_devices(devices: int | Sequence[int | Device] | None, there: int) -> list[int]:
    """Return the devices of `init_all`: how many, which, or all.

    Raises
    ------
    InvalidUsageError
        There are fewer, or one is named twice.
    """
    if devices is None:
        return list(range(there))
    count = None if getattr(devices, "ndim", 0) else integer_of(devices)  # of torch, a tensor of one element is one too
    if count is not None and count < 1:
        raise InvalidArgumentError(f"devices: got {count}, expected 1 or more")
    if count is not None:
        indices: Sequence[int | None] = range(count)
    elif isinstance(devices, Iterable) and not isinstance(devices, str | bytes):
        indices = [device.index if isinstance(device, Device) else integer_of(device) for device in devices]
    else:
        indices = []
    if not indices or (count is None and None in indices):
        raise InvalidArgumentError(f"devices: got {devices!r}, expected how many, or at least one device or its index")
    wrong = next((index for index in indices if not 0 <= (index or 0) < there), None)
    if wrong is not None:
        raise InvalidUsageError(
            f"devices: {len(indices)} ranks need a device each, but there is no device {wrong}: there are {there}; on "
            "the host platform ROCPY_HOST_DEVICES sets their number"
        )
    chosen = [index for index in indices if index is not None]
    if len(set(chosen)) != len(chosen):
        raise InvalidUsageError(f"devices: got {chosen}; each rank needs its own device")
    return chosen


def introduction() -> dict[str, Any]:
    """Return what a rank says of itself: all must have the same RCCL; the rest is for people, and to count devices."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    try:
        network = str(Path("/proc/self/ns/net").readlink())
    except OSError:
        network = ""
    return {
        "version": library.library_version(),
        "machine": machine,
        "network": network,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }


def default_address(facts: LaunchFacts, variables: Mapping[str, str]) -> str:
    """Return the default address of the rendezvous of the processes that a launcher started.

    Raises
    ------
    InvalidArgumentError
        The launcher tells no address.

    Examples
    --------
    >>> from rocpy.rccl.rendezvous.bootstrap import LaunchFacts, default_address
    >>> default_address(
    ...     LaunchFacts(0, 2, 0, "Slurm"),
    ...     {"SLURM_JOB_ID": "123", "SLURM_STEP_ID": "4", "SLURM_STEP_NODELIST": "gpu[07-09,12],login"},
    ... )
    'tcp://gpu07:37125'
    """
    if "MASTER_PORT" in variables:
        # The launcher's own store listens at the port itself.
        host, port = variables.get("MASTER_ADDR") or "localhost", _number(variables, "MASTER_PORT", 1, 65534)
        return f"tcp://{f'[{host}]' if ':' in host else host}:{port + 1}"
    nodes = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST")
    if facts.launcher == "Slurm" and nodes and "SLURM_JOB_ID" in variables:
        # Steps of a job that run beside each other, and jobs on one node, get ports of their own.
        step = _number(variables, "SLURM_STEP_ID") if "SLURM_STEP_ID" in variables else 0
        port = 20000 + (_number(variables, "SLURM_JOB_ID") * 139 + step * 7) % 40000
        return f"tcp://{first_host(nodes)}:{port}"
    raise InvalidArgumentError(
        f'{facts.launcher} does not set MASTER_PORT: pass store="tcp://host:port" or "file:///folder", or import '
        "mpi4py.MPI first so that the processes connect over MPI"
    )


def first_host(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it.

    Examples
    --------
    >>> from rocpy.rccl.rendezvous.bootstrap import first_host
    >>> first_host("a[3,5-7]-ib,b2"), first_host("b2,a3")
    ('a3-ib', 'b2')
    """
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    if match is None:
        raise InvalidArgumentError(f"SLURM_STEP_NODELIST={nodes!r} names no host")
    return "".join(part or "" for part in match.groups())


def _judge(notes: Sequence[Mapping[str, Any]], make_id: Callable[[], bytes]) -> dict[str, Any]:
    """Return the answer to what the ranks said of themselves, in the order of the ranks."""
    first = notes[0]
    for rank, theirs in enumerate(notes):
        if theirs["nranks"] != first["nranks"]:
            sender = f"rank {rank} (process {theirs['pid']} on {theirs['host']})"
            return {"problem": f"{sender} expects {theirs['nranks']} ranks, rank 0 expects {first['nranks']}"}
        if theirs["version"] != first["version"]:
            both = f"rank {rank} has RCCL {theirs['version']}, rank 0 has {first['version']}"
            return {"problem": f"{both}: install the same on all machines"}
    locations = [[theirs["machine"], theirs["network"], theirs["host"]] for theirs in notes]
    distinct = [location for index, location in enumerate(locations) if location not in locations[:index]]
    return {
        "id": make_id().hex(),
        "locations": distinct,
        "location_of": [distinct.index(location) for location in locations],
    }


def open_channel(facts: LaunchFacts, store: str | None) -> Channel:
    """Return the channel of the processes that a launcher started.

    Parameters
    ----------
    facts
        Who this is.
    store
        ``tcp://host:port`` or ``file:///folder``; by default the launcher's address, or MPI where mpi4py has
        initialised it.

    Raises
    ------
    InvalidArgumentError
        It is no address, or the launcher tells none.
    """
    variables = _snapshot()
    if store is not None and not isinstance(store, str):
        raise InvalidArgumentError(f'store: got {store!r}, expected "tcp://host:port" or "file:///folder"')
    if facts.nranks == 1:
        return LocalChannel()
    shared = [facts.launcher, *(variables.get(name, "") for name in JOB_NAMES.get(facts.launcher, ()))]
    key = job_key(shared)
    if store is None:
        mpi = imported("mpi4py.MPI")
        if facts.launcher in ("Open MPI", "MPICH") and mpi is not None and mpi.Is_initialized():
            return BoardChannel(MpiBoard(mpi.COMM_WORLD), facts.rank, facts.nranks, key)
        store = default_address(facts, variables)
    try:
        parts = urlsplit(store)
        address = (parts.hostname or "", parts.port or 0)
        address[0].encode("idna")  # as sockets will
    except ValueError:
        parts, address = urlsplit(""), ("", 0)
    if parts.scheme == "tcp" and all(address):
        return ServerChannel(address, facts.nranks, key) if facts.rank == 0 else ClientChannel(address, facts.rank, key)
    if parts.scheme == "file" and parts.path:
        return BoardChannel(FolderBoard(Path(parts.path)), facts.rank, facts.nranks, key)
    raise InvalidArgumentError(f'store: got {store!r}, expected "tcp://host:port" or "file:///folder"')


def open_board(board: Board, facts: LaunchFacts) -> Channel:
    """Return a channel over a board of somebody else's."""
    if facts.nranks == 1:
        return LocalChannel()
    return BoardChannel(board, facts.rank, facts.nranks, job_key([facts.launcher]))


def agree(
    channel: Channel, facts: LaunchFacts, deadline: float, make_id: Callable[[], bytes], own: Mapping[str, Any]
) -> Agreement:
    """Agree with the other processes, and get the unique id.

    Parameters
    ----------
    channel
        Connects them.
    facts
        Who this is.
    deadline
        When to give up, as `time.monotonic` counts.
    make_id
        Makes the unique id, on rank 0.
    own
        What this rank says of itself, as `introduction` gives it.

    Raises
    ------
    CollectiveTimeoutError
        Ranks have not come.
    InvalidUsageError
        The ranks do not agree on their number or on RCCL's version.
    RemoteError
        A rank failed or went away.
    """
    note = {**own, "nranks": facts.nranks}
    answer = channel.exchange("id", note, lambda notes: _judge(notes, make_id), deadline)
    try:
        locations = [tuple(answer["locations"][index]) for index in answer["location_of"]]
        unique_id = bytes.fromhex(answer["id"])
        machines = [machine for machine, _, _ in locations]
        counted = machines[: facts.rank].count(machines[facts.rank])
    except (LookupError, TypeError, ValueError):
        raise RcclInternalError("rank 0 sent an invalid answer", op="init", rank=facts.rank) from None
    local_rank = counted if facts.local_rank is None else facts.local_rank
    return Agreement(LaunchFacts(facts.rank, facts.nranks, local_rank, facts.launcher), unique_id, tuple(locations))
