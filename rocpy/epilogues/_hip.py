# SPDX-License-Identifier: MIT
"""The kernel of the lowering native+kernel: an expression as HIP C++ without headers, one element at a time."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from rocpy.epilogues._expression import Node
from rocpy.epilogues._resolve import Resolved
from rocpy.epilogues._types import category
from rocpy.errors import UnsupportedError

__all__ = ["HipKernel", "kernel_source"]

# How a type lies in memory, how it is read as a float, and how a float is stored in it.
_TYPES = {
    "float32": ("float", "{}", "{}"),
    "float16": ("_Float16", "(float)({})", "(_Float16)({})"),
    "bfloat16": ("unsigned short", "from_bfloat16({})", "to_bfloat16({})"),
    "int8": ("signed char", "(float)({})", "(signed char)to_whole({}, -128.0f, 127.0f)"),
    "int32": ("int", "(float)({})", "(int)to_whole({}, -2147483648.0f, 2147483520.0f)"),
    "uint8": ("unsigned char", "(float)({})", ""),
    "bool": ("unsigned char", "(float)({})", ""),
}
_CALLS = {
    "exp": "__builtin_expf({})", "log": "__builtin_logf({})", "sqrt": "__builtin_sqrtf({})",
    "rsqrt": "1.0f / __builtin_sqrtf({})", "abs": "__builtin_fabsf({})", "floor": "__builtin_floorf({})",
    "ceil": "__builtin_ceilf({})", "round": "__builtin_rintf({})", "neg": "-{}", "relu": "greater({}, 0.0f)",
    "tanh": "tanh_of({})", "erf": "erf_of({})", "sigmoid": "1.0f / (1.0f + __builtin_expf(-{}))", "silu": "silu_of({})",
    "gelu": "gelu_of({})", "gelu_tanh": "gelu_tanh_of({})", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}",
    "div": "{} / {}", "minimum": "lesser({}, {})", "maximum": "greater({}, {})",
    "clamp": "lesser(greater({}, {}), {})", "eq": "{} == {} ? 1.0f : 0.0f", "ne": "{} != {} ? 1.0f : 0.0f",
    "lt": "{} < {} ? 1.0f : 0.0f", "le": "{} <= {} ? 1.0f : 0.0f", "gt": "{} > {} ? 1.0f : 0.0f",
    "ge": "{} >= {} ? 1.0f : 0.0f", "and": "{} != 0.0f && {} != 0.0f ? 1.0f : 0.0f",
    "or": "{} != 0.0f || {} != 0.0f ? 1.0f : 0.0f", "not": "{} == 0.0f ? 1.0f : 0.0f", "where": "{} != 0.0f ? {} : {}",
}  # fmt: skip

# Series of erf below 3/4: 2/sqrt(pi) (-1)^n / (n! (2n + 1)).
_ERF = [2.0 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(9)]
# The tail's polynomial: formula 7.1.26 of Abramowitz and Stegun, error 1.5e-7.
_TAIL = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def _horner(coefficients: tuple[float, ...] | list[float], variable: str) -> str:
    text = _number(coefficients[-1])
    for value in reversed(coefficients[:-1]):
        text = f"({text} * {variable} + {_number(value)})"
    return text


def _number(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return f"{float(value)!r}f"


_PRELUDE = f"""
#ifndef EPILOGUE_ON_THE_CPU
#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device))
#define BLOCK ((long long)__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x())
#define FIRST (BLOCK + __builtin_amdgcn_workitem_id_x())
#define STEP ((long long)__builtin_amdgcn_grid_size_x())
#endif
DEVICE float from_bfloat16(unsigned short x) {{ return __builtin_bit_cast(float, (unsigned)x << 16); }}
DEVICE unsigned short to_bfloat16(float x) {{
  unsigned bits = __builtin_bit_cast(unsigned, x);
  if (x != x) return 0x7fc0;
  return (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}}
DEVICE float lesser(float x, float y) {{ return x != x || x < y ? x : y; }}
DEVICE float greater(float x, float y) {{ return x != x || x > y ? x : y; }}
DEVICE float to_whole(float x, float low, float high) {{
  return x != x ? 0.0f : lesser(greater(__builtin_rintf(x), low), high);
}}
DEVICE float tanh_of(float x) {{
  float t = x * x;
  if (t < 0.09f) return x * {_horner([1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835], "t")};
  return 1.0f - 2.0f / (__builtin_expf(2.0f * x) + 1.0f);
}}
DEVICE float erfc_tail(float x) {{
  float t = 1.0f / (1.0f + 0.3275911f * x);
  return t * {_horner(_TAIL, "t")} * __builtin_expf(-x * x);
}}
DEVICE float erf_of(float x) {{
  float t = x * x, y = __builtin_fabsf(x);
  if (y < 0.75f) return x * {_horner(_ERF, "t")};
  return __builtin_copysignf(1.0f - erfc_tail(y), x);
}}
DEVICE float silu_of(float x) {{ return x < -1000.0f ? -0.0f : x / (1.0f + __builtin_expf(-x)); }}
DEVICE float gelu_of(float x) {{
  float z = x * {_number(math.sqrt(0.5))};
  if (x < -40.0f) return -0.0f;
  if (z < -0.75f) return 0.5f * x * erfc_tail(-z);
  return 0.5f * x * (1.0f + erf_of(z));
}}
DEVICE float gelu_tanh_of(float x) {{
  if (x < -40.0f) return -0.0f;
  return x / (1.0f + __builtin_expf({_number(-2.0 * math.sqrt(2.0 / math.pi))} * x * (1.0f + 0.044715f * x * x)));
}}
"""


@dataclass(frozen=True, slots=True)
class HipKernel:
    """A kernel's source and how it is called.

    Parameters
    ----------
    name, source
        Of the kernel: HIP C++ for hipRTC or clang, with no header.
    inputs
        Names of the inputs.

    Notes
    -----
    Arguments: ``x``, dense, float32; for each input its memory and its steps from row to row and from column to column,
    in elements, 0 where it repeats; the results; then the numbers of rows (batch entries one below the other) and of
    columns.
    """

    name: str
    source: str
    inputs: tuple[str, ...]


@functools.lru_cache(maxsize=256)
def kernel_source(resolved: Resolved, name: str = "rocpy_epilogue") -> HipKernel:
    """Return the kernel that applies a resolved expression to a product in float32.

    Raises
    ------
    UnsupportedError
        If it computes in another type, reads or gives one that kernels do not, or takes every second column.
    """
    expression = resolved.expression
    if resolved.compute != "float32":
        raise UnsupportedError(f"epilogue {expression.name!r}: generated kernels compute in float32")
    types = dict(resolved.inputs)
    arguments, body = ["const float *x"], []
    names = expression.used_inputs
    for place, one in enumerate(names):
        c_type = _type(types[one][0], f"input {one}")[0]
        arguments.append(f"const {c_type} *in{place}, long long rows{place}, long long columns{place}")
    for place, dtype in enumerate(resolved.out_types):
        if not _type(dtype, "a result")[2]:
            raise UnsupportedError(f"a result is {dtype}, which generated kernels do not give")
        arguments.append(f"{_TYPES[dtype][0]} *out{place}")
    arguments.append("long long rows, long long columns")
    for place, node in enumerate(expression.nodes):
        body.append(f"    float v{place} = {_value(node, resolved, names)};")
    for number, place in enumerate(expression.outputs):
        body.append(f"    out{number}[i] = {_TYPES[resolved.out_types[number]][2].format(f'v{place}')};")
    source = "\n".join(
        [
            _PRELUDE.strip(),
            f"// {expression}",
            f"KERNEL void {name}({', '.join(arguments)}) {{",
            "  for (long long i = FIRST; i < rows * columns; i += STEP) {",
            "    long long row = i / columns, column = i % columns;",
            "    (void)row; (void)column;",
            *body,
            "  }",
            "}",
            "",
        ]
    )
    return HipKernel(name, source, names)


def _type(dtype: str, what: str) -> tuple[str, str, str]:
    if dtype not in _TYPES:
        raise UnsupportedError(f"{what} is {dtype}, which generated kernels do not have")
    return _TYPES[dtype]


def _value(node: Node, resolved: Resolved, names: tuple[str, ...]) -> str:
    if node.op == "x":
        return "x[i]"
    if node.op == "const":
        return _number(float(node.value))
    if node.op == "input":
        place = names.index(node.value)
        read = _type(dict(resolved.inputs)[node.value][0], node.value)[1]
        return read.format(f"in{place}[row * rows{place} + column * columns{place}]")
    args = [f"v{arg}" for arg in node.args]
    if node.op == "cast":
        if category(node.value) == 2 and node.value in _TYPES:
            _, read, store = _TYPES[node.value]
            return read.format(store.format(args[0]))
        if node.value in ("int8", "int32"):
            low, high = (-128.0, 127.0) if node.value == "int8" else (-2147483648.0, 2147483520.0)
            return f"lesser(greater(__builtin_truncf({args[0]}), {_number(low)}), {_number(high)})"
        raise UnsupportedError(f"a cast to {node.value}: generated kernels have none")
    if node.op not in _CALLS:
        raise UnsupportedError(f"{node.op}: generated kernels take elements in their places")
    return _CALLS[node.op].format(*args)
