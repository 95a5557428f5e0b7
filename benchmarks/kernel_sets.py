# SPDX-License-Identifier: MIT
"""Which kernels the compared libraries have chosen in this process: their own names for them."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path

MAPS = Path("/proc/self/maps")


def of_peers() -> dict[str, str]:
    """Return the kernels of every peer that has been imported."""
    found = {"numpy": openblas_of("numpy")}
    if "scipy.linalg.blas" in sys.modules:
        found["scipy"] = openblas_of("scipy")
    if "torch" in sys.modules:
        found["torch"] = torch_kernels()
    return found


def text_of(kernels: dict[str, str]) -> str:
    """Return them as one line."""
    return "; ".join(f"{label}: {name}" for label, name in kernels.items())


def openblas_of(package: str) -> str:
    """Return the kernels that a package's OpenBLAS has chosen, once the package has been imported."""
    for path in {line.split()[-1] for line in MAPS.read_text(encoding="utf-8").splitlines() if "openblas" in line}:
        if f"/{package}" not in path:
            continue
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            function = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                return f"OpenBLAS {function().decode()}"
    return "unknown"


@cache
def torch_kernels() -> str:
    """Return torch's own kernels, and for which processors MKL says that it computes."""
    import torch

    own = f"ATen {torch.backends.cpu.get_cpu_capability()}"
    if not torch.backends.mkl.is_available():
        return own
    named = re.search(r"^MKL_VERBOSE .* for .*? architecture (.*?)(?: enabled)? processors", mkl_report(), re.MULTILINE)
    return f"{own}, MKL for {named[1].replace('(R)', '') if named else 'unknown processors'}"


def mkl_report() -> str:
    """Return what torch's MKL prints of a product: it writes to the file that stdout is, past Python."""
    import torch

    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    c_library.fflush(None)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
                torch.ones(64, 64) @ torch.ones(64, 64)
            c_library.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")
