# SPDX-License-Identifier: MIT
"""A program for mpiexec: communicators joined by MPI, then the same collectives over RCCL and over MPI itself."""

import json
import sys

import numpy as np
from mpi4py import MPI

from rocpy import rccl
from rocpy.rccl.model.dtypes import numpy_type


def collectives(comm):
    """What a few collectives of small integers give on this rank."""
    rank, n = comm.rank, comm.nranks
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2) + rank
    part = np.zeros((1, 2), np.float32)
    comm.scatter(x if rank == 1 else None, root=1, out=part)
    received = np.zeros(3, np.int64)
    if rank == 0:
        comm.send(np.full(3, 7), 1)
    elif rank == 1:
        comm.recv(received, 0)
    half = np.full(4, rank + 1.5, numpy_type("bfloat16"))
    halves = comm.all_reduce(half).astype(np.float32).tolist(), comm.reduce_scatter(np.ones(2, np.float16)).tolist()
    reduced = comm.reduce(x, root=1, op="max")
    gathered = comm.gather(x[:1], root=0)
    comm.barrier()
    inplace = x.copy()
    comm.all_reduce(inplace, out=inplace, op="avg")
    return [
        comm.all_reduce(x).tolist(),
        inplace.tolist(),
        comm.all_gather(x[:1]).tolist(),
        comm.reduce_scatter(x).tolist(),
        comm.all_to_all(x).tolist(),
        comm.broadcast(x, root=1).tolist(),
        part.tolist(),
        halves,
        comm.all_reduce(np.array([np.nan, 1.0] if rank else [2.0, np.nan]), op="max").tolist(),
        comm.broadcast(np.array([2**63 + rank], np.uint64), root=1).tolist(),
        received.tolist(),
        None if reduced is None else reduced.tolist(),
        None if gathered is None else gathered.tolist(),
    ]


def main():
    """Print one line of JSON, on rank 0."""
    with rccl.Communicator.from_env(timeout_s=60) as comm:
        by_variables = comm.all_reduce(np.ones(2)).tolist()
        device = comm.device_index
    with rccl.Communicator.from_mpi(MPI.COMM_WORLD, timeout_s=60) as comm:
        over_rccl = collectives(comm)
        kind = type(comm).__name__
    with rccl.Communicator.from_mpi(MPI.COMM_WORLD, carrier="mpi4py", timeout_s=60) as comm:
        over_mpi = collectives(comm)
        transport = comm.transport
        try:
            comm.split(0)
        except NotImplementedError as error:
            refused = str(error)
        try:
            comm.recv(np.zeros(1), 1 - comm.rank, timeout_s=0.2)
        except TimeoutError as error:
            late = str(error)
    results = {
        "by_variables": by_variables,
        "device": device,
        "same": over_rccl == over_mpi,
        "kind": kind,
        "transport": transport,
        "refused": refused,
        "late": late,
    }
    everyone = MPI.COMM_WORLD.gather(results)
    if everyone is not None:
        sys.stdout.write(json.dumps(everyone) + "\n")


main()
