# SPDX-License-Identifier: MIT
"""The one list of matrix-product cases, as plain data: tests, self-test, benchmarks and the C ABI driver read it.

It imports nothing beyond the standard library, so that ``python cases.py --tier quick`` writes the list as JSON without
a built package.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

DTYPES = ("float32", "float64", "float16", "bfloat16")

# Types of a and of b that have scales, integers and complex numbers: they have cases of their own.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
MX = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
COMPLEX = ("complex64", "complex128")

# Those that hipBLASLt has an enumerator for.
EPILOGUES = (
    "default",
    "bias",
    "relu",
    "relu_bias",
    "gelu",
    "gelu_bias",
    "silu",
    "silu_bias",
    "sigmoid",
    "clamp",
    "clamp_bias",
    "relu_aux",
    "relu_aux_bias",
    "gelu_aux",
    "gelu_aux_bias",
    "clamp_aux",
    "clamp_aux_bias",
    "drelu",
    "drelu_bgrad",
    "dgelu",
    "dgelu_bgrad",
    "bgrada",
    "bgradb",
)

# How an operand lies in memory. n: row-major; t: transposed view; p: row-major with padded rows; q: transposed view
# with padding; x: every second row and column; r: rows in reverse order.
LAYOUTS = "ntpqxr"

# Sizes one below, at and above the block and vector sizes of the host platform's algorithms and of hipBLASLt's common
# tiles.
EDGES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129)
LARGE_EDGES = (191, 192, 193, 255, 256, 257, 383, 384, 385, 511, 512, 513)

SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "tiny": ((1, 1, 1), (2, 3, 4), (4, 4, 4), (5, 1, 3), (1, 5, 2), (8, 8, 8), (17, 33, 9)),
    "transformer": ((64, 3072, 768), (512, 3072, 768)),
    "square": ((32, 32, 32), (100, 100, 100), (256, 256, 256), (512, 512, 512)),
    "decode": ((1, 4096, 4096), (8, 4096, 4096)),
    "skinny": ((1, 300, 200), (2, 513, 129), (300, 1, 200), (513, 3, 65), (1, 1, 1000)),
    "tall-k": ((4, 4, 4097), (16, 24, 2048), (3, 65, 10001)),
}

TIERS = ("quick", "full", "slow")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One product, as plain data.

    Attributes
    ----------
    m, n, k : int
        Extents of one product.
    dtype, out_dtype : str
        Of the operands, and of the result.
    epilogue : str
        Name as in `rocpy.Epilogue`.
    layout : str
        One letter for `a` and one for `b`, out of `LAYOUTS`.
    batch_a, batch_b : tuple of int
        Leading extents of `a` and `b`; they broadcast as in numpy.
    alpha, beta : float
        Factors; there is a `c` operand when `beta` is not 0.
    bias : str
        ``row`` (length N), ``column`` (M, 1) or ``batch`` (batch..., N); only read when the epilogue takes one.
    data : str
        ``normal``: standard normal values; ``integers``: small integers, for which the result must be exact.
    group : str
        Name of the shape group.
    dtype_b : str
        Of `b`, where it is not that of `a`.
    scale : str
        Kind of the scales of `a` and `b`: ``scalar``, ``vector``, ``batch`` (a vector for each batch entry) or
        ``block32``; empty for none.
    scale_d : float
        Scale of the result; 0 for none.
    amax : bool
        Whether the largest magnitude is asked for.
    alpha_imaginary : float
        Imaginary part of `alpha`, of complex products.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    out_dtype: str = ""
    epilogue: str = "default"
    layout: str = "nn"
    batch_a: tuple[int, ...] = ()
    batch_b: tuple[int, ...] = ()
    alpha: float = 1.0
    beta: float = 0.0
    bias: str = "row"
    data: str = "normal"
    group: str = "tiny"
    dtype_b: str = ""
    scale: str = ""
    scale_d: float = 0.0
    amax: bool = False
    alpha_imaginary: float = 0.0

    @property
    def result_dtype(self) -> str:
        """Name of the result's dtype."""
        return self.out_dtype or _RESULTS.get(self.dtype, self.dtype)

    @property
    def batch(self) -> tuple[int, ...]:
        """Leading extents of the result."""
        pairs = zip(_padded(self.batch_a, self.batch_b), _padded(self.batch_b, self.batch_a), strict=True)
        return tuple(y if x == 1 else x for x, y in pairs)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product."""
        total = (8 if self.dtype in COMPLEX else 2) * self.m * self.n * self.k
        for extent in self.batch:
            total *= extent
        return total

    @property
    def name(self) -> str:
        """Short name, also the seed of the operands; cases of one name differ in `group` alone."""
        parts = [f"{self.m}x{self.n}x{self.k}", self.dtype, self.epilogue, self.layout]
        if self.out_dtype:
            parts.append("to-" + self.out_dtype)
        if self.batch_a or self.batch_b:
            parts.append("batch" + "x".join(map(str, self.batch_a)) + ":" + "x".join(map(str, self.batch_b)))
        if self.alpha != 1.0 or self.beta != 0.0:
            parts.append(f"{_short(self.alpha)},{_short(self.beta)}")
        if self.bias != "row":
            parts.append(self.bias + "-bias")
        if self.data != "normal":
            parts.append(self.data)
        if self.dtype_b:
            parts.append("by-" + self.dtype_b)
        if self.scale:
            parts.append(self.scale + "-scales")
        if self.scale_d:
            parts.append(f"scale-d{_short(self.scale_d)}")
        if self.amax:
            parts.append("amax")
        if self.alpha_imaginary:
            parts.append(f"alpha-i{_short(self.alpha_imaginary)}")
        return "-".join(parts)

    @property
    def seed(self) -> int:
        """Seed for the operands, the same on every machine."""
        return zlib.crc32(self.name.encode())

    def to_dict(self) -> dict[str, object]:
        """Plain data, JSON-ready: JSON has no infinity and no NaN, which are texts."""
        data = dataclasses.asdict(self)
        return {key: value if key not in _FLOATS or math.isfinite(value) else str(value) for key, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Case:
        """Return the case that `to_dict` described."""
        if not isinstance(data, dict):
            raise _invalid(f"a case is described by a dict, not {type(data).__name__}")
        fields = {key: value for key, value in data.items() if key not in ("name", "seed")}
        names = [field.name for field in dataclasses.fields(cls)]
        for key in fields:
            if key not in names:
                raise _invalid(f"{key}: a case has no such field", key, names)
        for key in ("batch_a", "batch_b"):
            fields[key] = tuple(fields.get(key, ()))
        fields.update({key: float(fields[key]) for key in _FLOATS if isinstance(fields.get(key), str)})
        return cls(**fields)


_DTYPE_FIELDS = ("dtype", "out_dtype", "dtype_b", "result_dtype")
_FLOATS = ("alpha", "beta", "scale_d", "alpha_imaginary")

# Results that are not of the operands' type.
_RESULTS = {**dict.fromkeys((*FLOAT8, *MX), "bfloat16"), "int8": "int32"}


def _short(number: float) -> str:
    text = f"{number:g}"
    return text if float(text) == number or math.isnan(number) else repr(float(number))


def _padded(batch: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (len(other) - len(batch)) + batch


def _cross() -> Iterator[Case]:
    # Every epilogue x dtype x transposition x batch, on a shape that no vector width divides.
    batches = (((), ()), ((3,), (3,)), ((3,), ()))
    for epilogue in EPILOGUES:
        for dtype in DTYPES:
            for layout in ("nn", "nt", "tn", "tt"):
                for batch_a, batch_b in batches:
                    yield Case(17, 33, 9, dtype, epilogue=epilogue, layout=layout, batch_a=batch_a, batch_b=batch_b)


def _variants() -> Iterator[Case]:
    # alpha, beta and c; biases of other shapes; mixed dtypes; layouts that must be copied or have padding;
    # broadcasting.
    for epilogue in EPILOGUES:
        yield Case(12, 20, 31, epilogue=epilogue, alpha=0.75, beta=-0.5)
        yield Case(12, 20, 31, "bfloat16", epilogue=epilogue, alpha=-1.5, beta=2.0, batch_a=(2,), batch_b=(2,))
        yield Case(12, 20, 31, "float16", "float32", epilogue=epilogue)
        yield Case(12, 20, 31, "bfloat16", "float32", epilogue=epilogue, layout="nt")
    for layout in LAYOUTS:
        for other in LAYOUTS:
            yield Case(13, 22, 19, epilogue="gelu_bias", layout=layout + other)
    for epilogue in ("bias", "gelu_bias", "clamp_aux_bias"):
        for dtype in DTYPES:
            yield Case(13, 22, 19, dtype, epilogue=epilogue, bias="column")
            yield Case(13, 22, 19, dtype, epilogue=epilogue, bias="batch", batch_a=(4,), batch_b=(4,))
    for batch_a, batch_b in (
        ((2, 3), (2, 3)),
        ((2, 1), (1, 3)),
        ((), (5,)),
        ((1,), (4,)),
        ((2, 3), (3,)),
        ((3, 1, 2), (2, 1)),
    ):
        for epilogue in ("default", "gelu_bias", "gelu_aux"):
            yield Case(6, 10, 7, epilogue=epilogue, batch_a=batch_a, batch_b=batch_b)


def _exact() -> Iterator[Case]:
    linear = ("default", "bias", "relu", "relu_bias", "clamp", "drelu_bgrad", "bgrada", "bgradb", "relu_aux_bias")
    for dtype in DTYPES:
        for epilogue in linear:
            yield Case(33, 17, 40, dtype, epilogue=epilogue, data="integers", alpha=2.0, beta=-1.0)
            yield Case(16, 48, 129, dtype, epilogue=epilogue, data="integers", layout="tn", batch_a=(2,))


def _float8() -> Iterator[Case]:
    for dtype in FLOAT8:
        other = next(x for x in FLOAT8 if x != dtype and x.endswith("fnuz") == dtype.endswith("fnuz"))
        for out in ("", "float32", "float16", dtype, other):
            yield Case(17, 33, 40, dtype, out, scale="scalar")
            yield Case(17, 33, 40, dtype, out, "gelu_bias", "nt", scale="scalar", data="normal")
            yield Case(16, 20, 64, dtype, out, "default", "tn", scale="vector", dtype_b=other)
        for layout in LAYOUTS:
            yield Case(
                13, 22, 19, dtype, epilogue="bias", layout=layout + LAYOUTS[::-1][LAYOUTS.index(layout)], scale="scalar"
            )
        yield Case(9, 21, 30, dtype, dtype, "relu_bias", scale="scalar", scale_d=0.125, amax=True)
        yield Case(9, 21, 30, dtype, "float32", "gelu_aux_bias", scale="vector", amax=True)
        yield Case(9, 21, 30, dtype, "float32", "drelu_bgrad", scale="scalar", batch_a=(3,), batch_b=(3,))
        yield Case(9, 21, 30, dtype, scale="batch", batch_a=(3,), batch_b=(3,), alpha=0.5, beta=-1.5)
        yield Case(9, 21, 30, dtype, "float32", scale="vector", batch_a=(2, 3), alpha=-2.0, beta=0.25)
        yield Case(33, 17, 40, dtype, "float32", "bias", data="integers", scale="vector", alpha=2.0, beta=-1.0)
        yield Case(33, 17, 40, dtype, "float32", "relu", "tt", data="integers", scale="scalar")
        yield Case(3, 65, 1031, dtype, "float32", "default", "nt", scale="scalar")


def _mx() -> Iterator[Case]:
    for dtype in MX:
        for other in MX:
            yield Case(17, 33, 96, dtype, epilogue="bias", dtype_b=other if other != dtype else "", scale="block32")
        for out in ("float32", "float16"):
            yield Case(5, 12, 64, dtype, out, "gelu_bias", scale="block32")
        yield Case(8, 12, 64, dtype, "float32", layout="tt", scale="block32", batch_a=(3,), batch_b=(3,))
        yield Case(8, 12, 64, dtype, "float32", layout="nt", scale="block32", batch_a=(3,), alpha=0.5, beta=2.0)
        yield Case(8, 12, 32, dtype, "float32", data="integers", scale="block32")


def _int8() -> Iterator[Case]:
    for layout in ("nn", "nt", "tn", "tt", "px", "rq"):
        yield Case(17, 33, 41, "int8", layout=layout, data="integers")
        yield Case(17, 33, 41, "int8", "float32", "gelu_bias", layout, scale="vector")
    for shape in ((1, 1, 1), (4, 64, 257), (1, 300, 200), (65, 3, 1024), (64, 64, 64), (129, 65, 127)):
        for epilogue in ("default", "bias", "relu_bias"):
            yield Case(*shape, "int8", epilogue=epilogue)
    for out in ("float32", "bfloat16", "float16"):
        yield Case(12, 20, 31, "int8", out, "gelu_bias", scale="scalar", alpha=0.75, beta=-0.5)
        yield Case(12, 20, 31, "int8", out, "relu_aux_bias", scale="batch", batch_a=(3,), batch_b=(3,))
        yield Case(12, 20, 31, "int8", out, scale="scalar")
    yield Case(12, 20, 5, "int8", "int8", data="integers")
    yield Case(12, 20, 31, "int8", "int8", "bias")
    yield Case(12, 20, 31, "int8", batch_a=(2, 1), batch_b=(3,), alpha=3.0, beta=-2.0)


def _complex() -> Iterator[Case]:
    for dtype in COMPLEX:
        for layout in ("nn", "nt", "tn", "tt", "px", "rq"):
            yield Case(17, 33, 41, dtype, layout=layout, alpha_imaginary=0.5)
        for shape in ((1, 1, 1), (2, 3, 4), (1, 300, 200), (65, 3, 130), (64, 64, 64), (3, 65, 1031)):
            yield Case(*shape, dtype)
            yield Case(*shape, dtype, data="integers")
        yield Case(12, 20, 31, dtype, epilogue="bias", alpha=0.75, beta=-0.5, alpha_imaginary=-2.0)
        yield Case(12, 20, 31, dtype, batch_a=(2, 1), batch_b=(3,), beta=1.5)
        yield Case(12, 20, 31, dtype, layout="nt", batch_a=(3,), beta=1.5, data="integers")


def _edges(sizes: Iterable[int], dtypes: Sequence[str], epilogues: Sequence[str]) -> Iterator[Case]:
    for size in sizes:
        for dtype in dtypes:
            for epilogue in epilogues:
                for shape in ((size, 33, 17), (17, size, 33), (33, 17, size), (size, size, size)):
                    yield Case(*shape, dtype, epilogue=epilogue, group="edges")
                    yield Case(*shape, dtype, epilogue=epilogue, layout="tt", data="integers", group="edges")


def _grouped(
    names: Iterable[str], dtypes: Sequence[str], epilogues: Sequence[str], layouts: Sequence[str]
) -> Iterator[Case]:
    for group in names:
        for shape in SHAPES[group]:
            for dtype in dtypes:
                for epilogue in epilogues:
                    for layout in layouts:
                        # float64 is half as fast and reaches no code that float32 does not.
                        if dtype == "float64" and 2 * shape[0] * shape[1] * shape[2] > 2**28:
                            continue
                        yield Case(*shape, dtype, epilogue=epilogue, layout=layout, group=group)


def _all(tier: str) -> Iterator[Case]:
    yield from _cross()
    yield from _variants()
    yield from _exact()
    for family in (_float8, _mx, _int8, _complex):
        yield from family()
    yield from _grouped(("tiny", "skinny", "tall-k"), ("float32", "bfloat16"), ("default", "gelu_bias"), ("nn",))
    if tier == "quick":
        yield from _edges(EDGES[::2], ("float32",), ("default", "gelu_aux_bias"))
        yield Case(64, 3072, 768, epilogue="gelu_bias", layout="nt", group="transformer")
        return
    yield from _edges(EDGES, DTYPES, ("default", "gelu_aux_bias", "dgelu_bgrad"))
    yield from _grouped(SHAPES, DTYPES, ("default", "gelu_bias"), ("nn", "nt"))
    if tier == "full":
        return
    yield from _edges(LARGE_EDGES, DTYPES, ("default", "gelu_aux_bias", "dgelu_bgrad", "relu_bias"))
    yield from _grouped(SHAPES, DTYPES, EPILOGUES, ("nn", "tt"))


def cases(tier: str = "quick") -> tuple[Case, ...]:
    """Return the case list of a tier, without repetitions.

    Parameters
    ----------
    tier : {'quick', 'full', 'slow'}
        Each contains the one before: seconds, a minute, many minutes on two cores.

    Returns
    -------
    tuple of Case
    """
    if not isinstance(tier, str) or tier not in TIERS:  # an array is compared element by element
        raise _invalid(f"tier: got {tier!r}, expected {', '.join(map(repr, TIERS))}", tier, TIERS)
    return _cases(tier)


@functools.cache
def _cases(tier: str) -> tuple[Case, ...]:
    by_name: dict[str, Case] = {}
    for case in _all(tier):
        by_name.setdefault(case.name, case)
    return tuple(by_name.values())


def select(tier: str = "quick", **criteria: object) -> tuple[Case, ...]:
    """Return the cases of a tier with the given fields, as in ``select(dtype="float32", group="edges")``.

    Raises
    ------
    InvalidProblemError
        If there is no such tier, a case has no such field, or no case of any tier has such a text in it.
    """
    fields = [name for name in dir(Case) if not name.startswith("_")]
    for name, value in criteria.items():
        if name not in fields:
            raise _invalid(f"{name}: a case has no such field", name, fields)
        if name in _DTYPE_FIELDS and not isinstance(value, str):
            criteria[name] = _name_of_dtype(value)
        elif isinstance(value, list):
            criteria[name] = tuple(value)
        elif isinstance(value, str) and not any(getattr(case, name) == value for case in cases(tier)):
            values = {getattr(case, name) for case in cases("slow")}
            if value not in values:
                raise _invalid(f"{name}: no case has {value!r}", value, values)
    return tuple(case for case in cases(tier) if all(getattr(case, key) == value for key, value in criteria.items()))


# What follows imports rocpy where it is needed: the list is written without a built package too.
def _invalid(message: str, written: object = "", choices: Iterable[str] = ()) -> Exception:
    from rocpy._messages.suggestions import did_you_mean
    from rocpy.errors import InvalidProblemError

    return InvalidProblemError(message + did_you_mean(written, choices))


def _not_cases(value: object) -> Exception:
    from rocpy.errors import InvalidOperandError

    return InvalidOperandError(f"selection: got {type(value).__name__}, expected cases, as `select` returns them")


def _name_of_dtype(value: object) -> str:
    from rocpy import dtypes

    return dtypes.lookup(value).name


def to_json(selection: Iterable[Case]) -> str:
    """Return a JSON list of cases, one object a line; `Case.from_dict` reads an entry back."""
    try:
        selection = tuple(selection)
    except TypeError:
        raise _not_cases(selection) from None
    for case in selection:
        if not isinstance(case, Case):
            raise _not_cases(case)
    rows = (json.dumps({"name": case.name, "seed": case.seed, **case.to_dict()}) for case in selection)
    return "[\n" + ",\n".join(rows) + "\n]\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a tier's cases as JSON to a file or standard output."""
    parser = argparse.ArgumentParser(description="Write rocpy's case list as JSON.")
    parser.add_argument("--tier", choices=TIERS, default="quick")
    parser.add_argument("--output", help="file to write (standard output when left out)")
    parsed = parser.parse_args(arguments)
    text = to_json(cases(parsed.tier))
    if parsed.output:
        Path(parsed.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
