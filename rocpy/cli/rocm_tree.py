# SPDX-License-Identifier: MIT
"""``rocpy rocm-tree``: a stand-in ROCm tree over the host platform, for programs that link AMD's libraries."""

from __future__ import annotations

import shlex
from pathlib import Path

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import UsageError, print_json, say
from rocpy.cli._parser import Parser, add_json, choice_of, path_of

RELEASES = ("6.4", "7.0", "7.2")
DEFAULT_RELEASE = "7.2"
SEPARATED = "programs cannot find a tree in {}: '{}' separates folders in LD_LIBRARY_PATH"


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "folder", metavar="FOLDER", type=path_of, help="folder to lay the tree out in; created if it does not exist"
    )
    add_release(parser)
    add_json(parser)
    set_run(parser, rocm_tree)


def add_release(parser: Parser) -> None:
    """Add ``--release``."""
    parser.add_argument(
        "--release",
        type=choice_of(RELEASES),
        default=DEFAULT_RELEASE,
        metavar="RELEASE",
        help=f"ROCm release: {', '.join(RELEASES[:-1])} or {RELEASES[-1]} (default: {DEFAULT_RELEASE})",
    )


def rocm_tree(arguments: Arguments) -> int:
    """Lay the tree out and show the variables that programs need."""
    tree = arguments.folder
    try:
        tree = tree.absolute()  # below the current folder, which may have been deleted
        if separator := separator_in(tree):
            raise UsageError(f"rocpy rocm-tree: {SEPARATED.format(tree, separator)}; name another folder")
        lay_out(tree, arguments.release)
    except OSError as error:
        raise UsageError(f"rocpy rocm-tree: cannot lay out a tree in {tree}: {error.strerror or error}") from error
    variables = environment(tree, arguments.release)
    if arguments.as_json:
        print_json({"folder": str(tree), "release": arguments.release, "variables": variables})
        return 0
    say(f"{tree}: the libraries of ROCm {arguments.release} over rocpy's host platform")
    for name, value in variables.items():
        say(f"export {name}={shlex.quote(value)}")
    return 0


def separator_in(tree: Path) -> str:
    """Return the character of a path that separates folders in ``LD_LIBRARY_PATH``, empty where there is none."""
    return next((separator for separator in ":;" if separator in str(tree)), "")


def package_folder() -> Path:
    """Return the folder of the package that holds the host platform."""
    from rocpy import _core

    return Path(_core.__file__).resolve().parent / "_host"


def libraries(release: str) -> dict[str, Path]:
    """Return the file of every library of a release, by its SONAME.

    Parameters
    ----------
    release
        One of ``RELEASES``.
    """
    host = package_folder()
    folders = (host / "rocm" / "all", host / "rocm" / release.partition(".")[0], host / "rocm" / release)
    paths = {path.name: path for folder in folders for path in sorted(folder.glob("lib*.so.*"))}
    return {**paths, "librocpy_host.so": host / "lib" / "librocpy_host.so"}


def lay_out(tree: Path, release: str) -> None:
    """Make ``lib/`` with every library under its SONAME and its development name, and ``.info/version``.

    Links of an earlier tree in the same folder are replaced; a file that is not one of them is left as it is.

    Parameters
    ----------
    tree
        Folder of the tree.
    release
        One of ``RELEASES``.

    Raises
    ------
    OSError
        If the folder cannot be written, or has a file of its own where a library belongs.
    """
    folder = tree / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_symlink() and package_folder() in path.readlink().parents:
            path.unlink()
    for name, path in libraries(release).items():
        _link(folder / name, path)
        if ".so." in name:
            _link(folder / f"{name.split('.so.')[0]}.so", path)
    info = tree / ".info"
    info.mkdir(exist_ok=True)
    (info / "version").write_text(f"{release}.0\n", encoding="utf-8")


def _link(path: Path, target: Path) -> None:
    if path.is_symlink():
        path.unlink()
    path.symlink_to(target)


def environment(tree: Path, release: str, library_path: str = "") -> dict[str, str]:
    """Return the variables with which a program finds the tree.

    Parameters
    ----------
    tree
        Folder of the tree.
    release
        Release that it was laid out for.
    library_path
        ``LD_LIBRARY_PATH`` as it is: the tree is put before it.
    """
    return {
        "LD_LIBRARY_PATH": ":".join([str(tree / "lib"), *filter(None, [library_path])]),
        "ROCM_PATH": str(tree),
        "ROCPY_PLATFORM": "host",
        "ROCPY_HOST_ABI": release,
    }
