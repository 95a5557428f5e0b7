# SPDX-License-Identifier: MIT
"""A matrix product with an expression inlined, as the text of a Triton kernel, and the order of its arguments.

The text is plain Python with the tile sizes as parameters; it uses the language's own functions alone, no helper that
Triton's library compiles by itself, so that one text is compiled for a GPU and run by Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocpy.epilogues.expressions.resolve import Pending, Resolved
from rocpy.epilogues.expressions.types import NUMBER, category, compute_type, whole_limits
from rocpy.errors import UnsupportedError

__all__ = ["INPUT_KINDS", "Argument", "KernelText", "kernel_text"]

#: What an input broadcasts along: ``row`` has one value per column, ``column`` one per row.
INPUT_KINDS = ("row", "column", "full", "scalar", "number")
# Names of types in Triton's language and in its signatures.
_TYPES = {
    "bool": ("int1", "i1"),
    "uint8": ("uint8", "u8"),
    "int8": ("int8", "i8"),
    "int16": ("int16", "i16"),
    "int32": ("int32", "i32"),
    "int64": ("int64", "i64"),
    "float16": ("float16", "fp16"),
    "bfloat16": ("bfloat16", "bf16"),
    "float32": ("float32", "fp32"),
}
# Those of operands: the kernel sums the products in float32, and 8-bit floats are whole in what a card multiplies.
_OPERANDS = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
# Adding and taking away this leaves no fraction, rounded to even.
_SHIFT = 1.5 * 2.0**23


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel.

    Parameters
    ----------
    name
        Its name in the text.
    kind
        ``"pointer"``, ``"number"``, ``"extent"`` or ``"stride"``.
    signature
        Its type in Triton's signatures.
    of
        What it belongs to: ``a``, ``b``, ``out0``, or an input, whose name follows ``in_``.
    """

    name: str
    kind: str
    signature: str
    of: str


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel's text, its name, and its arguments in order; the tile sizes are parameters behind them."""

    name: str
    text: str
    arguments: tuple[Argument, ...]


def _language_type(dtype: str, what: str) -> str:
    if dtype not in _TYPES:
        raise UnsupportedError(f"{what} is {dtype}: the fused kernel has {', '.join(_TYPES)}; use another lowering")
    return _TYPES[dtype][0]


def _literal(value: float, dtype: str) -> str:
    if category(dtype) == 2:
        number = float(value)
        return repr(number) if math.isfinite(number) else f'float("{number}")'
    if dtype == "bool":
        return repr(bool(value))
    low, high = whole_limits(dtype)  # a bound beyond them is none
    return repr(min(max(int(value), low), high))


