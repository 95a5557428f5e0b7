# SPDX-License-Identifier: MIT
"""How a communicator is joined where a launcher, MPI, torch or a store brings the processes together."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Self

from rocpy._messages.keywords import suggest_keywords
from rocpy._messages.modules import imported
from rocpy.errors import InvalidArgumentError, InvalidUsageError, RemoteError
from rocpy.rccl.carriers.carrier import check_carrier
from rocpy.rccl.carriers.communicator import carried_communicator
from rocpy.rccl.carriers.mpi import MpiCarrier
from rocpy.rccl.carriers.process_group import TorchCarrier
from rocpy.rccl.engine import library
from rocpy.rccl.handles.joining import finish_init, start_init
from rocpy.rccl.handles.status import register
from rocpy.rccl.model.arguments import check_seconds, rank_and_size
from rocpy.rccl.public.collectives import Collectives
from rocpy.rccl.rendezvous import bootstrap
from rocpy.rccl.rendezvous.boards import MpiBoard, StoreBoard

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.rccl.carriers.carrier import Carrier
    from rocpy.rccl.carriers.communicator import CarriedCommunicator
    from rocpy.rccl.rendezvous.channel import Channel, Message
    from rocpy.runtime.device import Device

__all__ = ["Joining"]


@dataclass(frozen=True)
class _Options:
    timeout_s: float
    device: Device | int | None
    name: str

    def __post_init__(self) -> None:
        check_seconds(self.timeout_s)


@dataclass(frozen=True)
class _CarrierChoice:
    """The transport that the ranks have besides RCCL, and which of the two they asked for."""

    wanted: str
    own: str
    connect: Callable[[], Carrier]
    timeout_s: float
    name: str

    def __post_init__(self) -> None:
        check_carrier(self.wanted, self.own)

    def make(self, obstacle: str) -> CarriedCommunicator:
        """Return the communicator over the transport; `obstacle` says why it is not RCCL's, where nobody asked."""
        if self.wanted == "rccl":
            raise InvalidArgumentError(f"carrier: {obstacle}; use 'auto' or {self.own!r}")
        return carried_communicator(self.connect(), self.timeout_s, self.name, obstacle)


def _own_device(facts: bootstrap.LaunchFacts) -> int | None:
    """Return the device of this rank, by its number on the machine."""
    count = library.device_count()
    if facts.local_rank is not None and facts.local_rank >= count:
        raise InvalidUsageError(
            f"device: by {facts.launcher} this is the process with the number {facts.local_rank} on its machine, which "
            f"has {count} devices; pass device=, or start fewer (on the host platform ROCPY_HOST_DEVICES sets them)",
            op="init",
            rank=facts.rank,
        )
    return facts.local_rank


def _first_failure(notes: list[Message]) -> Message:
    failed = [(rank, note["failure"]) for rank, note in enumerate(notes) if note["failure"] is not None]
    return {"failed": failed[0][0], "text": failed[0][1]} if failed else {}


