# SPDX-License-Identifier: MIT
"""Communicator, as users have it: how it is made, its collectives, its end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy._messages.keywords import suggest_keywords
from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import CREATED_BY_METHODS, refuse_construction
from rocpy.errors import ClosedError, InvalidArgumentError, RocpyWarning
from rocpy.rccl.engine import library
from rocpy.rccl.engine.call import NAMES
from rocpy.rccl.engine.described import Described
from rocpy.rccl.engine.scope import run_grouped
from rocpy.rccl.handles.communicator import PreMulSum
from rocpy.rccl.handles.joining import finish_init, start_init
from rocpy.rccl.handles.operators import make_premul_sum
from rocpy.rccl.handles.status import register
from rocpy.rccl.model import dtypes
from rocpy.rccl.model.arguments import check_seconds
from rocpy.rccl.model.failures import error_of
from rocpy.rccl.public.family import Family
from rocpy.rccl.public.joining import Joining
from rocpy.rccl.public.remote import Remote
from rocpy.rccl.public.trace import Trace
from rocpy.rccl.public.unique_id import UniqueId
from rocpy.rccl.rendezvous import bootstrap
from rocpy.runtime._foreign import array_view
from rocpy.runtime.device import Device
from rocpy.typing import ArrayDType

__all__ = ["Communicator"]


@default_arithmetic
def _cast(number: np.ndarray[Any, Any], dtype: Any) -> Any:
    with np.errstate(all="ignore"):  # what comes of it is looked at
        return number.astype(dtype)


@default_arithmetic
def _kind_of(number: Any) -> str:
    """Return what kind of a float a number is."""
    wide = number.astype(np.float64) if number.dtype.kind == "V" else number
    return "nan" if np.isnan(wide).all() else "inf" if np.isinf(wide).all() else "finite"


class Communicator(Joining, Remote, Family):
    """One rank of a group; created by `init`, `init_all` and the methods whose names begin with ``from_``.

    As a context manager it is finalized when the block ends normally, and aborted, which the other ranks detect, when
    the block raises. A communicator may be used by one thread at a time. Operands are C-contiguous arrays of any
    framework; results are new arrays of the operand's framework, or `out`. A call on CPU memory returns when it has
    finished, a call on a GPU's memory as soon as it is queued on its stream. On the host platform all memory is the
    CPU's, that of a `Buffer` too.

    Attributes
    ----------
    rank, nranks
        This rank, and the number of ranks.
    device_index
        Index of its device; each rank needs its own.
    timeout_s
        Default of how long a wait may take, in seconds.
    name
         Name, for display.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     comm.all_reduce(np.arange(3.0))
    array([0., 1., 2.])
    """

    __signature__ = CREATED_BY_METHODS

    def __init__(self, *_: object, **__: object) -> None:
        refuse_construction("Communicator", "init, init_all, join_grown, from_env, from_store, from_mpi or from_torch")

    @classmethod
    @suggest_keywords
    def init(
        cls,
        nranks: int,
        rank: int,
        unique_id: UniqueId | bytes,
        *,
        device: Device | int | None = None,
        timeout_s: float = 30.0,
        name: str = "",
        config: Mapping[str, int | str] | None = None,
    ) -> Self:
        """Join a communicator; every rank calls this, in its own thread or process (ncclCommInitRankConfig).

        Parameters
        ----------
        nranks, rank
            The number of ranks, and this rank.
        unique_id
            The same on all ranks.
        device
            This rank's device; the thread's current one by default. It does not become the current one: a thread that
            also computes does so within `rocpy.Device`, for a product on another rank's device waits for that rank.
        timeout_s
            How long to wait for the other ranks, in seconds; also the default of the communicator's calls.
        name
            Name, shown by `status`.
        config
            RCCL's settings for this communicator, fields of ``ncclConfig_t``: ``cga_cluster_size``, ``min_ctas``,
            ``max_ctas``, ``net_name``, ``split_share``, ``traffic_class``, ``collnet_enable``, ``cta_policy``,
            ``shrink_share``, ``nvls_ctas``, ``n_channels_per_net_peer``, ``nvlink_centric_sched``,
            ``graph_usage_mode``, ``num_rma_ctx``, ``max_p2p_peers``. The host platform only checks them.

        Returns
        -------
        Communicator
            Ready for use; in a `group`, in which one thread may join several ranks, after the group has ended.

        Raises
        ------
        CollectiveTimeoutError
            Ranks are missing: ``waiting_for`` names them.
        InvalidUsageError
            Two ranks use one device, or the rank is already in use.
        """
        communicator = cls.__new__(cls)
        start_init(communicator, nranks, rank, unique_id, device, timeout_s, name, settings=config)
        communicator._join_begun()
        return communicator

    from_unique_id = init

    @classmethod
    @suggest_keywords
    def init_all(
        cls, devices: int | Sequence[int | Device] | None = None, *, timeout_s: float = 30.0, name: str = ""
    ) -> list[Self]:
        """Create one communicator for each of several devices, all in this process.

        Parameters
        ----------
        devices
            Number of devices, or a list of devices or their indices; all devices by default.
        timeout_s, name
            As in `init`.

        Returns
        -------
        list of Communicator
            In the order of their ranks. A thread that calls for several of them puts the calls into a `group`.

        Raises
        ------
        InvalidUsageError
            There are fewer devices, or one is named twice.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> comms = rccl.Communicator.init_all(2)
        >>> with rccl.group():
        ...     sums = [comm.all_reduce(np.ones(2)) for comm in comms]
        >>> sums[1]
        array([2., 2.])
        >>> for comm in comms:
        ...     comm.abort()
        """
        chosen = bootstrap.chosen_devices(devices, library.device_count())
        unique_id = library.make_unique_id()
        deadline = monotonic() + check_seconds(timeout_s)
        communicators = [cls.__new__(cls) for _ in chosen]
        actions = [
            partial(start_init, communicators[rank], len(chosen), rank, unique_id, device, timeout_s, name)
            for rank, device in enumerate(chosen)
        ]
        try:
            code, text = run_grouped(actions)
            if code != 0:
                raise error_of(code, op="init_all", seq=None, rank=None, text=text)
            for communicator in communicators:
                finish_init(communicator, deadline, timeout_s)
        except BaseException:
            for communicator in communicators:
                communicator.abort()
            raise
        for communicator in communicators:
            register(communicator)
        return communicators

    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Wait until every rank has reached this call.

        Parameters
        ----------
        timeout_s
            How long to wait, in seconds; by default the communicator's `timeout_s`.
        """
        # A rank that makes the same all-reduce as a call of its own is not at the barrier.
        with Described(self, "barrier()"):
            self.all_reduce(np.zeros(1, np.uint8), op="max", timeout_s=timeout_s)

    def premul_sum(self, scalar: float, dtype: ArrayDType = "float32") -> PreMulSum:
        """Return an operator that multiplies this rank's input by a scalar before the sum (ncclRedOpCreatePreMulSum).

        Parameters
        ----------
        scalar
            This rank's factor; ranks may differ. A finite number must be finite in the dtype, and an integer type must
            hold it exactly.
        dtype
            Dtype of the arrays with which it is used.

        Returns
        -------
        PreMulSum
            For `op` of this communicator's calls.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_reduce(np.ones(2, "float32"), op=comm.premul_sum(0.5))
        array([0.5, 0.5], dtype=float32)
        """
        name = dtypes.name_of(dtype)
        factor = array_view(scalar, "scalar")
        if factor.size != 1 or factor.dtype.kind not in "biufV":
            raise InvalidArgumentError(f"scalar: got {scalar!r}, expected one number")
        value = _cast(factor, dtypes.numpy_type(name))
        # A float is rounded, but a number stays one.
        is_value = (value == factor).all() if "int" in name else _kind_of(value) == _kind_of(factor)
        if not is_value:
            raise InvalidArgumentError(f"scalar: {scalar!r} is not a value of {name}")
        return make_premul_sum(self, value.tobytes(), dtypes.hip_number(name))

    def trace(self) -> list[dict[str, Any]]:
        """Return the last calls of this rank that were launched, oldest first.

        Returns
        -------
        list of dict
            ``seq`` (its number, as in errors), ``op``, ``dtype`` (ncclDataType_t; ``None`` of ``split``, ``grow`` and
            ``window``), ``count``, ``root`` (or the peer, or ``None``), and ``age_s``, how long ago it was called;
            ``begin_s`` and ``end_s``, when it began and ended, on the clock of `time.monotonic`, which all processes of
            the machine share, or ``None`` if it has not, or failed, or if the platform cannot report it (AMD GPUs;
            calls that take no stream, and those after `handle` was read, through which others may call). A notebook
            shows the list as a table.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     _ = comm.all_reduce(np.ones(3))
        ...     last = comm.trace()[-1]
        >>> last["op"], last["count"], last["begin_s"] <= last["end_s"]
        ('all_reduce', 3, True)
        """
        now = monotonic()
        return Trace(
            {
                "seq": seq,
                "op": NAMES[kind],
                "dtype": None if dtype < 0 else dtype,
                "count": count,
                "root": None if root < 0 else root,
                "age_s": now - when,
                "begin_s": begin or None,
                "end_s": end or None,
            }
            for seq, kind, dtype, count, _, root, when, begin, end in self.calls()
        )

    def close(self) -> None:
        """Finalize it unless it has been closed, finalized or aborted; calling it again has no effect.

        A revoked communicator is aborted instead, since there is nothing left to wait for. A child of ``fork`` leaves
        its parent's as they are.
        """
        if self.is_revoked or (not self.is_closed and self._is_of_parent()):
            self.abort()
        elif not self.is_closed or self._is_begun():
            self.finalize()

    destroy = close

    def __enter__(self) -> Self:
        if self.nranks:  # in a group it does not exist yet
            self.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        try:
            if self.is_closed or self._is_of_parent():
                return
            shown = repr(self)
            self.abort()
        except Exception as error:  # noqa: BLE001
            warnings.warn(f"a Communicator could not be released and is leaked: {error}", RocpyWarning, stacklevel=1)
        else:  # outside of the try, since warnings may be errors
            warnings.warn(
                f"{shown} was dropped without close(): it was aborted, which the other ranks see as a failure",
                RocpyWarning,
                stacklevel=1,
            )

    def _is_of_parent(self) -> bool:
        """Whether it was created before a fork, and this is the child: it is the parent's to end."""
        try:
            self.check_open()
        except ClosedError:
            return True
        return False

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "pickle the UniqueId, and join with init() in the other process")

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        state = "closed" if self.is_closed else f"device={self.device_index}"
        return f"rocpy.rccl.Communicator(rank={self.rank}, nranks={self.nranks}{name}, {state})"
