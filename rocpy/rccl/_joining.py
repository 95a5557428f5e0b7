# SPDX-License-Identifier: MIT
"""How a communicator is joined where a launcher, MPI, torch or a store brings the processes together."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from rocpy.errors import InvalidArgumentError
from rocpy.rccl import _bootstrap, _library
from rocpy.rccl._bootstrap_boards import MpiBoard, StoreBoard
from rocpy.rccl._collectives import Collectives

if TYPE_CHECKING:
    from rocpy.rccl._carried import CarriedCommunicator
    from rocpy.runtime.device import Device

__all__ = ["Joining"]


class Joining(Collectives):
    """The ways into a communicator that need no unique id from the user."""

    @classmethod
    def _take_part(
        cls, met: _bootstrap.Meeting, device: Device | int | None, deadline: float, timeout_s: float, name: str
    ) -> Self:
        made = cls()
        chosen = met.facts.local_rank if device is None else device
        made.begin(met.facts.nranks, met.facts.rank, met.unique_id, chosen, timeout_s, name)
        made.finish_init(deadline, max(deadline - monotonic(), 0.001))
        made.remember()
        return made

    def remember(self) -> None:
        """Have `status` know this communicator."""
        raise NotImplementedError

    @classmethod
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
            As in `init`; it holds for the meeting too.
        store
            Where the processes meet: ``"tcp://host:port"``, served by rank 0, or ``"file:///folder"``, which all of
            them see. By default the host ``MASTER_ADDR`` and the port after ``MASTER_PORT``; under Slurm the first
            host of the step and a port made of the job's number.
        device
            The local rank's number by default.
        name
            As in `init`.

        Returns
        -------
        Communicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come: ``waiting_for`` names them.
        InvalidArgumentError
            There are no variables of a launcher, or they make no sense.
        InvalidUsageError
            The ranks do not agree on their number or on RCCL's version, or are on more machines than the platform
            reaches.
        """
        facts = _bootstrap.launch_facts()
        deadline = monotonic() + timeout_s
        met = _bootstrap.meet(facts, store, deadline, _library.make_unique_id, _bootstrap.introduction())
        return cls._take_part(met, device, deadline, timeout_s, name)

    @classmethod
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
        """Join by a key-value store as torch.distributed has them (TCPStore, FileStore, HashStore, PrefixStore).

        Parameters
        ----------
        store
            All ranks see the same.
        rank, nranks
            Which this is, and how many there are.
        prefix
            Keeps the keys of several communicators apart.
        timeout_s, name
            As in `init`.
        device
            By default the number among the ranks of this machine.

        Returns
        -------
        Communicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come: ``waiting_for`` names them.
        InvalidUsageError
            As for `from_env`.
        """
        deadline = monotonic() + timeout_s
        facts = _bootstrap.LaunchFacts(rank, nranks, None, "store")
        board = StoreBoard(store, prefix)
        met = _bootstrap.meet_on_board(board, facts, deadline, _library.make_unique_id, _bootstrap.introduction())
        return cls._take_part(met, device, deadline, timeout_s, name)

    @classmethod
    def from_mpi(
        cls,
        comm: Any,
        *,
        carrier: str = "auto",
        timeout_s: float = 30.0,
        device: Device | int | None = None,
        name: str = "",
    ) -> Self | CarriedCommunicator:
        """Join by an mpi4py communicator; rocpy itself never imports mpi4py, because that would initialise MPI.

        Parameters
        ----------
        comm
            An ``mpi4py.MPI.Intracomm``; all of its ranks call this.
        carrier
            ``"rccl"``: RCCL. ``"mpi4py"``: the collectives go over MPI itself. ``"auto"``: RCCL, but MPI where the
            platform is the host platform and the ranks are on several machines; a warning says so.
        timeout_s, name
            As in `init`.
        device
            By default the number among the ranks of this machine.

        Returns
        -------
        Communicator or CarriedCommunicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come: ``waiting_for`` names them.
        """
        from rocpy.rccl._carried import MpiCarrier, choose_carrier

        facts = _bootstrap.LaunchFacts(comm.Get_rank(), comm.Get_size(), None, "mpi4py")
        deadline = monotonic() + timeout_s
        met = _bootstrap.meet_on_board(
            MpiBoard(comm), facts, deadline, _library.make_unique_id, _bootstrap.introduction(), any_machine=True
        )
        carried = choose_carrier(carrier, "mpi4py", met, lambda: MpiCarrier(comm), timeout_s, name)
        return cls._take_part(met, device, deadline, timeout_s, name) if carried is None else carried

    @classmethod
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
            The default group if not given; all of its ranks call this.
        carrier
            ``"rccl"``: RCCL. ``"torch"``: the collectives go over the group itself. ``"auto"``: RCCL, but the group
            where the platform is the host platform and the ranks are on several machines; a warning says so.
        timeout_s, name
            As in `init`.
        device
            By default the number among the ranks of this machine.

        Returns
        -------
        Communicator or CarriedCommunicator
            Ready for use.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come: ``waiting_for`` names them.
        InvalidArgumentError
            torch.distributed is not initialised.
        """
        from rocpy.rccl._carried import TorchCarrier, choose_carrier

        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            raise InvalidArgumentError("group: torch.distributed is not initialised; call init_process_group first")
        chosen = distributed.group.WORLD if group is None else group
        facts = _bootstrap.LaunchFacts(distributed.get_rank(chosen), distributed.get_world_size(chosen), None, "torch")
        deadline = monotonic() + timeout_s
        met = _bootstrap.meet_on_board(
            StoreBoard(distributed.distributed_c10d._get_process_group_store(chosen), f"{chosen.group_name}/"),
            facts,
            deadline,
            _library.make_unique_id,
            _bootstrap.introduction(),
            any_machine=True,
        )
        carried = choose_carrier(carrier, "torch", met, lambda: TorchCarrier(chosen), timeout_s, name)
        return cls._take_part(met, device, deadline, timeout_s, name) if carried is None else carried
