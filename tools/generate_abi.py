# SPDX-License-Identifier: MIT
"""Turns the rows of csrc/abi/*.def into source text.

``generate_abi.py facade LIBRARY OUTPUT`` writes the C++ source of one of the host platform's facades: each row of the
library forwards to the function of the same name in librocpy_host.so, and answers with a status what is thrown there.
``generate_abi.py pxd FOLDER OUTPUT`` writes the Cython declarations and checked calls of the rows that Cython files in
the folder name. ``generate_abi.py rows LIBRARY`` prints the names of a library's rows, and ``generate_abi.py check
LIBRARY FILE`` compares them with the symbols that a shared library exports (by ``nm``).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import abi_libraries
import abi_pxd

ABI = abi_libraries.ABI
DEFINITIONS = (*(f"{library.name}.def" for library in abi_libraries.LIBRARIES), "extension.def")

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ROW = re.compile(r"ROCPY_FUNCTION\(\s*(\w+)\s*,\s*([^,]+?)\s*,\s*(\w+)\s*,\s*\((.*?)\)\s*,\s*(\d+)\s*\)", re.DOTALL)
_SYMBOL = re.compile(r"ROCPY_SYMBOL\(\s*(\w+)\s*,\s*(\w+)\s*\)")
_PARAMETER = re.compile(r"^(.*?)\s*(\w+)$", re.DOTALL)


class Row(NamedTuple):
    """One C function of the contract.

    Attributes
    ----------
    library : str
        Which library exports it: the name of a row of ``libraries.def``.
    result : str
        Type of the result, as C has it.
    name : str
        Name in the library's symbol table.
    parameters : list of (str, str)
        Type and name of each parameter.
    since : int
        First version of the library that has it, as the library numbers itself.
    """

    library: str
    result: str
    name: str
    parameters: list[tuple[str, str]]
    since: int

    @property
    def declaration(self) -> str:
        """The parameter list as C has it, without parentheses."""
        return ", ".join(f"{type_} {name}" for type_, name in self.parameters) or "void"

    @property
    def arguments(self) -> str:
        """The parameters' names, as a call passes them."""
        return ", ".join(name for _, name in self.parameters)


def _parse_parameters(text: str, where: str) -> list[tuple[str, str]]:
    if text.strip() in ("", "void"):
        return []
    parameters = []
    for part in text.split(","):
        match = _PARAMETER.match(part.strip())
        if match is None or not match.group(1):
            raise ValueError(f"{where}: parameter {part.strip()!r} needs a type and a name")
        parameters.append((match.group(1).strip(), match.group(2)))
    return parameters


def parse_rows(path: str | Path) -> list[Row]:
    """Read the rows of one ``.def`` file.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    list of Row
        In the file's order.

    Raises
    ------
    ValueError
        If a row cannot be read: its text is in the message.
    """
    text = _COMMENT.sub("", Path(path).read_text(encoding="utf-8"))
    rows = [
        Row(library, result, name, _parse_parameters(parameters, f"{path}: {name}"), int(since))
        for library, result, name, parameters, since in _ROW.findall(text)
    ]
    if len(rows) != text.count("ROCPY_FUNCTION("):
        unread = _ROW.sub("", text).strip()
        raise ValueError(f"{path}: cannot read a row: {unread[:200]!r}")
    return rows


def all_rows() -> list[Row]:
    """Read the rows of every ``.def`` file of the contract."""
    return [row for name in DEFINITIONS for row in parse_rows(ABI / name)]


def named_rows(folder: Path) -> list[Row]:
    """Read the rows that Cython files name: the others would be analysed anew for every module that imports a few.

    Parameters
    ----------
    folder : path
        Where the files are, at any depth.

    Returns
    -------
    list of Row
        In the order of ``all_rows``.
    """
    files = (path for pattern in ("*.pyx", "*.pxd") for path in folder.rglob(pattern))
    words = {word for path in files for word in re.findall(r"\b(?:slot_)?(\w+)", path.read_text(encoding="utf-8"))}
    return [row for row in all_rows() if row.name in words]


def extension_symbols(library: str) -> dict[str, str]:
    """Read the symbols of a library's C++ functions from its ``_ext.def`` file.

    Parameters
    ----------
    library : str
        The library.

    Returns
    -------
    dict of str to str
        Function name to symbol; empty for a library without such a file.
    """
    path = ABI / f"{library}_ext.def"
    return dict(_SYMBOL.findall(path.read_text(encoding="utf-8"))) if path.exists() else {}


