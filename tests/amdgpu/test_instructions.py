# SPDX-License-Identifier: MIT
"""Single instructions against numpy: random bits and special values, on each architecture that has them."""

import functools
import importlib.util

import ml_dtypes
import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import ARCHITECTURES, encodings, instruction_kernels

from rocpy.testing import amdgpu

THREADS = 256
SPECIAL = {
    "float32": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 1.17549435e-38, 0.5, 2.5, -3.5],
    "float64": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1.7e308, 2.2250738585072014e-308, 0.5],
    "float16": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 6e-8, -3e-5, 65504, 6.1e-5, 0.5, 2.5],
}


def operands(dtype, seed):
    """Return an array of 64-bit slots whose first bytes are random values of the type."""
    rng = np.random.default_rng(seed)
    slots = rng.integers(0, 1 << 64, THREADS, dtype=np.uint64)
    if dtype in SPECIAL:
        values = slots.view(dtype).reshape(THREADS, -1)
        near = rng.standard_normal(THREADS) * 10.0 ** rng.integers(-3, 4, THREADS)
        values[::2, 0] = near[::2]
        special = np.array(SPECIAL[dtype], dtype)
        values[: 3 * len(special), 0] = rng.choice(special, 3 * len(special))
    return slots


def lane(slots, dtype):
    return slots.view(dtype).reshape(len(slots), -1)[:, 0]


def f32(function):
    return ("float32",) * 4, function


def i32(function):
    return ("int32",) * 4, function


def u32(function):
    return ("uint32",) * 4, function


def f64(function):
    return ("float64",) * 4, function


def f16(function):
    return ("float16",) * 4, function


def bits_below(value):
    return value & np.uint32(31)


def to_int(dtype):
    info = np.iinfo(dtype)

    def convert(a, _b, _c):
        wide = np.trunc(np.where(np.isnan(a), 0, a).astype(np.float64))
        return np.clip(wide, info.min, info.max).astype(dtype)

    return convert


