# SPDX-License-Identifier: MIT
"""Collectives over RCCL, on AMD GPUs and, through the same C ABI, between threads and processes on any machine.

Every wait has a deadline, and errors name the rank that is missing, has exited, or made a different call.
"""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidArgumentError,
    InvalidUsageError,
    RcclError,
    RcclInternalError,
    RcclOutOfMemoryError,
    RcclSystemError,
    RemoteError,
)
from rocpy.rccl.carriers.communicator import CarriedCommunicator
from rocpy.rccl.handles.communicator import PreMulSum
from rocpy.rccl.handles.status import status
from rocpy.rccl.monitoring.ras import diagnose, machine_status
from rocpy.rccl.public.about import empty, error_string, last_error, parameters, version
from rocpy.rccl.public.communicator import Communicator
from rocpy.rccl.public.group import group
from rocpy.rccl.public.unique_id import UniqueId
from rocpy.rccl.public.window import Window
from rocpy.rccl.public.work import Work

__all__ = [
    "CarriedCommunicator",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "Communicator",
    "InvalidArgumentError",
    "InvalidUsageError",
    "PreMulSum",
    "RcclError",
    "RcclInternalError",
    "RcclOutOfMemoryError",
    "RcclSystemError",
    "RemoteError",
    "UniqueId",
    "Window",
    "Work",
    "diagnose",
    "empty",
    "error_string",
    "group",
    "last_error",
    "machine_status",
    "parameters",
    "status",
    "version",
]

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())