class _Body:
    """Writes an expression down, each node once for the whole columns and once for half of them where it is used so."""

    def __init__(self, resolved: Resolved, kinds: dict[str, str]) -> None:
        self.nodes = resolved.expression.nodes
        self.types, self.compared = resolved.types, resolved.compared
        self.input_types = {name: dtype for name, (dtype, _) in resolved.inputs}
        self.kinds = kinds
        self.lines: list[str] = []
        self._names: dict[tuple[int, bool], str] = {}

    def _shape(self, half: bool) -> str:
        return "(BM, BN // 2)" if half else "(BM, BN)"

    def emit(self, index: int, half: bool) -> str:
        """Return the variable of a node's value."""
        pending = Pending((index, half), self._names)
        while (one := pending.next()) is not None:
            if pending.waits_for(self._operands(one)):
                continue
            text = self._value(*one)
            name = f"v{one[0]}{'h' if one[1] else ''}"
            self.lines.append(f"{name} = {text}")
            self._names[one] = name
        return self._names[index, half]

    def _operands(self, key: tuple[int, bool]) -> list[tuple[int, bool]]:
        node, half = self.nodes[key[0]], key[1]
        if node.op in ("pick", "interleave"):
            half = node.op == "interleave"
        # A constant is written where it is used, in the type that it has there.
        return [(arg, half) for arg in node.args if self.nodes[arg].op != "const"]

    def _value(self, index: int, half: bool) -> str:
        node, dtype = self.nodes[index], compute_type(self.types[index])
        if node.op == "x":
            return "acc" if dtype == "float32" else f"acc.to(tl.{_language_type(dtype, 'x')})"
        if node.op == "input":
            return self._load(str(node.value), dtype, half)
        if node.op == "const":
            return self._number(index, dtype, half)
        if node.op == "pick":
            whole = self._as(node.args[0], dtype, False)
            self.lines.append(f"even{index}, odd{index} = tl.split(tl.reshape({whole}, (BM, BN // 2, 2)))")
            return f"{'odd' if node.value else 'even'}{index}"
        if node.op == "interleave":
            even, odd = (self._as(arg, dtype, True) for arg in node.args)
            return f"tl.reshape(tl.join({even}, {odd}), (BM, BN))"
        if node.op == "cast":
            return self._cast(node.args[0], self.types[index], half)
        if node.op == "where":
            chosen = (self._as(arg, dtype, half) for arg in node.args[1:])
            return f"tl.where({self._as(node.args[0], 'bool', half)}, {', '.join(chosen)})"
        wide = compute_type(self.compared[index] or dtype)
        args = [self._as(arg, wide, half) for arg in node.args]
        return _FORMS[node.op](args, wide, self._shape(half))

    def _as(self, index: int, dtype: str, half: bool) -> str:
        if self.nodes[index].op == "const":
            return self._number(index, dtype, half)
        name, held = self.emit(index, half), compute_type(self.types[index])
        if held == dtype:
            return name
        return f"({name} != 0)" if dtype == "bool" else f"{name}.to(tl.{_language_type(dtype, 'a value')})"

    def _number(self, index: int, dtype: str, half: bool) -> str:
        literal = _literal(self.nodes[index].value, dtype)
        return f"tl.full({self._shape(half)}, {literal}, tl.{_language_type(dtype, 'a number')})"

    def _cast(self, index: int, dtype: str, half: bool) -> str:
        source, name = compute_type(self.types[index]), self.emit(index, half)
        wide = compute_type(dtype)
        if dtype == "bool":
            return f"({name} != 0)"
        text = _whole_number(name, source, dtype, "a cast")
        return text if wide == dtype else f"{text}.to(tl.{wide})"

    def _load(self, name: str, dtype: str, half: bool) -> str:
        kind, held = self.kinds[name], self.input_types[name]
        columns = "rh" if half else "rn"
        if kind == "number":
            return f"tl.full({self._shape(half)}, 0, tl.{_language_type(dtype, name)}) + in_{name}"
        where = {
            "row": f"in_{name} + {columns}[None, :]",
            "column": f"in_{name} + (rm * s_in_{name})[:, None]",
            "full": f"in_{name} + (rm * s_in_{name})[:, None] + {columns}[None, :]",
            "scalar": f"in_{name}",
        }[kind]
        loaded = f"tl.load({where})"
        if held == "bool":
            loaded = f"({loaded} != 0)"
        elif held != dtype:
            loaded = f"{loaded}.to(tl.{_language_type(dtype, name)})"
        return loaded if kind == "full" else f"tl.broadcast_to({loaded}, {self._shape(half)})"


def _whole_number(name: str, source: str, dtype: str, what: str) -> str:
    """Return a value in another type; whole numbers saturate, and NaN is 0."""
    to = f".to(tl.{_language_type(dtype, what)})"
    if category(dtype) != 1 or category(source) == 0:
        return f"({name}){to}"
    if category(source) == 1:
        (least, most), own = whole_limits(dtype), whole_limits(source)
        if least <= own[0] and own[1] <= most:
            return f"({name}){to}"
        return f"tl.minimum(tl.maximum({name}, {max(least, own[0])}), {min(most, own[1])}){to}"
    from rocpy.epilogues.expressions.evaluate import _limits

    low, high, beyond = _limits(dtype, source)
    number = f"tl.where({name} == {name}, {name}, 0.0)"
    whole = f"tl.minimum(tl.maximum({number}, {low!r}), {high!r}){to}"
    # The largest float below the limit is far from it where the type has more digits than a float.
    return whole if beyond - high <= 1 else f"tl.where({name} >= {beyond!r}, {whole_limits(dtype)[1]}, {whole}){to}"


# ---- operations ----

_Form = Callable[[Sequence[str], str, str], str]
_NAN = "propagate_nan=tl.PropagateNan.ALL"


def _infix(symbol: str) -> _Form:
    return lambda args, _dtype, _shape: f"{args[0]} {symbol} {args[1]}"


def _call(name: str) -> _Form:
    return lambda args, _dtype, _shape: f"{name}({', '.join(args)})"


def _bound(name: str) -> _Form:
    # Whole numbers have no NaN to hand on.
    return lambda args, dtype, _shape: f"tl.{name}({', '.join(args)}{', ' + _NAN if category(dtype) == 2 else ''})"


def _divided(x: str, y: str) -> str:
    # Correctly rounded, where the plain quotient is an approximation.
    return f"tl.div_rn({x}, {y})"


def _one(shape: str) -> str:
    return f"tl.full({shape}, 1.0, tl.float32)"


def _form_sigmoid(args: Sequence[str], _dtype: str, shape: str) -> str:
    return _divided(_one(shape), f"1.0 + tl.exp(-{args[0]})")


def _never_far_left(x: str, value: str) -> str:
    # At minus infinity the product would be infinity times 0; the value is 0 long before.
    return f"tl.where({x} < -1000.0, -0.0, {value})"


