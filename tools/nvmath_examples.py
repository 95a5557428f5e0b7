# SPDX-License-Identifier: MIT
"""Run a folder of nvmath-python's matmul examples on rocpy.compat.nvmath, each in a process of its own, and count.

    python tools/nvmath_examples.py <checkout of nvmath-python>/examples/linalg

Of each file only the import is changed: ``import nvmath`` becomes ``from rocpy.compat import nvmath``; what stands in
for a GPU or cupy that is not there, tools/foreign_examples.py says. The status is 0 if all examples ran but those of
KNOWN, which docs/compat-nvmath.md explains.
"""

import re
import sys

from foreign_examples import Library, main

#: Examples that cannot run, each with the reason.
KNOWN = {
    "example22_fp8_delayed_scaling": "a c of float16 beside a result of 8 bits: hipBLASLt wants them equal",
    "example24_fp8_epilog_aux": "aux_type, aux_amax: hipBLASLt's auxiliary outputs have the result's type",
}


def changed(source: str) -> str:
    """Return a program of nvmath-python with its imports changed."""
    source = re.sub(r"^(\s*)import nvmath\b(?!\.)", r"\1from rocpy.compat import nvmath", source, flags=re.MULTILINE)
    return re.sub(r"^(\s*)from nvmath\b", r"\1from rocpy.compat.nvmath", source, flags=re.MULTILINE)


LIBRARY = Library(
    changed=changed,
    is_example=lambda path: path.name.startswith("example") and not path.stem.endswith("_utils"),
    what="example*.py",
    known=KNOWN,
)

if __name__ == "__main__":
    sys.exit(main(LIBRARY, (__doc__ or "").partition("\n")[0]))
