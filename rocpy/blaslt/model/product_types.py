# SPDX-License-Identifier: MIT
"""Which products of element types there are: operands, results, accumulation and scales, one row for each family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rocpy import dtypes
from rocpy._messages.text import plain_text
from rocpy.blaslt.model.settings import compute_code
from rocpy.errors import InvalidProblemError, UnsupportedError

__all__ = ["FAMILIES", "RESULT_TYPES", "Family", "find_family"]

# Neighbours along K that share one scale in the MX formats.
BLOCK = 32
_OCP = ("float8_e4m3fn", "float8_e5m2")
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
FLOAT8 = (*_OCP, *_FNUZ)
_NARROW = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
_WIDE = ("bfloat16", "float32", "float16")


class Typed(Protocol):
    """An operand whose element type is known."""

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        ...


class Scaled(Protocol):
    """What the rules for scales read of a problem."""

    @property
    def a(self) -> Typed:
        """The left operand."""
        ...

    @property
    def b(self) -> Typed:
        """The right operand."""
        ...

    @property
    def c(self) -> Typed | None:
        """The addend."""
        ...

    @property
    def m(self) -> int:
        """Rows of the result."""
        ...

    @property
    def n(self) -> int:
        """Columns of the result."""
        ...

    @property
    def k(self) -> int:
        """Terms of each sum."""
        ...

    @property
    def dtype(self) -> str:
        """Type of the result."""
        ...

    @property
    def scale_a(self) -> str:
        """Kind of the scale of a, empty where there is none."""
        ...

    @property
    def scale_b(self) -> str:
        """Kind of the scale of b."""
        ...

    @property
    def scale_c(self) -> bool:
        """Whether c has a scale."""
        ...

    @property
    def scale_d(self) -> bool:
        """Whether the result has one."""
        ...

    @property
    def amax(self) -> bool:
        """Whether the largest magnitude is wanted."""
        ...

    @property
    def scale_a_batch(self) -> tuple[int, ...]:
        """Batch axes of the scales of a."""
        ...

    @property
    def scale_b_batch(self) -> tuple[int, ...]:
        """Batch axes of the scales of b."""
        ...


class Family(NamedTuple):
    """One row: the products that hipBLASLt treats alike.

    Parameters
    ----------
    name
        What messages call it.
    operands
        Types that a and b may have, in any mixture.
    results
        Types of the result; the first is the default.
    computes
        Types of the accumulation; the first is the default.
    scales
        Kinds of ``scale_a`` and ``scale_b``: ``"scalar"``, ``"vector"`` (one for each row of a or column of b),
        ``"block32"`` (one for each 32 consecutive elements along K).
    biases
        Types of the bias beside the result's own; the result's own is not among them where it is no number type of
        biases.
    """

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    computes: tuple[str, ...] = ("float32",)
    scales: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()


FAMILIES = (
    Family("float64", ("float64",), ("float64",), ("float64",)),
    Family("float32", ("float32",), ("float32",), ("float32", "tf32")),
    Family("float16", ("float16",), ("float16", "float32"), biases=("float32",)),
    Family("bfloat16", ("bfloat16",), ("bfloat16", "float32"), biases=("float32",)),
    Family("float8", _OCP, (*_WIDE, *_OCP), scales=("scalar", "vector"), biases=_WIDE),
    Family("float8 FNUZ", _FNUZ, (*_WIDE, *_FNUZ), scales=("scalar", "vector"), biases=_WIDE),
    Family("MX", (*_OCP, *_NARROW), _WIDE, scales=("block32",), biases=_WIDE),
    Family(
        "int8", ("int8",), ("int32", "int8", "float32", "bfloat16", "float16"), ("int32",), ("scalar", "vector"), _WIDE
    ),
    Family("complex64", ("complex64",), ("complex64",)),
    Family("complex128", ("complex128",), ("complex128",), ("float64",)),
)
_MX = FAMILIES[6]

RESULT_TYPES: dict[str, tuple[str, ...]] = {}
"""Result types for each type of a and b; the first is the default."""
for _family in FAMILIES:
    for _operand in _family.operands:
        RESULT_TYPES.setdefault(_operand, _family.results)


def is_float8(dtype: str) -> bool:
    """Whether a type is one of the 8-bit floats, whose values are meant to be scaled."""
    return dtype in FLOAT8


def find_family(a: str, b: str, blocks: bool = False) -> Family:
    """Return the family of two operand types; ``blocks``: their scales are by blocks of K."""
    for name, dtype in (("a", a), ("b", b)):
        if dtype not in RESULT_TYPES:
            raise UnsupportedError(
                f"{name}: products of {dtype} are not supported; supported: {', '.join(RESULT_TYPES)}"
            )
    if blocks or a in _NARROW or b in _NARROW:
        for name, dtype in (("a", a), ("b", b)):
            if dtype not in _MX.operands:
                raise InvalidProblemError(
                    f"{name} is {dtype}; operands with one scale per {BLOCK} elements of K must be "
                    f"{', '.join(_MX.operands)}"
                )
        return _MX
    for family in FAMILIES:
        if a in family.operands and b in family.operands:
            return family
    if is_float8(a) and is_float8(b):
        raise InvalidProblemError(
            f"a is {a} and b is {b}: two 8-bit formats that no device multiplies with each other; cast one"
        )
    raise InvalidProblemError(f"a is {a} and b is {b}; cast one, so that both have one dtype")


def type_for_out(family: Family, out: str, others: Sequence[str | None], scaled: bool) -> str:
    """Return the type of the result of a product into an out of a type, where none was asked for.

    It is the out's own if there is such a product. Otherwise the result is cast, and is float32 if it can be, so that
    it is not rounded to 16 bits, or scaled integers to whole numbers, before it is rounded to the out's type. Those of
    c, the bias and aux, ``others``, may allow no other than the default.
    """
    first = family.results[0]
    if out in family.results:
        return out
    whole = dtypes.lookup(first).kind == "int"
    if "float32" not in family.results or (whole and not scaled) or _kind_rank(out) < _kind_rank("float"):
        return first
    c, bias, aux = others
    fits = all(x in (None, "float32") for x in (c, aux))
    return "float32" if fits and (bias is None or bias in bias_types(family, "float32")) else first


def result_and_compute(
    family: Family,
    operand: str,
    out: Typed | None,
    dtype: str | None,
    compute: str | None,
    others: Sequence[str | None] = (None, None, None),
    scaled: bool = False,
) -> tuple[str, str]:
    """Return the types of the result and of the accumulation; ``others`` are those of c, the bias and aux."""
    compute = plain_text(compute)
    result = dtype or (family.results[0] if out is None else type_for_out(family, out.dtype, others, scaled))
    if result not in family.results:
        raise UnsupportedError(
            f"dtype: a {operand} product cannot return {result}; expected {' or '.join(family.results)}"
        )
    if out is not None:
        check_cast(result, out.dtype, _types_of_out(family, dtype, scaled))
    if compute is not None and compute not in family.computes:
        compute_code(compute)  # refuses what names no type at all, and says what may be meant
        raise UnsupportedError(f"compute={compute!r}: a {operand} product computes in {' or '.join(family.computes)}")
    return result, compute or family.computes[0]


def _types_of_out(family: Family, dtype: str | None, scaled: bool) -> tuple[str, ...]:
    """Return the types among a family's results that an out may have, as the product is called."""
    least = -1 if dtype is None else _kind_rank(dtype)
    return tuple(x for x in family.results if _kind_rank(x) >= least and (scaled or not needs_scales(family, x)))


