# SPDX-License-Identifier: MIT
"""The scales of a product as arguments, with that of a Weight among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.errors import InvalidProblemError

SCALES = ("scale_a", "scale_b", "scale_c", "scale_d", "amax")


def scales_of(settings: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the scales among keyword arguments, and whether ``amax`` is wanted; ``None`` where there are none."""
    scales = tuple(settings.get(name) for name in SCALES)
    return None if all(value is None for value in scales) else (*scales[:4], bool(scales[4]))


def weight_scales(scales: tuple[Any, ...] | None, scale: Any) -> tuple[Any, ...]:
    """Return the scales of a product with a Weight's own among them; the sixth item says that they are."""
    if scales is None:
        return (None, scale, None, None, False, True)
    if scales[1] is not None:
        raise InvalidProblemError("scale_b: the Weight already has a scale; omit it")
    return (scales[0], scale, *scales[2:5], True)


def all_scales(b: Any, scales: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the scales of a product with that of a Weight among them; ``None`` where there are none."""
    chosen = None if all(value is None or value is False for value in scales) else scales
    scale = b.factors if is_weight(b) else None
    return chosen if scale is None else weight_scales(chosen, scale)


def scale_arguments(b: Any, scales: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return the scales as keyword arguments, without that which b brings along."""
    if scales is None:
        return {}
    arguments = {
        name: value for name, value in zip(SCALES, scales, strict=False) if value is not None and value is not False
    }
    if getattr(b, "scale", None) is not None and is_weight(b):
        arguments.pop("scale_b", None)
    return arguments
