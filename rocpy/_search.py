# SPDX-License-Identifier: MIT
"""Where a ROCm may be installed: the trees, in the order in which they are tried. Imports and opens nothing."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec

DEFAULT_ROCM = Path("/opt/rocm")
_HIP_OF_TORCH = re.compile(r"^hip\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


@dataclass(frozen=True)
class Tree:
    """A place that may hold a whole ROCm.

    Attributes
    ----------
    origin
        What the tree is, for a person.
    directories
        Folders of its libraries; none for the system's loader.
    """

    origin: str
    directories: tuple[str, ...]


def spec_of(package: str) -> ModuleSpec | None:
    """Return a top-level package's spec, without importing it; ``None`` where it is absent or hidden."""
    try:
        return find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module without a spec was put into sys.modules by hand
        return None


def folders_of(package: str) -> tuple[Path, ...]:
    """Return the folders of a package, imported or not; none where it is absent."""
    module = sys.modules.get(package)
    folders = getattr(module, "__path__", None)
    if folders is None:
        spec = spec_of(package)
        folders = spec.submodule_search_locations if spec else None
    return tuple(Path(each) for each in folders or ())


def holds(directory: Path, stem: str) -> bool:
    """Return whether a folder has ``lib<stem>.so``, with or without a version."""
    return next(directory.glob(f"lib{stem}.so*"), None) is not None


def mapped(stem: str) -> tuple[str, ...]:
    """Return the files ``lib<stem>.so*`` that are mapped into this process."""
    try:
        return files_in(os.fsdecode(Path("/proc/self/maps").read_bytes()), stem)
    except OSError:
        return ()


def files_in(maps: str, stem: str) -> tuple[str, ...]:
    """Return the files ``lib<stem>.so*`` of a process's maps, whose paths may have spaces."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    return tuple(sorted(path for path in paths if Path(path).name.startswith(f"lib{stem}.so")))


def torch_hip_version(folder: Path) -> str | None:
    """Return the HIP version that an installed torch was built for, ``None`` for other builds of torch."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = _HIP_OF_TORCH.search(text)
    return match[1] if match else None


def sdk_directories() -> tuple[str, ...]:
    """Return the library folders of the pip packages of ``rocm-sdk``: the core first, then the maths libraries."""
    core = folders_of("_rocm_sdk_core")
    if not core:
        return ()
    # The maths libraries are packed by family of devices, and several families may be installed: this variable of
    # rocm-sdk's says which is meant.
    family = os.environ.get("ROCM_SDK_TARGET_FAMILY", "").replace("-", "_")
    parents = dict.fromkeys([*(folder.parent for folder in core), *(Path(entry) for entry in sys.path if entry)])
    libraries = [
        folder
        for parent in parents
        if parent.is_dir()
        for folder in sorted(
            parent.glob("_rocm_sdk_libraries*"),
            key=lambda folder: (not folder.name.endswith(f"_{family}"), folder.name),
        )
        if folder.is_dir()
    ]
    return tuple(dict.fromkeys(str(folder / "lib") for folder in [*core, *libraries]))


def _torch_trees() -> Iterator[Tree]:
    for folder in folders_of("torch"):
        version = torch_hip_version(folder)
        if version is None:
            continue
        origin = f"torch's own ROCm (HIP {version})"
        files = mapped("amdhip64") if "torch" in sys.modules else ()
        # An imported torch has its HIP runtime open already, wherever it came from; a second one must not join it.
        folders = [str(Path(file).parent) for file in files]
        if holds(folder / "lib", "amdhip64"):
            folders.append(str(folder / "lib"))
        elif sdk := sdk_directories():
            origin = f"the rocm-sdk packages of torch (HIP {version})"
            folders.extend(sdk)
        if folders:
            yield Tree(origin, tuple(dict.fromkeys(folders)))


def _installed_trees() -> Iterator[Tree]:
    if sdk := sdk_directories():
        yield Tree("the rocm-sdk packages", sdk)
    for name, value in (("ROCM_PATH", os.environ.get("ROCM_PATH")), ("ROCM_HOME", os.environ.get("ROCM_HOME"))):
        if value:
            yield Tree(name, (str(Path(value) / "lib"),))
    yield Tree(str(DEFAULT_ROCM), (str(DEFAULT_ROCM / "lib"),))
    yield Tree("the system's loader", ())


def rocm_trees(excluded: str) -> list[Tree]:
    """Return the trees that may hold AMD's ROCm, the first to be tried first.

    Parameters
    ----------
    excluded
        A library folder that is never one: rocpy's own, which a parent process may have named in ``ROCM_PATH``.

    Returns
    -------
    list of Tree
        torch's own, rocm-sdk's, ``ROCM_PATH``'s, ``ROCM_HOME``'s, ``/opt/rocm``'s, the system loader's; each once.
    """
    own = os.path.realpath(excluded)
    trees: dict[tuple[str, ...], Tree] = {}
    for tree in (*_torch_trees(), *_installed_trees()):
        if not any(os.path.realpath(directory) == own for directory in tree.directories):
            trees.setdefault(tree.directories, tree)
    return list(trees.values())