_KINDS = ("float8_e8m0fnu", "uint", "int", "float", "complex")


def _kind_rank(dtype: str) -> int:
    return next((rank for rank, prefix in enumerate(_KINDS) if dtype.removeprefix("b").startswith(prefix)), -1)


def check_cast(result: str, out: str, results: tuple[str, ...] = (), name: str = "out") -> None:
    """Refuse an out whose type drops what the result's kind has: its sign, its fraction or its imaginary part."""
    if result != out and _kind_rank(out) < _kind_rank(result):
        raise InvalidProblemError(
            f"{name} is {out}, and the result is {result}, which is not cast to it; pass {name}= of "
            f"{' or '.join(results or (result,))}"
        )


def bias_types(family: Family, result: str, scaled: bool = False) -> tuple[str, ...]:
    """Return the types that a bias may have, the result's own first where it is one of them."""
    if family.name == "int8" and result in ("int32", "int8"):
        # Scaled sums are no whole numbers until they are rounded.
        return ("int32", "float32") if scaled else ("int32",)
    if is_float8(result):
        return family.biases
    return tuple(dict.fromkeys((result, *family.biases)))


def gradient_type(result: str, scaled: bool = False) -> str:
    """Return the type of a bias gradient: the result's, but never one of 8 bits; ``scaled``: a and b have scales."""
    if result in ("int8", "int32"):
        return "float32" if scaled else "int32"  # as the types of a bias
    return "float32" if is_float8(result) else result


