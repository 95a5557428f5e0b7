# SPDX-License-Identifier: MIT
"""nvmath-python's dense matrix product over rocpy: its names, its shapes, its layouts.

Use ``from rocpy.compat import nvmath`` instead of ``import nvmath``. Features that are not supported raise
:class:`rocpy.UnsupportedError` with the reason.

Examples
--------
>>> import numpy as np
>>> from rocpy.compat import nvmath
>>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
>>> bias = np.array([1, -5], np.float32)                        # along M, as nvmath has it
>>> epilog = nvmath.linalg.advanced.MatmulEpilog.RELU_BIAS
>>> nvmath.linalg.advanced.matmul(a, b, epilog=epilog, epilog_inputs={"bias": bias})[:, 0].tolist()
[4.0, 0.0]
"""

from typing import TYPE_CHECKING, NoReturn

from rocpy._messages.suggestions import missing_attribute
from rocpy._signatures import public_names
from rocpy.compat._errors import UnsupportedAttributeError
from rocpy.compat.nvmath import linalg
from rocpy.compat.nvmath._enums import CudaDataType, LibraryPropertyType
from rocpy.compat.nvmath._enums import LibraryComputeType as ComputeType
from rocpy.compat.nvmath._memory import BaseCUDAMemoryManager, BaseCUDAMemoryManagerAsync, MemoryPointer

__all__ = [
    "BaseCUDAMemoryManager",
    "BaseCUDAMemoryManagerAsync",
    "ComputeType",
    "CudaDataType",
    "LibraryPropertyType",
    "MemoryPointer",
    "linalg",
]

__dir__ = public_names(globals())

_ELSEWHERE = {
    "bindings": "they are those of CUDA's libraries; AMD's are hip-python's, rocm.bindings",
    "device": "kernels that call CUDA's libraries; rocpy.cooperative has primitives for kernels",
    "distributed": "cuFFTMp and cuBLASMp have no counterparts in ROCm; rocpy.rccl has communicators",
    "fft": "transforms are hipFFT's and rocFFT's; use torch's or CuPy's",
    "sparse": "sparse products and solvers are hipSPARSE's and rocSPARSE's; use torch's or CuPy's",
    "tensor": "contractions are hipTensor's; use torch's or CuPy's einsum",
}


if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> NoReturn:
        """Say why an area of nvmath-python's is not here."""
        if name in _ELSEWHERE:
            raise UnsupportedAttributeError(f"nvmath.{name}: {_ELSEWHERE[name]}")
        raise missing_attribute(__name__, name, __all__)
