# SPDX-License-Identifier: MIT
"""Versions: of RCCL, and of the nccl4py whose names this package has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocpy import platform, rccl

#: The version of nccl4py that this module follows.
__version__ = "0.6.0"


@functools.total_ordering
@dataclass(frozen=True)
class Version:
    """A version of three numbers; it compares with those of ``packaging`` too.

    Examples
    --------
    >>> from rocpy.compat import nccl
    >>> version = nccl.get_version().libnccl.version
    >>> version >= nccl.Version(2, 18, 3), version.release >= (2, 18)
    (True, True)
    """

    major: int
    minor: int
    patch: int

    @property
    def micro(self) -> int:
        """The third number."""
        return self.patch

    @property
    def release(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.major, self.minor, self.patch

    def _other(self, other: Any) -> tuple[int, ...] | None:
        release = getattr(other, "release", None)
        return (*release, 0, 0, 0)[:3] if isinstance(release, tuple) else None

    def __eq__(self, other: object) -> bool:
        return self.release == self._other(other)

    def __lt__(self, other: object) -> bool:
        release = self._other(other)
        if release is None:
            return NotImplemented
        return self.release < release

    def __hash__(self) -> int:
        return hash(self.release)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def _parsed(text: str) -> Version:
    major, minor, patch = (int(part) for part in text.split("."))
    return Version(major, minor, patch)


@dataclass(frozen=True)
class LibraryInfo:
    """The platform's RCCL.

    Attributes
    ----------
    version
        Its version.
    cuda_variant
        ``None``: it is not built for CUDA.
    path
        Its file.
    """

    version: Version
    cuda_variant: Version | None
    path: Path | None

    def __str__(self) -> str:
        return str(self.version) if self.path is None else f"{self.version} @ {self.path}"


@dataclass(frozen=True)
class VersionInfo:
    """The versions that `get_version` returns.

    Attributes
    ----------
    nccl4py
        The version of nccl4py that this module follows; also `nccl4py_version`, its name in nccl4py before 0.5.
    nccl_bindings
        The version of RCCL whose functions rocpy binds.
    libnccl
        The platform's RCCL; its version is also `nccl_version`, as in nccl4py before 0.5.
    """

    nccl4py: Version
    nccl_bindings: Version
    libnccl: LibraryInfo | None

    @property
    def nccl_version(self) -> Version | None:
        """The version of the platform's RCCL."""
        return None if self.libnccl is None else self.libnccl.version

    @property
    def nccl4py_version(self) -> Version:
        """The version of nccl4py that this module follows."""
        return self.nccl4py


def get_version() -> VersionInfo:
    """Return the version of nccl4py that this module follows and that of the platform's RCCL."""
    number = rccl.version()
    version = Version(number // 10000, number // 100 % 100, number % 100)
    library = platform.current().libraries.get("rccl")
    path = Path(library.path) if library is not None and library.path else None
    return VersionInfo(_parsed(__version__), Version(2, 30, 4), LibraryInfo(version, None, path))


def show_versions() -> None:
    """Print the result of `get_version`."""
    versions = get_version()
    print("rocpy.compat.nccl")  # noqa: T201  (what it is for)
    print(f"names of nccl4py : {versions.nccl4py}")  # noqa: T201
    print(f"bindings of RCCL : {versions.nccl_bindings}")  # noqa: T201
    print(f"RCCL             : {versions.libnccl}")  # noqa: T201
