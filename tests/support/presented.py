# SPDX-License-Identifier: MIT
"""What tests know of the platform that they run on: the products of the release that it presents, and strict mode."""

from __future__ import annotations

import os
from typing import Any

import pytest

__all__ = ["is_composed", "is_native", "is_strict", "skip_composed", "skip_extension", "skip_without"]


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


def skip_without(*args: Any, **kwargs: Any) -> None:
    """Skip a test of a product that the release has not, such as complex ones; arguments as `supported`'s."""
    from rocpy.blaslt import supported

    answer = supported(*args, **kwargs)
    if not answer:
        pytest.skip(f"this release has no such product: {answer}")


def skip_composed(*args: Any, **kwargs: Any) -> None:
    """Skip a test of a captured product that this release computes only with the framework's own operations."""
    if is_composed(*args, **kwargs):
        pytest.skip("this release has no such product, and no graph contains a composed one")


def is_composed(*args: Any, **kwargs: Any) -> bool:
    """Whether a product is composed on this release or in strict mode; the arguments are `supported`'s."""
    from rocpy.blaslt import supported

    return bool(supported(*args, **kwargs).lowering == "unfused")


def is_native(*args: Any, **kwargs: Any) -> bool:
    """Whether the release computes a product by itself; the arguments are `supported`'s."""
    from rocpy.blaslt import supported

    return bool(supported(*args, **kwargs).lowering == "native")
