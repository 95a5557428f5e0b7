# SPDX-License-Identifier: MIT
"""An algorithm under nvmath-python's name: what hipBLASLt lets one see of it, and its way through files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rocpy.blaslt import Algorithm as _Algorithm
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = ["Algorithm"]

_HIDDEN = (
    "capabilities",
    "cluster_shape",
    "cta_swizzling",
    "custom_option",
    "inner_shape",
    "reduction_scheme",
    "split_k",
    "stages",
    "tile",
)


class Algorithm:
    """One way to compute a planned product.

    Parameters
    ----------
    record
        The :class:`rocpy.blaslt.Algorithm` behind it.

    Notes
    -----
    hipBLASLt tells neither tile nor stages nor the like, and takes none: reading or setting those raises
    UnsupportedError. :meth:`as_numpy` and :meth:`from_numpy` carry library, version and architecture with the record,
    so that an algorithm of another machine is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath.linalg.advanced import Algorithm, Matmul
    >>> with Matmul(np.ones((8, 8)), np.ones((8, 8))) as mm:
    ...     best = mm.plan()[0]
    >>> Algorithm.from_numpy(best.as_numpy()) == best
    True
    """

    __slots__ = ("record",)

    def __init__(self, record: _Algorithm) -> None:
        if not isinstance(record, _Algorithm):
            raise InvalidOperandError(f"a {type(record).__name__}; it must be a rocpy.blaslt.Algorithm")
        object.__setattr__(self, "record", record)

    @property
    def algorithm_id(self) -> int:
        """Index of the solution in its library."""
        return self.record.id

    def __getattr__(self, name: str) -> Any:
        if name in _HIDDEN:
            raise UnsupportedError(f"{name}: hipBLASLt does not tell it; str(algorithm) has the kernel's name")
        raise AttributeError(f"an Algorithm has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise UnsupportedError(f"{name}: an algorithm of hipBLASLt has nothing to set; choose another of .algorithms")

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the record as an array that ``np.save(allow_pickle=False)`` writes."""
        return np.array(self.record.to_json().encode())

    @classmethod
    def from_numpy(cls, array: Any) -> Algorithm:
        """Return the algorithm of an array that :meth:`as_numpy` made."""
        array = np.asarray(array)
        if array.dtype.kind != "S" or array.size != 1:
            raise InvalidProblemError(f"an array of {array.dtype}, shape {array.shape}, is no saved algorithm of rocpy")
        try:
            return cls(_Algorithm.from_dict(json.loads(array.item())))
        except ValueError as error:
            raise InvalidProblemError(f"the array is no saved algorithm of rocpy: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Algorithm, (self.record,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Algorithm) and other.record.is_same(self.record)

    def __hash__(self) -> int:
        return hash((self.record.id, self.record.name))

    def __repr__(self) -> str:
        return f"<Algorithm {self.record}>"