def fma32(a, b, c):
    """Round a * b + c once: the product is exact in float64, and so is the sum's rest."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    back = total - product
    rest = (product - (total - back)) + (c - back)
    bits = total.view(np.uint64).copy()
    inexact = np.isfinite(total) & (rest != 0) & (bits & np.uint64(1) == 0)
    away = (rest > 0) == (total > 0)
    bits[inexact & away] += np.uint64(1)
    bits[inexact & ~away] -= np.uint64(1)
    return bits.view(np.float64).astype(np.float32)


def number(function):
    """NaN counts as absent, and -0 is below +0."""

    def chosen(a, b, _c):
        made = function(a, b)
        both_zero = (a == 0) & (b == 0)
        is_negative = np.signbit(a) | np.signbit(b) if function is np.fmin else np.signbit(a) & np.signbit(b)
        return np.where(both_zero, np.where(is_negative, -0.0, 0.0), made).astype(a.dtype)

    return chosen


# Instruction: types of the three operands and of the result, what numpy makes of them. {d} is the result, {a}, {b}
# and {c} are the operands; registers of 64 bits are written {D}, {A}, {B}, {C}.
CASES = {
    "v_add_f32 {d}, {a}, {b}": f32(lambda a, b, c: a + b),
    "v_sub_f32 {d}, {a}, {b}": f32(lambda a, b, c: a - b),
    "v_mul_f32 {d}, {a}, {b}": f32(lambda a, b, c: a * b),
    "v_mul_f32_e64 {d}, -{a}, |{b}| clamp": f32(
        lambda a, b, c: np.clip(np.nan_to_num(-a * np.abs(b), nan=0), 0, 1) + np.float32(0)  # no negative zero
    ),
    "v_fma_f32 {d}, {a}, {b}, {c}": f32(fma32),
    "v_fmac_f32 {d}, {a}, {b}": f32(fma32),
    "v_min_f32 {d}, {a}, {b}": f32(number(np.fmin)),
    "v_max_num_f32 {d}, {a}, {b}": f32(number(np.fmax)),
    "v_floor_f32 {d}, {a}": f32(lambda a, b, c: np.floor(a)),
    "v_rndne_f32 {d}, {a}": f32(lambda a, b, c: np.rint(a)),
    "v_trunc_f32 {d}, {a}": f32(lambda a, b, c: np.trunc(a)),
    "v_ldexp_f32 {d}, {a}, 7": f32(lambda a, b, c: np.ldexp(a, 7)),
    "v_cvt_f64_f32 {D}, {a}": (("float32", "float32", "float32", "float64"), lambda a, b, c: a.astype(np.float64)),
    "v_cvt_f32_f64 {d}, {A}": (("float64", "float64", "float64", "float32"), lambda a, b, c: a.astype(np.float32)),
    "v_cvt_i32_f32 {d}, {a}": (("float32",) * 3 + ("int32",), to_int(np.int32)),
    "v_cvt_u32_f32 {d}, {a}": (("float32",) * 3 + ("uint32",), to_int(np.uint32)),
    "v_cvt_i32_f64 {d}, {A}": (("float64",) * 3 + ("int32",), to_int(np.int32)),
    "v_cvt_f32_u32 {d}, {a}": (("uint32",) * 3 + ("float32",), lambda a, b, c: a.astype(np.float32)),
    "v_cvt_f32_i32 {d}, {a}": (("int32",) * 3 + ("float32",), lambda a, b, c: a.astype(np.float32)),
    "v_cvt_f64_u32 {D}, {a}": (("uint32",) * 3 + ("float64",), lambda a, b, c: a.astype(np.float64)),
    "v_cvt_f32_ubyte2 {d}, {a}": (("uint32",) * 3 + ("float32",), lambda a, b, c: (a >> 16 & 255).astype(np.float32)),
    "v_cvt_f16_f32 {d}, {a}": (("float32",) * 3 + ("float16",), lambda a, b, c: a.astype(np.float16)),
    "v_cvt_f32_f16 {d}, {a}": (("float16",) * 3 + ("float32",), lambda a, b, c: a.astype(np.float32)),
    "v_cvt_pk_bf16_f32 {d}, {a}, {a}": (
        ("float32",) * 3 + ("bfloat16",),
        lambda a, b, c: a.astype(ml_dtypes.bfloat16),
    ),
    "v_add_f64 {D}, {A}, {B}": f64(lambda a, b, c: a + b),
    "v_mul_f64 {D}, {A}, {B}": f64(lambda a, b, c: a * b),
    "v_max_f64 {D}, {A}, {B}": f64(number(np.fmax)),
    "v_ceil_f64 {D}, {A}": f64(lambda a, b, c: np.ceil(a)),
    "v_add_f16 {d}, {a}, {b}": f16(lambda a, b, c: a + b),
    "v_mul_f16 {d}, {a}, {b}": f16(lambda a, b, c: a * b),
    "v_sqrt_f16 {d}, {a}": f16(lambda a, b, c: np.sqrt(a)),
    "v_pk_add_f16 {d}, {a}, {b}": f16(lambda a, b, c: a + b),
    "v_pk_mul_f16 {d}, {a}, {b}": f16(lambda a, b, c: a * b),
    "v_add_u32 {d}, {a}, {b}": u32(lambda a, b, c: a + b),
    "v_sub_nc_u32 {d}, {a}, {b}": u32(lambda a, b, c: a - b),
    "v_subrev_u32 {d}, {a}, {b}": u32(lambda a, b, c: b - a),
    "v_mul_lo_u32 {d}, {a}, {b}": u32(lambda a, b, c: a * b),
    "v_mul_hi_u32 {d}, {a}, {b}": u32(lambda a, b, c: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32 {d}, {a}, {b}": i32(lambda a, b, c: (a.astype(np.int64) * b >> 32).astype(np.int32)),
    "v_mad_u32_u24 {d}, {a}, {b}, {c}": u32(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24 {d}, {a}, {b}, {c}": i32(lambda a, b, c: (a << 8 >> 8) * (b << 8 >> 8) + c),
    "v_add3_u32 {d}, {a}, {b}, {c}": u32(lambda a, b, c: a + b + c),
    "v_lshl_add_u32 {d}, {a}, 3, {c}": u32(lambda a, b, c: (a << 3) + c),
    "v_and_or_b32 {d}, {a}, {b}, {c}": u32(lambda a, b, c: (a & b) | c),
    "v_bitop3_b32 {d}, {a}, {b}, {c} bitop3:0x6c": u32(lambda a, b, c: b ^ (a & c)),
    "v_bitop3_b32 {d}, {a}, {b}, {c} bitop3:0x1f": u32(lambda a, b, c: ~(a & (b | c)) & (~a | ~(b | c))),
    "v_bitop3_b16 {d}, {a}, {b}, {c} bitop3:0xe8": (
        ("uint16",) * 4,
        lambda a, b, c: (a & b) | (a & c) | (b & c),
    ),
    "v_bfi_b32 {d}, {a}, {b}, {c}": u32(lambda a, b, c: (a & b) | (~a & c)),
    "v_bfe_u32 {d}, {a}, 5, 9": u32(lambda a, b, c: a >> 5 & 511),
    "v_bfe_i32 {d}, {a}, 5, 9": i32(lambda a, b, c: a << 18 >> 23),
    "v_xor_b32 {d}, {a}, {b}": u32(lambda a, b, c: a ^ b),
    "v_not_b32 {d}, {a}": u32(lambda a, b, c: ~a),
    "v_bfrev_b32 {d}, {a}": u32(lambda a, b, c: np.array([int(f"{x:032b}"[::-1], 2) for x in a.tolist()], np.uint32)),
    "v_lshlrev_b32 {d}, {a}, {b}": u32(lambda a, b, c: b << bits_below(a)),
    "v_lshrrev_b32 {d}, {a}, {b}": u32(lambda a, b, c: b >> bits_below(a)),
    "v_ashrrev_i32 {d}, {a}, {b}": i32(lambda a, b, c: b >> (a & 31)),
    "v_lshlrev_b64 {D}, {a}, {B}": (
        ("uint32", "uint64", "uint64", "uint64"),
        lambda a, b, c: b << (a & 63).astype("u8"),
    ),
    "v_ashrrev_i64 {D}, {a}, {B}": (("uint32", "int64", "int64", "int64"), lambda a, b, c: b >> (a & 63).astype("i8")),
    "v_lshl_add_u64 {D}, {A}, 3, {C}": (("uint64",) * 4, lambda a, b, c: (a << np.uint64(3)) + c),
    "v_mad_u64_u32 {D}, vcc, {a}, {b}, {C}": (
        ("uint32", "uint32", "uint64", "uint64"),
        lambda a, b, c: a.astype(np.uint64) * b + c,
    ),
    "v_min_i32 {d}, {a}, {b}": i32(lambda a, b, c: np.minimum(a, b)),
    "v_max3_u32 {d}, {a}, {b}, {c}": u32(lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32 {d}, {a}, {b}, {c}": i32(lambda a, b, c: np.median(np.stack([a, b, c]), axis=0).astype(np.int32)),
    "v_bcnt_u32_b32 {d}, {a}, {b}": u32(lambda a, b, c: np.bitwise_count(a) + b),
    "v_alignbit_b32 {d}, {a}, {b}, 7": u32(lambda a, b, c: a << 25 | b >> 7),
    "v_perm_b32 {d}, {a}, {b}, 0x07050301": None,
    "v_sad_u32 {d}, {a}, {b}, {c}": u32(lambda a, b, c: np.where(a > b, a - b, b - a) + c),
    "v_pk_add_u16 {d}, {a}, {b}": (("uint16",) * 4, lambda a, b, c: a + b),
    "v_pk_max_i16 {d}, {a}, {b}": (("int16",) * 4, lambda a, b, c: np.maximum(a, b)),
    "v_cndmask_b32_e64 {d}, {a}, {b}, -1": u32(lambda a, b, c: b),
}
del CASES["v_perm_b32 {d}, {a}, {b}, 0x07050301"]

# What comparisons write to VCC chooses between two of the operands.
RELATIONS = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMPARED = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u16": "uint16",
}


def written(text):
    narrow = {"a": "v2", "b": "v4", "c": "v6", "d": "v8"}
    wide = {"A": "v[2:3]", "B": "v[4:5]", "C": "v[6:7]", "D": "v[8:9]"}
    return text.format(**narrow, **wide)


def halves(text, arch):
    """Where registers of 16 bits are named by half."""
    names = ("_f16 ", "_u16 ")
    plain = "_pk_" in text or not any(name in text for name in names)
    return [text] if plain or arch != "gfx1100" else [text, text.replace(",", ".l,") + ".l"]


def comparison(relation, kind, arch):
    vcc = "vcc" if arch.startswith("gfx9") else "vcc_lo"
    a, b = ("v[2:3]", "v[4:5]") if kind.endswith("64") else ("v2", "v4")
    half = ".l" if kind.endswith("16") and arch == "gfx1100" else ""
    return f"v_cmp_{relation}_{kind} {vcc}, {a}{half}, {b}{half}\n  v_cndmask_b32 v8, v6, v0, {vcc}"


@functools.cache
def bench(arch):
    """Return the code of every case that the architecture has, and the number of its kernel."""
    texts = []
    for text in CASES:
        forms = [written(text)]
        if arch == "gfx1100":
            forms += [forms[0].replace("v8", "v8.l", 1) + ".l", forms[0].replace(",", ".l,") + ".l", forms[0] + ".l"]
            forms += [forms[0].replace("v8", "v8.l", 1)]
        if not arch.startswith("gfx9"):
            forms += [form.replace("vcc", "vcc_lo") for form in forms]
        made = encodings(forms, arch)
        good = [form for form, code in zip(forms, made, strict=True) if code is not None]
        texts.append(good[0] if good else None)
    bodies = [text for text in texts if text is not None]
    bodies += [comparison(relation, kind, arch) for relation in RELATIONS for kind in COMPARED]
    return instruction_kernels(bodies, arch), [text is not None for text in texts]


def run(arch, number, slots):
    out = np.zeros(THREADS, np.uint64)
    amdgpu.run(bench(arch)[0], f"k{number}", 1, THREADS, *slots, out)
    return out


@pytest.mark.parametrize(
    "arch",
    [pytest.param(arch, marks=[] if arch in ("gfx942", "gfx1201") else pytest.mark.slow) for arch in ARCHITECTURES],
)
def test_arithmetic(arch):
    number = 0
    for (text, case), present in zip(CASES.items(), bench(arch)[1], strict=True):
        if not present:
            continue
        types, expected = case
        slots = [operands(dtype, seed) for seed, dtype in enumerate(types[:3])]
        out = lane(run(arch, number, slots), np.dtype(types[3]))
        number += 1
        with np.errstate(all="ignore"):
            wanted = expected(*(lane(each, dtype) for each, dtype in zip(slots, types[:3], strict=True)))
        wanted = np.asarray(wanted).astype(types[3])
        both_nan = (wanted != wanted) & (out != out)
        same = out.view(f"u{out.itemsize}") == wanted.view(f"u{out.itemsize}") if out.itemsize else out == wanted
        assert (same | both_nan).all(), (
            text,
            [(lane(s, t)[~(same | both_nan)][0]) for s, t in zip(slots, types[:3], strict=True)],
        )


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_comparisons(arch):
    number = sum(bench(arch)[1])
    for relation in RELATIONS.values():
        for dtype in COMPARED.values():
            slots = [operands(dtype, seed) for seed in range(3)]
            out = lane(run(arch, number, slots), np.dtype("uint32"))
            number += 1
            chosen = relation(lane(slots[0], dtype), lane(slots[1], dtype))
            wanted = np.where(chosen, np.arange(THREADS, dtype=np.uint32), lane(slots[2], "uint32"))
            np.testing.assert_array_equal(out, wanted, err_msg=f"{relation} {dtype}")
