# SPDX-License-Identifier: MIT
"""Types of the keyword arguments of collectives; type checkers read this module, nothing imports it."""

from __future__ import annotations

from typing import TypedDict

from rocpy.rccl.handles.communicator import PreMulSum
from rocpy.rccl.model.operators import ReduceOp
from rocpy.typing import ArrayLike, StreamLike


class CallArguments(TypedDict, total=False):
    """Of every call."""

    timeout_s: float | None
    stream: StreamLike | None


class OutArguments(CallArguments, total=False):
    """Of a collective with a result."""

    out: ArrayLike | None


class CombineArguments(OutArguments, total=False):
    """Of one that combines arrays."""

    op: ReduceOp | PreMulSum
