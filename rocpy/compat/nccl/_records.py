# SPDX-License-Identifier: MIT
"""nccl4py's plain records: signals, what a communicator is, and what its device API is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from rocpy.compat.nccl._enums import NcclCftCap, NcclGinConnectionType, NcclGinType


@dataclass(frozen=True)
class WaitSignalDesc:
    """The rank whose signals are waited for, and their number."""

    peer: int
    op_count: int = 1
    signal_index: int = 0
    context: int = 0


@dataclass(frozen=True)
class NCCLTeam:
    """Ranks of a communicator at equal distances, as seen from one of them."""

    n_ranks: int
    rank: int
    stride: int


@dataclass(frozen=True)
class GroupSimInfo:
    """Estimated time of a group, in seconds; never created, because rocpy has no estimate."""

    estimated_time: float


@dataclass(frozen=True, kw_only=True)
class NCCLCommProperties:
    """Properties of a communicator; RCCL 2.30 does not report those that are ``None``."""

    rank: int
    n_ranks: int
    cuda_dev: int
    nvml_dev: int
    device_api_support: bool
    multimem_support: bool
    gin_type: NcclGinType
    n_lsa_teams: int
    host_rma_support: bool
    railed_gin_type: NcclGinType
    comm_hash: int | None = None
    gin_min_stride: int | None = None
    gin_connection_type: NcclGinConnectionType | None = None
    available_gin_types: frozenset[NcclGinType] | None = None
    dev_comm_runtime_version_size: int | None = None
    cft_support: bool | None = None
    cft_multicast_support: bool | None = None
    cft_counted_support: bool | None = None


@dataclass(frozen=True)
class CftLeInfo:
    """An address of Compute Fabric Transport; never returned."""

    le_id: int
    le_offset: int


@dataclass(frozen=True)
class TeamRequirement:
    """What a device communicator needs for a team."""

    team: NCCLTeam
    multimem: bool = False


@dataclass(frozen=True)
class LsaBarrierRequirement:
    """Barriers between ranks that reach each other's memory."""

    team: NCCLTeam
    n_barriers: int


@dataclass(frozen=True)
class GinBarrierRequirement:
    """Barriers by GPU-initiated networking."""

    team: NCCLTeam
    n_barriers: int


@dataclass(frozen=True)
class LLA2ARequirement:
    """Memory for an all-to-all of few elements."""

    n_blocks: int
    max_elements: int
    max_element_size: int


@dataclass(kw_only=True)
class NCCLDevCommRequirements:
    """Requirements of a device communicator, which `Communicator.create_dev_comm` refuses to create."""

    lsa_multimem: bool | None = None
    barrier_count: int | None = None
    lsa_barrier_count: int | None = None
    rail_gin_barrier_count: int | None = None
    lsa_ll_a2a_block_count: int | None = None
    lsa_ll_a2a_slot_count: int | None = None
    gin_force_enable: bool | None = None
    gin_context_count: int | None = None
    gin_signal_count: int | None = None
    gin_counter_count: int | None = None
    gin_connection_type: NcclGinConnectionType | None = None
    gin_exclusive_contexts: bool | None = None
    gin_queue_depth: int | None = None
    gin_traffic_class: int | None = None
    world_gin_barrier_count: int | None = None
    gin_strong_signals_required: bool | None = None
    gin_va_signals_required: bool | None = None
    gin_custom_stride: int | None = None
    gin_type: NcclGinType | None = None
    cft_caps: NcclCftCap | None = None
    cft_barrier_count: int | None = None
    teams: tuple[TeamRequirement, ...] = ()
    resources: tuple[LsaBarrierRequirement | GinBarrierRequirement | LLA2ARequirement, ...] = ()
