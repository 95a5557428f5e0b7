# SPDX-License-Identifier: MIT
"""What an nccl4py communicator owns until it ends: registered memory, windows, operators; and what RCCL cannot make."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from rocpy._messages.pickling import refuse_pickling
from rocpy.compat.nccl._enums import WindowFlag
from rocpy.compat.nccl._errors import CFT, DEVICE_API, MULTIMEM, NcclInvalid, translated, unsupported, whole_number
from rocpy.compat.nccl._operands import Row
from rocpy.compat.nccl._records import NCCLTeam
from rocpy.errors import UnsupportedError
from rocpy.rccl import PreMulSum, Window
from rocpy.rccl.handles.memory import Registration


class Resource(Protocol):
    """Something that is released once."""

    def close(self) -> None:
        """Release it; calling it again has no effect."""


class RegisteredBufferHandle:
    """Memory that collectives use directly; created by `Communicator.register_buffer`."""

    def __init__(self, registration: Registration, row: Row) -> None:
        self._registration = registration
        self._is_closed = False
        self._size = row.nbytes

    @property
    def is_valid(self) -> bool:
        """Whether it has not been closed."""
        return not self._is_closed

    @property
    def handle(self) -> int:
        """RCCL's handle as a number."""
        if self._is_closed:
            raise NcclInvalid("this RegisteredBufferHandle has been closed")
        return self._registration.number

    @property
    def size(self) -> int:
        """The size of the memory in bytes."""
        return self._size

    def close(self) -> None:
        """Undo the registration; calling it again has no effect."""
        self._is_closed = True
        self._registration.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "register the memory there")

    def __repr__(self) -> str:
        return f"rocpy.compat.nccl.RegisteredBufferHandle({'open' if self.is_valid else 'closed'}, size={self._size})"


class RegisteredWindowHandle:
    """Memory on all ranks that each of them can access; created by `Communicator.register_window`.

    Attributes
    ----------
    window
        rocpy's window, which also has `peer`; ``None`` if RCCL cannot create a window for the memory.
    """

    def __init__(self, window: Window | None, row: Row, flags: WindowFlag) -> None:
        self.window = window
        self._row = row
        self._flags = flags

    def _open(self) -> Window:
        if self.window is None or self.window.is_closed:
            raise NcclInvalid(
                "this RegisteredWindowHandle is closed, its group is still open, or RCCL did not create a window"
            )
        return self.window

    @property
    def is_valid(self) -> bool:
        """Whether there is a window that has not been closed; in a group, only after its end."""
        return self.window is not None and not self.window.is_closed

    @property
    def handle(self) -> int:
        """RCCL's handle as a number; 0 while there is none."""
        return 0 if self.window is None else self.window.number

    @property
    def size(self) -> int:
        """The size of this rank's part in bytes."""
        return self._row.nbytes

    @property
    def user_ptr(self) -> int:
        """The address of this rank's part."""
        self._open()
        return self._row.address

    @translated
    def get_peer_device_pointer(self, peer: int, offset: int = 0) -> int | None:
        """Return the address of another rank's part if this process can access it, otherwise ``None``."""
        try:
            return _address(self._open().peer(peer).handle, offset)
        except UnsupportedError:
            return None

    @translated
    def get_lsa_device_pointer(self, lsa_rank: int, offset: int = 0) -> int:
        """Return the address of another rank's part.

        Raises
        ------
        UnsupportedError
            This process cannot access it.
        """
        return _address(self._open().peer(lsa_rank).handle, offset)

    def get_lsa_multimem_device_pointer(self, offset: int = 0) -> None:  # noqa: ARG002  (nccl4py's)
        """Return ``None``: no AMD GPU writes to the memory of several at once."""
        self._open()

    def get_multimem_device_pointer(self, multimem: MultimemHandle, offset: int = 0) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: no AMD GPU writes to the memory of several at once."""
        raise unsupported("RegisteredWindowHandle.get_multimem_device_pointer", MULTIMEM)

    def get_multimem_le_info(self, offset: int = 0) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: RCCL has no Compute Fabric Transport."""
        raise unsupported("RegisteredWindowHandle.get_multimem_le_info", CFT)

    def get_cft_le_info(self, peer_cft: int, cft_team: NCCLTeam, offset: int = 0) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: RCCL has no Compute Fabric Transport."""
        raise unsupported("RegisteredWindowHandle.get_cft_le_info", CFT)

    def get_peer_le_info(self, peer: int, offset: int = 0) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: RCCL has no Compute Fabric Transport."""
        raise unsupported("RegisteredWindowHandle.get_peer_le_info", CFT)

    def close(self) -> None:
        """Release the window; calling it again has no effect."""
        if self.window is not None:
            self.window.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "every rank registers a window at once")

    def __repr__(self) -> str:
        state = "open" if self.is_valid else "closed"
        return f"rocpy.compat.nccl.RegisteredWindowHandle({state}, size={self.size}, flags={self._flags!r})"


def _address(base: int, offset: int) -> int:
    return int(base) + whole_number("offset", offset, "a number of bytes")


class CustomRedOp:
    """An operator that multiplies a rank's input by its scalar before the sum.

    Created by `Communicator.create_pre_mul_sum`.
    """

    def __init__(self, op: PreMulSum) -> None:
        self._op: PreMulSum | None = op

    @property
    def own(self) -> PreMulSum:
        """What rocpy's calls take."""
        if self._op is None:
            raise NcclInvalid("this CustomRedOp has been closed")
        return self._op

    @property
    def op(self) -> int:
        """RCCL's number of it."""
        return self.own.handle

    def __int__(self) -> int:
        return self.op

    @property
    def is_valid(self) -> bool:
        """Whether it has not been closed."""
        return self._op is not None

    def close(self) -> None:
        """Release it; calling it again has no effect."""
        if self._op is not None:
            self._op.close()
        self._op = None

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "create it there")

    def __repr__(self) -> str:
        return f"rocpy.compat.nccl.CustomRedOp({'open' if self.is_valid else 'closed'})"


class _NotThere:
    """What nccl4py's device API gives: RCCL can make none of it."""

    _reason = DEVICE_API

    def __init__(self, *_: Any, **__: Any) -> None:
        raise unsupported(type(self).__name__, self._reason)


class MultimemHandle(_NotThere):
    """Memory of several GPUs that is written at once: refused, no AMD GPU has it."""

    _reason = MULTIMEM
    mc_base_pointer: int


class LsaBarrierHandle(_NotThere):
    """Barriers of nccl4py's device API: refused."""

    buf_handle: int
    n_barriers: int


class GinBarrierHandle(_NotThere):
    """Barriers of nccl4py's device API: refused."""

    signal0: int


class LLA2AHandle(_NotThere):
    """Memory for all-to-all of nccl4py's device API: refused."""

    buf_handle: int
    n_slots: int


class DevCommResource(_NotThere):
    """A communicator for kernels: refused."""

    dev_comm: Any
    ptr: int
    resource_handles: tuple[Any, ...]

    def multimem_handle(self, team: NCCLTeam) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: no AMD GPU writes to the memory of several at once."""
        raise unsupported("DevCommResource.multimem_handle", MULTIMEM)
