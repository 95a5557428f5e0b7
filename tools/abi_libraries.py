# SPDX-License-Identifier: MIT
"""The rows of csrc/abi/libraries.def: what the tools know of a platform's libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ABI = Path(__file__).resolve().parent.parent / "csrc" / "abi"
TABLE = ABI / "libraries.def"
_ROW = re.compile(r"^ROCPY_LIBRARY\((.*)\)$", re.MULTILINE)


class Library(NamedTuple):
    """A library: its name in the rows, and its statuses.

    Attributes
    ----------
    name : str
        The first column of its rows.
    status : str
        The type of its statuses.
    out_of_memory, failed : str
        What a platform's code answers without memory, and for its other exceptions.
    """

    name: str
    status: str
    out_of_memory: str
    failed: str


def read_libraries() -> tuple[Library, ...]:
    """Read the rows.

    Raises
    ------
    ValueError
        If a row has another number of columns than the file says.
    """
    libraries = []
    for row in _ROW.findall(TABLE.read_text(encoding="utf-8")):
        columns = [column.strip() for column in row.split(",")]
        if len(columns) != 11:
            raise ValueError(f"libraries.def: a row of {len(columns)} columns, not 11: {row}")
        libraries.append(Library(columns[0], columns[7], columns[9], columns[10]))
    return tuple(libraries)


LIBRARIES = read_libraries()


def headers() -> tuple[str, ...]:
    """Return the names of the headers with the libraries' types, and of those with rocpy's own."""
    names = [
        path.name
        for library in LIBRARIES
        for pattern in (f"types_{library.name}.h", f"types_{library.name}_*.h")
        for path in sorted(ABI.glob(pattern))
    ]
    return (*names, "types_extension.h")
