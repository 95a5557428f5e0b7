# SPDX-License-Identifier: MIT
# Types of what a graph needs of a stream; stream_handle.pyx has the documentation.
from typing import Any

from typing_extensions import disjoint_base

from rocpy.runtime.handles.owner import Owner

@disjoint_base
class StreamHandle(Owner):
    @property
    def handle(self) -> int: ...

def hold_stream(stream: Any) -> Any: ...
def stream_device(stream: Any) -> int: ...
