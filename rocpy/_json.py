# SPDX-License-Identifier: MIT
"""JSON whose module is imported when it is first needed: `import rocpy` is faster without it."""

from __future__ import annotations

from typing import Any

__all__ = ["dumps", "loads"]


def dumps(value: object, *, sort_keys: bool = False, indent: int | None = None) -> str:
    """Return a value as JSON."""
    import json

    return json.dumps(value, sort_keys=sort_keys, indent=indent)


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError if it is none."""
    import json

    return json.loads(text)
