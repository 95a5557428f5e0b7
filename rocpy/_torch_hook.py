# SPDX-License-Identifier: MIT
"""Brings in rocpy.torch when it is needed and no sooner: at a tensor, at torch's compiler, at a process group."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rocpy._operand import set_torch_dispatcher

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importlib.abc brings in what reads packages' files, a tenth of the time of `import rocpy`
    Loader = MetaPathFinder = object

_COMPILER = "torch._dynamo"
_DISTRIBUTED = "torch.distributed.distributed_c10d"


def install() -> None:
    """Register what calls torch's dispatcher, and tell torch's compiler and torch.distributed once they are there."""
    set_torch_dispatcher(dispatch)
    for module, tell in ((_COMPILER, _tell_compiler), (_DISTRIBUTED, _tell_distributed)):
        if module in sys.modules:
            tell()
        elif not any(isinstance(finder, _Finder) and finder.module == module for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder(module, tell))


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


class _Finder(MetaPathFinder):
    """Sees the import of one module of torch's, which is loaded when it is first used, and no other."""

    def __init__(self, module: str, tell: Callable[[], None]) -> None:
        self.module = module
        self._tell = tell

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that tells it of rocpy afterwards."""
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._tell)
        return spec


class _Loader(Loader):
    """Loads a module as its own loader does, then tells it."""

    def __init__(self, own: Loader, tell: Callable[[], None]) -> None:
        self._own = own
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._tell()
