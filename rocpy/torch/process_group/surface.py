# SPDX-License-Identifier: MIT
"""What torch asks of the backend of a process group, beside its collectives."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import distributed

from rocpy.errors import UnsupportedError
from rocpy.rccl import CollectiveTimeoutError
from rocpy.torch.process_group.coalescing import Coalescing

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.torch.process_group.lanes import LaneWork

__all__ = ["BackendSurface", "CheckedStore", "check_device_backends"]


def check_device_backends(config: Any) -> None:
    """Refuse a group that has another backend for another device: a group that Python makes has one for all.

    Parameters
    ----------
    config
        torch's configuration of the group, if it has one.

    Raises
    ------
    UnsupportedError
        It has a backend besides `rocpy`.
    """
    backends = {} if config is None else config.get_device_backend_map()
    if any(name != "rocpy" for name in backends.values()):
        text = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise UnsupportedError(
            f"backend: got {text!r}; rocpy's process group takes tensors of every device, and none beside it: use "
            "backend='rocpy', and new_group(backend=...) for a group with another backend"
        )


class CheckedStore:
    """A store of torch's, in which a wait for other ranks ends when a check raises.

    Parameters
    ----------
    store
        The store.
    check
        Called while ranks wait.
    """

    def __init__(self, store: Any, check: Callable[[], None]) -> None:
        self._check = check
        self.set, self.get, self._has = store.set, store.get, store.check

    def check(self, keys: list[str]) -> bool:
        """Return whether the store has keys."""
        self._check()
        return bool(self._has(keys))


class BackendSurface(distributed.ProcessGroup):  # type: ignore[misc]
    """A process group that is its own backend, on every device.

    A group of torch's has a backend for each kind of device; one that Python makes has none, and torch raises where it
    asks for it. This one answers for itself.
    """

    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = False

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._coalescing = Coalescing()

    def _get_backend(self, device: torch.device) -> Self:  # noqa: ARG002
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    def supports_tensor_alloc(self, device: torch.device) -> bool:  # noqa: ARG002
        """Whether it allocates tensors of its own: it does not."""
        return False

    def _start_coalescing(self, device: torch.device) -> None:  # noqa: ARG002
        self._coalescing.start()

    def _end_coalescing(self, device: torch.device) -> LaneWork:  # noqa: ARG002
        return self._coalescing.end()

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:  # noqa: ARG002
        """Wait until all ranks have come here; ranks that have not are named on all that have.

        torch.distributed.monitored_barrier itself takes gloo's groups only; this is the method of the group.

        Parameters
        ----------
        timeout
            How long; as long as an operation of the group by default.
        wait_all_ranks
            Taken for gloo's sake: all that are missing are named in any case.

        Raises
        ------
        CollectiveTimeoutError
            Ranks have not come: ``waiting_for`` names them.
        """
        opts = distributed.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        try:
            self.barrier(opts).wait()
        except CollectiveTimeoutError as error:
            error.add_note(f"monitored_barrier: ranks {list(error.waiting_for)} did not reach it")
            raise
