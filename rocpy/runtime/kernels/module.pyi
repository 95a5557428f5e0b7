# SPDX-License-Identifier: MIT
# Types of code objects and their kernels; module.pyx has the documentation.
from collections.abc import Sequence
from typing import Any, Never, NoReturn

from typing_extensions import disjoint_base

from rocpy.runtime.device import Device
from rocpy.runtime.handles.owner import Owner
from rocpy.typing import StreamLike

@disjoint_base
class Module(Owner):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @staticmethod
    def from_code(code: bytes | bytearray | memoryview, *, device: Device | int | None = None) -> Module: ...
    @property
    def handle(self) -> int: ...
    def kernel(self, name: str) -> Kernel: ...

@disjoint_base
class Kernel:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
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
    def __reduce__(self) -> NoReturn: ...
