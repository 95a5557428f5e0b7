# SPDX-License-Identifier: MIT
"""Trains a small network with DDP over the backend rocpy, one process for each rank: under srun, torchrun or mpiexec.

On one machine: ``torchrun --nproc-per-node 2 examples/slurm/train.py``
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def launched_ranks() -> tuple[int, int, int]:
    """Return rank, number of ranks and rank on this machine, from the variables of torchrun, Slurm or MPI."""
    for names in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ):
        if names[0] in os.environ:
            rank, size, local_rank = (int(os.environ[name]) for name in names)
            return rank, size, local_rank
    return 0, 1, 0


def main() -> int:
    """Train, and print the losses on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    rank, size, local_rank = launched_ranks()
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29507")
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Short, so that a rank that is missing after a minute is named in an error.
    dist.init_process_group("rocpy", rank=rank, world_size=size, timeout=dt.timedelta(seconds=60))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(arguments.steps):
        x = torch.randn(32, 64, generator=generator).to(device)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    if rank == 0:
        print(f"{size} ranks on {device.type}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    dist.destroy_process_group()
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
