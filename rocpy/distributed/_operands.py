# SPDX-License-Identifier: MIT
"""What products over ranks check of their operands before any rank waits, and the types that autocast has for them."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rocpy._messages.modules import imported
from rocpy._operand import describe
from rocpy.blaslt.model.product_types import RESULT_TYPES, is_float8
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.rccl import Communicator

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Sizes", "bounds", "check", "check_array", "check_bias", "check_communicator", "under_autocast"]

# Below this many multiplications a chunk, cutting costs more than overlap brings.
CHUNK_WORK = 1 << 24
MOST_CHUNKS = 8

_Function = TypeVar("_Function", bound="Callable[..., Any]")


class Sizes(NamedTuple):
    """The extents of a product, and the type of its result.

    Parameters
    ----------
    m, k, n
        Rows of x, terms of each sum, columns of w.
    dtype
        Name of the type that the products of all ranks have, and their sum.
    """

    m: int
    k: int
    n: int
    dtype: str


def check_communicator(comm: Any) -> None:
    """Refuse what is no communicator of RCCL's.

    Raises
    ------
    InvalidOperandError
        It is none; carried ones have no streams.
    """
    if not isinstance(comm, Communicator):
        raise InvalidOperandError(f"comm: got {type(comm).__name__}, expected a rocpy.rccl.Communicator")


def check_array(array: Any, name: str) -> dict[str, Any]:
    """Return what rocpy sees of an operand.

    Raises
    ------
    InvalidOperandError
        It is neither a numpy array nor a torch tensor.
    UnsupportedError
        It is a tensor that something of torch's would have to see, or of a type that has no products.
    """
    seen: dict[str, Any] = describe(array, name)
    if seen["provider"] not in ("numpy", "torch"):
        raise InvalidOperandError(f"{name}: got {type(array).__name__}, expected a torch tensor or a numpy array")
    return seen


def check_bias(bias: Any, n: int) -> None:
    """Refuse a bias of another shape than (N,): products take one per row too, which layers do not have.

    Raises
    ------
    InvalidProblemError
        It has another shape.
    """
    shape = getattr(bias, "shape", None)
    if shape is not None and tuple(shape) != (n,):
        raise InvalidProblemError(f"bias: got shape {tuple(shape)}, expected ({n},), one for each column of the result")


def _check_contiguous(x: dict[str, Any]) -> None:
    step = 1
    for extent, stride in zip(reversed(x["shape"]), reversed(x["strides"]), strict=True):
        if extent > 1 and stride != step and 0 not in x["shape"]:
            raise InvalidOperandError(
                f"x: shape {x['shape']} with strides {x['strides']} is not C-contiguous, and its rows are gathered "
                "from where they are; pass a contiguous copy"
            )
        step *= extent


def check(
    x: Any, w: Any, bias: Any, comm: Any, *, cut: bool = False, is_gathered: bool = False, name: str = "w"
) -> Sizes:
    """Return the sizes of a product, checked.

    Parameters
    ----------
    x, w, bias, comm
        The operands and the communicator.
    cut
        Whether the rows are cut into a part for each rank.
    is_gathered
        Whether the rows of `x` are gathered from all ranks.
    name
        What errors call `w`.

    Raises
    ------
    InvalidProblemError
        Shapes or types do not fit, or the rows cannot be cut into a part for each rank.
    InvalidOperandError
        An operand is no array, or rows that are gathered are not C-contiguous.
    UnsupportedError
        An operand's memory must not be read, or its type has no products without scales.
    """
    check_communicator(comm)
    left, right = check_array(x, "x"), check_array(w, name)
    if len(left["shape"]) != 2 or len(right["shape"]) != 2 or left["shape"][1] != right["shape"][0]:
        raise InvalidProblemError(f"x and {name}: shapes {left['shape']} and {right['shape']} cannot be multiplied")
    dtype = left["dtype"]
    if right["dtype"] != dtype:
        raise InvalidProblemError(f"{name}: got {right['dtype']}, expected {dtype}, the type of x; cast one")
    if dtype not in RESULT_TYPES or is_float8(dtype):
        raise UnsupportedError(
            f"x: products of {dtype} over ranks are not supported; cast x and {name} to float16 or wider"
        )
    (m, k), (_, n) = left["shape"], right["shape"]
    sizes = Sizes(m, k, n, RESULT_TYPES[dtype][0])
    if cut and sizes.m % comm.nranks:
        raise InvalidProblemError(f"x: {sizes.m} rows cannot be split into one part for each of {comm.nranks} ranks")
    if is_gathered:
        _check_contiguous(left)
    if bias is not None:
        added = check_array(bias, "bias")
        check_bias(bias, sizes.n)
        if added["dtype"] != sizes.dtype:
            raise InvalidProblemError(f"bias: got {added['dtype']}, expected {sizes.dtype}, the type of the result")
    return sizes


def bounds(rows: int, chunks: int | None, work: int) -> list[tuple[int, int]]:
    """Return where the chunks begin and end.

    Parameters
    ----------
    rows
        How many there are to cut.
    chunks
        How many chunks; chosen by the work if not given.
    work
        Multiplications of the whole product.

    Raises
    ------
    InvalidProblemError
        There are to be less than one, or no whole number of them.

    Examples
    --------
    >>> from rocpy.distributed._operands import bounds
    >>> bounds(10, 3, 0), bounds(0, 3, 0)
    ([(0, 4), (4, 7), (7, 10)], [])
    """
    try:
        count = min(MOST_CHUNKS, max(1, work // CHUNK_WORK)) if chunks is None else operator.index(chunks)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidProblemError(f"chunks: got {chunks!r}, expected a whole number, 1 or more")
    if rows == 0:
        return []
    count = min(count, rows)
    size, more = divmod(rows, count)
    edges = [index * size + min(index, more) for index in range(count + 1)]
    return list(itertools.pairwise(edges))


def under_autocast(function: _Function) -> _Function:
    """Return a function whose tensors autocast casts, as those of torch's own products, and which runs without it.

    Its collectives and its products on streams of their own cannot pass through torch's dispatcher, which casts.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        torch = imported("torch")
        if torch is None or not torch._C._is_any_autocast_enabled():
            return function(*args, **kwargs)

        def cast(value: Any) -> Any:
            # torch's rule for its own products: everything floating but float64.
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype is torch.float64:
                return value
            device = value.device.type
            is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
            return value.to(torch.get_autocast_dtype(device)) if is_on else value

        operands, settings = [cast(value) for value in args], {name: cast(value) for name, value in kwargs.items()}
        with torch._C._DisableAutocast():
            return function(*operands, **settings)

    return wrapped  # type: ignore[return-value]