def needs_scales(family: Family, result: str) -> bool:
    """Whether a product is of quantized values, which mean nothing without both scales."""
    return bool(family.scales) and dtypes.lookup(result).kind == "float"


def unit_scales(a: str, b: str, result: str) -> dict[str, float]:
    """Return scales of 1 for a product that needs some and has none left: they were applied otherwise."""
    return {"scale_a": 1.0, "scale_b": 1.0} if needs_scales(find_family(a, b), result) else {}


def _check_presence(problem: Scaled, family: Family) -> None:
    """Refuse quantized operands without the scales that they were quantized with."""
    missing = [name for name in ("scale_a", "scale_b") if not getattr(problem, name)]
    if not missing or not needs_scales(family, problem.dtype):
        return
    if "block32" in family.scales:
        form = (
            f"float8_e8m0fnu or uint8, one per {BLOCK} consecutive elements along K, as returned by rocpy.quantize_mx"
        )
        none = "bytes of 127 for no scaling"
    else:
        form = "as returned by rocpy.quantize"
        none = " and ".join(f"{name}=1.0" for name in missing) + " for no scaling"
    raise InvalidProblemError(
        f"{' and '.join(missing)}: none; {problem.a.dtype} x {problem.b.dtype} -> {problem.dtype} is a product of "
        f"quantized values and needs scale_a and scale_b, {form}: pass {none}"
    )


def check_scales(problem: Scaled, family: Family) -> None:
    """Check kinds and extents of the scales against the types."""
    for name, kind in (("scale_a", problem.scale_a), ("scale_b", problem.scale_b)):
        if kind and not family.scales:
            raise InvalidProblemError(
                f"{name}: a {family.name} product takes no scales; they are supported for "
                f"{', '.join(f.name for f in FAMILIES if f.scales)} operands: multiply {name[-1]} by it before the "
                "product"
            )
        if kind and kind not in family.scales:
            raise InvalidProblemError(
                f"{name}: {_SCALE_TEXT[kind]}; a {family.name} product takes "
                f"{' or '.join(_SCALE_TEXT[each] for each in family.scales)}"
            )
    _check_presence(problem, family)
    if "block32" in family.scales:
        check_blocks(problem.k, "a and b")
    if problem.scale_c and (problem.c is None or not is_float8(problem.c.dtype)):
        seen, do = (
            ("there is no c", "omit it") if problem.c is None else (f"c is {problem.c.dtype}", "multiply beta= by it")
        )
        raise InvalidProblemError(f"scale_c: {seen}; supported for a c of 8-bit floats only: {do}")
    if problem.scale_d and not is_float8(problem.dtype):
        raise InvalidProblemError(
            f"scale_d: the result is {problem.dtype}; it is supported for a result of 8-bit floats only: multiply "
            "the result by it"
        )
    if problem.amax and not family.scales:
        raise UnsupportedError(
            f"amax: supported for operands of at most 8 bits, and these are {family.name}; compute it from the result"
        )


def check_weight_scale(dtype: str, kind: str) -> None:
    """Refuse a kind of scale that no product takes for a right operand of a type."""
    supported = dict.fromkeys(kind for family in FAMILIES if dtype in family.operands for kind in family.scales)
    if not supported:
        raise InvalidProblemError(
            f"scale: products of {dtype} take no scales; they are supported for weights of at most 8 bits: multiply "
            "w by it before it is packed"
        )
    if kind not in supported:
        wanted = " or ".join(_SCALE_TEXT[each] for each in supported)
        raise InvalidProblemError(f"scale: got {_SCALE_TEXT[kind]}; products of {dtype} take {wanted}")


_SCALE_TEXT = {
    "scalar": "one float32",
    "vector": "float32, one for each row of a or column of b",
    "block32": f"float8_e8m0fnu or uint8, one for each {BLOCK} consecutive elements along K",
}


def check_blocks(k: int, name: str) -> None:
    """Refuse sums that are no whole number of blocks."""
    if k % BLOCK:
        raise InvalidProblemError(
            f"{name}: K = {k} with scales for each {BLOCK} consecutive elements; pad K to a multiple of {BLOCK}"
        )


