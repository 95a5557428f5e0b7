# SPDX-License-Identifier: MIT
# Types of the making of communicators from communicators.
from collections.abc import Sequence

from rocpy.rccl.communicator import Handle

def split(self: Handle, made: Handle, color: int, key: int, seconds: float) -> bool: ...
def shrink(self: Handle, made: Handle, excluded: Sequence[int], abort: bool, seconds: float) -> bool: ...