class Joining(Collectives):
    """Constructors of communicators that need no unique id from the user."""

    @classmethod
    def _join(
        cls, channel: Channel, facts: bootstrap.LaunchFacts, options: _Options, carrier: _CarrierChoice | None = None
    ) -> Any:
        """Agree with the other ranks, join, and return the communicator, or the one over another transport."""
        deadline = monotonic() + options.timeout_s
        try:
            agreement = bootstrap.agree(channel, facts, deadline, library.make_unique_id, bootstrap.introduction())
            if carrier is not None and carrier.wanted == carrier.own:
                return carrier.make("")
            communicator = cls.__new__(cls)
            failure: BaseException | None = None
            try:
                facts = agreement.facts
                chosen = _own_device(facts) if options.device is None else options.device
                start_init(
                    communicator, facts.nranks, facts.rank, agreement.unique_id, chosen, options.timeout_s, options.name
                )
                communicator._enter(deadline, options.timeout_s)
            except BaseException as error:  # noqa: BLE001  (raised below, once the others know)
                failure = error
            try:
                text = None if failure is None else f"{type(failure).__name__}: {failure}"[:4000]
                verdict = channel.exchange("ready", {"failure": text}, _first_failure, deadline)
            except BaseException:
                communicator.abort()
                if failure is not None:
                    try:
                        raise failure from None
                    finally:
                        failure = None  # its traceback has this frame
                raise
        finally:
            channel.close()
        if failure is not None:
            communicator.abort()
            try:
                raise failure
            finally:
                failure = None  # its traceback has this frame
        if "failed" in verdict:
            communicator.abort()
            raise RemoteError(
                f"rank {verdict['failed']} could not start: {verdict['text']}", op="init", rank=verdict["failed"]
            )
        return communicator._finish_join(agreement, deadline, carrier)

    def _enter(self, deadline: float, timeout_s: float) -> None:
        """Wait until this rank has entered the memory that ranks share, where the platform knows of one."""
        while True:
            report = self.status()
            state = report.get("state", "ready")
            if state == "failed" or monotonic() > deadline:
                finish_init(self, deadline, timeout_s)
            if state != "initializing" or any(
                row["rank"] == self.rank and row["state"] != "absent" for row in report["ranks"]
            ):
                return
            sleep(0.0005)

    def _absent_ranks(self) -> list[int]:
        """Return the ranks that have not entered that memory: none where the platform knows of no such memory."""
        return [row["rank"] for row in self.status()["ranks"] if row["state"] == "absent"]

    def _finish_join(self, agreement: bootstrap.Agreement, deadline: float, carrier: _CarrierChoice | None) -> Any:
        """Wait for the others where all have found this rank's memory, which those who have not cannot reach."""
        if absent := self._absent_ranks():
            obstacle = agreement.obstacle(absent)
            self.abort()
            if carrier is None:
                raise InvalidUsageError(
                    f"{obstacle}. Or use Communicator.from_mpi with an mpi4py communicator or Communicator.from_torch "
                    "with a gloo group, which can carry the collectives; RCCL on AMD GPUs reaches all machines",
                    op="init",
                    rank=agreement.facts.rank,
                )
            return carrier.make(obstacle)
        finish_init(self, deadline, max(deadline - monotonic(), 0.001))
        register(self)
        return self

    @classmethod
    @suggest_keywords
    def from_env(
        cls,
        *,
        timeout_s: float = 30.0,
        store: str | None = None,
        device: Device | int | None = None,
        name: str = "",
    ) -> Self:
        """Join the communicator of all processes that a launcher started: torchrun, Slurm, Open MPI, MPICH.

        Parameters
        ----------
        timeout_s
            As in `init`; it applies to the rendezvous too.
        store
            Where the processes rendezvous: ``"tcp://host:port"``, served by rank 0, or ``"file:///folder"``, a folder
            that all processes can access. By default the host ``MASTER_ADDR`` and the port after ``MASTER_PORT``; under
            Slurm the first host of the step and a port derived from the job's number.
        device
            Index of the device; the local rank by default.
        name
            As in `init`.

        Returns
        -------
        Communicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        InvalidArgumentError
            No launcher's variables are set, or they are inconsistent.
        InvalidUsageError
            The ranks do not agree on their number or on RCCL's version, or the host platform's ranks cannot share
            memory, because they are on several machines or in containers with separate networks.
        RemoteError
            A rank failed or exited: ``rank`` names it.
        """
        options = _Options(timeout_s, device, name)
        facts = bootstrap.launch_facts()
        return cls._join(bootstrap.open_channel(facts, store), facts, options)

    @classmethod
    @suggest_keywords
    def from_store(
        cls,
        store: Any,
        rank: int,
        nranks: int,
        *,
        prefix: str = "",
        timeout_s: float = 30.0,
        device: Device | int | None = None,
        name: str = "",
    ) -> Self:
        """Join through a key-value store of torch.distributed (TCPStore, FileStore, HashStore, PrefixStore).

        Parameters
        ----------
        store
            The store, shared by all ranks.
        rank, nranks
            This rank, and the number of ranks.
        prefix
            Prefix of the keys; different for each communicator.
        timeout_s, name
            As in `init`.
        device
            Index of the device; by default the rank on this machine.

        Returns
        -------
        Communicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        InvalidUsageError
            As for `from_env`.
        """
        if not all(hasattr(store, name) for name in ("set", "get", "check")):
            raise InvalidArgumentError(f"store: got {store!r}, expected a store of torch.distributed")
        facts = bootstrap.LaunchFacts(*rank_and_size(rank, nranks), None, "store")
        channel = bootstrap.open_board(StoreBoard(store, prefix), facts)
        return cls._join(channel, facts, _Options(timeout_s, device, name))

    @classmethod
    @suggest_keywords
    def from_mpi(
        cls,
        comm: Any,
        *,
        carrier: str = "auto",
        timeout_s: float = 30.0,
        device: Device | int | None = None,
        name: str = "",
    ) -> Self | CarriedCommunicator:
        """Join through an mpi4py communicator; rocpy itself never imports mpi4py, because that would initialise MPI.

        Parameters
        ----------
        comm
            An ``mpi4py.MPI.Intracomm``; all of its ranks call this.
        carrier
            ``"rccl"``: RCCL. ``"mpi4py"``: the collectives are transferred over MPI itself. ``"auto"``: RCCL, or, with
            a warning, MPI if the ranks of the host platform cannot share memory (on several machines, or in containers
            with separate networks).
        timeout_s, name
            As in `init`.
        device
            Index of the device; by default the rank on this machine.

        Returns
        -------
        Communicator or CarriedCommunicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        """
        if not hasattr(comm, "Get_rank") or not hasattr(comm, "Get_size"):
            raise InvalidArgumentError(f"comm: got {comm!r}, expected an mpi4py.MPI.Intracomm")
        facts = bootstrap.LaunchFacts(comm.Get_rank(), comm.Get_size(), None, "mpi4py")
        choice = _CarrierChoice(carrier, "mpi4py", lambda: MpiCarrier(comm), timeout_s, name)
        channel = bootstrap.open_board(MpiBoard(comm), facts)
        return cls._join(channel, facts, _Options(timeout_s, device, name), choice)

    @classmethod
    @suggest_keywords
    def from_torch(
        cls,
        group: Any = None,
        *,
        carrier: str = "auto",
        timeout_s: float = 30.0,
        device: Device | int | None = None,
        name: str = "",
    ) -> Self | CarriedCommunicator:
        """Join the ranks of a torch.distributed group, which may be gloo's.

        Parameters
        ----------
        group
            The group, by default torch's default group; all of its ranks call this.
        carrier
            ``"rccl"``: RCCL. ``"torch"``: the collectives are transferred over the group itself. ``"auto"``: RCCL, or,
            with a warning, the group if the ranks of the host platform cannot share memory (on several machines, or in
            containers with separate networks).
        timeout_s, name
            As in `init`.
        device
            Index of the device; by default the rank on this machine.

        Returns
        -------
        Communicator or CarriedCommunicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        InvalidArgumentError
            torch.distributed is not initialised.
        """
        distributed = imported("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            raise InvalidArgumentError("group: torch.distributed is not initialised; call init_process_group first")
        chosen = distributed.group.WORLD if group is None else group
        facts = bootstrap.LaunchFacts(distributed.get_rank(chosen), distributed.get_world_size(chosen), None, "torch")
        choice = _CarrierChoice(carrier, "torch", lambda: TorchCarrier(chosen), timeout_s, name)
        store = distributed.distributed_c10d._get_process_group_store(chosen)
        channel = bootstrap.open_board(StoreBoard(store, f"{chosen.group_name}/"), facts)
        return cls._join(channel, facts, _Options(timeout_s, device, name), choice)