def scale_kind(
    name: str, shape: tuple[int, ...], dtype: str, extents: tuple[int, int, int], batch_shape: tuple[int, ...]
) -> tuple[str, tuple[int, ...]]:
    """Return the kind of a scale given as an array, and its batch axes: the one place that reads its shape.

    ``extents`` are m, n and k. The array's memory is then taken as ``(*batch, m)`` or ``(*batch, n)``, and of blocks as
    ``(*batch, m, k / 32)`` and ``(*batch, n, k / 32)``. A shape that names factors of different batch entries by its
    two forms, with the axis of extent 1 and without, is refused.
    """
    m, n, k = extents
    if name in ("scale_c", "scale_d"):
        if dtype != "float32" or math.prod(shape) != 1:
            raise InvalidProblemError(f"{name}: got shape {shape}, {dtype}, expected one float32")
        return "scalar", ()
    if dtype in ("float8_e8m0fnu", "uint8"):
        check_blocks(k, "a and b")
        wanted = (m, k // BLOCK) if name == "scale_a" else (k // BLOCK, n)
        inner = shape[-2:] if len(shape) > 1 else ((1, *shape) if name == "scale_a" else (*shape, 1))
        batch = shape[:-2]
        if inner == wanted and _fits(batch, batch_shape):
            return "block32", batch
        raise InvalidProblemError(
            f"{name}: shape {shape}, {dtype}; scales for each {BLOCK} consecutive elements along K = {k} have shape "
            f"{wanted}" + (f", or {(*batch_shape, *wanted)} for those of each batch entry" if batch_shape else "")
        )
    if dtype != "float32":
        raise InvalidProblemError(
            f"{name} is {dtype}; scales are float32, or float8_e8m0fnu or uint8 for blocks of {BLOCK}: cast it"
        )
    if math.prod(shape) == 1:
        return "scalar", ()
    length, line = (m, (m, 1)) if name == "scale_a" else (n, (1, n))
    batches = []
    if len(shape) > 1 and shape[-2:] == line and _fits(shape[:-2], batch_shape):
        batches.append(shape[:-2])
    if shape[-1] == length and _fits(shape[:-1], batch_shape):
        batches.append(shape[:-1])
    if len(batches) == 2 and math.prod(batches[0]) != 1:
        full = (1,) * (len(batch_shape) - len(batches[0]))
        raise InvalidProblemError(
            f"{name}: shape {shape} is ambiguous for batch axes {batch_shape}: it may mean {line} for each of "
            f"{batches[0]} or ({length},) for each of {batches[1]}; pass {(*full, *shape)} or "
            f"{(*full[1:], *batches[1], *line)}"
        )
    if batches:
        return "vector", batches[0]
    raise InvalidProblemError(
        f"{name}: got shape {shape}, expected one number, or shape {(length,)} or {line}"
        + (f", or {(*batch_shape, *line)} for those of each batch entry" if batch_shape else "")
    )


def are_of_lines(m: int, n: int, single_a: bool, single_b: bool) -> bool:
    """Whether scales are one for each row of a and column of b where some are arrays of one number that have axes.

    Such an array is that of the only row or column, unless the other one can only be a scalar of the same form.
    """
    return (m == 1 or not single_a) and (n == 1 or not single_b)


def _fits(batch: tuple[int, ...], batch_shape: tuple[int, ...]) -> bool:
    """Whether batch axes broadcast to those of the product."""
    if len(batch) > len(batch_shape):
        return False
    return all(x in (1, y) for x, y in zip(reversed(batch), reversed(batch_shape), strict=False))


def scale_entry(problem: Scaled, name: str) -> int:
    """Return how many scales of a or b one batch entry has."""
    kind, lines = (problem.scale_a, problem.m) if name == "scale_a" else (problem.scale_b, problem.n)
    return {"": 0, "scalar": 1, "vector": lines, "block32": lines * (problem.k // BLOCK)}[kind]


def scale_bytes(problem: Scaled) -> int:
    """Return the bytes of all scales."""
    total = 4 * (problem.scale_c + problem.scale_d + problem.amax)
    for name, kind, batch in (
        ("scale_a", problem.scale_a, problem.scale_a_batch),
        ("scale_b", problem.scale_b, problem.scale_b_batch),
    ):
        total += math.prod(batch) * scale_entry(problem, name) * (1 if kind == "block32" else 4)
    return total


def operand_bytes(count: int, dtype: str) -> int:
    """Return the bytes of packed elements."""
    return (count * dtypes.lookup(dtype).bits + 7) // 8
