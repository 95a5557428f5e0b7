# SPDX-License-Identifier: MIT
# Types of what other modules ask of streams; streams.pyx has the documentation.
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class SynchronizeStream:
    def __new__(cls, handle: int) -> Self: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

def device_and_stream(a: Any, stream: Any) -> tuple[int, int]: ...
