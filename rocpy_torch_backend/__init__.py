# SPDX-License-Identifier: MIT
"""What torch imports of rocpy by itself: the name of a backend of torch.distributed, and nothing that could fail.

torch imports, with itself, whatever is registered under its entry point ``torch.backends``. This package stands beside
rocpy and not in it, so that ``import torch`` imports no rocpy, and works where rocpy does not.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importlib.abc brings in what reads packages' files, a tenth of the time of `import rocpy`
    Loader = MetaPathFinder = object

__all__ = ["autoload", "when_imported"]

_DISTRIBUTED = "torch.distributed.distributed_c10d"


def autoload() -> None:
    """Have torch.distributed know the backend ``rocpy``: now, or when it is imported. Called by torch."""
    when_imported(_DISTRIBUTED, _tell_distributed)


def _tell_distributed() -> None:
    backend = sys.modules[_DISTRIBUTED].Backend
    if "rocpy" not in backend.backend_list:
        backend.register_backend("rocpy", _process_group, extended_api=True, devices=["cpu", "cuda"])


def _process_group(facts: Any, options: Any) -> Any:  # noqa: ARG001  (what torch passes: it has no options of ours)
    from rocpy.torch.process_group.backend import create
    from rocpy.torch.process_group.surface import check_device_backends

    # torch passes the backends of other devices to nobody, and would use this one for all devices.
    check_device_backends(sys._getframe(1).f_locals.get("backend_config"))
    return create(facts.store, facts.group_rank, facts.group_size, facts.timeout, facts.global_ranks_in_group)


def when_imported(module: str, tell: Callable[[], None]) -> None:
    """Call a function once a module is there; what it raises becomes a warning.

    Parameters
    ----------
    module
        Its full name.
    tell
        Takes nothing; called now if the module has been imported, else after it is. Only the first function that is
        given for a module to come is called.
    """
    if module in sys.modules:
        _say(module, tell)
    elif not any(isinstance(finder, _Finder) and finder.module == module for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(module, tell))


def _say(module: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception as error:  # noqa: BLE001  (the module is somebody else's: it is to work whatever becomes of rocpy)
        warnings.warn(f"rocpy could not make itself known to {module}: {error!r}", RuntimeWarning, stacklevel=2)


class _Finder(MetaPathFinder):
    """Sees the import of one module, and no other."""

    def __init__(self, module: str, tell: Callable[[], None]) -> None:
        self.module = module
        self._tell = tell

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that tells of it afterwards."""
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._tell)
        return spec


class _Loader(Loader):
    """Loads a module as its own loader does, then tells of it."""

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
        _say(module.__name__, self._tell)
