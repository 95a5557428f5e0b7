# SPDX-License-Identifier: MIT
"""Structured matrices as ``nvmath.linalg`` has them: qualifiers, and the matrix that an operand stands for."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from rocpy.compat.nvmath import _arrays
from rocpy.compat.nvmath._enums import DiagType, FillMode
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = [
    "DiagonalMatrixQualifier",
    "GeneralMatrixQualifier",
    "HermitianMatrixQualifier",
    "MatrixQualifier",
    "SymmetricMatrixQualifier",
    "TriangularMatrixQualifier",
    "matrix_qualifiers_dtype",
]

#: What is said of an operand: its kind in two letters, whether it is conjugated, and what is read of it.
matrix_qualifiers_dtype = np.dtype(
    [("abbreviation", "U2"), ("conjugate", np.bool_), ("uplo", np.int_), ("diag", np.int_), ("incx", np.int_)]
)

MatrixQualifier: TypeAlias = npt.NDArray[Any]


class _Qualifier:
    """What the kinds share: :meth:`create` makes an element of :data:`matrix_qualifiers_dtype`."""

    abbreviation: ClassVar[str]

    def __init__(self) -> None:
        raise UnsupportedError(f"a {type(self).__name__} is created by {type(self).__name__}.create()")

    @classmethod
    def _create(
        cls, conjugate: bool, uplo: Any = FillMode.FULL, diag: Any = DiagType.NON_UNIT, incx: int = 0
    ) -> MatrixQualifier:
        return np.array((cls.abbreviation, conjugate, uplo, diag, incx), matrix_qualifiers_dtype)

    @classmethod
    def is_valid(cls, other: Any) -> bool:
        """Whether all elements of an array are of this kind."""
        return other.dtype == matrix_qualifiers_dtype and bool(np.all(other["abbreviation"] == cls.abbreviation))

    @classmethod
    def to_string(cls, other: MatrixQualifier) -> str:
        """Return an element in words."""
        return (
            f"({other['abbreviation']}, conjugate={other['conjugate']}, uplo={FillMode(int(other['uplo'])).name}, "
            f"diag={DiagType(int(other['diag'])).name}, incx={other['incx']})"
        )


class GeneralMatrixQualifier(_Qualifier):
    """A matrix without structure.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg import GeneralMatrixQualifier
    >>> GeneralMatrixQualifier.create(conjugate=True).item()
    ('ge', True, 2, 0, 0)
    """

    abbreviation = "ge"

    @classmethod
    def create(cls, conjugate: bool = False) -> MatrixQualifier:
        """Return the qualifier of a general matrix."""
        return cls._create(conjugate)


class DiagonalMatrixQualifier(_Qualifier):
    """A diagonal matrix, given as the vector of its diagonal."""

    abbreviation = "dg"

    @classmethod
    def create(cls, conjugate: bool = False, incx: int = 1) -> MatrixQualifier:
        """Return the qualifier of a diagonal matrix whose vector is read forward (1) or backward (-1)."""
        if incx not in (-1, 1):
            raise InvalidProblemError(f"incx: got {incx!r}, expected 1 or -1")
        return cls._create(conjugate, incx=incx)

    @classmethod
    def is_valid(cls, other: Any) -> bool:
        """Whether all elements of an array are of this kind."""
        return super().is_valid(other) and bool(np.all(abs(other["incx"]) == 1))


class _Square(_Qualifier):
    """A square matrix of which a triangle is read."""

    @classmethod
    def _half(cls, conjugate: bool, uplo: Any, diag: Any = DiagType.NON_UNIT) -> MatrixQualifier:
        if uplo not in (FillMode.LOWER, FillMode.UPPER):
            raise InvalidProblemError(f"uplo: got {uplo!r}, expected FillMode.LOWER or FillMode.UPPER")
        return cls._create(conjugate, uplo=uplo, diag=diag)

    @classmethod
    def is_valid(cls, other: Any) -> bool:
        """Whether all elements of an array are of this kind."""
        return super().is_valid(other) and bool(np.all(np.isin(other["uplo"], (FillMode.LOWER, FillMode.UPPER))))


class HermitianMatrixQualifier(_Square):
    """A matrix that is its own conjugate transpose; the imaginary parts of its diagonal are ignored."""

    abbreviation = "he"

    @classmethod
    def create(cls, conjugate: bool = False, uplo: FillMode = FillMode.LOWER) -> MatrixQualifier:
        """Return the qualifier of a Hermitian matrix of which one triangle is read."""
        return cls._half(conjugate, uplo)


class SymmetricMatrixQualifier(_Square):
    """A matrix that is its own transpose."""

    abbreviation = "sy"

    @classmethod
    def create(cls, conjugate: bool = False, uplo: FillMode = FillMode.LOWER) -> MatrixQualifier:
        """Return the qualifier of a symmetric matrix of which one triangle is read."""
        return cls._half(conjugate, uplo)


class TriangularMatrixQualifier(_Square):
    """A matrix with zeros above or below its diagonal, which may consist of ones."""

    abbreviation = "tr"

    @classmethod
    def create(
        cls, conjugate: bool = False, uplo: FillMode = FillMode.LOWER, diag: DiagType = DiagType.NON_UNIT
    ) -> MatrixQualifier:
        """Return the qualifier of a triangular matrix."""
        if diag not in (DiagType.UNIT, DiagType.NON_UNIT):
            raise InvalidProblemError(f"diag: got {diag!r}, expected DiagType.UNIT or DiagType.NON_UNIT")
        return cls._half(conjugate, uplo, diag)

    @classmethod
    def is_valid(cls, other: Any) -> bool:
        """Whether all elements of an array are of this kind."""
        return super().is_valid(other) and bool(np.all(np.isin(other["diag"], (DiagType.UNIT, DiagType.NON_UNIT))))


_KINDS: tuple[type[_Qualifier], ...] = (
    GeneralMatrixQualifier,
    DiagonalMatrixQualifier,
    HermitianMatrixQualifier,
    SymmetricMatrixQualifier,
    TriangularMatrixQualifier,
)


def read(qualifiers: Any, with_c: bool) -> MatrixQualifier:
    """Return the qualifiers of a, b and c; the user's own array is never changed."""
    rows = np.full(3, GeneralMatrixQualifier.create(), matrix_qualifiers_dtype)
    if qualifiers is None:
        return rows
    if not isinstance(qualifiers, np.ndarray) or qualifiers.dtype != matrix_qualifiers_dtype:
        seen = f"an array of {qualifiers.dtype}" if hasattr(qualifiers, "dtype") else type(qualifiers).__name__
        raise InvalidOperandError(f"qualifiers: got {seen}, expected an array of linalg.matrix_qualifiers_dtype")
    if qualifiers.shape not in (((3,),) if with_c else ((2,), (3,))):
        raise InvalidProblemError(
            f"qualifiers: shape {qualifiers.shape}; there must be one for each operand: {3 if with_c else 2}"
        )
    rows[: len(qualifiers)] = qualifiers
    for name, qualifier in zip("abc", rows, strict=True):
        if not any(kind.is_valid(qualifier) for kind in _KINDS):
            raise InvalidProblemError(
                f"qualifiers: the one for {name} is {qualifier}; create qualifiers by create() of their class"
            )
    if rows[2]["conjugate"] or rows[2]["abbreviation"] != GeneralMatrixQualifier.abbreviation:
        raise InvalidProblemError(f"qualifiers: the one for c is {rows[2]}; c must be general and not conjugated")
    return rows


