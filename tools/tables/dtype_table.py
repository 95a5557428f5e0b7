# SPDX-License-Identifier: MIT
"""Write the rows of rocpy/dtypes.py from csrc/core/arrays/dtypes.def; with --check, say whether they are up to date."""

import re
import sys
from pathlib import Path

import markers

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "rocpy" / "dtypes.py"
ROW = re.compile(r'ROCPY_DTYPE\((\w+), (\w+), (\d+), (\w+), (\w+), (?:-1|\w+), "(\w*)", (product|composed|array)\)')
BLOCK = re.compile(r"(# begin: dtypes[^\n]*\n).*?(# end of the generated rows\n)", re.DOTALL)
ENUMERATOR = re.compile(r"\b((?:HIP_[RC]_|kDL)\w+)\s*=\s*(\d+)U?\b")
HEADERS = ("csrc/abi/types_hipblaslt.h", "csrc/third_party/dlpack/dlpack.h")


def table(source: str, numbers: dict[str, int]) -> str:
    """Return the Python rows of the element types that products take, computed by a library or composed."""
    lines = []
    for name, hip, bits, kind, code, torch, takes in ROW.findall(source):
        if takes != "array":
            number = int(hip) if hip.isdecimal() else numbers[hip]
            lines.append(f'{name} = _row("{name}", {bits}, "{kind}", {numbers[code]}, {number}, "{torch}")\n')
    return "".join(lines)


def renew(module: str) -> str:
    """Return the module's text with the rows as they have to be."""
    source = (ROOT / "csrc/core/arrays/dtypes.def").read_text(encoding="utf-8")
    if source.count("\nROCPY_DTYPE(") != len(ROW.findall(source)):
        raise ValueError("dtypes.def: a row that cannot be read")
    numbers = {
        name: int(number)
        for header in HEADERS
        for name, number in ENUMERATOR.findall((ROOT / header).read_text(encoding="utf-8"))
    }
    rows = table(source, numbers)
    return BLOCK.sub(lambda match: match[1] + rows + match[2], module, count=1)


def main(arguments: list[str]) -> int:
    """Write the module, or compare it."""
    return markers.update(MODULE, renew, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
