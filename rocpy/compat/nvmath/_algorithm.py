# SPDX-License-Identifier: MIT
"""An algorithm under nvmath-python's name: what hipBLASLt lets one see of it, and its way through files."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np

from rocpy.blaslt import Algorithm as _Algorithm
from rocpy.compat.nvmath._enums import MatmulInnerShape
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.runtime._foreign import array_view

__all__ = ["Algorithm", "AlgorithmCapabilities"]

# What hipBLASLt neither tells nor takes, with what cuBLASLt calls a setting that nobody made.
_UNTOLD: dict[str, Any] = {
    "cluster_shape": "AUTO",
    "cta_swizzling": None,
    "custom_option": None,
    "inner_shape": MatmulInnerShape.UNDEFINED,
    "reduction_scheme": None,
    "split_k": None,
    "stages": "UNDEFINED",
    "tile": "UNDEFINED",
}
# The macro tile in the names of hipBLASLt's kernels: M, N and the K of a step.
_TILE = re.compile(r"_MT(\d+)x(\d+)x\d+")


@dataclasses.dataclass
class AlgorithmCapabilities:
    """What may be set on an algorithm; ``None`` for what hipBLASLt does not report.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg.advanced import AlgorithmCapabilities
    >>> print(AlgorithmCapabilities(tile_ids=((64, 32),)).tile_ids)
    ((64, 32),)
    """

    splitk_support: int | None = None
    reduction_scheme_mask: int | None = None
    cta_swizzling_support: int | None = None
    strided_batch_support: int | None = None
    out_of_place_result_support: int | None = None
    uplo_support: int | None = None
    tile_ids: Any = None
    custom_option_max: int | None = None
    custom_memory_order: int | None = None
    pointer_mode_mask: int | None = None
    epilogue_mask: int | None = None
    stages_ids: Any = None
    ld_negative: int | None = None
    numerical_impl_flags: int | None = None
    min_alignment_a_bytes: int | None = None
    min_alignment_b_bytes: int | None = None
    min_alignment_c_bytes: int | None = None
    min_alignment_d_bytes: int | None = None
    pointer_array_batch_support: int | None = None
    floating_point_emulation_support: int | None = None
    pointer_array_grouped_support: int | None = None
    atomic_sync: int | None = None
    mathmode_impl: int | None = None
    gaussian_impl: int | None = None

    def __str__(self) -> str:
        """Return a line for each capability."""
        names = [field.name for field in dataclasses.fields(self)]
        width = max(map(len, names))
        return "\n".join(
            ["Algorithm Capabilities:", *(f"    {name:{width}} = {getattr(self, name)}" for name in names)]
        )


class Algorithm:
    """One way to compute a planned product.

    Parameters
    ----------
    record
        The :class:`rocpy.blaslt.Algorithm` behind it.

    Notes
    -----
    hipBLASLt does not accept a tile, stages and the like: setting one to a different value raises UnsupportedError. It
    reports only the tile, in the name of the kernel; the others are ``"UNDEFINED"``, ``"AUTO"`` or ``None``.
    :meth:`as_numpy` and :meth:`from_numpy` store library, version and architecture with the record, so that an
    algorithm of another machine is refused.

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
            raise InvalidOperandError(f"got {type(record).__name__}, expected a rocpy.blaslt.Algorithm")
        object.__setattr__(self, "record", record)

    @property
    def algorithm_id(self) -> int:
        """Index of the solution in its library."""
        return self.record.id

    @property
    def capabilities(self) -> AlgorithmCapabilities:
        """What may be set, which is only the algorithm's own values."""
        tile = self.tile
        return AlgorithmCapabilities(
            strided_batch_support=1,
            out_of_place_result_support=1,
            ld_negative=0,
            tile_ids=() if isinstance(tile, str) else (tile,),
        )

    def __getattr__(self, name: str) -> Any:
        if name == "tile":
            match = _TILE.search(self.record.name)
            return (int(match[1]), int(match[2])) if match else _UNTOLD[name]
        if name in _UNTOLD:
            return _UNTOLD[name]
        raise AttributeError(f"an Algorithm has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _UNTOLD or value != getattr(self, name):
            raise UnsupportedError(
                f"{name}: an algorithm of hipBLASLt has nothing to set; choose another of .algorithms"
            )

    def as_numpy(self) -> np.ndarray[Any, Any]:
        """Return the record as an array that ``np.save(allow_pickle=False)`` writes."""
        return np.array(self.record.to_json().encode())

    @classmethod
    def from_numpy(cls, array: Any) -> Algorithm:
        """Return the algorithm of an array that :meth:`as_numpy` returned."""
        array = array_view(array, "array")
        if array.dtype.kind != "S" or array.size != 1:
            raise InvalidProblemError(
                f"an array of {array.dtype}, shape {array.shape}, is not a saved algorithm of rocpy"
            )
        try:
            return cls(_Algorithm.from_dict(json.loads(array.item())))
        except ValueError as error:
            raise InvalidProblemError(f"the array is not a saved algorithm of rocpy: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Algorithm, (self.record,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Algorithm) and other.record.is_same(self.record)

    def __hash__(self) -> int:
        return hash((self.record.id, self.record.name))

    def __repr__(self) -> str:
        return f"<Algorithm {self.record}>"
