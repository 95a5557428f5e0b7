# SPDX-License-Identifier: MIT
"""Ranks for tests of torch's backend: process groups on threads, and programs for processes of torch.distributed."""

import datetime as dt
import multiprocessing

from rank_threads import on_rank_threads

DEADLINE_S = 100.0


def on_groups(size, body, *, timeout_s=20.0):
    """Run body(group, rank) with a process group for each rank, on threads; give what each returned or raised."""
    import torch.distributed as dist

    from rocpy.torch.process_group.backend import create

    store = dist.HashStore()

    def run(rank):
        group = create(store, rank, size, dt.timedelta(seconds=timeout_s))
        try:
            answer = body(group, rank)
        except BaseException:
            group.abort()
            raise
        group.shutdown()
        return answer

    return on_rank_threads(size, run, DEADLINE_S)


def _serve(rank, size, connection):
    while (entry := connection.recv()) is not None:
        body, arguments = entry
        try:
            connection.send((True, body(rank, size, *arguments)))
        except BaseException as error:
            connection.send((False, f"{type(error).__name__}: {error}"))


class Workers:
    """Processes that run bodies together, one rank each; they import torch once."""

    def __init__(self, size):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __call__(self, body, *arguments):
        """What body(rank, size, *arguments) gave on each rank."""
        for pipe in self.pipes:
            pipe.send((body, arguments))
        answers = []
        for pipe in self.pipes:
            assert pipe.poll(DEADLINE_S), "a rank hangs"
            answers.append(pipe.recv())
        assert all(is_good for is_good, _ in answers), answers
        return [answer for _, answer in answers]

    def close(self):
        """End the processes."""
        for pipe in self.pipes:
            pipe.send(None)
            pipe.close()
        for process in self.processes:
            process.join(DEADLINE_S)
            assert process.exitcode == 0


def model():
    """A small network, the same on every rank."""
    import torch

    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(24, 48), torch.nn.GELU(), torch.nn.Linear(48, 48), torch.nn.GELU(), torch.nn.Linear(48, 1)
    )


def without_gloo():
    """Have every way to gloo raise."""
    import torch.distributed as dist

    def refuse(*arguments, **settings):
        raise RuntimeError("gloo is disabled in this test")

    module = dist.distributed_c10d
    original = module.ProcessGroupGloo
    module.ProcessGroupGloo = type("NoGloo", (), {"__init__": refuse})
    return lambda: setattr(module, "ProcessGroupGloo", original)


def train(rank, size, kind, backend, path):
    """Losses of a few steps, and how many operations of each kind the library counts."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    restore = without_gloo() if backend == "rocpy" else lambda: None
    try:
        dist.init_process_group(
            backend,
            store=dist.FileStore(path, size),
            rank=rank,
            world_size=size,
            timeout=dt.timedelta(seconds=60),
        )
        network = model()
        if kind == "ddp":
            network = DistributedDataParallel(network, bucket_cap_mb=0.005)
        elif kind == "fsdp":
            from torch.distributed.fsdp import FullyShardedDataParallel

            network = FullyShardedDataParallel(network, device_id=torch.device("cpu"))
        else:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (size,))
            for layer in network:
                if isinstance(layer, torch.nn.Linear):
                    fully_shard(layer, mesh=mesh)
            fully_shard(network, mesh=mesh)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(100 + rank)
        losses = []
        for _ in range(6):
            x = torch.randn(16, 24, generator=generator)
            loss = (network(x) - x.sum(1, keepdim=True).sin()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.SUM)
            losses.append(total.item() / size)
        counts = {}
        if backend == "rocpy":
            counts = dist.group.WORLD.communicator.status()["ranks"][rank]["calls"]
        name = dist.get_backend()
        dist.destroy_process_group()
    finally:
        restore()
    return losses, counts, name


def objects(rank, size, path):
    """Object collectives, subgroups and sends between them."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "rocpy", store=dist.FileStore(path, size), rank=rank, world_size=size, timeout=dt.timedelta(seconds=60)
    )
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "pad": "x" * (1000 * rank)})
    told = [("root", 7) if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    half = dist.new_group([0, 1])
    ones = torch.ones(3)
    dist.all_reduce(ones, group=half)
    x = torch.arange(5.0) + rank
    received = torch.zeros(5)
    peer = 1 - rank
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, received, peer)])
    for work in works:
        work.wait()
    dist.barrier()
    dist.destroy_process_group()
    return [entry["rank"] for entry in gathered], told, ones.tolist(), received.tolist()


def carried_by_gloo(rank, size, path):
    """Messages both ways, a reduction of a type that gloo lacks, and a receive of what is not sent."""
    import numpy as np
    import torch.distributed as dist

    from rocpy import rccl

    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)
    with rccl.Communicator.from_torch(carrier="torch", timeout_s=20) as comm:
        received = np.zeros(2)
        if rank == 0:
            comm.send(np.array([1.0, 2.0]), 1)
            comm.recv(received, 1)
        else:
            comm.recv(received, 0)
            comm.send(received + 1, 0)
        x = np.array([np.nan, 2**31], np.float64) if rank else np.array([3.0, np.nan])
        results = [
            received.tolist(),
            comm.all_reduce(x, op="max").tolist(),
            comm.broadcast(np.array([2**31 + rank], np.uint32), root=1).tolist(),
            comm.all_gather(np.full(1, rank, np.uint64)).tolist(),
        ]
        comm.barrier()
        late = ""
        if rank == 0:
            try:
                comm.recv(np.zeros(1), 1, timeout_s=0.05)
            except rccl.CollectiveTimeoutError as error:
                late = str(error)
    dist.barrier()
    dist.destroy_process_group()
    return results, late


def far_apart(rank, size, path):
    """Ranks that think they are on machines of their own."""
    import warnings

    import numpy as np
    import torch
    import torch.distributed as dist

    import rocpy
    from rocpy import rccl
    from rocpy.rccl.public.joining import Joining

    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)
    with rccl.Communicator.from_torch() as comm:
        near = comm.all_reduce(np.ones(2)).tolist(), type(comm).__name__
    own = Joining._absent_ranks
    Joining._absent_ranks = lambda _: [1 - rank]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm = rccl.Communicator.from_torch(timeout_s=20)
        x = torch.arange(4.0).reshape(2, 2) + rank
        half = torch.ones(3, dtype=torch.bfloat16)
        results = [
            comm.all_reduce(x).tolist(),
            comm.all_reduce(half, op="prod").tolist(),
            comm.reduce_scatter(x).tolist(),
            comm.all_gather(x).shape,
            comm.all_to_all(x).tolist(),
            comm.broadcast(x, root=1).tolist(),
        ]
        told = [str(warning.message) for warning in caught if issubclass(warning.category, rocpy.RocpyWarning)]
        kind = type(comm).__name__, comm.transport
        comm.close()
        try:
            rccl.Communicator.from_torch(carrier="rccl")
        except rccl.InvalidArgumentError as error:
            refused = str(error)
    finally:
        Joining._absent_ranks = own
    dist.destroy_process_group()
    return near, kind, told, results, refused
