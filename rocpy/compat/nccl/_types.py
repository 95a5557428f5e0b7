# SPDX-License-Identifier: MIT
"""nccl4py's constants, enumerations and plain records, with RCCL's numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import Any

from rocpy.compat.nccl._errors import NcclInvalid
from rocpy.rccl import _types

NCCL_SPLIT_NOCOLOR = -1


class NcclDataType(IntEnum):
    """Element types."""

    INT8 = 0
    CHAR = 0
    UINT8 = 1
    INT32 = 2
    INT = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    HALF = 6
    FLOAT32 = 7
    FLOAT = 7
    FLOAT64 = 8
    DOUBLE = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11

    @property
    def name_of_dtype(self) -> str:
        """The name that numpy, ml_dtypes and torch share."""
        return _BY_NUMBER[self.value]

    @property
    def numpy_dtype(self) -> Any:
        """The numpy dtype, ml_dtypes' for the types that numpy lacks."""
        return _types.numpy_type(self.name_of_dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.numpy_dtype.itemsize)


_BY_NUMBER = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)

INT8, CHAR, UINT8 = NcclDataType.INT8, NcclDataType.CHAR, NcclDataType.UINT8
INT32, INT, UINT32 = NcclDataType.INT32, NcclDataType.INT, NcclDataType.UINT32
INT64, UINT64 = NcclDataType.INT64, NcclDataType.UINT64
FLOAT16, HALF, BFLOAT16 = NcclDataType.FLOAT16, NcclDataType.HALF, NcclDataType.BFLOAT16
FLOAT32, FLOAT, FLOAT64, DOUBLE = NcclDataType.FLOAT32, NcclDataType.FLOAT, NcclDataType.FLOAT64, NcclDataType.DOUBLE
FLOAT8E4M3, FLOAT8E5M2 = NcclDataType.FLOAT8E4M3, NcclDataType.FLOAT8E5M2


class NcclRedOp(IntEnum):
    """Operators of reductions."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


SUM, PROD, MAX, MIN, AVG = NcclRedOp.SUM, NcclRedOp.PROD, NcclRedOp.MAX, NcclRedOp.MIN, NcclRedOp.AVG


class CTAPolicy(IntFlag):
    """How many blocks a collective's kernels take."""

    Default = 0
    Efficiency = 1
    Zero = 2


class CommShrinkFlag(IntFlag):
    """What becomes of work that runs when a communicator is shrunk."""

    Default = 0
    Abort = 1


class CommSuspendFlag(IntFlag):
    """What a suspended communicator gives back."""

    Mem = 1


class WindowFlag(IntFlag):
    """What a window is for."""

    Default = 0
    CollSymmetric = 1
    StrictOrdering = 2


class CommMemStat(IntEnum):
    """What `Communicator.get_mem_stat` tells."""

    GpuMemSuspend = 0
    GpuMemSuspended = 1
    GpuMemPersist = 2
    GpuMemTotal = 3


@dataclass
class NCCLConfig:
    """How a communicator is made; what is ``None`` RCCL chooses.

    rocpy's communicators never block inside RCCL, and wait with a deadline: `blocking` changes nothing.
    """

    blocking: bool | None = None
    cga_cluster_size: int | None = None
    min_ctas: int | None = None
    max_ctas: int | None = None
    net_name: str | None = None
    split_share: bool | None = None
    traffic_class: int | None = None
    comm_name: str | None = None
    collnet_enable: bool | None = None
    cta_policy: CTAPolicy | None = None
    shrink_share: bool | None = None
    nvls_ctas: int | None = None
    n_channels_per_net_peer: int | None = None
    nvlink_centric_sched: bool | None = None
    graph_usage_mode: int | None = None
    num_rma_ctx: int | None = None
    max_p2p_peers: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            wanted: type = str if field.name.endswith("_name") else int
            if value is not None and not isinstance(value, wanted):
                raise NcclInvalid(f"{field.name}: got {value!r}, expected {wanted.__name__} or None")

    def settings(self) -> dict[str, int | str]:
        """Return what RCCL is told, by the names of `rocpy.rccl.Communicator.init`'s `config`."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value if isinstance(value, str) else int(value)
            for name, value in chosen.items()
            if value is not None and name not in ("blocking", "comm_name")
        }


@dataclass
class WaitSignalDesc:
    """Whose signals are waited for, and how many."""

    peer: int
    op_count: int = 1
    signal_index: int = 0
    context: int = 0
