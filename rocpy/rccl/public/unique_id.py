# SPDX-License-Identifier: MIT
"""UniqueId: the identifier that all ranks of a new communicator share."""

from __future__ import annotations

from rocpy.errors import InvalidArgumentError
from rocpy.rccl.engine import library

__all__ = ["UniqueId"]


class UniqueId:
    """The identifier that all ranks of a new communicator share (ncclGetUniqueId).

    Parameters
    ----------
    data
        Its 128 bytes.

    Examples
    --------
    >>> from rocpy import rccl
    >>> len(bytes(rccl.UniqueId.make()))
    128
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        if not isinstance(data, bytes | bytearray) or len(data) != 128:
            seen = f"{len(data)} bytes" if isinstance(data, bytes | bytearray) else type(data).__name__
            raise InvalidArgumentError(f"data: got {seen}, expected 128 bytes")
        self._data = bytes(data)

    @staticmethod
    def make() -> UniqueId:
        """Return a new one; one rank creates it and passes it to the others. It can be pickled."""
        return UniqueId(library.make_unique_id())

    def __bytes__(self) -> bytes:
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueId) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[type[UniqueId], tuple[bytes]]:
        return UniqueId, (self._data,)

    def __repr__(self) -> str:
        return f"rocpy.rccl.UniqueId({self._data[:24].hex()}...)"
