# SPDX-License-Identifier: MIT
"""Refuses the import in a sub-interpreter, before an extension module is loaded that would wait for ever there."""

from __future__ import annotations

import importlib
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


_refuse_sub_interpreters(_interpreters())