def twin(row: Row) -> str | None:
    """Return the second name that RCCL gives a function: profilers that stand before the first one call it by that."""
    return f"p{row.name}" if row.library == "rccl" and row.name.startswith("nccl") else None


# What a facade answers for an exception of the platform's code: without memory, and otherwise.
_FAILURES = {library.status: (library.out_of_memory, library.failed) for library in abi_libraries.LIBRARIES}


def _forward(row: Row) -> list[str]:
    """Write the body of a facade's function: callers are C, which no exception may reach."""
    call = f"{'' if row.result == 'void' else 'return '}rocpy_host_{row.name}({row.arguments});"
    if row.result not in _FAILURES:
        return [f"  {call}"]
    memory, other = _FAILURES[row.result]
    return [
        "  try {",
        f"    {call}",
        "  } catch (const std::bad_alloc &) {",
        f"    return {memory};",
        "  } catch (const std::exception &) {",
        f"    return {other};",
        "  }",
    ]


def forwarded(row: Row) -> list[str]:
    """Write a function under a row's name that forwards to librocpy_host.so."""
    space = "" if row.result.endswith("*") else " "
    lines = [
        f"{row.result}{space}rocpy_host_{row.name}({row.declaration});",
        f'__attribute__((visibility("default"))) {row.result}{space}{row.name}({row.declaration}) {{',
        *_forward(row),
        "}",
    ]
    if second := twin(row):
        attributes = f'alias("{row.name}"), visibility("default")'
        lines.append(f"__attribute__(({attributes})) {row.result}{space}{second}({row.declaration});")
    return [*lines, ""]


def facade(library: str) -> str:
    """Write the C++ source of a host facade.

    Parameters
    ----------
    library : str
        The library whose rows it exports.

    Returns
    -------
    str
        The source text.
    """
    lines = [
        "/* SPDX-License-Identifier: MIT */",
        f"/* Generated by tools/generate_abi.py: the rows of {library}, forwarded to librocpy_host.so. */",
        '#include "types.h"',
        "",
        "#include <exception>",
        "#include <new>",
        "",
        'extern "C" {',
        "",
    ]
    for row in all_rows():
        if row.library == library:
            lines += forwarded(row)
    return "\n".join([*lines, "}", ""])


def exported_symbols(path: str | Path) -> set[str]:
    """Names of the functions that a shared library exports, as ``nm`` lists them."""
    command = ["nm", "-D", "--defined-only", str(path)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in listing.stdout.splitlines()}


def symbols(library: str) -> set[str]:
    """Names that a library must export: of its rows, their second names, and its C++ functions' symbols."""
    own = [row for row in all_rows() if row.library == library]
    seconds = {second for row in own if (second := twin(row))}
    return {row.name for row in own} | seconds | set(extension_symbols(library).values())


def check(library: str, path: str | Path) -> list[str]:
    """Compare a library's exports with its rows.

    Returns
    -------
    list of str
        What differs, in words; empty if nothing does.
    """
    rows = symbols(library)
    exported = exported_symbols(path)
    return [f"{path}: does not export {name}" for name in sorted(rows - exported)] + [
        f"{path}: exports {name}, which is no row of {library}" for name in sorted(exported - rows)
    ]


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("facade", help="C++ source of a host facade")
    mode.add_argument("library")
    mode.add_argument("output", type=Path)
    mode = modes.add_parser("pxd", help="Cython declarations and checked calls of the rows that Cython files name")
    mode.add_argument("folder", type=Path)
    mode.add_argument("output", type=Path)
    mode = modes.add_parser("rows", help="names of a library's rows, one a line")
    mode.add_argument("library")
    mode = modes.add_parser("check", help="compare a shared library's exports with the rows")
    mode.add_argument("library")
    mode.add_argument("path", type=Path)
    arguments = parser.parse_args(argv)
    if arguments.mode == "check":
        problems = check(arguments.library, arguments.path)
        print("\n".join(problems) or f"{arguments.path}: exports the rows of {arguments.library} and nothing else")
        return 1 if problems else 0
    if arguments.mode == "facade":
        arguments.output.write_text(facade(arguments.library), encoding="utf-8")
    elif arguments.mode == "pxd":
        text = abi_pxd.pxd([ABI / name for name in abi_pxd.HEADERS], named_rows(arguments.folder))
        # Unchanged, it keeps its time, and the modules that import it are not translated again.
        if not arguments.output.exists() or arguments.output.read_text(encoding="utf-8") != text:
            arguments.output.write_text(text, encoding="utf-8")
    else:
        print("\n".join(row.name for row in all_rows() if row.library == arguments.library))
    return 0


if __name__ == "__main__":
    sys.exit(main())
