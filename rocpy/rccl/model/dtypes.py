# SPDX-License-Identifier: MIT
"""The element types that RCCL has, by the names that numpy, ml_dtypes and torch share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rocpy import _operand
from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import InvalidOperandError

if TYPE_CHECKING:
    from rocpy.typing import ArrayDType, ArrayDTypeName

_ROWS = {name: (nccl, hip) for name, (hip, *_, nccl) in _operand.array_types().items() if nccl >= 0}
NAMES: tuple[ArrayDTypeName, ...] = tuple(sorted(_ROWS, key=_ROWS.__getitem__))
"""In the order of RCCL's numbers, which begin with 0."""


def name_of(dtype: ArrayDType) -> ArrayDTypeName:
    """Return the name of a type of RCCL's, whoever's dtype it is.

    Raises
    ------
    InvalidOperandError
        RCCL has no such type.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.rccl.model.dtypes import name_of
    >>> name_of(np.float32)
    'float32'
    """
    candidate: Any = dtype
    name = candidate if isinstance(candidate, str) else getattr(candidate, "name", None)
    if type(candidate).__module__ == "torch" or (isinstance(candidate, str) and candidate.startswith("torch.")):
        name = str(candidate).removeprefix("torch.")
    if name not in NAMES:
        try:
            name = np.dtype(candidate).name
        except (TypeError, ValueError):  # the latter of a surrogate, of which no name has one
            name = None
    if name not in NAMES:
        raise InvalidOperandError(
            f"dtype: {dtype!r} is not one of RCCL's: {', '.join(NAMES)}{did_you_mean(dtype, NAMES)}"
        )
    return NAMES[NAMES.index(name)]


def is_supported(dtype: ArrayDType) -> bool:
    """Return whether RCCL has a type."""
    try:
        return bool(name_of(dtype))
    except InvalidOperandError:
        return False


def numpy_type(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # when one of its types is met: half the users never need it

        return np.dtype(getattr(ml_dtypes, name))


def hip_number(name: ArrayDTypeName) -> int:
    """Return the ``hipDataType`` of a name."""
    return _ROWS[name][1]
