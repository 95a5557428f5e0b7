# SPDX-License-Identifier: MIT
"""nccl4py's Communicator, over rocpy's: how it is made, what it owns, its end."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rocpy import rccl
from rocpy._integers import integer_of
from rocpy._messages.pickling import refuse_pickling
from rocpy.compat.nccl._collectives import Collectives
from rocpy.compat.nccl._config import NCCLConfig
from rocpy.compat.nccl._enums import (
    NCCL_SPLIT_NOCOLOR,
    CommShrinkFlag,
    CommSuspendFlag,
    NcclBufferSpec,
    NcclDataType,
    NcclScalarSpec,
    WindowFlag,
)
from rocpy.compat.nccl._errors import (
    CFT,
    DEVICE_API,
    GIN,
    NcclInvalid,
    translated,
    translated_as,
    translation,
    unsupported,
)
from rocpy.compat.nccl._functions import UniqueId
from rocpy.compat.nccl._operands import row_of
from rocpy.compat.nccl._records import NCCLDevCommRequirements
from rocpy.compat.nccl._resources import CustomRedOp, RegisteredBufferHandle, RegisteredWindowHandle, Resource
from rocpy.errors import UnsupportedError
from rocpy.runtime.memory import Buffer

if TYPE_CHECKING:
    from rocpy.rccl.public.remote import WindowFlags

__all__ = ["Communicator"]

_WINDOW_FLAGS: dict[int, WindowFlags] = {0: "default", 1: "symmetric", 2: "strict", 3: "symmetric_strict"}


class Communicator(Collectives):
    """One rank of a group.

    Parameters
    ----------
    ptr
        0 or ``None``: the null communicator, for `initialize`, or for `grow` by a new rank. A communicator of
        `rocpy.rccl` is used as it is. Communicators of other libraries are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat import nccl
    >>> comms = nccl.Communicator.init_all(2)
    >>> x, y = [np.ones(2), np.ones(2)], [np.zeros(2), np.zeros(2)]
    >>> with nccl.group():
    ...     for rank, comm in enumerate(comms):
    ...         comm.allreduce(x[rank], y[rank], nccl.SUM)
    >>> y[1]
    array([2., 2.])
    >>> with nccl.group():
    ...     for comm in comms:
    ...         comm.destroy()
    """

    def __init__(self, ptr: int | rccl.Communicator | None = None) -> None:
        if isinstance(ptr, int) and ptr != 0:
            raise unsupported(
                "Communicator(ptr)", "rocpy does not adopt communicators of other libraries; create one with init"
            )
        if ptr is not None and not isinstance(ptr, int | rccl.Communicator):
            raise NcclInvalid(f"ptr: got {type(ptr).__name__}, expected 0, None, or a communicator of rocpy.rccl")
        self._own = ptr if isinstance(ptr, rccl.Communicator) else None
        self._resources: list[Resource] = []

    @classmethod
    def init(
        cls,
        nranks: int,
        rank: int,
        unique_id: UniqueId | Sequence[UniqueId],
        config: NCCLConfig | None = None,
    ) -> Communicator:
        """Join a communicator; every rank calls this. Of several unique ids the first is used."""
        communicator = cls()
        communicator.initialize(nranks, rank, unique_id, config)
        return communicator

    @classmethod
    @translated
    def init_all(cls, devices: int | Sequence[int] | None = None) -> list[Communicator]:
        """Create one communicator for each of several devices of this process."""
        if devices is not None and integer_of(devices) is None and not isinstance(devices, Sequence):
            raise TypeError(f"devices: got {type(devices).__name__}, expected a number, a sequence of numbers, or None")
        if devices is not None and not devices:
            return []
        return [cls(one) for one in rccl.Communicator.init_all(devices)]

    @translated
    def initialize(
        self,
        nranks: int,
        rank: int,
        unique_id: UniqueId | Sequence[UniqueId],
        config: NCCLConfig | None = None,
    ) -> None:
        """Join a communicator, as `init` does, with the null communicator."""
        if self.is_valid:
            raise NcclInvalid("initialize: this communicator has been initialized")
        chosen = unique_id[0] if isinstance(unique_id, list | tuple) and unique_id else unique_id
        self._own = rccl.Communicator.init(nranks, rank, _id_bytes(chosen), **_settings(config))
        self._is_finalized = False

    @translated
    def split(self, color: int | None = None, key: int = 0, config: NCCLConfig | None = None) -> Communicator:
        """Create a communicator of the ranks with the same color; the null communicator for ranks without a color."""
        number = None if color is None else _number("color", color)
        if number == NCCL_SPLIT_NOCOLOR:
            number = None
        return Communicator(self.own.split(number, _number("key", key), **_child_settings(config)))

    @translated
    def shrink(
        self,
        exclude_ranks: Sequence[int] | None = None,
        config: NCCLConfig | None = None,
        flag: CommShrinkFlag = CommShrinkFlag.DEFAULT,
    ) -> Communicator:
        """Create a communicator without some ranks, which do not call this."""
        if flag not in (0, 1):
            raise NcclInvalid(f"flag: got {flag!r}, expected a CommShrinkFlag")
        return Communicator(self.own.shrink(exclude_ranks or [], abort=bool(flag), **_child_settings(config)))

    @translated
    def get_unique_id(self) -> UniqueId:
        """Return the unique id with which new ranks join."""
        return UniqueId(bytes(self.own.growth_id()))

    @translated
    def grow(
        self,
        nranks: int,
        unique_id: UniqueId | None = None,
        rank: int | None = None,
        config: NCCLConfig | None = None,
    ) -> Communicator:
        """Create a communicator with more ranks; a new rank calls this on the null communicator, with its rank."""
        if rank is None:
            ident = None if unique_id is None else _id_bytes(unique_id)
            return Communicator(self.own.grow(nranks, ident, **_child_settings(config)))
        if self.is_valid:
            raise NcclInvalid("rank: a new rank calls grow on the null communicator, Communicator()")
        return Communicator(rccl.Communicator.join_grown(nranks, rank, _id_bytes(unique_id), **_settings(config)))

    # ---- its end ----

    def close_all_resources(self) -> None:
        """Release registered memory, windows and operators."""
        while self._resources:
            self._resources.pop().close()

    @translated
    def destroy(self) -> None:
        """Wait until all ranks have finished their work, then release it; calling it again has no effect.

        In a group this happens when the group ends.
        """
        self._is_finalized = False
        self._end()

    @translated
    def finalize(self) -> None:
        """Wait until all ranks have finished their work; it accepts no more calls, and `destroy` must follow.

        rocpy releases RCCL's communicator immediately: `ptr` is 0 from then on. In a group this happens when the group
        ends; a thread with several ranks needs a group.
        """
        if self._own is not None and not (self._own.is_closed and self._own.nranks):  # in a group it may not exist yet
            self._is_finalized = True
            self._end()

    def _end(self) -> None:
        if self._own is None:
            return
        if self._own.is_revoked:
            self.abort()
            return
        self.close_all_resources()
        self._own.close()

    @translated
    def abort(self) -> None:
        """Abort it at once, with all running operations; another thread may call this."""
        self._is_finalized = False
        if self._own is not None:
            self._own.abort()
        self.close_all_resources()

    @translated
    def revoke(self, flags: int = 0) -> None:
        """Cancel running operations, permanently; new communicators can be created from it."""
        if flags != 0:
            raise NcclInvalid(f"flags: got {flags}, expected 0")
        self.own.revoke()

    @translated
    def suspend(self, flags: CommSuspendFlag = CommSuspendFlag.MEM) -> None:
        """Release device memory while it is idle."""
        if flags != CommSuspendFlag.MEM:
            raise NcclInvalid(f"flags: got {flags!r}, expected CommSuspendFlag.MEM")
        self.own.suspend()

    @translated
    def resume(self) -> None:
        """Accept calls again after `suspend`."""
        self.own.resume()

    # ---- memory and operators ----

    @translated_as(**{"array:": "buffer:"})
    def register_buffer(self, buffer: NcclBufferSpec) -> RegisteredBufferHandle:
        """Register a buffer for direct use by this rank's collectives."""
        row = row_of(buffer, "buffer", is_written=True)
        handle = RegisteredBufferHandle(self.own.register_buffer(row.array), row)
        self._resources.append(handle)
        return handle

    @translated
    def register_window(self, buffer: NcclBufferSpec, flags: WindowFlag | None = None) -> RegisteredWindowHandle:
        """Make a buffer accessible to every rank; every rank calls this.

        If RCCL cannot create a window for the memory, the handle is not valid. In a group it is valid after the group
        has ended.
        """
        own = self.own
        try:
            chosen = WindowFlag(flags or 0)
        except (TypeError, ValueError):
            raise NcclInvalid(f"flags: got {flags!r}, expected a WindowFlag") from None
        if chosen & WindowFlag.GIN_ONLY:
            raise unsupported("WindowFlag.GIN_ONLY", GIN)
        if chosen & WindowFlag.CFT_COUNTED:
            raise unsupported("WindowFlag.CFT_COUNTED", CFT)
        if int(chosen) not in _WINDOW_FLAGS:
            raise NcclInvalid(f"flags: got {flags!r}, expected a WindowFlag")
        row = row_of(buffer, "buffer", is_written=True)
        try:
            with translation({"array:": "buffer:", "comm.empty(..., window=True)": "memory of mem_alloc"}):
                window = own.window(row.array, flags=_WINDOW_FLAGS[int(chosen)])
        except UnsupportedError:
            window = None
        handle = RegisteredWindowHandle(window, row, chosen)
        self._resources.append(handle)
        return handle

    @translated_as(dtype="datatype")
    def create_pre_mul_sum(self, scalar: NcclScalarSpec, datatype: NcclDataType | None = None) -> CustomRedOp:
        """Return an operator that multiplies this rank's input by a scalar before the sum.

        The scalar is read now, also from device memory. A Python float is FLOAT64 unless `datatype` is passed.
        """
        value, own_type = _scalar(scalar)
        try:
            chosen = own_type if datatype is None else NcclDataType(datatype)
        except ValueError:
            raise NcclInvalid(f"datatype: got {datatype!r}, expected a NcclDataType") from None
        if not isinstance(scalar, int | float | np.ndarray) and chosen is not own_type:
            raise NcclInvalid(f"datatype: got {chosen.name}, but the scalar is {own_type.name}")
        custom = CustomRedOp(self.own.premul_sum(value, chosen.name_of_dtype))
        self._resources.append(custom)
        return custom

    def create_dev_comm(self, requirements: NCCLDevCommRequirements | None = None) -> NoReturn:  # noqa: ARG002  (nccl4py's)
        """Refuse: RCCL has no device API that Python could use."""
        raise unsupported("Communicator.create_dev_comm", DEVICE_API)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "pass the unique id on, and join with init() there")

    def __repr__(self) -> str:
        return f"rocpy.compat.nccl.Communicator({self._own!r})"


