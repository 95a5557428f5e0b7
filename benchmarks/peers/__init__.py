# SPDX-License-Identifier: MIT
"""The rivals, each loaded only where it is installed, and the random normal operands that all of them get."""

from __future__ import annotations

import importlib
import sys
import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from harness import Session

DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def torch_with(session: Session) -> Any:
    """Return torch, set to the session's threads; None where it is not installed."""
    torch = optional("torch")
    if torch is None:
        session.note("torch is not installed: it is not compared")
    else:
        torch.set_num_threads(session.threads)
    return torch


@dataclass(frozen=True)
class Nvmath:
    """nvmath-python's generic matrix product on the CPU, which runs MKL."""

    linalg: Any
    execution: object

    def planned(self, a: Any, b: Any) -> Any:
        """Return a planned product."""
        product = self.linalg.Matmul(a, b, execution=self.execution)
        product.plan()
        return product


def nvmath_with(session: Session) -> Nvmath | None:
    """Return nvmath-python's CPU path; None where it, or the library that it calls, is not installed."""
    module = optional("nvmath")
    if module is None:
        session.note("nvmath-python is not installed: it is not compared")
        return None
    peer = Nvmath(module.linalg, module.linalg.ExecutionCPU(num_threads=session.threads))
    one = np.ones((2, 2), np.float32)
    try:
        peer.planned(one, one).free()
    except RuntimeError as error:
        session.note(f"nvmath-python finds no library for the CPU (its extra `cpu` brings one): {str(error)[:80]}")
        return None
    return peer


def optional(name: str) -> ModuleType | None:
    """Import a package that need not be there; one that is installed but broken is reported and counts as absent."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            report_broken(name, error)
    except Exception as error:  # noqa: BLE001 - a library that is not found, a wrong version: whatever an import raises
        report_broken(name, error)
    return None


def report_broken(name: str, error: Exception) -> None:
    """Say on stderr why an installed package is not compared."""
    text = str(error).strip().splitlines()
    print(
        f"note: {name} is installed but cannot be used, so it is not compared:"
        f" {type(error).__name__}: {text[0][:160] if text else ''}",
        file=sys.stderr,
        flush=True,
    )


def normal(name: str, *shape: int, dtype: str = "float32", scale: float = 1.0) -> np.ndarray:
    """Return normal values times `scale`, the same for the same name: zeros and integers would flatter a chip."""
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, dtype=np.float32)
    return (values * np.float32(scale)).astype(DTYPES[dtype])


def to_torch(torch: Any, array: np.ndarray) -> Any:
    """Return a tensor with the array's memory."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def shape_name(shape: tuple[int, int, int]) -> str:
    """Return "MxNxK"."""
    return "x".join(map(str, shape))
