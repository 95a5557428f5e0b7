# SPDX-License-Identifier: MIT
"""Checks of the lists that a collective takes, before any rank waits: one tensor for each rank, of the right size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocpy.errors import InvalidArgumentError, InvalidProblemError
from rocpy.torch.process_group.staging import check_kind, check_writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["check_inputs", "check_one_each", "check_own", "check_pairs", "check_results", "root_of"]


def _check_size(name: str, part: Tensor, like: Tensor, whose: str) -> None:
    if part.numel() != like.numel() or part.dtype != like.dtype:
        raise InvalidProblemError(
            f"{name}: {part.numel()} elements of {part.dtype}, expected {like.numel()} of {like.dtype} as in the "
            f"{whose}"
        )


def _check_length(name: str, parts: Sequence[Tensor], ranks: int) -> None:
    if len(parts) != ranks:
        raise InvalidProblemError(f"{name}: {len(parts)} tensors, expected {ranks}: one for each rank")


def check_one_each(name: str, parts: Sequence[Tensor], ranks: int, like: Tensor, whose: str) -> None:
    """Refuse a list that does not have a tensor for each rank, all of one size.

    Parameters
    ----------
    name
        Of the list, as errors name it.
    parts
        The list.
    ranks
        How many there are.
    like
        What has the size and the type.
    whose
        What that is.

    Raises
    ------
    InvalidProblemError
        There are more or fewer, or one has another size or type.
    """
    _check_length(name, parts, ranks)
    for rank, part in enumerate(parts):
        _check_size(f"{name}[{rank}]", part, like, whose)


def check_own(
    name: str, parts: Sequence[Tensor], ranks: int, rank: int, like: Tensor | None = None, whose: str = "rest"
) -> None:
    """Refuse a list that does not have a tensor for each rank: of one type, and this rank's of the right size.

    Parameters
    ----------
    name, parts, ranks, whose
        As for `check_one_each`.
    rank
        This rank. What the others have is theirs to know.
    like
        What has the size and the type; this rank's part by default.

    Raises
    ------
    InvalidProblemError
        There are more or fewer, one has another type, or this rank's another size.
    """
    _check_length(name, parts, ranks)
    like = parts[rank] if like is None else like
    _check_size(f"{name}[{rank}]", parts[rank], like, whose)
    for other, part in enumerate(parts):
        if part.dtype != like.dtype:
            raise InvalidProblemError(f"{name}[{other}]: {part.dtype}, expected {like.dtype} as in the {whose}")


def root_of(name: str, root: int, ranks: int) -> int:
    """Return the rank that a collective names, by the name of torch's argument.

    Raises
    ------
    InvalidArgumentError
        There is no such rank.
    """
    if not 0 <= root < ranks:
        raise InvalidArgumentError(f"{name}: got {root}, expected a rank from 0 to {ranks - 1}")
    return root


def check_pairs(outputs: Sequence[object], inputs: Sequence[object]) -> None:
    """Refuse lists of several outputs and inputs that do not go together.

    Raises
    ------
    InvalidProblemError
        There are more of the one than of the other.
    """
    if len(outputs) != len(inputs):
        raise InvalidProblemError(f"outputs: {len(outputs)} for {len(inputs)} inputs; pass one for each input")


def check_inputs(name: str, tensors: Sequence[Tensor]) -> None:
    """Refuse tensors that a collective cannot read.

    Raises
    ------
    InvalidOperandError
        One has no dense memory of its own.
    """
    for i, tensor in enumerate(tensors):
        check_kind(tensor, name if len(tensors) == 1 else f"{name}[{i}]")


def check_results(name: str, tensors: Sequence[Tensor]) -> None:
    """Refuse tensors that a collective cannot write.

    Raises
    ------
    InvalidOperandError
        One has no dense memory of its own, or several of its elements share memory.
    """
    for i, tensor in enumerate(tensors):
        label = name if len(tensors) == 1 else f"{name}[{i}]"
        check_kind(tensor, label)
        check_writable(tensor, label)
