# SPDX-License-Identifier: MIT
"""Compiled kernels on disk: records as JSON in the user's cache folder, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["folder", "read", "write"]


def folder() -> Path:
    """Return where compiled kernels are kept."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("rocpy", appauthor=False)) / "kernels"


def read(path: Path) -> dict[str, Any] | None:
    """Return a kept record, its ``code`` as bytes; ``None`` where there is none, or none that can be read."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        data["code"] = bytes.fromhex(data["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Keep a record; a folder that cannot be written keeps nothing."""
    data = {**record, "code": record["code"].hex()}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=path.stem, suffix=".tmp", delete=False
        ) as file:
            json.dump(data, file)
        os.replace(file.name, path)  # noqa: PTH105 (both are names of files)
