# SPDX-License-Identifier: MIT
"""nccl4py's communicators over rocpy: its names, its argument order, its constants.

``from rocpy.compat import nccl`` in the place of ``import nccl.core as nccl``; what RCCL does not have raises
:class:`rocpy.UnsupportedError` with the reason. Calls on CPU memory return when they are done, those on device memory
as soon as they are in their stream; every wait has a deadline, and a group whose block raises is dropped.

Examples
--------
>>> import numpy as np
>>> from rocpy.compat import nccl
>>> comm = nccl.Communicator.init(nranks=1, rank=0, unique_id=nccl.get_unique_id())
>>> x, y = np.arange(3.0), np.zeros(3)
>>> comm.allreduce(x, y, nccl.SUM)
>>> y
array([0., 1., 2.])
>>> comm.destroy()
"""

from rocpy.compat.nccl._communicator import Communicator
from rocpy.compat.nccl._errors import NCCLError, NcclInvalid
from rocpy.compat.nccl._functions import (
    GroupSimInfo,
    Version,
    dump_params,
    get_error_string,
    get_last_error,
    get_unique_id,
    get_version,
    group,
    group_end,
    group_simulate_end,
    group_start,
    mem_alloc,
    mem_free,
    params,
)
from rocpy.compat.nccl._resources import CustomRedOp, RegisteredBufferHandle, RegisteredWindowHandle
from rocpy.compat.nccl._types import (
    AVG,
    BFLOAT16,
    CHAR,
    DOUBLE,
    FLOAT,
    FLOAT8E4M3,
    FLOAT8E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    HALF,
    INT,
    INT8,
    INT32,
    INT64,
    MAX,
    MIN,
    NCCL_SPLIT_NOCOLOR,
    PROD,
    SUM,
    UINT8,
    UINT32,
    UINT64,
    CommMemStat,
    CommShrinkFlag,
    CommSuspendFlag,
    CTAPolicy,
    NCCLConfig,
    NcclDataType,
    NcclRedOp,
    WaitSignalDesc,
    WindowFlag,
)
from rocpy.rccl import UniqueId

__all__ = [
    "AVG",
    "BFLOAT16",
    "CHAR",
    "DOUBLE",
    "FLOAT",
    "FLOAT8E4M3",
    "FLOAT8E5M2",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "HALF",
    "INT",
    "INT8",
    "INT32",
    "INT64",
    "MAX",
    "MIN",
    "NCCL_SPLIT_NOCOLOR",
    "PROD",
    "SUM",
    "UINT8",
    "UINT32",
    "UINT64",
    "CTAPolicy",
    "CommMemStat",
    "CommShrinkFlag",
    "CommSuspendFlag",
    "Communicator",
    "CustomRedOp",
    "GroupSimInfo",
    "NCCLConfig",
    "NCCLError",
    "NcclDataType",
    "NcclInvalid",
    "NcclRedOp",
    "RegisteredBufferHandle",
    "RegisteredWindowHandle",
    "UniqueId",
    "Version",
    "WaitSignalDesc",
    "WindowFlag",
    "dump_params",
    "get_error_string",
    "get_last_error",
    "get_unique_id",
    "get_version",
    "group",
    "group_end",
    "group_simulate_end",
    "group_start",
    "mem_alloc",
    "mem_free",
    "params",
]
