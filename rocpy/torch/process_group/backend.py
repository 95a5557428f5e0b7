# SPDX-License-Identifier: MIT
"""The backend `rocpy` of torch.distributed: a process group whose collectives go to RCCL."""

from __future__ import annotations

import atexit
import os
import resource
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed

from rocpy.errors import ClosedError, InvalidProblemError, RocpyError, UnsupportedError, warn
from rocpy.rccl import Communicator
from rocpy.torch.process_group import calls
from rocpy.torch.process_group.callbacks import await_callbacks
from rocpy.torch.process_group.caller import refuse_recording
from rocpy.torch.process_group.gathered import check_sparse
from rocpy.torch.process_group.lanes import How, Job, Lane, LaneWork, refuse_fork
from rocpy.torch.process_group.lists import check_inputs, check_one_each, check_own, check_pairs, check_results, root_of
from rocpy.torch.process_group.staging import check_operator, dense, operator_of
from rocpy.torch.process_group.surface import BackendSurface, CheckedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

__all__ = ["RocpyProcessGroup", "create"]

# How long the end of a group waits for the others, at most: their work is done, or they are gone.
PATIENCE_S = 30.0
# How long the end of the program waits for a thread of an aborted group, at most.
EXIT_S = 5.0

_alive: weakref.WeakSet[RocpyProcessGroup] = weakref.WeakSet()


def create(store: Any, rank: int, size: int, timeout: timedelta, global_ranks: Sequence[int] = ()) -> RocpyProcessGroup:
    """Make a group; torch calls this for ``init_process_group("rocpy")`` and for its subgroups."""
    return RocpyProcessGroup(store, rank, size, timeout, global_ranks)


