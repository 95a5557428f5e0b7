# SPDX-License-Identifier: MIT
"""Policy of grouped products: what lists and offsets may be, and refusals."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from rocpy._operand import allocate_like, describe, readable
from rocpy.blaslt.model.epilogues import EpilogueRow
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import MAX_EXTENT, OperandInfo, Problem
from rocpy.blaslt.model.refusals import no_algorithm
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError, UnsupportedError
from rocpy.runtime._foreign import array_view
from rocpy.runtime.memory import Buffer

__all__: list[str] = []

_Error = TypeVar("_Error", bound=RocpyError)


def is_sequence(value: object) -> bool:
    """Whether a value is one operand for each group: a list or a tuple, as opposed to an array."""
    return isinstance(value, list | tuple)


def read_each(listed: Sequence[Any], name: str) -> list[Any]:
    """Return what products work with in the place of operands; without compiled functions, which torch cannot trace."""
    return [one if one is None or _is_array(one) else readable(one, name) for one in listed]


def aligned(a: Any, b: Any, bias: Any, out: Any, groups: Any) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Return the operands of each group as they are, single ones repeated."""
    if groups is not None:
        raise InvalidProblemError("groups: omit it; the number of groups is the length of the lists")
    # Reading an operand may run its own code, which may change the lists.
    a, b, bias, out = (tuple(value) if is_sequence(value) else value for value in (a, b, bias, out))
    if not (is_sequence(a) or is_sequence(b)):
        raise InvalidOperandError(
            f"a and b: {type(a).__name__} and {type(b).__name__}; without offsets= one of them must be a list or tuple "
            "of operands: pass lists, or offsets= for groups in one array"
        )
    operands = {"a": a, "b": b, "bias": bias}
    lengths = {name: len(value) for name, value in operands.items() if is_sequence(value)}
    several = {name: length for name, length in lengths.items() if length != 1}
    if len(set(several.values())) > 1:
        text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidProblemError(f"{text} operands; lists must have one length, or length 1 to apply to all groups")
    count = next(iter(several.values()), 1)
    if out is not None and (not is_sequence(out) or len(out) != count):
        shown = f"{len(out)} arrays" if is_sequence(out) else f"a {type(out).__name__}"
        raise InvalidOperandError(f"out: got {shown}, expected a list of {count} arrays for {count} products")
    for index, target in enumerate(out or ()):
        if target is None:
            raise InvalidOperandError(
                f"out[{index}]: got None, expected an array for every group; pass one for each, or omit out"
            )
    for name, value in operands.items():
        missing = [index for index, item in enumerate(value) if item is None] if is_sequence(value) else []
        if missing and name != "bias":
            raise InvalidOperandError(f"{name}[{missing[0]}]: got None, expected an operand for every group")
    full = [list(value) if is_sequence(value) else [value] for value in operands.values()]
    full = [value * count if len(value) == 1 else value for value in full]
    return full[0], full[1], full[2], list(out) if out is not None else [None] * count


def _is_array(one: Any) -> bool:
    cls = type(one)  # first: a nested tensor's shape raises
    return all(hasattr(cls, name) or hasattr(one, name) for name in ("dtype", "shape"))


def in_group(error: _Error, group: int) -> _Error:
    """Return the refusal of a group's product with the group's index behind its words, which name no group."""
    error.args = (f"{error} (group {group})", *error.args[1:])
    return error


def elsewhere(seen: str, first: str) -> InvalidOperandError:
    """Return the error for a group on another device than the first."""
    return InvalidOperandError(
        f"a ({seen}) is on another device than that of group 0 ({first}); move one, so that all groups are on one "
        "device"
    )


def array_like(out: Any) -> Any:
    """Return an array of the shape and type of a group's ``out``, to compute its result aside; ``None`` for none."""
    if out is None:
        return None
    view = describe(out, "out", output=True)
    return allocate_like(out, tuple(view["shape"]), view["dtype"])


def overlap(out: str, other: str, both_written: bool) -> InvalidOperandError:
    """Return the error for a result that shares memory with another one, or with what a group reads."""
    if both_written:
        return InvalidOperandError(f"{out} and {other} share memory; pass an array of its own for each result")
    return InvalidOperandError(
        f"{out} shares memory with {other}, which is read while results are written; pass another array"
    )


def refuse_sequence(name: str, value: Any) -> None:
    """Refuse lists and packed weights where groups lie in one array."""
    if is_sequence(value):
        raise InvalidOperandError(
            f"{name}: got {type(value).__name__}; with offsets= the groups are in one array: pass that, or lists "
            "without "
            "offsets="
        )
    if is_weight(value):
        raise InvalidOperandError(
            f"{name}: got a Weight, which is one matrix; with offsets=, pass one array with the matrices of all "
            "groups, or pass lists without offsets="
        )


def check_epilogue(row: EpilogueRow) -> None:
    """Refuse an epilogue that a grouped product cannot have."""
    if row.gradient or row.aux == "load":
        raise UnsupportedError(
            f"epilogue {row.name!r}: grouped products support neither aux nor bias gradients; use rocpy.matmul for "
            "each "
            "group"
        )


