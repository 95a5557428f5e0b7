# SPDX-License-Identifier: MIT
"""Names and rules of other libraries over rocpy, so that programs written for them run after changing an import."""

import importlib
from typing import TYPE_CHECKING

from rocpy._messages.suggestions import missing_attribute
from rocpy._signatures import public_names

if TYPE_CHECKING:
    from rocpy.compat import nccl, nvmath

__all__ = ["nccl", "nvmath"]

__dir__ = public_names(globals())

if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise missing_attribute(__name__, name, __all__)
        return importlib.import_module(f"rocpy.compat.{name}")