def is_structured(qualifier: Any) -> bool:
    """Whether a qualifier's matrix is another than the array that is given for it."""
    return bool(qualifier["abbreviation"] != GeneralMatrixQualifier.abbreviation)


def matrix(array: Any, qualifier: Any, name: str) -> Any:
    """Return the matrix that an array stands for, without the conjugation: the array itself where it is general."""
    if not is_structured(qualifier):
        return array
    shape, kind = tuple(array.shape), qualifier["abbreviation"]
    if kind == DiagonalMatrixQualifier.abbreviation:
        if len(shape) != 1:
            raise InvalidProblemError(
                f"{name}: shape {shape}; a diagonal matrix is given as the vector of its diagonal"
            )
        return _arrays.diagonal(array, qualifier["incx"] < 0)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidProblemError(f"{name}: shape {shape}; a structured matrix is square")
    library, index = _arrays.positions(array)
    rows, columns = index[:, None], index[None, :]
    mask = rows >= columns if qualifier["uplo"] == FillMode.LOWER else rows <= columns
    if kind == TriangularMatrixQualifier.abbreviation:
        half = library.where(mask, array, library.zeros_like(array))
        return (
            half
            if qualifier["diag"] == DiagType.NON_UNIT
            else library.where(rows == columns, library.ones_like(array), half)
        )
    mirrored = _arrays.transposed(array)
    if kind == SymmetricMatrixQualifier.abbreviation:
        return library.where(mask, array, mirrored)
    full = library.where(mask, array, _arrays.conjugate(mirrored))
    return library.where(rows == columns, array.real, full)
