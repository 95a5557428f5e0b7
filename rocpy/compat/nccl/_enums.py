# SPDX-License-Identifier: MIT
"""nccl4py's constants and enumerations, with RCCL's numbers; and what its arguments may be."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, TypeAlias

import numpy as np

from rocpy.compat.nccl._errors import NcclInvalid
from rocpy.errors import InvalidOperandError
from rocpy.rccl.model import dtypes
from rocpy.runtime.device import Device
from rocpy.runtime.event import Event
from rocpy.typing import ArrayDTypeName, ArrayLike, StreamLike

NcclBufferSpec: TypeAlias = ArrayLike
NcclScalarSpec: TypeAlias = int | float | np.ndarray[Any, Any] | ArrayLike
NcclDeviceSpec: TypeAlias = Device | int
NcclStreamSpec: TypeAlias = StreamLike
NcclEventSpec: TypeAlias = Event | int

NCCL_SPLIT_NOCOLOR = -1


class NcclDataType(IntEnum):
    """Element types.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat import nccl
    >>> nccl.NcclDataType(np.float32), nccl.FLOAT16.itemsize
    (<NcclDataType.FLOAT32: 7>, 2)
    """

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

    @classmethod
    def _missing_(cls, value: object) -> NcclDataType | None:
        if value is None or isinstance(value, int):
            return None  # a number that no type has
        try:
            np.dtype(value)  # type: ignore[call-overload]
        except TypeError:
            return None
        return cls.from_numpy_dtype(value)

    @classmethod
    def from_numpy_dtype(cls, dtype: Any) -> NcclDataType:
        """Return the element type of a dtype of numpy's or ml_dtypes'.

        Raises
        ------
        NcclInvalid
            RCCL has no such type.
        """
        try:
            return cls(dtypes.NAMES.index(dtypes.name_of(dtype)))
        except InvalidOperandError as error:
            raise NcclInvalid(str(error)) from None

    @property
    def name_of_dtype(self) -> ArrayDTypeName:
        """The name that numpy, ml_dtypes and torch share."""
        return dtypes.NAMES[self.value]

    @property
    def numpy_dtype(self) -> Any:
        """The numpy dtype, ml_dtypes' for the types that numpy lacks."""
        return dtypes.numpy_type(self.name_of_dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.numpy_dtype.itemsize)


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


class Result(IntEnum):
    """RCCL's result codes, as returned by `Communicator.get_async_error`."""

    Success = 0
    UnhandledCudaError = 1
    SystemError = 2
    InternalError = 3
    InvalidArgument = 4
    InvalidUsage = 5
    RemoteError = 6
    InProgress = 7
    Timeout = 8


class CTAPolicy(IntFlag):
    """How many blocks a collective's kernels use."""

    DEFAULT = 0
    EFFICIENCY = 1
    ZERO = 2
    Default = 0
    Efficiency = 1
    Zero = 2


class CommShrinkFlag(IntEnum):
    """What happens to running operations when a communicator is shrunk."""

    DEFAULT = 0
    ABORT = 1
    Default = 0
    Abort = 1


class CommSuspendFlag(IntFlag):
    """What a suspended communicator releases."""

    MEM = 1
    Mem = 1


class WindowFlag(IntFlag):
    """The kind of a window; `GIN_ONLY` and `CFT_COUNTED` are refused, because RCCL has neither."""

    DEFAULT = 0
    COLL_SYMMETRIC = 1
    STRICT_ORDERING = 2
    GIN_ONLY = 4
    CFT_COUNTED = 8
    Default = 0
    CollSymmetric = 1
    StrictOrdering = 2


class NcclCommMemStat(IntEnum):
    """The quantities that `Communicator.get_mem_stat` returns."""

    GPU_MEM_SUSPEND = 0
    GPU_MEM_SUSPENDED = 1
    GPU_MEM_PERSIST = 2
    GPU_MEM_TOTAL = 3
    GpuMemSuspend = 0
    GpuMemSuspended = 1
    GpuMemPersist = 2
    GpuMemTotal = 3


CommMemStat = NcclCommMemStat


class NcclGinType(IntEnum):
    """Transports of GPU-initiated networking; RCCL's communicators have `NONE`."""

    NONE = 0
    PROXY = 2
    GDAKI = 3
    GPI = 4
    EFA_GDA = 5


class NcclGinConnectionType(IntEnum):
    """Which ranks GPU-initiated networking connects."""

    NONE = 0
    FULL = 1
    RAIL = 2
    CUSTOM_STRIDE = 3


class NcclHostCftMode(IntEnum):
    """Whether a communicator creates endpoints of Compute Fabric Transport; RCCL has none, so `ENABLE` is refused."""

    DEFAULT = -(2**31)
    ENABLE = 1
    DISABLE = 2
    FALLBACK = 3


class NcclNvlsHostMode(IntFlag):
    """Which parts of NVLink SHARP a communicator uses; AMD GPUs have none, so that none can be used."""

    ENABLE = 0
    DISABLE_TRANSPORT = 1
    DISABLE_SYMMETRIC_MULTIMEM = 2
    DISABLE = 2**31 - 1


class NcclCftTeamMode(IntEnum):
    """Which ranks a team of Compute Fabric Transport has."""

    FLAT = 0
    HIER_MULTIMEM = 1
    HIER_LSA = 2


class NcclCftCap(IntFlag):
    """What a device communicator needs of Compute Fabric Transport."""

    NONE = 0
    CFT = 1
    MULTIMEM = 2
