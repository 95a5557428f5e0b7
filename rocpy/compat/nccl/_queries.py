# SPDX-License-Identifier: MIT
"""What nccl4py's Communicator is asked: its ranks, its device, what it can do, its state, its teams."""

from __future__ import annotations

from typing import NoReturn

from rocpy import platform, rccl
from rocpy.compat.nccl._enums import NcclCftTeamMode, NcclCommMemStat, NcclGinType, Result
from rocpy.compat.nccl._errors import (
    CFT,
    DEVICE_API,
    NcclInvalid,
    translated,
    unsupported,
    unsupported_attribute,
    whole_number,
)
from rocpy.compat.nccl._records import NCCLCommProperties, NCCLTeam
from rocpy.errors import ClosedError
from rocpy.runtime.device import Device as _Device

_STATS = {
    NcclCommMemStat.GPU_MEM_SUSPEND: "suspendable",
    NcclCommMemStat.GPU_MEM_SUSPENDED: "suspended",
    NcclCommMemStat.GPU_MEM_PERSIST: "persistent",
    NcclCommMemStat.GPU_MEM_TOTAL: "total",
}


class Device(_Device):
    """A `rocpy.Device` with those names of ``cuda.core`` that programs for nccl4py use.

    Examples
    --------
    >>> from rocpy.compat import nccl
    >>> comm = nccl.Communicator.init(1, 0, nccl.get_unique_id())
    >>> comm.device.device_id
    0
    >>> comm.destroy()
    """

    @property
    def device_id(self) -> int:
        """Its index."""
        return self.index

    def set_current(self) -> None:
        """Make it the thread's current device."""
        self.__enter__()

    def sync(self) -> None:
        """Wait for all work on the device."""
        self.synchronize()


class Queries:
    """What a Communicator knows of itself."""

    _own: rccl.Communicator | None = None
    _is_finalized = False

    @property
    def own(self) -> rccl.Communicator:
        """The communicator of `rocpy.rccl`, for features beyond nccl4py's.

        Raises
        ------
        NcclInvalid
            There is none, or it has been closed.
        """
        if self._own is None:
            raise NcclInvalid("this is the null communicator")
        try:
            self._own.seconds_to_wait(None)
        except ClosedError as error:
            raise NcclInvalid(str(error)) from None
        return self._own

    @property
    def is_valid(self) -> bool:
        """Whether it can be used, being neither null, destroyed nor aborted."""
        own = self._own
        return own is not None and (not own.is_closed or (self._is_finalized and not own.is_aborted))

    def _known(self) -> rccl.Communicator:
        """Return rocpy's communicator, which tells its ranks after `finalize` too."""
        return self._own if self._own is not None and self.is_valid else self.own

    @property
    def ptr(self) -> int:
        """RCCL's handle as a number; 0 for none, and after `finalize`."""
        return 0 if self._own is None or self._own.is_closed else self._own.handle

    @property
    def nranks(self) -> int:
        """The number of ranks."""
        return self._known().nranks

    @property
    def rank(self) -> int:
        """The rank of this process or thread."""
        return self._known().rank

    @property
    def device(self) -> Device:
        """The device of this rank."""
        return Device(self._known().device_index)

    @property
    def properties(self) -> NCCLCommProperties:
        """What the communicator is; RCCL's device API and GPU-initiated networking are none that Python could use."""
        own = self._known()
        return NCCLCommProperties(
            rank=own.rank,
            n_ranks=own.nranks,
            cuda_dev=own.device_index,
            nvml_dev=own.device_index,
            device_api_support=False,
            multimem_support=False,
            gin_type=NcclGinType.NONE,
            n_lsa_teams=0,
            host_rma_support="ncclPutSignal" not in platform.missing()["rccl"],
            railed_gin_type=NcclGinType.NONE,
        )

    @property
    def cuda_dev(self) -> int:
        """The number of its device."""
        return self.properties.cuda_dev

    @property
    def nvml_dev(self) -> int:
        """The number of its device, as in cuda_dev, because there is no NVML."""
        return self.properties.nvml_dev

    @property
    def device_api_support(self) -> bool:
        """Always false, because `create_dev_comm` is refused."""
        return self.properties.device_api_support

    @property
    def multimem_support(self) -> bool:
        """Always false, because no AMD GPU writes to the memory of several at once."""
        return self.properties.multimem_support

    @property
    def gin_type(self) -> NcclGinType:
        """`NcclGinType.NONE`."""
        return self.properties.gin_type

    @property
    def railed_gin_type(self) -> NcclGinType:
        """`NcclGinType.NONE`."""
        return self.properties.railed_gin_type

    @property
    def n_lsa_teams(self) -> int:
        """Always 0, because teams of ranks that reach each other's memory belong to the device API."""
        return self.properties.n_lsa_teams

    @property
    def host_rma_support(self) -> bool:
        """Whether `put_signal` and `signal` are available, which they are from RCCL 2.30 on."""
        return self.properties.host_rma_support

    # ---- teams ----

    @property
    def team_world(self) -> NCCLTeam:
        """The team of all ranks."""
        return NCCLTeam(self.nranks, self.rank, 1)

    @property
    def team_lsa(self) -> NCCLTeam:
        """Refused, because it is part of the device API."""
        raise unsupported_attribute("Communicator.team_lsa", DEVICE_API)

    @property
    def team_rail(self) -> NCCLTeam:
        """Refused, because it is part of the device API."""
        raise unsupported_attribute("Communicator.team_rail", DEVICE_API)

    @property
    def team_cft_multimem(self) -> NCCLTeam:
        """Refused, because RCCL has no Compute Fabric Transport."""
        raise unsupported_attribute("Communicator.team_cft_multimem", CFT)

    def team_cft(self, mode: NcclCftTeamMode = NcclCftTeamMode.FLAT) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: RCCL has no Compute Fabric Transport."""
        raise unsupported("Communicator.team_cft", CFT)

    def team_rank_to_world(self, team: NCCLTeam, team_rank: int) -> int:
        """Return the communicator's rank of a team's rank.

        Raises
        ------
        NcclInvalid
            The team has no such rank, or exceeds the communicator.
        """
        if not isinstance(team, NCCLTeam):
            raise NcclInvalid(f"team: got {team!r}, expected an NCCLTeam")
        team_rank = whole_number("team_rank", team_rank, "a rank of the team")
        world_rank = self.rank + (team_rank - team.rank) * team.stride
        if not 0 <= team_rank < team.n_ranks or not 0 <= world_rank < self.nranks:
            raise NcclInvalid(f"team_rank: got {team_rank} of {team}, which is not a rank of this communicator")
        return world_rank

    def team_rank_to_lsa(self, team: NCCLTeam, team_rank: int) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: part of the device API."""
        raise unsupported("Communicator.team_rank_to_lsa", DEVICE_API)

    # ---- state ----

    @translated
    def get_async_error(self) -> Result:
        """Return the state of running operations, as one of RCCL's codes."""
        own = self._known()
        return Result.Success if own.is_closed else Result(own.async_error())

    def get_last_error(self) -> str:
        """Return RCCL's last error message of this process."""
        self._known()
        return rccl.last_error()

    @translated
    def get_mem_stat(self, stat: NcclCommMemStat) -> int:
        """Return how much memory of one kind it uses."""
        try:
            chosen = NcclCommMemStat(stat)
        except ValueError:
            raise NcclInvalid(f"stat: got {stat!r}, expected a NcclCommMemStat") from None
        return self.own.memory_stats()[_STATS[chosen]]
