# SPDX-License-Identifier: MIT
"""Blocks and warps as types of Numba's."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.datamodel import models
from numba.extending import register_model

from rocpy.cooperative.numba.llvm_types import I32


class GroupType(types.Type):
    """A block or a warp; at run time its width, which is 0 for the block."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"coop.{kind}")


BLOCK = GroupType("block")
WARP = GroupType("warp")


@register_model(GroupType)
class _GroupModel(models.PrimitiveModel):
    def __init__(self, manager: Any, group: GroupType) -> None:
        super().__init__(manager, group, I32)
