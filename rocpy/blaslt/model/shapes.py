# SPDX-License-Identifier: MIT
"""Shapes and strides: what operands broadcast to, the extents that they name, how matrices lie, forms of a bias."""

from __future__ import annotations

from rocpy.errors import InvalidProblemError

__all__ = [
    "broadcast",
    "common_axes",
    "dense_strides",
    "extents_of",
    "forms_of_bias",
    "is_column_bias",
    "matrix_layout",
]


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
    return tuple(strides)


def broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape that two shapes broadcast to, or ``None`` when they do not."""
    result = []
    for i in range(1, max(len(x), len(y)) + 1):
        p = x[-i] if i <= len(x) else 1
        q = y[-i] if i <= len(y) else 1
        if p != q and p != 1 and q != 1:
            return None
        result.append(q if p == 1 else p)
    return tuple(reversed(result))


def common_axes(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """Return the batch axes of two arrays that both broadcast to those of one product."""
    axes = broadcast(x, y)
    assert axes is not None
    return axes


def extents_of(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Return m, n, k, the batch axes and the result's shape of a product by its operands' shapes."""
    for name, shape in (("a", a), ("b", b)):
        if not shape:
            raise InvalidProblemError(
                f"{name}: got a scalar (shape ()); matmul needs at least one axis: multiply by it with *"
            )
    m, k = (1, a[0]) if len(a) == 1 else a[-2:]
    kb, n = (b[0], 1) if len(b) == 1 else b[-2:]
    if k != kb:
        side = "first" if len(b) == 1 else "second to last"
        hint = _transposition_that_fits(a, b)
        raise InvalidProblemError(
            f"a and b: the last axis of a has {k} elements and the {side} axis of b has {kb} "
            f"(a: shape {a}, b: shape {b}); they must be equal{hint}"
        )
    batch_shape = broadcast(a[:-2], b[:-2])
    if batch_shape is None:
        raise InvalidProblemError(
            f"a and b: batch axes {a[:-2]} and {b[:-2]} do not broadcast (a: shape {a}, b: shape {b})"
        )
    matrix = (() if len(a) == 1 else (m,)) + (() if len(b) == 1 else (n,))
    return m, n, k, batch_shape, (*batch_shape, *matrix)


def _transposition_that_fits(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    """Return the operand that would fit with its last two axes exchanged, as the end of a message."""
    if broadcast(a[:-2], b[:-2]) is None:
        return ""
    for name, shape, fits in (("b", b, b[-1:] == a[-1:]), ("a", a, len(b) > 1 and a[-2:-1] == b[-2:-1])):
        if fits and len(shape) > 1:
            transposed = (*shape[:-2], shape[-1], shape[-2])
            how = f"{name}.T" if len(shape) == 2 else f"{name} with its last two axes exchanged"
            return f"; {how} would fit (shape {transposed})"
    return ""


def is_column_bias(bias: tuple[int, ...], m: int, n: int, batch: tuple[int, ...], matrices: bool) -> bool:
    """Whether a bias of this shape is one for each row of the result; ``matrices``: neither operand is a vector."""
    # With N = 1 such a shape may be that of one bias for each batch entry, and then stands for that.
    return matrices and bias[-2:] == (m, 1) and bias != (*batch, n) and broadcast(bias[:-2], batch) == batch


def forms_of_bias(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    """Return the shapes that a bias may have in a product of operands of these shapes, as a part of a message."""
    m, n, _, batch, _ = extents_of(a, b)
    forms = f"length N = {n}, {'the last axis of the result' if len(b) > 1 else 'as b is a vector'}"
    if batch:
        forms += f", or shape {(*batch, n)} for one per batch entry"
    if len(a) == 1:  # vectors take none per row
        return forms
    return forms + (", or " if len(b) > 1 else "; pass b[:, None] and a bias of ") + f"shape {(m, 1)} for one per row"


def matrix_layout(shape: tuple[int, int], strides: tuple[int, int]) -> tuple[str, int] | None:
    """Return how a matrix lies, ``("row" | "column", ld)``, or ``None`` when the library cannot take it."""
    (rows, columns), (row_stride, column_stride) = shape, strides
    if rows == 0 or columns == 0:
        return "row", max(1, columns)
    if rows == 1:  # its row stride means nothing
        row_stride = columns if column_stride == 1 or columns == 1 else 1
    if columns == 1:
        column_stride = 1
        if row_stride == 0:
            return None if rows > 1 else ("row", 1)
    if column_stride == 1 and row_stride >= columns:
        return "row", row_stride
    if row_stride == 1 and column_stride >= rows:
        return "column", column_stride
    return None
