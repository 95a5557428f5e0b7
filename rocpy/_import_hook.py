# SPDX-License-Identifier: MIT
"""Tells a function that a module of another package has been imported, and imports nothing itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importlib.abc brings in what reads packages' files, a tenth of the time of `import rocpy`
    Loader = MetaPathFinder = object


def when_imported(module: str, tell: Callable[[], None]) -> None:
    """Call a function once a module has been imported; at once, if it has.

    Parameters
    ----------
    module
        Full name.
    tell
        Takes nothing. Only the first function that is given for a module is called.
    """
    if module in sys.modules:
        tell()
    elif not any(isinstance(finder, _Finder) and finder.module == module for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(module, tell))


class _Finder(MetaPathFinder):
    """Sees the import of one module, which is loaded when it is first used, and no other."""

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
