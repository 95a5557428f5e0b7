# SPDX-License-Identifier: MIT
"""Oracles of the primitives that order, compare and count: sorts, top-k, neighbours, runs, histograms."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def merge_sort_oracle(keys: Array, *, descending: bool = False, valid: int | None = None) -> Array:
    """Return the numbers of a group's keys in order: stable, NaN the greatest, those from `valid` on in place."""
    flat = keys.ravel()
    limit = flat.size if valid is None else min(max(valid, 0), flat.size)
    # Equal keys share a rank, so that falling ranks keep the order of equal keys.
    ranks = np.unique(flat[:limit], return_inverse=True)[1]
    order = np.argsort(-ranks if descending else ranks, kind="stable")
    return np.concatenate([order, np.arange(limit, flat.size)])


def bits_oracle(keys: Array) -> Array:
    """Return keys as unsigned integers of the same order; -0 is 0."""
    flat = keys.ravel()
    if flat.dtype.kind == "b":
        return flat.astype(np.uint64)
    word = np.dtype(f"u{flat.itemsize}")
    bits = np.where(flat == 0, np.zeros_like(flat), flat).view(word)
    top = word.type(1 << (8 * flat.itemsize - 1))
    if flat.dtype.kind == "f":
        bits = np.where(bits & top, ~bits, bits ^ top)
    elif flat.dtype.kind == "i":
        bits = bits ^ top
    return bits.astype(np.uint64)


def radix_sort_oracle(keys: Array, *, descending: bool = False, begin: int = 0, end: int = 64) -> Array:
    """Return the numbers of a group's keys in the order of their bits from `begin` up to `end`."""
    digits = (bits_oracle(keys) >> np.uint64(begin)).astype(object) & ((1 << (end - begin)) - 1)
    ranks = np.unique(digits.astype(np.uint64), return_inverse=True)[1]
    return np.argsort(-ranks if descending else ranks, kind="stable")


def topk_oracle(keys: Array, k: int, *, greatest: bool, valid: int | None = None) -> Array:
    """Return the numbers of the best keys of a group, best first, equal ones in their order."""
    flat = keys.ravel()
    limit = flat.size if valid is None else min(max(valid, 0), flat.size)
    return merge_sort_oracle(flat[:limit], descending=greatest)[: max(k, 0)]


def discontinuity_oracle(values: Array, predecessor: object = None, successor: object = None) -> tuple[Array, Array]:
    """Return the flags of heads and of tails of a group's items."""
    flat = values.ravel()
    heads, tails = np.ones(flat.size, np.int32), np.ones(flat.size, np.int32)
    heads[1:] = tails[:-1] = flat[1:] != flat[:-1]
    if predecessor is not None:
        heads[0] = predecessor != flat[0]
    if successor is not None:
        tails[-1] = flat[-1] != successor
    return heads.reshape(values.shape), tails.reshape(values.shape)


def difference_oracle(values: Array, mode: str, neighbour: object = None, valid: int | None = None) -> Array:
    """Return a group's items less their neighbours, `beside` the one beyond the end that the mode looks at."""
    flat = values.ravel()
    limit = flat.size if valid is None else min(max(valid, 0), flat.size)
    result = flat.copy()
    if limit:
        if mode == "left":
            result[1:limit] = flat[1:limit] - flat[: limit - 1]
            if neighbour is not None:
                result[:1] = flat[:1] - neighbour  # arrays of integers wrap, numpy's scalars warn
        else:
            result[: limit - 1] = flat[: limit - 1] - flat[1:limit]
            if neighbour is not None:
                result[limit - 1 : limit] = flat[limit - 1 : limit] - neighbour
    return result.reshape(values.shape)


def decode_oracle(values: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the items that runs stand for, and the place of each in its run."""
    flat = lengths.ravel()
    decoded = np.repeat(values.ravel(), flat)
    offsets = np.concatenate([np.arange(n) for n in flat]) if flat.size else np.zeros(0, np.int64)
    return decoded, offsets.astype(np.int32)


def histogram_oracle(values: Array, bins: int, size: int, bins_per_thread: int) -> Array:
    """Return the counters of each thread of a group."""
    counts = np.zeros(size * bins_per_thread, np.int32)
    counts[:bins] = np.bincount(values.ravel(), minlength=bins)
    return counts.reshape(bins_per_thread, size).T
