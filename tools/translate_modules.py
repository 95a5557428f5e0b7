# SPDX-License-Identifier: MIT
"""Translates Cython modules to C++: ``translate_modules.py OUTPUT SOURCE...`` where the sources' paths begin.

OUTPUT/<path of a source>.cpp is what becomes of each. One process does it for all of them, since Cython takes longer to
start than to translate most; what is newer than all that it was made from is left as it is.
"""

from __future__ import annotations

import argparse
import gc
import shlex
import sys
from pathlib import Path

from Cython.Compiler.Main import CompilationOptions, compile  # noqa: A004 -- the name that Cython gives it
from Cython.Compiler.Options import default_options, extra_warnings

DIRECTIVES = {"language_level": 3, "binding": True, "embedsignature": True, "autotestdict": False, **extra_warnings}


def is_current(translated: Path) -> bool:
    """Return whether a translation is newer than this file, its source and the declarations that the source imports."""
    listed = translated.with_name(f"{translated.name}.dep")
    if not translated.exists() or not listed.exists():
        return False
    _, _, files = listed.read_text(encoding="utf-8").partition(":")
    made = translated.stat().st_mtime_ns
    parts = [Path(__file__), *map(Path, shlex.split(files.replace("\\\n", " ")))]
    return all(part.exists() and part.stat().st_mtime_ns < made for part in parts)


def translate(source: Path, translated: Path, include: list[str]) -> bool:
    """Translate one module, and list beside it what it was made from; Cython says what is wrong where that fails."""
    translated.parent.mkdir(parents=True, exist_ok=True)
    options = CompilationOptions(
        default_options,
        cplus=True,
        output_file=str(translated),
        include_path=include,
        compiler_directives=DIRECTIVES,
        depfile=True,
    )
    result = compile(str(source), options, ".".join(source.with_suffix("").parts))
    if result.num_errors:
        translated.unlink(missing_ok=True)
    return result.num_errors == 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("sources", nargs="+", type=Path)
    arguments = parser.parse_args(argv)
    # Syntax trees live until a module is done: to look for garbage among them takes a fifth of the time.
    gc.set_threshold(200_000)
    failed = []
    for source in arguments.sources:
        translated = arguments.output / source.with_suffix(".cpp")
        if not is_current(translated) and not translate(source, translated, [".", str(arguments.output)]):
            failed.append(source)
    if failed:
        print("not translated:", *failed, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