def offset_numbers(offsets: Any) -> list[int]:
    """Return offsets that are a sequence, or an array that is not plain integers in CPU memory."""
    if isinstance(offsets, Buffer):
        offsets = offsets.to_numpy()
    elif isinstance(offsets, np.ndarray):  # first: torch's compiler shows it with the attributes of a tensor
        pass
    elif hasattr(offsets, "cpu"):  # torch's name for a copy in CPU memory
        offsets = offsets.cpu()
    elif hasattr(offsets, "get") and hasattr(offsets, "dtype"):  # CuPy's
        offsets = offsets.get()
    if np.ma.is_masked(offsets):
        raise InvalidOperandError("offsets: a masked array with masked elements; pass its filled() or compressed()")
    try:
        # As objects, because numpy makes floats of integers beyond 64 bits.
        numbers = array_view(offsets, "offsets", None if hasattr(offsets, "dtype") else object)
    except InvalidOperandError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidOperandError(f"offsets: {error}; pass integers in a list or an array") from None
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iuO" and numbers.size):
        raise InvalidOperandError(
            f"offsets: shape {numbers.shape}, {numbers.dtype}; pass integers in a list or an array of one axis"
        )
    return [_integer(number, index) for index, number in enumerate(numbers.tolist())]


def _integer(number: Any, index: int) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise InvalidOperandError(
            f"offsets: element {index} is {number!r:.80} ({type(number).__name__}); pass integers"
        ) from None


def wrong_count(count: int, groups: int) -> InvalidProblemError:
    """Return the error for a number of offsets that fits no number of groups."""
    if groups < 0:
        return InvalidProblemError("offsets: empty; pass the E + 1 boundaries, or the E ends and groups=E")
    return InvalidProblemError(
        f"offsets: got {count} for {groups} groups; pass the {groups + 1} boundaries or the {groups} ends"
    )


def wrong_offsets(boundaries: Sequence[int], total: int) -> InvalidProblemError:
    """Return the error for boundaries that decrease or leave the array."""
    before = 0
    for index, number in enumerate(boundaries):
        if number < before:
            seen = "is negative" if index == 0 else f"comes after {before}"
            return InvalidProblemError(f"offsets: boundary {index} is {number}, which {seen}; they must not decrease")
        if number > total:
            break
        before = number
    return InvalidProblemError(
        f"offsets: boundary {index} is {number}, past the {total} elements of the axis; the last must be at most "
        f"{total}"
    )


def count_of(groups: Any) -> int:
    """Return the number of groups that the user gives."""
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer) or groups < 0:
        raise InvalidProblemError(f"groups: got {groups!r}, expected a number of groups, 0 or more")
    # No array has more; the number must fit in 64 bits.
    return min(int(groups), 2**62)


def check_count(requested: int, actual: int) -> None:
    """Refuse a number of groups that is not that of the operands."""
    if requested not in (-1, actual):
        raise InvalidProblemError(f"groups={requested}, but the operands hold {actual}; omit it")


def wrong_form(a: OperandInfo, b: OperandInfo) -> InvalidProblemError:
    """Return the error for operands whose axes are none of the three forms."""
    return InvalidProblemError(
        f"a: shape {a.shape}, b: shape {b.shape}; with offsets= they are (T, K) and (E, K, N), or (E, M, K) "
        "and (K, T), or (M, T) and (T, N)"
    )


def mismatch(
    a: OperandInfo,
    b: OperandInfo,
    bias: OperandInfo | None,
    out: OperandInfo | None,
    groups: int,
    result_shape: tuple[int, ...],
) -> Exception:
    """Return the error for extents that do not go together."""
    inner, other = a.shape[-1], b.shape[-2]
    if inner != other:
        return InvalidProblemError(
            f"a and b: the last axis of a has {inner} elements and the second to last axis of b has {other} "
            f"(a: shape {a.shape}, b: shape {b.shape}); they must be equal"
        )
    n = result_shape[-1]
    columns = len(a.shape) == 3
    if bias is not None and bias.shape not in ((n,), *(() if columns else ((groups, n),))):
        wanted = f"({n},)" + ("" if columns else f" or ({groups}, {n})")
        return InvalidProblemError(f"bias: got shape {bias.shape}, expected {wanted} for {groups} groups")
    if out is not None and out.shape != result_shape:
        return InvalidProblemError(
            f"out: shape {out.shape}, but the result has shape {result_shape}; pass out= of that shape"
        )
    return UnsupportedError(f"a: shape {a.shape}, b: shape {b.shape}: hipBLASLt supports extents up to {MAX_EXTENT}")


def no_algorithm_error(extent: int, problem: Problem, options: Options) -> UnsupportedError:
    """Return the error for a group that the platform has no algorithm for."""
    return UnsupportedError(f"a group of {extent}: {no_algorithm(problem, options)}")
