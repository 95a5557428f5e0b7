# SPDX-License-Identifier: MIT
"""Gives hip-python the files that rocpy chose, without importing it, and finds out whether both hold the same ones."""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocpy import _core, _search
from rocpy.errors import LibraryError, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

_PATHS = "rocm.bindings.util.paths"


def _folders() -> list[Path]:
    return [folder for folder in _search.folders_of("rocm") if (folder / "bindings" / "util" / "paths.py").is_file()]


class _PresetLoader(SourceFileLoader):
    """Runs hip-python's module of paths, then lets it ask rocpy first."""

    def __init__(self, name: str, path: str, preset: Preset) -> None:
        super().__init__(name, path)
        self._preset = preset

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._preset.wrap(module)


class Preset(MetaPathFinder):
    """Makes hip-python's ``get_library_path`` answer with the chosen files, whether it is imported before or after.

    Parameters
    ----------
    files
        Chosen file of each library, by the stem of its name: ``{"amdhip64": "/opt/rocm/lib/libamdhip64.so"}``.
    directories
        Folders of the chosen tree, for its other libraries (hipRTC, hipBLAS, ...).
    """

    def __init__(self, files: Mapping[str, str], directories: Sequence[str]) -> None:
        self._files = dict(files)
        self._directories = tuple(directories)
        self._module: ModuleType | None = None
        self._original: Callable[..., bytes] | None = None

    def install(self) -> None:
        """Start answering: at once if the module of paths is imported, else when it will be."""
        module = sys.modules.get(_PATHS)
        if module is not None:
            self.wrap(module)
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop answering."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._module is not None and self._original is not None:
            self._module.get_library_path = self._original  # type: ignore[attr-defined]
        self._module = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find hip-python's module of paths, and nothing else."""
        if fullname != _PATHS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _PresetLoader(fullname, spec.origin, self)
        return spec

    def wrap(self, module: ModuleType) -> None:
        """Put the chosen files before the module's own search."""
        original: Callable[..., bytes] = module.get_library_path

        @functools.wraps(original)
        def get_library_path(shortname: str, bundled_location: Path | None = None) -> bytes:
            file = self.file(shortname)
            return original(shortname, bundled_location) if file is None else os.fsencode(file)

        self._module, self._original = module, original
        module.get_library_path = get_library_path  # type: ignore[attr-defined]

    def file(self, stem: str) -> str | None:
        """Return the chosen tree's file of a library, ``None`` where the tree has none."""
        if stem in self._files:
            return self._files[stem]
        for directory in self._directories:
            plain = Path(directory) / f"lib{stem}.so"
            candidates = [plain] if plain.exists() else sorted(Path(directory).glob(f"lib{stem}.so.*"), reverse=True)
            if candidates:
                return str(candidates[0])
        return None


def _path_variable_suffices(files: Mapping[str, str], root: Path) -> bool:
    """Return whether hip-python finds exactly these files when ``ROCM_PATH`` names `root`."""
    stems = files.keys()
    if any(next(folder.rglob(f"lib{stem}.so"), None) for folder in _folders() for stem in stems):
        return False  # a library inside its own package comes first
    if _search.spec_of("rocm_sdk") is not None:
        return False  # and rocm-sdk's second
    wanted = {stem: root / "lib" / f"lib{stem}.so" for stem in stems}
    if not all(
        path.exists() and os.path.realpath(path) == os.path.realpath(files[stem]) for stem, path in wanted.items()
    ):
        return False
    # A value that somebody set is theirs: it steers compilers and other programs too.
    named = os.environ.get("ROCM_PATH") or os.environ.get("ROCM_HOME")
    return not named or os.path.realpath(named) == os.path.realpath(root)


class Arrangement:
    """What makes hip-python use the chosen files, and a way to take it back.

    Parameters
    ----------
    files
        Chosen file of each library, by the stem of its name.
    directories
        Folders of the chosen tree.

    Attributes
    ----------
    how
        What is done, for ``rocpy info``.
    """

    def __init__(self, files: Mapping[str, str], directories: Sequence[str]) -> None:
        self.how = "hip-python is not installed"
        self._preset: Preset | None = None
        self._root: Path | None = None  # the value of ROCM_PATH
        if not _folders():
            return
        root = Path(directories[0]).parent if directories else _search.DEFAULT_ROCM
        if not _path_variable_suffices(files, root):
            self.how = "its loader is preset with the chosen files"
            self._preset = Preset(files, directories)
        elif os.environ.get("ROCM_PATH") or os.environ.get("ROCM_HOME") or root == _search.DEFAULT_ROCM:
            self.how = f"it finds the chosen files in {root} by itself"
        else:
            self.how = f"ROCM_PATH is set to {root}"
            self._root = root

    def install(self) -> None:
        """Do it."""
        if self._preset is not None:
            self._preset.install()
        if self._root is not None:
            os.environ["ROCM_PATH"] = str(self._root)

    def undo(self) -> None:
        """Take back what was done."""
        if self._preset is not None:
            self._preset.remove()
            self._preset = None
        if self._root is not None and os.environ.get("ROCM_PATH") == str(self._root):
            del os.environ["ROCM_PATH"]
        self._root = None


