# SPDX-License-Identifier: MIT
"""The kernel of the lowering native+kernel: an expression as HIP C++ without headers, one element at a time."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from rocpy.epilogues.expressions.resolve import Pending, Resolved
from rocpy.epilogues.expressions.types import category
from rocpy.errors import UnsupportedError

__all__ = ["HipKernel", "block_threads", "kernel_source"]

# How a type lies in memory, how it is read as a float, and how a float is stored in it.
_TYPES = {
    "float32": ("float", "{}", "{}"),
    "float16": ("_Float16", "(float)({})", "(_Float16)({})"),
    "bfloat16": ("unsigned short", "from_bfloat16({})", "to_bfloat16({})"),
    "int8": ("signed char", "(float)({})", "(signed char)to_whole({}, -128.0f, 127.0f)"),
    "int32": ("int", "(float)({})", "to_int32({})"),
    "uint8": ("unsigned char", "(float)({})", ""),
    "bool": ("unsigned char", "(float)(({}) != 0)", "({}) != 0.0f"),
    "float8_e4m3fn": ("unsigned char", "", "to_float8({}, 3, 7, 0x7e, 0x7f)"),
    "float8_e5m2": ("unsigned char", "", "to_float8({}, 2, 15, 0x7b, 0x7e)"),
    "float8_e4m3fnuz": ("unsigned char", "", "to_float8({}, 3, 8, 0x7f, 0x80)"),
    "float8_e5m2fnuz": ("unsigned char", "", "to_float8({}, 2, 16, 0x7f, 0x80)"),
}
# Threads of a block: its threads take one column each, a block one row.
_MOST_THREADS = 256
_CALLS = {
    "exp": "__builtin_expf({})", "log": "__builtin_logf({})", "sqrt": "__builtin_sqrtf({})",
    "rsqrt": "1.0f / __builtin_sqrtf({})", "abs": "__builtin_fabsf({})", "floor": "__builtin_floorf({})",
    "ceil": "__builtin_ceilf({})", "round": "__builtin_rintf({})", "neg": "-{}", "relu": "greater({}, 0.0f)",
    "tanh": "tanh_of({})", "erf": "erf_of({})", "sigmoid": "1.0f / (1.0f + __builtin_expf(-{}))", "silu": "silu_of({})",
    "gelu": "gelu_of({})", "gelu_tanh": "gelu_tanh_of({})", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}",
    "div": "{} / {}", "minimum": "lesser({}, {})", "maximum": "greater({}, {})",
    "clamp": "lesser(greater({}, {}), {})", "clamp_min": "greater({}, {})", "clamp_max": "lesser({}, {})",
    "eq": "{} == {} ? 1.0f : 0.0f", "ne": "{} != {} ? 1.0f : 0.0f",
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
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, {_MOST_THREADS})))
#define DEVICE static inline __attribute__((device))
#define BLOCK_X __builtin_amdgcn_workgroup_id_x()
#define BLOCK_Y __builtin_amdgcn_workgroup_id_y()
#define BLOCK_Z __builtin_amdgcn_workgroup_id_z()
#define THREAD __builtin_amdgcn_workitem_id_x()
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
DEVICE int to_int32(float x) {{
  return x >= 2147483648.0f ? 2147483647 : (int)to_whole(x, -2147483648.0f, 2147483520.0f);
}}
DEVICE unsigned char to_float8(float x, int fraction, int bias, unsigned largest, unsigned nan) {{
  unsigned bits = __builtin_bit_cast(unsigned, x), sign = bits >> 31 << 7;
  int least = 1 - bias, exponent = (int)(bits >> 23 & 0xff) - 127;
  if (x != x) return (unsigned char)(nan == 0x80 ? nan : nan | sign);
  if (exponent > 30) return (unsigned char)(largest | sign);
  if (exponent < least) exponent = least;
  float units = __builtin_fabsf(x) * __builtin_bit_cast(float, (unsigned)(127 + fraction - exponent) << 23);
  unsigned code = (unsigned)__builtin_rintf(units) + ((unsigned)(exponent - least) << fraction);
  if (code > largest) code = largest;
  return (unsigned char)(code == 0 && nan == 0x80 ? 0 : code | sign);
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
    threads
        Threads of a block.

    Notes
    -----
    Arguments: ``x``, dense; for each input its memory and its steps from batch entry to batch entry, from row to row
    and from column to column, in elements, 0 where it repeats; the results, dense; then as 64-bit numbers the extents
    batch, rows and columns of the results, and how many batch entries and rows the grid has blocks for.
    """

    name: str
    source: str
    inputs: tuple[str, ...]
    threads: int

    def grid(self, batch: int, rows: int, columns: int) -> tuple[int, int, int]:
        """Return the blocks of a launch for the results' extents."""
        return -(-columns // self.threads), min(rows, _MOST_BLOCKS), min(batch, _MOST_BLOCKS)


# Extents of a grid beyond the first.
_MOST_BLOCKS = 65535


def block_threads(columns: int) -> int:
    """Return how many threads a block has for results of so many columns."""
    return min(_MOST_THREADS, 64 * max(1, -(-columns // 64)))


@functools.lru_cache(maxsize=256)
def kernel_source(
    resolved: Resolved, name: str = "rocpy_epilogue", x_type: str = "float32", threads: int = _MOST_THREADS
) -> HipKernel:
    """Return the kernel that applies a resolved expression to a product.

    Parameters
    ----------
    resolved
        The expression.
    name
        The kernel's name.
    x_type
        Type of the product in memory.
    threads
        Threads of a block.

    Raises
    ------
    UnsupportedError
        If it computes in another type than float32, or reads or gives one that kernels do not.
    """
    expression = resolved.expression
    if resolved.compute != "float32":
        raise UnsupportedError(
            f"epilogue {expression.name!r}: generated kernels compute in float32, and it computes in "
            f"{resolved.compute or 'several types'}"
        )
    names = expression.used_inputs
    halves = expression.halves
    halved = any(half is not None and half for half in (halves[node_index] for node_index in expression.outputs))
    if any(bool(halves[node_index]) != halved for node_index in expression.outputs):
        raise UnsupportedError(f"epilogue {expression.name!r}: its results differ in width")
    writer = _Writer(resolved, names, x_type)
    values = [writer.value(node_index, "column") for node_index in expression.outputs]
    arguments = [f"const {_type(x_type, 'the product', read=True)[0]} *x"]
    for number, one in enumerate(names):
        c_type = writer.held(one)[0]
        arguments.append(
            f"const {c_type} *in{number}, long long batches{number}, long long rows{number}, long long columns{number}"
        )
    stores = []
    for number, (dtype, value) in enumerate(zip(resolved.out_types, values, strict=True)):
        c_type, _, store = _type(dtype, "a result", read=False)
        arguments.append(f"{c_type} *out{number}")
        stores.append(f"out{number}[i] = {store.format(value)};")
    arguments.append("long long batches, long long rows, long long columns, long long batch_step, long long row_step")
    source = "\n".join(
        [
            _PRELUDE.strip(),
            f"// {expression}",
            f"KERNEL void {name}({', '.join(arguments)}) {{",
            f"  long long column = (long long)BLOCK_X * {threads} + THREAD, width = columns{' * 2' if halved else ''};",
            "  if (column >= columns) return;",
            "  for (long long batch = BLOCK_Z; batch < batches; batch += batch_step) {",
            "    for (long long row = BLOCK_Y; row < rows; row += row_step) {",
            "      long long line = batch * rows + row, i = line * columns + column;",
            *(f"      {one}" for one in [*writer.lines, *stores]),
            "    }",
            "  }",
            "}",
            "",
        ]
    )
    return HipKernel(name, source, names, threads)


def _type(dtype: str, what: str, *, read: bool) -> tuple[str, str, str]:
    names_of_type = _TYPES.get(dtype, ("", "", ""))
    if not names_of_type[1 if read else 2]:
        verb = "read" if read else "give"
        raise UnsupportedError(f"{what} is {dtype}, which generated kernels do not {verb}")
    return names_of_type


class _Writer:
    """Writes values down, each once for each column that it is asked for: a pick reads another one than its own."""

    def __init__(self, resolved: Resolved, names: tuple[str, ...], x_type: str) -> None:
        self.nodes = resolved.expression.nodes
        self.names = names
        self.x_read = _type(x_type, "the product", read=True)[1]
        self.types = dict(resolved.inputs)
        self.lines: list[str] = []
        self._written: dict[tuple[int, str], str] = {}

    def held(self, name: str) -> tuple[str, str, str]:
        """Return how an input lies in memory."""
        return _type(self.types[name][0], f"input {name}", read=True)

    def value(self, node_index: int, column: str) -> str:
        """Return the variable of a node's value in a column."""
        pending = Pending((node_index, column), self._written)
        while (one := pending.next()) is not None:
            if pending.waits_for(self._operands(one)):
                continue
            text = self._text(*one)
            name = f"v{len(self._written)}"
            self.lines.append(f"float {name} = {text};")
            self._written[one] = name
        return self._written[node_index, column]

    def _operands(self, key: tuple[int, str]) -> list[tuple[int, str]]:
        node, column = self.nodes[key[0]], key[1]
        if node.op == "pick":
            column = f"(2 * {column} + {node.value})"
        elif node.op == "interleave":
            column = f"({column} >> 1)"
        return [(arg, column) for arg in node.args]

    def _text(self, node_index: int, column: str) -> str:
        node = self.nodes[node_index]
        if node.op == "x":
            return self.x_read.format(f"x[line * width + {column}]")
        if node.op == "const":
            return _number(float(node.value))
        if node.op == "input":
            own = self.names.index(node.value)
            offset = f"batch * batches{own} + row * rows{own} + ({column}) * columns{own}"
            return self.held(node.value)[1].format(f"in{own}[{offset}]")
        if node.op == "pick":
            return self.value(node.args[0], f"(2 * {column} + {node.value})")
        if node.op == "interleave":
            even, odd = (self.value(arg, f"({column} >> 1)") for arg in node.args)
            return f"({column} & 1) ? {odd} : {even}"
        args = [self.value(arg, column) for arg in node.args]
        if node.op == "cast":
            return _cast(node.value, args[0])
        return _CALLS[node.op].format(*args)


def _cast(dtype: str, value: str) -> str:
    if category(dtype) == 2 and dtype in _TYPES and _TYPES[dtype][1]:
        _, read, store = _TYPES[dtype]
        return read.format(store.format(value))
    if dtype in ("int8", "int32"):
        # 2147483648 stands for the largest int32, which is what it is stored as.
        low, high = (-128.0, 127.0) if dtype == "int8" else (-2147483648.0, 2147483648.0)
        return f"to_whole(__builtin_truncf({value}), {_number(low)}, {_number(high)})"
    if dtype == "bool":
        return f"{value} != 0.0f ? 1.0f : 0.0f"
    raise UnsupportedError(f"a cast to {dtype}: generated kernels have none")
