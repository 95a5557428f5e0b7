# SPDX-License-Identifier: MIT
# Types of code objects and their kernels; module.pyx has the documentation.
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from typing_extensions import disjoint_base

from rocpy.runtime.device import Device
from rocpy.typing import StreamLike

@disjoint_base
class Module:
    @property
    def device_index(self) -> int: ...
    @staticmethod
    def from_code(code: bytes | bytearray | memoryview, *, device: Device | int | None = None) -> Module: ...
    @property
    def handle(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    def kernel(self, name: str) -> Kernel: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __del__(self) -> None: ...

@disjoint_base
class Kernel:
    @property
    def module(self) -> Module: ...
    @property
    def name(self) -> str: ...
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        shared_bytes: int = 0,
        stream: StreamLike | None = None,
    ) -> None: ...
