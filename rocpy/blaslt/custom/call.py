# SPDX-License-Identifier: MIT
"""The function form with an epilogue of the user's: the way that was chosen for such operands before, or a plan."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from rocpy.blaslt.arrays.staging import on_device_of
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.plan import CustomProduct
from rocpy.blaslt.custom.strategies import Call, Kept
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.weight_operand import is_weight, snapshot_of
from rocpy.blaslt.selection import choice as _choice
from rocpy.runtime.handles.stream_handle import hold_stream

__all__ = ["product"]

# Ways by what decides them, the one used last at the end.
_KEPT: OrderedDict[Any, tuple[_custom.Bound, Kept]] = OrderedDict()
_MOST = 512
_lock = threading.Lock()


def product(run: Callable[..., Any], a: Any, b: Any, c: Any, arguments: dict[str, Any]) -> Any:
    """Return a product with an epilogue of the user's.

    Parameters
    ----------
    run
        The function form for the library's own epilogues.
    a, b, c
        Operands.
    arguments
        The other arguments of the function form, by name; given away.
    """
    if arguments["stream"] is None:
        return _product(run, a, b, c, arguments)
    arguments["stream"] = hold_stream(arguments["stream"])
    with on_device_of(arguments["stream"]):
        return _product(run, a, b, c, arguments)


def _product(run: Callable[..., Any], a: Any, b: Any, c: Any, arguments: dict[str, Any]) -> Any:
    if is_weight(b):
        b = snapshot_of(b)  # of one time, its bias among it
    autotune, algorithm, out = arguments.pop("autotune"), arguments.pop("algorithm"), arguments.pop("out")
    if autotune is not None:
        with _choice.override(autotune):
            return _product(run, a, b, c, arguments | {"autotune": None, "algorithm": algorithm, "out": out})
    if algorithm is not None:
        with CustomProduct(a, b, c, **arguments) as planned:
            if isinstance(algorithm, dict):
                algorithm = planned.pin(algorithm)
            return planned.execute(out=out, algorithm=algorithm)
    epilogue = arguments["epilogue"]
    bias, aux, clamp, amax = arguments["bias"], arguments["aux"], arguments["clamp"], arguments["amax"]
    _custom.refuse_operands(bias=bias, aux=aux, clamp=clamp, amax=amax or None)
    inputs = _custom.complete(epilogue, arguments["epilogue_inputs"], b)
    _custom.check_tensors(inputs)
    key = _key(epilogue, inputs, a, b, c, arguments)
    kept = None if key is None else _KEPT.get(key)
    if kept is None:
        kept = _plan(a, b, c, arguments)
        if key is not None:
            with _lock:
                _KEPT[key] = kept
                if len(_KEPT) > _MOST:
                    _KEPT.popitem(last=False)
    bound, way = kept
    outs = _custom.check_out(out, bound)
    results = way.product(Call(run, a, b, c, inputs, outs, arguments))
    return results[0] if bound.resolved.expression.single else results


def _plan(a: Any, b: Any, c: Any, arguments: dict[str, Any]) -> tuple[_custom.Bound, Kept]:
    """Return how products of some kind are computed."""
    with CustomProduct(a, b, c, **arguments) as planned:
        if _choice.measures(_choice.key_word()):
            passed = {
                name: value for name, value in arguments.items() if name not in ("options", "bias", "aux", "amax")
            }
            _choice.measure(planned.launched, planned.options, (a, b, c, None, None, None), passed)
        planned.plan()
        return planned.bound, planned.kept


def _key(epilogue: Any, inputs: dict[str, Any], a: Any, b: Any, c: Any, arguments: dict[str, Any]) -> Any:
    """Return what decides how a product is computed; ``None`` where that cannot be told."""
    given = (a, b, c, *inputs.values(), *[arguments[name] for name in _SCALES])
    signature = tuple([None if x is None else _signature(x) for x in given])
    if _UNKNOWN in signature:
        return None
    dtype, options = arguments["dtype"], arguments["options"]
    return (
        epilogue.text,
        signature,
        arguments["alpha"] == 1,
        arguments["beta"] is None,
        dtype if dtype is None else str(dtype),
        arguments["compute"],
        resolve_options(options),
        _choice.key_word(),
    )


_SCALES = ("scale_a", "scale_b", "scale_c", "scale_d")
_UNKNOWN = ("unknown",)


def _signature(x: Any) -> Any:
    kind = type(x)
    if kind is np.ndarray:
        return kind, x.shape, x.dtype
    if isinstance(x, (bool, int, float)):
        return kind, repr(x)  # 0.0 and -0.0 are equal, and two epilogues
    if is_weight(x):
        return kind, x.layout, x.packed, x.scale is not None, _signature(x.source)
    try:
        where = str(getattr(x, "device", ""))
        shape = tuple(x.shape)
        if not all(isinstance(extent, int) for extent in shape):
            return _UNKNOWN  # symbols of a tracer
        return kind, shape, str(x.dtype), where
    except (AttributeError, TypeError):
        return _UNKNOWN
