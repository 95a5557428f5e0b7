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


class RootArguments(OutArguments, total=False):
    """Of one that names a rank."""

    root: int


class CombineArguments(OutArguments, total=False):
    """Of one that combines arrays."""

    op: ReduceOp | PreMulSum


class ReduceArguments(CombineArguments, total=False):
    """Of ``reduce``."""

    root: int


class AllReduceArguments(CombineArguments, total=False):
    """Of ``all_reduce``."""

    bias: ArrayLike | None
