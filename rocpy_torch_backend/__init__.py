# SPDX-License-Identifier: MIT
"""What torch imports of rocpy by itself: the name of a backend of torch.distributed, and nothing that could fail.

torch imports, with itself, whatever is registered under its entry point ``torch.backends``. This package stands beside
rocpy and not in it, so that ``import torch`` imports no rocpy, and works where rocpy does not.
"""

from __future__ import annotations

import itertools
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
    if sys.modules.get(module) is not None:
        _say(module, tell)
        return
    _finder.waiting.setdefault(module, tell)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _say(module: str, tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception as error:  # noqa: BLE001  (the module is somebody else's: it is to work whatever becomes of rocpy)
        warnings.warn(f"rocpy could not make itself known to {module}: {error!r}", RuntimeWarning, stacklevel=2)


class _Finder(MetaPathFinder):
    """Sees the import of the modules that functions wait for, and no other.

    It stays: a module that is looked up need not be imported, its import may fail and be repeated, and a thread that
    goes through the list of finders while another one shortens it misses one.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that tells of it afterwards."""
        if fullname not in self.waiting:
            return None
        behind = itertools.dropwhile(lambda finder: finder is not self, list(sys.meta_path))
        for finder in itertools.islice(behind, 1, None):
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None

    def tell_of(self, module: str) -> None:
        """Call the function that waits for a module, which has been imported."""
        tell = self.waiting.pop(module, None)
        if tell is not None:
            _say(module, tell)


_finder = _Finder()


class _Loader(Loader):
    """Loads a module as its own loader does, then tells of it."""

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
        _finder.tell_of(module.__name__)
