# SPDX-License-Identifier: MIT
"""Random windows, puts and trades with counts: what arrives is what a numpy model of all ranks says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rccl_ranks import good, on_threads

from rocpy import rccl

TYPES = st.sampled_from(["uint8", "int32", "float16", "float32", "float64"])


def filled(rank, size, dtype):
    """Numbers that tell a rank from the others, exact in each type."""
    return ((np.arange(size) * 3 + 41 * rank) % 120).astype(dtype)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_trades(data):
    nranks = data.draw(st.integers(1, 4), label="ranks")
    dtype, width = data.draw(TYPES), data.draw(st.sampled_from([(), (1,), (3,), (2, 5)]))
    counts = data.draw(
        st.lists(st.lists(st.integers(0, 900), min_size=nranks, max_size=nranks), min_size=nranks, max_size=nranks)
    )
    tells, into = data.draw(st.booleans()), data.draw(st.booleans())
    scale = int(np.prod(width, dtype=int))
    given_rows = [filled(rank, sum(row) * scale, dtype).reshape(sum(row), *width) for rank, row in enumerate(counts)]

    def body(comm):
        rank = comm.rank
        takes = [counts[other][rank] for other in range(nranks)]
        out = np.full((sum(takes), *width), 7, dtype) if into else None
        y = comm.all_to_all_v(given_rows[rank], counts[rank], takes if tells else None, out=out)
        assert out is None or y is out
        return y

    for rank, y in enumerate(good(on_threads(nranks, body))):
        starts = [sum(counts[other][:rank]) for other in range(nranks)]
        parts = [given_rows[o][starts[o] : starts[o] + counts[o][rank]] for o in range(nranks)]
        wanted = np.concatenate(parts)
        assert y.dtype == wanted.dtype
        assert y.shape == wanted.shape
        assert (y == wanted).all()


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_windows(data):
    nranks = data.draw(st.integers(1, 3), label="ranks")
    dtype = data.draw(TYPES)
    sizes = [data.draw(st.integers(1, 3000)) for _ in range(nranks)]
    # For each rank, puts: to whom, from where, where to, how many.
    puts = [
        [
            (peer, begin, end, offset)
            for peer in [data.draw(st.integers(0, nranks - 1)) for _ in range(data.draw(st.integers(0, 3)))]
            for begin in [data.draw(st.integers(0, sizes[rank]))]
            for offset in [data.draw(st.integers(0, sizes[peer]))]
            for end in [begin + data.draw(st.integers(0, min(sizes[rank] - begin, sizes[peer] - offset)))]
        ]
        for rank in range(nranks)
    ]
    wanted = [np.zeros(size, dtype) for size in sizes]
    for rank, made in enumerate(puts):
        for peer, begin, end, offset in made:
            wanted[peer][offset : offset + end - begin] = filled(rank, sizes[rank], dtype)[begin:end]

    def body(comm):
        rank = comm.rank
        source = comm.window(comm.empty(sizes[rank], dtype, window=True))
        target = comm.window(comm.empty(sizes[rank], dtype, window=True), flags=("default", "symmetric")[nranks % 2])
        mine, given_array = np.asarray(target.array), np.asarray(source.array)
        mine[:], given_array[:] = 0, filled(rank, sizes[rank], dtype)
        comm.barrier()
        # Rank by rank, so that what overlaps has one order.
        for turn in range(nranks):
            for peer, begin, end, offset in puts[turn] if turn == rank else []:
                comm.put_signal(given_array[begin:end], peer, target, offset)
            comm.barrier()
        signals = {other: sum(put[0] == rank for put in puts[other]) for other in range(nranks)}
        if any(signals.values()):
            comm.wait_signal({other: count for other, count in signals.items() if count})
        seen = [np.asarray(target.peer(other)).copy() for other in range(nranks)]
        comm.barrier()
        return seen

    for seen in good(on_threads(nranks, body)):
        for part, model in zip(seen, wanted, strict=True):
            assert (part.reshape(-1) == model).all()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_messages(data):
    """Sends and receives of a group, of any sizes, between any ranks, match in their order."""
    nranks = data.draw(st.integers(1, 4))
    sizes = st.integers(0, 40_000)
    messages = data.draw(st.lists(st.tuples(st.integers(0, nranks - 1), st.integers(0, nranks - 1), sizes), max_size=8))

    def body(comm):
        received = []
        with rccl.group():
            for number, (source, target, size) in enumerate(messages):
                if comm.rank == source:
                    comm.send(filled(number, size, "int32"), target)
                if comm.rank == target:
                    received.append((number, size, comm.recv(np.zeros(size, np.int32), source)))
        return all((array == filled(number, size, "int32")).all() for number, size, array in received)

    assert good(on_threads(nranks, body)) == [True] * nranks
