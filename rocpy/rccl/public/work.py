# SPDX-License-Identifier: MIT
"""Work: an operation that runs while the program continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from rocpy._messages.pickling import refuse_pickling
from rocpy.errors import ClosedError, InvalidUsageError
from rocpy.rccl.engine.call import Call
from rocpy.rccl.handles.communicator import Handle

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    _Result = TypeVar("_Result", default=Any)
else:
    from typing import TypeVar

    _Result = TypeVar("_Result")  # no defaults before Python 3.13

__all__ = ["Work"]


class Work(Generic[_Result]):
    """An operation that was called with ``block=False``.

    Parameters
    ----------
    communicator
        The communicator of the call.
    call
        The call.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     work = comm.all_reduce(np.ones(2), block=False)
    ...     work.wait(timeout_s=2)
    array([1., 1.])
    """

    def __init__(self, communicator: Handle, call: Call) -> None:
        self._communicator = communicator
        self._call = call

    def wait(self, timeout_s: float | None = None) -> _Result:
        """Wait until the operation has finished, and return its result.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; by default the `timeout_s` of the call, or else the communicator's. After a
            timeout it may be waited for again.

        Returns
        -------
        array or None
            What the call would have returned.

        Raises
        ------
        CollectiveTimeoutError
            It has not finished: ``waiting_for`` names the ranks that have not arrived.
        InvalidUsageError
            It was called in a `group` whose block has not ended: nothing is launched before that.
        ClosedError
            It was called in a `group` that was never launched, because the block or the launch raised.
        """
        if self._is_in_open_group():
            raise InvalidUsageError(
                f"wait: {self._call.op_name} is launched when its group ends; wait for it after the group's block",
                op=self._call.op_name,
                rank=self._communicator.rank,
                library="rccl",
            )
        result: _Result = self._communicator.await_call(self._call, timeout_s)
        return result

    def _is_in_open_group(self) -> bool:
        state = self._call.group
        if state is None or state.is_launched:
            return False
        if not state.is_open:
            raise ClosedError(f"{self._call.op_name} was never launched, because its group raised; call it again")
        return True

    @property
    def done(self) -> bool:
        """Whether the operation has finished, even if later work of its stream has not.

        On AMD GPUs the calls of one `group` on a communicator finish together.
        """
        return not self._is_in_open_group() and self._communicator.call_done(self._call)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "wait for it where it was called, and pass on the result")

    def __repr__(self) -> str:
        number = f" number {self._call.seq}" if self._call.seq else ""  # it has none before it is launched
        return f"rocpy.rccl.Work({self._call.op_name}{number})"
