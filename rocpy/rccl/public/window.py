# SPDX-License-Identifier: MIT
"""Window: memory on all ranks that each of them can access."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self

from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import CREATED_BY_METHODS, refuse_construction
from rocpy.errors import ClosedError
from rocpy.rccl.handles.memory import WindowHandle
from rocpy.runtime.memory import Buffer

__all__ = ["Window"]


class Window(WindowHandle):
    """Memory on all ranks that each of them can access; created by `Communicator.window`, on every rank.

    Attributes
    ----------
    array
        This rank's part: the array that was passed to `Communicator.window`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     with comm.window(comm.empty((4,), "float32", window=True)) as win:
    ...         np.asarray(win.array)[:] = 3
    ...         np.from_dlpack(win.peer(0)).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """

    __signature__ = CREATED_BY_METHODS

    def __init__(self, *_: object, **__: object) -> None:
        refuse_construction("Window", "Communicator.window, on every rank")

    def peer(self, rank: int) -> Buffer:
        """Return another rank's part as an array that supports DLPack, if this process can access it.

        It is that memory itself, which stays valid as long as the array exists. Accesses are not ordered with the
        owner's: use a barrier or a signal in between.

        Parameters
        ----------
        rank
            The rank.

        Returns
        -------
        Buffer
            Of this rank's shape, or one-dimensional if the other rank's part has another size.

        Raises
        ------
        UnsupportedError
            On this platform only kernels and puts can access it (AMD GPUs).
        """
        buffer: Buffer = self.peer_buffer(rank)
        return buffer

    def __enter__(self) -> Self:
        if self.is_closed and not self.is_begun:  # in a group it does not exist yet
            raise ClosedError("this Window has been closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rocpy.rccl.Window({'closed' if self.is_closed else repr(self.array)})"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "open one in the other process, which every rank does at once")
