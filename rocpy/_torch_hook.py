# SPDX-License-Identifier: MIT
"""Brings in rocpy.torch when it is needed and no sooner: at a tensor, at torch's compiler, at a process group."""

from __future__ import annotations

import sys
from typing import Any

from rocpy._import_hook import when_imported
from rocpy._operand import set_torch_dispatcher

_COMPILER = "torch._dynamo"
_DISTRIBUTED = "torch.distributed.distributed_c10d"


def install() -> None:
    """Register what calls torch's dispatcher, and tell torch's compiler and torch.distributed once they are there."""
    set_torch_dispatcher(dispatch)
    when_imported(_COMPILER, _tell_compiler)
    when_imported(_DISTRIBUTED, _tell_distributed)


def autoload() -> None:
    """Do nothing: torch calls this entry point of ``torch.backends`` when it is imported, and so imports rocpy."""


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function through torch's dispatcher. Importing the layer replaces this function by its own."""
    from rocpy.torch._dispatch import dispatch as layer

    return layer(name, args, kwargs)


def _tell_compiler() -> None:
    from rocpy.torch._compiler import register

    register()


def _tell_distributed() -> None:
    backend = sys.modules[_DISTRIBUTED].Backend
    if "rocpy" not in backend.backend_list:
        backend.register_backend("rocpy", _process_group, devices=["cpu", "cuda"])


def _process_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from rocpy.torch._process_group import create

    return create(store, rank, size, timeout)