class RocpyProcessGroup(BackendSurface):
    """The ranks of a torch.distributed group, over one communicator; sends and receives each have one of their own.

    What a caller waits for runs on its own thread. What it does not (``async_op=True``, DDP's buckets, ``isend``) runs
    on a thread of the group's, in the order of the calls; each pair of ranks, direction and tag has another, so that
    sends and receives wait for nobody but each other. Callbacks of futures run on further threads, one after another
    for as long as none waits for an operation; what waits may wait for operations of the same group.

    Parameters
    ----------
    store
        Where the ranks meet.
    rank, size
        Which this is, and how many there are.
    timeout
        How long an operation may take where a call does not say.
    global_ranks
        The ranks of a subgroup, as those of the default group.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, global_ranks: Sequence[int] = ()) -> None:
        super().__init__(rank, size)
        self._store, self._own_rank, self._own_size = store, rank, size
        self._seconds = timeout.total_seconds()
        # What errors call the ranks.
        self._ranks = list(global_ranks) or list(range(size))
        is_renamed = self._ranks != list(range(size))
        self._note = f" (ranks of the default group; this group has {self._ranks})" if is_renamed else ""
        connect = partial(self._connect, "all/", rank, size)
        self._main = Lane("rocpy collectives", connect, self._ranks if is_renamed else (), self._note)
        self._transfers: dict[tuple[int, int, int], Lane] = {}
        self._process = os.getpid()
        self._group_name = self._group_desc = ""
        self._sequence = 0
        self._main.join(self._seconds)
        _alive.add(self)

    def _connect(self, prefix: str, rank: int, size: int, check: Callable[[], None], seconds: float) -> Communicator:
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        store = CheckedStore(self._store, check)
        return Communicator.from_store(
            store, rank, size, prefix=prefix, device=device, timeout_s=seconds, name=f"torch {prefix[:-1]}"
        )

    @property
    def communicator(self) -> Communicator:
        """The communicator of the group's collectives."""
        return self._main.join(self._seconds)

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name that users know it by."""
        return "rocpy"

    def _get_backend_name(self) -> str:
        return "rocpy"

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name by which operators of torch's compiler find the group."""
        self._group_name = name

    def getGroupName(self) -> str:  # noqa: N802
        """Return that name."""
        return self._group_name

    def setGroupDesc(self, text: str) -> None:  # noqa: N802
        """Take what the group is for."""
        self._group_desc = text

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return what the group is for."""
        return self._group_desc

    def get_group_store(self) -> Any:
        """Return where the ranks met."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long an operation may take."""
        self._seconds = timeout.total_seconds()

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: each rank counts from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _run(
        self,
        opts: Any,
        tensors: list[Tensor],
        job: Job,
        *,
        result: str = "tensor",
        reads: Sequence[Tensor] = (),
        read: str = "input",
        may_be_sparse: bool = False,
    ) -> Any:
        refuse_recording()
        check_results(result, [x for x in tensors if x.layout != torch.sparse_coo] if may_be_sparse else tensors)
        check_inputs(read, reads)
        self._sequence += 1
        timeout = getattr(opts, "timeout", None)
        seconds = timeout.total_seconds() if timeout is not None else -1.0
        limit = seconds if seconds > 0 else self._seconds
        # A call on device memory is in its stream, the caller's own, when it returns.
        on_device = any(tensor.is_cuda for tensor in (*tensors, *reads))
        is_coalesced = self._coalescing.works is not None
        aside = (bool(getattr(opts, "asyncOp", False)) or is_coalesced) and not on_device
        return self._noted(
            self._main.run(
                job, LaneWork(tensors or list(reads)), limit, is_asynchronous=aside, in_own_stream=not on_device
            )
        )

    def _noted(self, work: LaneWork) -> Any:
        """Return a call's Work, or nothing in this thread's block of coalesced calls, as torch's own backends do."""
        coalesced = self._coalescing.works
        if coalesced is None:
            return work
        coalesced.append(work)
        return None

    # ---- reductions ----

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> LaneWork:
        """Combine each tensor over the ranks, in place; sparse ones are summed."""
        opts = distributed.AllreduceOptions() if opts is None else opts
        operator = operator_of(opts.reduceOp)
        for tensor in tensors:
            if tensor.layout == torch.sparse_coo:
                check_sparse(tensor, operator)
            else:
                check_operator(dense(tensor), operator)

        def job(comm: Communicator, how: How) -> None:
            for tensor in tensors:
                calls.all_reduce(comm, tensor, operator, how)

        return self._run(opts, list(tensors), job, may_be_sparse=True)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> LaneWork:
        """Combine several tensors over the ranks, in place."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> LaneWork:
        """Combine a tensor at one rank, in place there."""
        operator = operator_of(opts.reduceOp)
        is_root = root_of("dst", opts.rootRank, self._own_size) == self._own_rank
        check_operator(tensors[0], operator)

        def job(comm: Communicator, how: How) -> None:
            calls.reduce(comm, tensors[0], operator, opts.rootRank, tensors[0] if is_root else None, how)

        return self._run(opts, list(tensors), job)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> LaneWork:  # noqa: A002
        """Combine a tensor over the ranks; each gets its part."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> LaneWork:
        """Combine several tensors; each rank gets its part of each."""
        opts = distributed.ReduceScatterOptions() if opts is None else opts
        operator = operator_of(opts.reduceOp)
        check_pairs(outputs, inputs)
        for output, source in zip(outputs, inputs, strict=True):
            if source.numel() != output.numel() * self._own_size or source.dtype != output.dtype:
                raise InvalidProblemError(
                    f"input: {source.numel()} elements of {source.dtype}, expected {self._own_size} times the "
                    f"{output.numel()} of {output.dtype} of the output"
                )
            check_operator(source, operator)

        def job(comm: Communicator, how: How) -> None:
            for output, source in zip(outputs, inputs, strict=True):
                calls.reduce_scatter(comm, source, output, operator, how)

        return self._run(opts, list(outputs), job, result="output", reads=inputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> LaneWork:
        """Combine lists of tensors, one for each rank; parts may differ in size."""
        opts = distributed.ReduceScatterOptions() if opts is None else opts
        operator = operator_of(opts.reduceOp)
        check_pairs(outputs, inputs)
        for output, parts in zip(outputs, inputs, strict=True):
            check_own("input_list", parts, self._own_size, self._own_rank, output, "output")
            for part in parts:
                check_operator(part, operator)

        def job(comm: Communicator, how: How) -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                calls.reduce_scatter_list(comm, parts, output, operator, how)

        return self._run(
            opts,
            list(outputs),
            job,
            result="output",
            reads=[part for parts in inputs for part in parts],
            read="input_list",
        )

    # ---- copies ----

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> LaneWork:
        """Give one rank's tensor to all."""
        tensor, root = tensors[opts.rootTensor], root_of("src", opts.rootRank, self._own_size)

        def job(comm: Communicator, how: How) -> None:
            calls.broadcast(comm, tensor, root, how)

        return self._run(opts, list(tensors), job)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> LaneWork:  # noqa: A002
        """Gather a tensor of each rank into one."""
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> LaneWork:
        """Gather several tensors of each rank, each into one."""
        check_pairs(outputs, inputs)
        for output, source in zip(outputs, inputs, strict=True):
            if output.numel() != source.numel() * self._own_size or source.dtype != output.dtype:
                raise InvalidProblemError(
                    f"output: {output.numel()} elements of {output.dtype}, expected {self._own_size} times the "
                    f"{source.numel()} of {source.dtype} of the input"
                )

        def job(comm: Communicator, how: How) -> None:
            for output, source in zip(outputs, inputs, strict=True):
                calls.all_gather(comm, source, output, how)

        return self._run(opts, list(outputs), job, result="output", reads=inputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> LaneWork:
        """Gather a tensor of each rank into a list; they may differ in size."""
        check_pairs(outputs, inputs)
        for parts, source in zip(outputs, inputs, strict=True):
            check_own("tensor_list", parts, self._own_size, self._own_rank, source, "tensor that is gathered")

        def job(comm: Communicator, how: How) -> None:
            for parts, source in zip(outputs, inputs, strict=True):
                calls.all_gather_list(comm, source, parts, how)

        gathered = [part for parts in outputs for part in parts]
        return self._run(opts, gathered, job, result="tensor_list", reads=inputs, read="tensor")

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> LaneWork:
        """Gather a list of tensors of each rank: ``outputs[rank]`` is that rank's list."""
        for own in outputs:
            check_pairs(own, inputs)
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> LaneWork:
        """Gather a tensor of each rank into a list at one of them."""
        targets = list(outputs[0]) if outputs else []
        if root_of("dst", opts.rootRank, self._own_size) == self._own_rank:
            check_one_each("gather_list", targets, self._own_size, inputs[0], "tensor that is gathered")

        def job(comm: Communicator, how: How) -> None:
            calls.gather(comm, inputs[0], targets, opts.rootRank, how)

        return self._run(opts, targets, job, result="gather_list", reads=inputs, read="tensor")

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> LaneWork:
        """Give each rank a tensor of one rank's list."""
        parts = inputs[0] if inputs else ()
        if root_of("src", opts.rootRank, self._own_size) == self._own_rank:
            check_one_each("scatter_list", parts, self._own_size, outputs[0], "output")

        def job(comm: Communicator, how: How) -> None:
            calls.scatter(comm, parts, outputs[0], opts.rootRank, how)

        return self._run(opts, list(outputs), job, reads=parts, read="scatter_list")

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> LaneWork:
        """Trade the tensors of a list: each rank gets one of each rank."""
        size, rank = self._own_size, self._own_rank
        check_own("input_tensor_list", inputs, size, rank)
        check_own("output_tensor_list", outputs, size, rank, inputs[rank], f"input_tensor_list[{rank}]")

        def job(comm: Communicator, how: How) -> None:
            calls.all_to_all(comm, outputs, inputs, how)

        return self._run(opts, list(outputs), job, result="output_tensor_list", reads=inputs, read="input_tensor_list")

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        opts: Any = None,
    ) -> LaneWork:
        """Trade the parts of a tensor, cut along its first axis, equal or of the sizes given."""
        if output.dtype != input.dtype or output.shape[1:] != input.shape[1:] or not output.ndim:
            raise InvalidProblemError(
                f"input: {tuple(input.shape)} of {input.dtype}, output: {tuple(output.shape)} of {output.dtype}; they "
                "may differ in the first axis only"
            )
        takes = self._splits("output", output, output_splits)
        sends = self._splits("input", input, input_splits)
        rank = self._own_rank
        if sends[rank] != takes[rank]:
            raise InvalidProblemError(
                f"output: {takes[rank]} rows for what this rank, {rank}, sends to itself, which are {sends[rank]} rows "
                "of the input; they must be equal"
            )

        # Other ranks may say their splits where this one leaves them out: all make the same call.
        def job(comm: Communicator, how: How) -> None:
            calls.all_to_all_v(comm, input, output, sends, takes, how)

        return self._run(opts, [output], job, result="output", reads=[input])

    def _splits(self, name: str, tensor: Tensor, sizes: Sequence[int] | None) -> list[int]:
        size, rows = self._own_size, tensor.shape[0]
        splits = list(sizes) if sizes else [rows // size] * size
        if len(splits) != size or sum(splits) != rows or any(count < 0 for count in splits):
            said = f"splits {splits}" if sizes else f"no splits, and {size} ranks"
            raise InvalidProblemError(
                f"{name}: {rows} rows, {said}: pass one number of rows for each rank, with the sum {rows}"
            )
        return splits

    alltoall_base = all_to_all_single

    # ---- one to one ----

    def _lane_between(self, sender: int, receiver: int, tag: int) -> Lane:
        """Return what runs the transfers of a pair of ranks, a direction and a tag."""
        key = (sender, receiver, tag)
        lane = self._transfers.get(key)
        if lane is None:
            self._check_number_of_lanes(tag)
            meeting, own = f"{sender}-{receiver}-{tag}/", int(receiver == self._own_rank)
            lane = self._transfers[key] = Lane(
                f"rocpy transfers {meeting[:-1]}",
                partial(self._connect, meeting, own, 2),
                [self._ranks[sender], self._ranks[receiver]],
                self._note,
                "recv" if own else "send",
            )
        return lane

    def _check_number_of_lanes(self, tag: int) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = sum(len(group._transfers) for group in list(_alive))
        if files != resource.RLIM_INFINITY and used >= files // 2:
            raise UnsupportedError(
                f"tag: got {tag}, which is new for these ranks; each pair of ranks, direction and tag has a thread and "
                f"a file of its own, and this process has {used}, half of the {files} files that it may open; "
                "use fewer tags, or raise the limit (ulimit -n)"
            )

    def _transfer(self, is_send: bool, tensors: Sequence[Tensor], peer: int, tag: int) -> LaneWork:
        refuse_fork(self._process, "the process group")
        if self._main.is_closed:
            raise ClosedError("the process group was shut down; create a new one")
        if not 0 <= peer < self._own_size:
            raise InvalidProblemError(f"peer: got {peer}, expected another rank of the {self._own_size}")
        if peer == self._own_rank:
            raise InvalidProblemError(f"peer: got {peer}, this rank, expected another rank; copy the tensor with copy_")
        refuse_recording()
        (check_inputs if is_send else check_results)("tensor", tensors)
        lane = self._lane_between(*((self._own_rank, peer) if is_send else (peer, self._own_rank)), tag)

        def job(comm: Communicator, how: How) -> None:
            for tensor in tensors:
                if is_send:
                    calls.send(comm, tensor, 1, how)
                else:
                    calls.recv(comm, tensor, 0, how)

        on_device = any(tensor.is_cuda for tensor in tensors)
        work = LaneWork(list(tensors), -1 if is_send else peer)
        return self._noted(
            lane.run(job, work, self._seconds, is_asynchronous=not on_device, in_own_stream=not on_device)
        )

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> LaneWork:
        """Send a tensor to another rank."""
        return self._transfer(True, tensors, dst, tag)

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> LaneWork:
        """Receive a tensor from another rank."""
        return self._transfer(False, tensors, src, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> LaneWork:  # noqa: ARG002
        """Refuse: RCCL has no receive from whoever comes first."""
        raise UnsupportedError("src: RCCL has no receive from any source (recv without src); pass src=")

    def barrier(self, opts: Any = None) -> LaneWork:
        """Wait until all ranks have come here."""
        return self._run(opts, [], calls.barrier)

    # ---- the end ----

    def shutdown(self) -> None:
        """Let what runs end, then leave the communicators; torch calls this for ``destroy_process_group``."""
        _alive.discard(self)
        # In one order on all ranks, because the end of a communicator waits for the other rank's.
        for lane in (*(self._transfers[key] for key in sorted(self._transfers)), self._main):
            try:
                lane.close(min(self._seconds, PATIENCE_S))
            except RocpyError as error:
                lane.abort()
                warn(f"the process group was not shut down cleanly: {error}")

    def abort(self) -> None:
        """End whatever runs; the other ranks see it as a failure."""
        _alive.discard(self)
        for lane in (*self._transfers.values(), self._main):
            lane.abort()

    def await_threads(self, timeout_s: float) -> None:
        """Wait until the threads of a group that was aborted have ended."""
        for lane in (*self._transfers.values(), self._main):
            lane.await_thread(timeout_s)


# A forked child has the parent's groups, which are not its to end.
os.register_at_fork(after_in_child=_alive.clear)


@atexit.register
def _abort_all() -> None:
    """Wake the threads that still wait for other ranks, and let them end: the interpreter cannot end under them."""
    groups = list(_alive)
    for each in groups:
        each.abort()
    for each in groups:
        each.await_threads(EXIT_S)
    await_callbacks(EXIT_S)
