# SPDX-License-Identifier: MIT
"""Brings in rocpy.torch when it is needed and no sooner: at a tensor that needs it, and at torch's compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rocpy._operand import set_torch_dispatcher

_COMPILER = "torch._dynamo"


def install() -> None:
    """Register what calls torch's dispatcher, and have the compiler told of rocpy.matmul once it is there."""
    set_torch_dispatcher(dispatch)
    if _COMPILER in sys.modules:
        _tell_compiler()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function through torch's dispatcher. Importing the layer replaces this function by its own."""
    from rocpy.torch._dispatch import dispatch as layer

    return layer(name, args, kwargs)


def _tell_compiler() -> None:
    from rocpy.torch._compiler import register

    register()


class _Finder(MetaPathFinder):
    """Sees the import of torch's compiler, which is loaded at the first use of it, and no other."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the compiler's own spec, with a loader that tells it of rocpy afterwards."""
        if fullname != _COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads the compiler as its own loader does, then tells it."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        _tell_compiler()
