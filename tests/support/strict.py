# SPDX-License-Identifier: MIT
"""What tests know of the host platform's strict mode, which leaves out the products that AMD lists for no card."""

from __future__ import annotations

import os
from typing import Any

import pytest

__all__ = ["is_strict", "skip_extension"]


def is_strict() -> bool:
    """Whether the platform leaves its extensions out."""
    return os.environ.get("ROCPY_HOST_STRICT") == "1"


def skip_extension(*args: Any, **kwargs: Any) -> None:
    """Skip a test of how the platform itself computes an extension, in strict mode; the arguments are `supported`'s."""
    from rocpy.blaslt import supported

    if is_strict():
        answer = supported(*args, **kwargs, extensions=False)
        if not answer or answer.lowering == "unfused":
            pytest.skip(f"strict mode leaves it out: {answer}")