def _form_silu(args: Sequence[str], dtype: str, shape: str) -> str:
    return _never_far_left(args[0], f"{args[0]} * {_form_sigmoid(args, dtype, shape)}")


def _form_gelu_tanh(args: Sequence[str], dtype: str, shape: str) -> str:
    (x,) = args
    inner = f"(({x} * {x} * 0.044715 + 1.0) * {x} * {2.0 * math.sqrt(2.0 / math.pi)!r})"
    return _never_far_left(x, f"{x} * {_form_sigmoid([inner], dtype, shape)}")


def _form_gelu(args: Sequence[str], _dtype: str, _shape: str) -> str:
    (x,) = args
    return _never_far_left(x, f"0.5 * {x} * (1.0 + tl.erf({x} * {math.sqrt(0.5)!r}))")


def _form_tanh(args: Sequence[str], _dtype: str, _shape: str) -> str:
    (x,) = args
    # By the exponential; near 0, where that loses digits, by the first terms of the series up to x^13.
    e = f"tl.exp(-2.0 * tl.abs({x}))"
    far = _divided(f"(1.0 - {e})", f"(1.0 + {e})")
    series = (-1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925, 21844.0 / 6081075)
    square = f"({x} * {x})"
    near = repr(series[-1])
    for term in reversed(series[:-1]):
        near = f"({near} * {square} + {term!r})"
    return f"tl.where(tl.abs({x}) < 0.3, {x} + {x} * {square} * {near}, tl.where({x} < 0, -{far}, {far}))"


def _form_round(args: Sequence[str], dtype: str, _shape: str) -> str:
    (x,) = args
    if category(dtype) != 2:
        return x
    return f"tl.where(tl.abs({x}) < {2.0**22!r}, ({x} + {_SHIFT!r}) - {_SHIFT!r}, {x})"


def _whole(name: str) -> _Form:
    return lambda args, dtype, _shape: f"tl.{name}({args[0]})" if category(dtype) == 2 else args[0]


_FORMS: dict[str, _Form] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": lambda args, _dtype, _shape: _divided(args[0], args[1]),
    "neg": lambda args, _dtype, _shape: f"-{args[0]}",
    "abs": _call("tl.abs"),
    "minimum": _bound("minimum"),
    "maximum": _bound("maximum"),
    "clamp_min": _bound("maximum"),
    "clamp_max": _bound("minimum"),
    "clamp": lambda args, dtype, shape: _bound("minimum")(
        [_bound("maximum")(args[:2], dtype, shape), args[2]], dtype, shape
    ),
    "relu": lambda args, dtype, shape: _bound("maximum")(
        [args[0], f"tl.full({shape}, 0, tl.{_language_type(dtype, 'relu')})"], dtype, shape
    ),
    "exp": _call("tl.exp"),
    "log": _call("tl.log"),
    "sqrt": _call("tl.sqrt_rn"),
    "rsqrt": lambda args, _dtype, shape: _divided(_one(shape), f"tl.sqrt_rn({args[0]})"),
    "tanh": _form_tanh,
    "erf": _call("tl.erf"),
    "sigmoid": _form_sigmoid,
    "silu": _form_silu,
    "gelu": _form_gelu,
    "gelu_tanh": _form_gelu_tanh,
    "round": _form_round,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "and": _infix("&"),
    "or": _infix("|"),
    "not": lambda args, _dtype, _shape: f"({args[0]} == 0)",
}

# ---- the kernel ----

_PRODUCT = """\
    # Neighbouring tiles share rows of b or columns of a in the cache: GROUP rows of tiles are walked column by column.
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    tiles_m = (M + BM - 1) // BM
    tiles_n = (N + BN - 1) // BN
    per_group = GROUP * tiles_n
    first = (tile // per_group) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + (tile % per_group) % rows
    tile_n = (tile % per_group) // rows
    at_m = tile_m * BM + tl.arange(0, BM)
    at_n = tile_n * BN + tl.arange(0, BN)
    # Beyond the edge a row or column is read again from the start; what comes of it is not stored.
    rm = at_m % M
    rn = at_n % N
    rk = tl.arange(0, BK)
    pa = a + batch * batch_a + {a_offsets}
    pb = b + batch * batch_b + {b_offsets}
    acc = tl.full((BM, BN), 0.0, tl.float32)
    for k in range(0, (K + BK - 1) // BK):
        if EVEN_K:
            left = tl.load(pa)
            right = tl.load(pb)
        else:
            left = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
            right = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        pa += {a_step}
        pb += {b_step}
    acc = acc * alpha
"""
_SCALE = "    acc = acc * tl.load({name})\n"


