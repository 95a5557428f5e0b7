# SPDX-License-Identifier: MIT
"""Matrix products with fused epilogues over hipBLASLt, on AMD GPUs and, through the same C ABIs, on any CPU.

Semantic versioning covers the names in ``__all__``, here and in the public sub-packages. Importing rocpy opens no
library.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

from rocpy import _interpreter as _interpreter  # first: it refuses the import where nothing else may be loaded
from rocpy import _torch_hook, errors, platform
from rocpy._import_hook import when_imported as _when_imported
from rocpy._locks import wait_before_others as _wait_before_others
from rocpy._messages import distribution as _distribution
from rocpy._messages.keywords import suggest_keywords_in as _suggest_keywords_in
from rocpy._messages.suggestions import missing_attribute as _missing_attribute
from rocpy.blaslt import Epilogue, Matmul, Options, Weight, matmul, options
from rocpy.blaslt.front import plan_cache
from rocpy.blaslt.selection import stored as _stored
from rocpy.blaslt.selection import tuner as _tuner
from rocpy.errors import (
    ClosedError,
    InvalidOperandError,
    InvalidProblemError,
    LibraryError,
    OutOfMemoryError,
    RocpyError,
    RocpyWarning,
    UnsupportedError,
)
from rocpy.runtime.device import Device
from rocpy.runtime.event import Event
from rocpy.runtime.graph import Graph
from rocpy.runtime.kernels.module import Module
from rocpy.runtime.memory import Buffer
from rocpy.runtime.stream import Stream

if TYPE_CHECKING:
    from rocpy import blaslt as blaslt
    from rocpy import compat as compat
    from rocpy import cooperative as cooperative
    from rocpy import distributed as distributed
    from rocpy import dtypes as dtypes
    from rocpy import epilogues, tuning
    from rocpy import jax as jax
    from rocpy import rccl as rccl
    from rocpy import runtime as runtime
    from rocpy import testing as testing
    from rocpy import torch as torch
    from rocpy import typing as typing
    from rocpy.blaslt import dequantize, dequantize_mx, explain, grouped_matmul, quantize, quantize_mx
    from rocpy.epilogues import epilogue

    __version__: str

__all__ = [
    "Buffer",
    "ClosedError",
    "Device",
    "Epilogue",
    "Event",
    "Graph",
    "InvalidOperandError",
    "InvalidProblemError",
    "LibraryError",
    "Matmul",
    "Module",
    "Options",
    "OutOfMemoryError",
    "RocpyError",
    "RocpyWarning",
    "Stream",
    "UnsupportedError",
    "Weight",
    "dequantize",
    "dequantize_mx",
    "epilogue",
    "epilogues",
    "errors",
    "explain",
    "grouped_matmul",
    "matmul",
    "options",
    "plan_cache",
    "platform",
    "quantize",
    "quantize_mx",
    "tuning",
]

_suggest_keywords_in(globals(), __all__)
_torch_hook.install()
_wait_before_others(_when_imported)


def _stored_choices() -> _stored.StoredChoices:
    from rocpy.tuning._lookup import read_choices  # a third of the time of `import rocpy`

    return read_choices()


def _import_tuner() -> _tuner.Tuner:
    from rocpy.tuning import _live  # most programs only look choices up

    return _live


_stored.register(_stored_choices)
_tuner.register(_import_tuner)


# Most programs never name them: their modules are imported when they are first named.
_LATE = {
    "dequantize": "blaslt",
    "dequantize_mx": "blaslt",
    "epilogue": "epilogues",
    "explain": "blaslt",
    "grouped_matmul": "blaslt",
    "quantize": "blaslt",
    "quantize_mx": "blaslt",
}
_SUBPACKAGES = (
    "compat",
    "cooperative",
    "distributed",
    "epilogues",
    "jax",
    "rccl",
    "testing",
    "torch",
    "tuning",
    "typing",
)


def _import(name: str) -> object:
    return _importlib.import_module(f"rocpy.{name}")


if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> object:
        if name in _SUBPACKAGES:
            try:
                return _import(name)
            except ModuleNotFoundError as error:  # an attribute that is missing, for hasattr() and inspect.getmembers()
                raise AttributeError(f"rocpy.{name}: {error}", name=name) from error
        if name in _LATE:
            value = globals()[name] = getattr(_import(_LATE[name]), name)
            return value
        if name == "__version__":
            return _distribution.version()
        raise _missing_attribute("rocpy", name, __dir__())


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBPACKAGES, *(name for name in globals() if name.startswith("__"))})
