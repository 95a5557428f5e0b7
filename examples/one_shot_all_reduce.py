# SPDX-License-Identifier: MIT
"""A custom collective: an all-reduce with windows, in which each rank reads the memory of the others."""

import threading

import numpy as np

from rocpy import rccl


def all_reduce(comm: rccl.Communicator, window: rccl.Window, x: np.ndarray) -> np.ndarray:
    """Return the sum over all ranks, in the order of the ranks, with one exchange."""
    others = [rank for rank in range(comm.nranks) if rank != comm.rank]
    np.asarray(window.array)[: x.size] = x
    for rank in others:
        comm.signal(rank)  # my part can be read
    comm.wait_signal(others)
    total = sum(np.asarray(window.peer(rank))[: x.size] for rank in range(comm.nranks))
    for rank in others:
        comm.signal(rank)  # I have read yours
    comm.wait_signal(others)
    return total


def work(comm: rccl.Communicator) -> float:
    """Sum twice; return the largest difference from RCCL's own result."""
    rng = np.random.default_rng(comm.rank)
    with comm.window(comm.empty((1024,), "float32", window=True)) as window:
        inputs = [rng.standard_normal(1024, dtype=np.float32) for _ in range(2)]
        return max(float(np.abs(all_reduce(comm, window, x) - comm.all_reduce(x)).max()) for x in inputs)


def main(nranks: int = 4) -> None:
    """Run the ranks as threads of this process."""
    ident, errors = rccl.UniqueId.make(), {}

    def run(rank: int) -> None:
        with rccl.Communicator.init(nranks, rank, ident, device=rank) as comm:
            errors[rank] = work(comm)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{nranks} ranks, largest difference from ncclAllReduce: {max(errors.values())}")
    assert set(errors.values()) == {0.0}, errors


if __name__ == "__main__":
    main()
