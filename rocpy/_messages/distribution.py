# SPDX-License-Identifier: MIT
"""What the package was installed from: its name, which need not be the package's, its version, and its extras."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["install_command", "version"]


@functools.cache
def _installed() -> Distribution | None:
    """Return the distribution that brought the command ``rocpy``; None in a source tree that was never installed."""
    from importlib.metadata import entry_points  # a third of the time of `import rocpy`

    scripts = entry_points(group="console_scripts", name="rocpy")
    return next((script.dist for script in scripts if script.value == "rocpy.cli:main"), None)


def version() -> str:
    """Return the version; "0+unknown" without metadata."""
    installed = _installed()
    return "0+unknown" if installed is None else installed.version


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs: ``pip install 'NAME[extra]'``."""
    installed = _installed()
    return f"pip install '{'rocpy' if installed is None else installed.name}[{extra}]'"