_last: Arrangement | None = None


def arrange(files: Mapping[str, str], directories: Sequence[str]) -> str:
    """Let hip-python use the chosen files of these folders; returns what was done, for ``rocpy info``."""
    global _last
    _last = Arrangement(files, directories)
    _last.install()
    return _last.how


def undo() -> None:
    """Take back what was done for the last choice, of which an interrupt may have let only a part be done."""
    if _last is not None:
        _last.undo()


@contextmanager
def _requests() -> Iterator[set[str]]:
    """Note which libraries hip-python looks for: one that it does not look for, it holds already."""
    asked: set[str] = set()
    module: Any = sys.modules.get(_PATHS)
    if module is None:
        import importlib

        module = importlib.import_module(_PATHS)
    answer = module.get_library_path

    def get_library_path(shortname: str, bundled_location: Path | None = None) -> bytes:
        asked.add(shortname)
        return bytes(answer(shortname, bundled_location))

    module.get_library_path = get_library_path
    try:
        yield asked
    finally:
        module.get_library_path = answer


def _has_library(module: Any, symbol: str) -> bool:
    """Return whether hip-python can open the library of one of its modules; opens it if it has not been opened."""
    return bool(module.has_symbol(symbol))


def _hip_conflict() -> str | None:
    hip: Any = sys.modules.get("rocm.bindings.hip")
    cyhip: Any = sys.modules.get("rocm.bindings.cyhip")
    if hip is None or cyhip is None:
        return None
    if not _has_library(hip, "hipGetErrorName"):
        warn(
            "hip-python looked for libamdhip64 before rocpy chose a platform, and keeps a path that cannot be opened; "
            "call rocpy.platform.current() before the first call through hip-python"
        )
        return None
    same, file = _core.shares_runtime(cyhip.__pyx_capi__["hipGetErrorName"])
    return None if same else file


# Files of which hip-python holds one, by the stem of a library about which a choice was refused. It holds it for good,
# while the file that was refused is mapped before the next choice.
_refused: dict[str, set[str]] = {}


def _other_conflict(stem: str, module_name: str, symbol: str, chosen: str, mapped_before: Sequence[str]) -> str | None:
    """Return the file of a library that hip-python opened before rocpy chose, if it is not the chosen one.

    hip-python does not tell what it opened. It held the library before if it does not look for it now, and then the
    library is one of those that were mapped before rocpy opened any.
    """
    module = sys.modules.get(module_name)
    if module is None:
        return None
    with _requests() as asked:
        opened = _has_library(module, symbol)
    if not opened or stem in asked:
        return None
    before = _refused[stem] if stem in _refused else {os.path.realpath(path) for path in mapped_before}
    if os.path.realpath(chosen) in before:
        return None
    _refused[stem] = before
    return next(iter(sorted(before)), "a file that is no longer there")


def conflict(files: Mapping[str, str], mapped_before: Mapping[str, Sequence[str]]) -> LibraryError | None:
    """Find out whether an imported hip-python holds other files than the chosen ones.

    Parameters
    ----------
    files
        Chosen file of each library, by the stem of its name.
    mapped_before
        Files of each library that the process had mapped before rocpy opened any.

    Returns
    -------
    LibraryError or None
        The error to raise, which names both files.
    """
    checks: tuple[tuple[str, str | None], ...] = (
        ("amdhip64", _hip_conflict()),
        (
            "hipblaslt",
            _other_conflict(
                "hipblaslt",
                "rocm.bindings.hipblaslt",
                "hipblasLtCreate",
                files["hipblaslt"],
                mapped_before.get("hipblaslt", ()),
            ),
        ),
    )
    if "rccl" in files:
        rccl = _other_conflict(
            "rccl", "rocm.bindings.rccl", "ncclGetVersion", files["rccl"], mapped_before.get("rccl", ())
        )
        checks = (*checks, ("rccl", rccl))
    for stem, other in checks:
        if other is not None:
            return LibraryError(
                f"hip-python already uses {other} as lib{stem}, and rocpy chose {files[stem]}: a process can have only "
                "one. Call rocpy.platform.current() before the first call through hip-python, or make both choose the "
                "same tree (ROCPY_PLATFORM, ROCM_PATH)",
                library="hip" if stem == "amdhip64" else stem,
            )
    return None
