# SPDX-License-Identifier: MIT
"""Errors that are both nvmath-python's kind and rocpy's."""

from __future__ import annotations

from rocpy.errors import ClosedError, InvalidProblemError, RocpyError


class InvalidMatmulState(ClosedError):  # noqa: N818 (nvmath's name)
    """The object was freed."""


class MatmulStateError(RocpyError, RuntimeError):
    """A call that the object is not ready for: not planned, or its operands were released."""


class ReleasedError(MatmulStateError, InvalidProblemError):
    """The operands were released: nvmath's advanced product raises RuntimeError there, its plain one ValueError."""


class PackageError(InvalidProblemError, TypeError):
    """Operands of different packages, or of one that nvmath does not take."""
