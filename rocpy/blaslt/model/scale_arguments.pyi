# SPDX-License-Identifier: MIT
# Types of the scales of a product; scale_arguments.pyx has the documentation.
from collections.abc import Mapping
from typing import Any

from typing_extensions import disjoint_base

__all__ = [
    "SCALES",
    "ScaleArguments",
    "all_scales",
    "check_scale_number",
    "plain_scale",
    "scale_keywords",
    "scales_of",
    "with_weight_scale",
]

SCALES: tuple[str, str, str, str]

@disjoint_base
class ScaleArguments:
    def __init__(
        self,
        a: Any = None,
        b: Any = None,
        c: Any = None,
        d: Any = None,
        *,
        amax: bool = False,
        from_weight: bool = False,
    ) -> None: ...
    @property
    def a(self) -> Any: ...
    @property
    def b(self) -> Any: ...
    @property
    def c(self) -> Any: ...
    @property
    def d(self) -> Any: ...
    @property
    def amax(self) -> bool: ...
    @property
    def from_weight(self) -> bool: ...
    def items(self) -> tuple[tuple[str, Any], ...]: ...
    def replaced(self, **changes: Any) -> ScaleArguments: ...

def scales_of(settings: Mapping[str, Any]) -> ScaleArguments | None: ...
def is_scale_array(scale: Any) -> bool: ...
def plain_scale(name: str, value: Any) -> Any: ...
def check_scale_number(name: str, value: Any) -> int: ...
def with_weight_scale(scales: ScaleArguments | None, factors: Any) -> ScaleArguments: ...
def all_scales(b: Any, scales: ScaleArguments | None) -> ScaleArguments | None: ...
def scale_keywords(scales: ScaleArguments | None, b: Any) -> dict[str, Any]: ...
