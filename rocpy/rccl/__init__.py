# SPDX-License-Identifier: MIT
"""Collectives over RCCL, on AMD GPUs and, through the same C ABI, between threads and processes of any machine.

Every wait has a deadline, and every error says which rank is missing, gone or of another opinion.
"""

from rocpy.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidArgumentError,
    InvalidUsageError,
    RcclError,
    RcclInternalError,
    RcclSystemError,
    RemoteError,
)
from rocpy.rccl._about import empty, error_string, last_error, parameters, version
from rocpy.rccl._carried import CarriedCommunicator
from rocpy.rccl._communicator import Communicator
from rocpy.rccl._group import group
from rocpy.rccl._ras import diagnose, machine_status
from rocpy.rccl._status import status
from rocpy.rccl._unique_id import UniqueId
from rocpy.rccl._window import Window
from rocpy.rccl._work import Work
from rocpy.rccl.communicator import PreMulSum

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
