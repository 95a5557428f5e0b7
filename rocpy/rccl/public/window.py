# SPDX-License-Identifier: MIT
"""Window: memory of all ranks that each of them can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import CREATED_BY_METHODS
from rocpy.rccl.handles.memory import WindowHandle

if TYPE_CHECKING:
    from types import TracebackType

    from rocpy.runtime.memory import Buffer

__all__ = ["Window"]


class Window(WindowHandle):
    """Memory of all ranks that each of them can reach; made by `Communicator.window`, on every rank.

    Attributes
    ----------
    array
        This rank's part: what `Communicator.window` was given.

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

    def peer(self, rank: int) -> Buffer:
        """Return another rank's part as an array, by DLPack, where this process reaches it.

        It is that memory itself, and it stays as long as the array does, but reading and writing are in no order with
        what its owner does: put a barrier, or a signal, between them.

        Parameters
        ----------
        rank
            Whose.

        Returns
        -------
        Buffer
            Of this rank's shape, or one-dimensional where the other rank's part is of another size.

        Raises
        ------
        UnsupportedError
            Only kernels and puts reach it on this platform: on AMD GPUs.
        """
        buffer: Buffer = self.peer_buffer(rank)
        return buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rocpy.rccl.Window({'closed' if self.is_closed else repr(self.array)})"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "open one in the other process, which every rank does at once")
