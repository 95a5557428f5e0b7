# SPDX-License-Identifier: MIT
# Types of how a rank joins a communicator.
from collections.abc import Mapping
from typing import Any

from rocpy.rccl.handles.communicator import Handle
from rocpy.runtime.device import Device

def start_init(
    self: Handle,
    nranks: int,
    rank: int,
    unique_id: Any,
    device: Device | int | None,
    timeout_s: float,
    name: str,
    *,
    settings: Mapping[str, int | str] | None = None,
    grows: bool = False,
) -> None: ...
def finish_init(
    self: Handle,
    deadline: float,
    seconds: float,
    op: str = "init",
    seq: int | None = None,
    parent: Handle | None = None,
) -> None: ...
