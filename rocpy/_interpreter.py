# SPDX-License-Identifier: MIT
"""Refuses the import where extension modules cannot be loaded: from an archive, and in a sub-interpreter.

There one of them would wait for ever.
"""

from __future__ import annotations

import importlib
import zipimport  # Python has it from its start
from typing import Any

__all__: list[str] = []


def _interpreters() -> Any:
    """Return CPython's module about its interpreters; ``None`` where it has none."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on; before
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _refuse_sub_interpreters(module: Any) -> None:
    if module is not None and module.get_current() != module.get_main():
        raise ImportError(
            "rocpy cannot be imported in a sub-interpreter: its extension modules, and NumPy's, serve the main "
            "interpreter of a process only; import it there (under mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )


def _refuse_archives(loader: object) -> None:
    if isinstance(loader, zipimport.zipimporter):
        raise ImportError(
            f"rocpy cannot be imported from the archive {loader.archive}: its extension modules and libraries must be "
            "files; install it into a folder (pip install --target FOLDER) and put that on the path before the archive"
        )


_refuse_archives(getattr(__spec__, "loader", None))
_refuse_sub_interpreters(_interpreters())
