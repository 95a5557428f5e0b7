# SPDX-License-Identifier: MIT
# Types of what a graph needs of a stream; stream_handle.pyx has the documentation.
from typing_extensions import disjoint_base

from rocpy.runtime.handles.owner import Owner

@disjoint_base
class StreamHandle(Owner):
    @property
    def handle(self) -> int: ...
