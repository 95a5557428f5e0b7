# SPDX-License-Identifier: MIT
"""Which operation a function of numpy, scipy or torch, an operator or a method of an array stands for, by its name."""

from __future__ import annotations

from typing import Any

from rocpy.epilogues.expressions.types import NAMES

__all__ = ["CASTS", "CHANGES_RANK", "FUNCTIONS", "METHODS", "canonical"]

# One name for what frameworks call by several.
_SAME = {
    "add": "add",
    "subtract": "sub",
    "sub": "sub",
    "rsub": "rsub",
    "multiply": "mul",
    "mul": "mul",
    "divide": "div",
    "true_divide": "div",
    "div": "div",
    "negative": "neg",
    "neg": "neg",
    "positive": "positive",
    "absolute": "abs",
    "abs": "abs",
    "fabs": "abs",
    "minimum": "minimum",
    "maximum": "maximum",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "erf": "erf",
    "sigmoid": "sigmoid",
    "expit": "sigmoid",
    "silu": "silu",
    "gelu": "gelu",
    "relu": "relu",
    "relu6": "relu6",
    "hardtanh": "hardtanh",
    "leaky_relu": "leaky_relu",
    "clip": "clamp",
    "clamp": "clamp",
    "clamp_min": "clamp_min",
    "clamp_max": "clamp_max",
    "square": "square",
    "reciprocal": "reciprocal",
    "power": "pow",
    "pow": "pow",
    "float_power": "float_power",
    "rint": "round",
    "round": "round",
    "floor": "floor",
    "ceil": "ceil",
    "equal": "eq",
    "eq": "eq",
    "not_equal": "ne",
    "ne": "ne",
    "less": "lt",
    "lt": "lt",
    "less_equal": "le",
    "le": "le",
    "greater": "gt",
    "gt": "gt",
    "greater_equal": "ge",
    "ge": "ge",
    "logical_and": "logical_and",
    "bitwise_and": "and",
    "logical_or": "logical_or",
    "bitwise_or": "or",
    "logical_not": "logical_not",
    "bitwise_not": "not",
    "invert": "not",
    "where": "where",
    "type_as": "type_as",
    "to": "to",
    "astype": "to",
    "type": "to",
    "fmin": "",
    "fmax": "",
}
FUNCTIONS: dict[str, str] = {name: canonical for name, canonical in _SAME.items() if canonical}

# Methods of tensors that take their operands in another order than the function of that name.
METHODS = {"where": "where_of_tensor"}

# Methods of tensors that cast.
CASTS = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
    **{name: name for name in NAMES if name.startswith(("int", "uint"))},
}

# What makes an array of another shape; each element of an epilogue's result is made of elements in its own place.
CHANGES_RANK = frozenset(
    {
        "sum", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "prod", "std", "var", "norm", "softmax",
        "log_softmax", "cumsum", "reshape", "view", "flatten", "ravel", "transpose", "permute", "swapaxes", "unsqueeze",
        "squeeze", "expand_dims", "expand", "broadcast_to", "repeat", "tile", "concatenate", "cat", "stack", "split",
        "chunk", "matmul", "dot", "mm", "bmm", "linear", "einsum", "layer_norm", "rms_norm", "sort", "take", "gather",
        "T", "mT", "any", "all", "unbind", "narrow", "roll", "flip", "t",
    }
)  # fmt: skip


def canonical(name: str) -> tuple[str, str]:
    """Return our name for a function, and how it was written: ``""``, ``"reflected"`` or ``"in place"``."""
    plain = name.strip("_") if name.startswith("__") else name
    if name.startswith("__"):
        if plain in FUNCTIONS and plain not in ("round", "floor", "ceil", "pow"):
            return FUNCTIONS[plain], ""
        if plain.startswith("i") and plain[1:] in (*FUNCTIONS, "truediv"):
            return plain[1:], "in place"
        if plain.startswith("r") and plain[1:] in (*FUNCTIONS, "truediv"):
            return FUNCTIONS.get(plain[1:], "div"), "reflected"
        if plain == "truediv":
            return "div", ""
    elif plain.endswith("_") and plain[:-1] in FUNCTIONS:
        return FUNCTIONS[plain[:-1]], "in place"
    return FUNCTIONS.get(plain, plain), ""


def shown(function: Any) -> str:
    """Return how a function is called in messages: with its module where it tells one."""
    name = getattr(function, "__name__", str(function))
    module = getattr(function, "__module__", None) or type(function).__module__
    module = {"torch._C._nn": "torch.nn.functional", "torch._C": "torch"}.get(module, module)
    return name if module in (None, "builtins") else f"{module}.{name}"
