# SPDX-License-Identifier: MIT
"""Brings in rocpy.torch when it is needed and no sooner: at a tensor, at torch's compiler, at a process group."""

from __future__ import annotations

from typing import Any

import rocpy_torch_backend
from rocpy._import_hook import when_imported
from rocpy._operand import set_torch_dispatcher


def install() -> None:
    """Register what calls torch's dispatcher, and tell torch's compiler and torch.distributed once they are there."""
    set_torch_dispatcher(dispatch)
    rocpy_torch_backend.autoload()
    when_imported("torch._dynamo", _tell_compiler)


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function through torch's dispatcher. Importing the layer replaces this function by its own."""
    from rocpy.torch._dispatch import dispatch as layer

    return layer(name, args, kwargs)


def _tell_compiler() -> None:
    from rocpy.torch._compiler import register

    register()
