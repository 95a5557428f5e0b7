# SPDX-License-Identifier: MIT
# Types of the function form; call.pyx has the documentation.
from typing import Any

from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import Epilogue
from rocpy.blaslt.operands.weight import Weight
from rocpy.epilogues import CustomEpilogue
from rocpy.typing import ArrayLike, DTypeLike, StreamLike

def matmul(
    a: ArrayLike,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: str | Epilogue | CustomEpilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: bool = False,
    dtype: DTypeLike | None = None,
    compute: str | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | dict[str, Any] | None = None,
    algorithm: Algorithm | None = None,
    autotune: Any = None,
    stream: StreamLike | None = None,
) -> Any: ...