def _id_bytes(unique_id: Any) -> bytes:
    if not isinstance(unique_id, UniqueId | rccl.UniqueId):
        raise NcclInvalid(f"unique_id: got {type(unique_id).__name__}, expected a UniqueId or several")
    return bytes(unique_id)


def _number(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise NcclInvalid(f"{name}: got {value!r}, expected an integer") from None


def _settings(config: NCCLConfig | None) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, NCCLConfig):
        raise NcclInvalid(f"config: got {type(config).__name__}, expected NCCLConfig or None")
    return {"name": config.comm_name or "", "config": config.settings()}


def _child_settings(config: NCCLConfig | None) -> Mapping[str, Any]:
    """Return the settings of a communicator made from another one, whose name it has where none is given."""
    chosen = _settings(config)
    if chosen and config is not None:
        chosen["name"] = config.comm_name
    return chosen


def _scalar(scalar: Any) -> tuple[Any, NcclDataType]:
    """Return a scalar on the CPU, and the type that it has by itself."""
    if isinstance(scalar, int | float):
        return scalar, NcclDataType.FLOAT64 if isinstance(scalar, float) else NcclDataType.INT64
    if isinstance(scalar, np.ndarray | np.generic):
        value = np.asarray(scalar)
        if value.size != 1:
            raise NcclInvalid(f"scalar: has {value.size} elements, expected 1")
        return value.reshape(()), NcclDataType.from_numpy_dtype(value.dtype)
    if not any(hasattr(scalar, name) for name in ("__dlpack__", "__cuda_array_interface__")):
        raise NcclInvalid(f"scalar: got {type(scalar).__name__}, expected a number, or an array of one element")
    row = row_of(scalar, "scalar")
    if row.count != 1:
        raise NcclInvalid(f"scalar: has {row.count} elements, expected 1")
    copy = Buffer((1,), row.dtype.name_of_dtype, device=row.device_id)
    copy.copy_from(row.array)
    return copy.to_numpy().reshape(()), row.dtype