def kernel_text(
    resolved: Resolved, operand: str, layout: str, kinds: dict[str, str], scales: tuple[str, ...] = ()
) -> KernelText:
    """Return the kernel of a product with an expression.

    Parameters
    ----------
    resolved
        The expression for operands of known types.
    operand
        Type of a and b.
    layout
        ``n`` or ``t`` for each of a and b: row-major, or a transposed view of that.
    kinds
        What each input that is read broadcasts along, of :data:`INPUT_KINDS`.
    scales
        Names of float32 numbers in the device's memory that the product is multiplied by, as it is by alpha.

    Raises
    ------
    UnsupportedError
        If the kernel has no such type.
    """
    if operand not in _OPERANDS:
        raise UnsupportedError(
            f"a and b are {operand}: the fused kernel multiplies {', '.join(_OPERANDS)}; use another lowering"
        )
    expression = resolved.expression
    body = _Body(resolved, kinds)
    arguments = [Argument(name, "pointer", f"*{_OPERANDS[operand]}", name) for name in "ab"]
    arguments += [Argument(name, "pointer", "*fp32", name) for name in scales]
    strides = [Argument(f"s_{name}", "stride", "i32", name) for name in "ab"]
    batches = [Argument(f"batch_{name}", "batch", "i64", name) for name in "ab"]
    shifts = []
    for name, (dtype, rank) in resolved.inputs:
        _language_type(dtype, name)
        if rank == NUMBER:
            own = {"bool": "i1", "int64": "i64"}.get(dtype, "fp32")
            arguments.append(Argument(f"in_{name}", "number", own, f"in_{name}"))
            continue
        # numpy and torch keep truth values in bytes.
        signature = "u8" if dtype == "bool" else _TYPES[dtype][1]
        arguments.append(Argument(f"in_{name}", "pointer", f"*{signature}", f"in_{name}"))
        if kinds[name] in ("column", "full"):
            strides.append(Argument(f"s_in_{name}", "stride", "i32", f"in_{name}"))
        batches.append(Argument(f"batch_in_{name}", "batch", "i64", f"in_{name}"))
        shifts.append(f"    in_{name} += batch * batch_in_{name}")
    halves = expression.halves
    stores = []
    for number, (index, dtype) in enumerate(zip(expression.outputs, resolved.out_types, strict=True)):
        half = bool(halves[index])
        held, columns = compute_type(resolved.types[index]), "at_h" if half else "at_n"
        value = body.emit(index, half)
        if dtype == "bool":
            value = f"{value}.to(tl.uint8)"
        elif held != dtype:
            value = _whole_number(value, held, dtype, f"result {number}")
        limit = "N // 2" if half else "N"
        signature = "u8" if dtype == "bool" else _TYPES[dtype][1]
        arguments.append(Argument(f"out{number}", "pointer", f"*{signature}", f"out{number}"))
        strides.append(Argument(f"s_out{number}", "stride", "i32", f"out{number}"))
        batches.append(Argument(f"batch_out{number}", "batch", "i64", f"out{number}"))
        stores.append(
            f"    tl.store(out{number} + batch * batch_out{number} + (at_m * s_out{number})[:, None] + "
            f"{columns}[None, :], {value},\n             mask=(at_m < M)[:, None] & ({columns} < {limit})[None, :])"
        )
    extents = [Argument(name, "extent", "i32", name) for name in "MNK"]
    every = (*arguments, Argument("alpha", "number", "fp32", "alpha"), *extents, *strides, *batches)
    name = "fused_matmul"
    rows = {"n": ("(rm * s_a)[:, None] + rk[None, :]", "BK"), "t": ("rm[:, None] + (rk * s_a)[None, :]", "BK * s_a")}
    cols = {"n": ("(rk * s_b)[:, None] + rn[None, :]", "BK * s_b"), "t": ("rk[:, None] + (rn * s_b)[None, :]", "BK")}
    product = _PRODUCT.format(
        a_offsets=rows[layout[0]][0], a_step=rows[layout[0]][1], b_offsets=cols[layout[1]][0], b_step=cols[layout[1]][1]
    )
    halved = "    at_h = tile_n * (BN // 2) + tl.arange(0, BN // 2)\n    rh = at_h % (N // 2)\n"
    uses_half = any(halves) or any(half for _, half in body._names)
    parameters = ", ".join(argument.name for argument in every)
    tiles = ", ".join(f"{size}: tl.constexpr" for size in ("BM", "BN", "BK", "GROUP", "EVEN_K"))
    text = "".join(
        (
            f"def {name}({parameters}, {tiles}):\n",
            product,
            *(_SCALE.format(name=one) for one in scales),
            halved if uses_half else "",
            *(f"{line}\n" for line in shifts),
            *(f"    {line}\n" for line in body.lines),
            *(f"{store}\n" for store in stores),
        )
    )
    return KernelText(name, text, every)
