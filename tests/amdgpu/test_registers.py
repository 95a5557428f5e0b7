# SPDX-License-Identifier: MIT
"""Registers whose numbers are computed, output modifiers, and instructions that do nothing, against numpy."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import ARCHITECTURES, instruction_kernels

from rocpy.errors import KernelError
from rocpy.testing import amdgpu

THREADS = 64
CDNA = [arch for arch in ARCHITECTURES if arch.startswith("gfx9")]
RDNA = [arch for arch in ARCHITECTURES if not arch.startswith("gfx9")]


def run(arch, bodies, *arrays):
    """Return what each body leaves in v[8:9]: the arrays are in v[2:3], v[4:5], v[6:7], and the last in v[8:9] too."""
    code = instruction_kernels(bodies, arch)
    out = [np.zeros(THREADS, np.uint64) for _ in bodies]
    for number, each in enumerate(out):
        amdgpu.run(code, f"k{number}", 1, THREADS, *arrays, each)
    return out


def words(seed):
    return np.random.default_rng(seed).integers(0, 1 << 32, THREADS, dtype=np.uint64)


# ---- indices ----

# With 2 as the index from v2 on lies the second array, and from v6 on the result.
INDEXED = {
    "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 v8, v2": lambda a, b, c: b,
    "s_set_gpr_idx_on s20, gpr_idx(DST)\n v_mov_b32 v6, v2": lambda a, b, c: a,
    "s_set_gpr_idx_on s20, gpr_idx(SRC1)\n v_sub_u32 v8, v2, v2": lambda a, b, c: a - b,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0,SRC1,SRC2)\n v_add3_u32 v8, v0, v2, v4": lambda a, b, c: a + b + c,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0,DST)\n v_mov_b32 v6, v2": lambda a, b, c: b,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n s_set_gpr_idx_idx s21\n v_mov_b32 v8, v2": lambda a, b, c: c,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n s_set_gpr_idx_mode gpr_idx(DST)\n v_mov_b32 v6, v2": lambda a, b, c: a,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n s_set_gpr_idx_off\n v_mov_b32 v8, v2": lambda a, b, c: a,
    "s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 v8, s22": lambda a, b, c: np.full_like(a, 77),
    "s_mov_b32 m0, 1\n s_movrels_b32 s23, s20\n v_mov_b32 v8, s23": lambda a, b, c: np.full_like(a, 4),
    "s_mov_b32 m0, 2\n s_movreld_b32 s20, s21\n v_mov_b32 v8, s22": lambda a, b, c: np.full_like(a, 4),
    "s_mov_b32 m0, 2\n s_movrels_b64 s[24:25], s[20:21]\n v_mov_b32 v8, s24": lambda a, b, c: np.full_like(a, 77),
    "s_mov_b32 m0, 2\n s_movreld_b64 s[22:23], s[20:21]\n v_mov_b32 v8, s25": lambda a, b, c: np.full_like(a, 4),
}
RELATIVE = {
    "s_mov_b32 m0, 2\n v_movrels_b32 v8, v2": lambda a, b, c: b,
    "s_mov_b32 m0, 2\n v_movreld_b32 v6, v2": lambda a, b, c: a,
    "s_mov_b32 m0, 2\n v_movrelsd_b32 v6, v2": lambda a, b, c: b,
    "s_mov_b32 m0, 0x20004\n v_movrelsd_2_b32 v6, v2": lambda a, b, c: c,
    "s_mov_b32 m0, 0x20004\n v_swaprel_b32 v6, v0\n": lambda a, b, c: b,
    "s_mov_b32 m0, 0x20001\n s_movrelsd_2_b32 s22, s20\n v_mov_b32 v8, s24": lambda a, b, c: np.full_like(a, 4),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_by_index(arch):
    cases = INDEXED if arch in CDNA else RELATIVE
    before = "s_mov_b32 s20, 2\n s_mov_b32 s21, 4\n s_mov_b32 s22, 77\n "
    after = "\n s_set_gpr_idx_off\n v_mov_b32 v9, 0" if arch in CDNA else "\n v_mov_b32 v9, 0"
    arrays = [words(seed) for seed in range(3)]
    made = run(arch, [before + body + after for body in cases], *arrays)
    for (body, wanted), out in zip(cases.items(), made, strict=True):
        expected = wanted(*(array.astype(np.uint32) for array in arrays))
        np.testing.assert_array_equal(out, expected, err_msg=body)


@pytest.mark.parametrize(
    ("arch", "body"),
    [
        ("gfx942", "s_movk_i32 s20, 0xff\n s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 v8, v2"),
        ("gfx942", "s_movk_i32 s20, 0xff\n s_set_gpr_idx_on s20, gpr_idx(DST)\n v_mov_b32 v8, v2"),
        ("gfx1100", "s_movk_i32 s20, 0x100\n s_mov_b32 m0, s20\n v_movrels_b32 v8, v2"),
        ("gfx1201", "s_mov_b32 m0, -1\n v_movreld_b32 v8, v2"),
        ("gfx1201", "s_mov_b32 m0, -1\n s_movrels_b32 s20, s21"),
    ],
)
def test_an_index_beyond_the_registers_is_stopped(arch, body):
    with pytest.raises(KernelError, match="does not select a register"):
        run(arch, [body], *(words(seed) for seed in range(3)))


# ---- output modifiers ----

FLUSHES, KEEPS = "s_setreg_imm32_b32 hwreg(1, 4, 4), 0\n ", "s_setreg_imm32_b32 hwreg(1, 4, 4), 15\n "
PLAIN, IEEE = "s_setreg_imm32_b32 hwreg(1, 9, 1), 0\n ", "s_setreg_imm32_b32 hwreg(1, 9, 1), 1\n "
FACTORS = {"mul:2": 2, "mul:4": 4, "div:2": 0.5}
SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan]


def floats(dtype, seed):
    """Normal and denormal numbers, and those at which a factor of 2 leaves one for the other."""
    rng, info = np.random.default_rng(seed), np.finfo(dtype)
    small = float(info.smallest_normal) * rng.choice([0.25, 0.5, 1, 1.5, 2, -0.5, -1, -2, 3], THREADS)
    large = float(info.max) * rng.choice([1, 0.5, 0.3, -0.5, -1], THREADS)
    values = np.choose(rng.integers(0, 3, THREADS), [rng.standard_normal(THREADS), small, large])
    values[: len(SPECIAL)] = SPECIAL
    slots = np.zeros(THREADS, np.uint64)
    slots.view(dtype).reshape(THREADS, -1)[:, 0] = values.astype(dtype)
    return slots


def without_denormals(values):
    tiny = np.finfo(values.dtype).smallest_normal
    return np.where(np.abs(values) < tiny, np.copysign(values.dtype.type(0), values), values)


def scaled(value, factor):
    """By AMD's documents: zeros and denormals are positive zero, what the factor makes denormal is zero of its sign."""
    value = np.where(np.abs(value) < np.finfo(value.dtype).smallest_normal, value.dtype.type(0), value)
    return without_denormals(value * value.dtype.type(factor))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "suffix"), [("float32", "f32"), ("float64", "f64"), ("float16", "f16")])
def test_output_modifiers(arch, dtype, suffix):
    """Before GFX12 they count only in waves that flush denormals and are not in IEEE mode."""
    registers = "v[8:9], v[2:3], v[4:5]" if dtype == "float64" else "v8, v2, v4"
    if dtype == "float16" and arch == "gfx1100":
        registers = "v8.l, v2.l, v4.l"
    ending = "" if dtype == "float64" or (dtype, arch) == ("float64", "gfx1201") else "_e64"
    name = f"v_mul_{suffix}{ending}"
    modes = [(FLUSHES + PLAIN, True, True), (KEEPS + PLAIN, False, True), (FLUSHES + IEEE, True, False)]
    if arch == "gfx1201":
        modes = [(FLUSHES, True, True), (KEEPS, False, True)]
    cases = [(mode, modifier) for mode in modes for modifier in FACTORS]
    bodies = [f"{mode[0]}{name} {registers} {modifier}" for mode, modifier in cases]
    a, b = floats(dtype, 1), floats(dtype, 2)
    values = [array.view(dtype).reshape(THREADS, -1)[:, 0] for array in (a, b)]
    made = run(arch, bodies, a, b, np.zeros(THREADS, np.uint64))
    for (mode, modifier), out, body in zip(cases, made, bodies, strict=True):
        _, flushes, is_plain = mode
        with np.errstate(all="ignore"):
            first, second = (without_denormals(value) if flushes else value for value in values)
            product = first * second
            counts = arch == "gfx1201" or (flushes and is_plain)
            wanted = scaled(product, FACTORS[modifier]) if counts else product
            wanted = without_denormals(wanted) if flushes else wanted
        seen = out.view(dtype).reshape(THREADS, -1)[:, 0]
        unsigned = f"u{seen.itemsize}"
        same = (seen.view(unsigned) == wanted.view(unsigned)) | (np.isnan(seen) & np.isnan(wanted))
        assert same.all(), (body, values[0][~same], values[1][~same], seen[~same], wanted[~same])


# ---- what does nothing ----


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_clamp_bit_of_a_dot_product_of_halves(arch):
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, (THREADS, 4)).astype(np.float16) for _ in range(2))
    c = np.zeros((THREADS, 2), np.float32)
    c[:, 0] = rng.integers(-8, 9, THREADS)
    arrays = [np.ascontiguousarray(array).view(np.uint64)[:, 0] for array in (a, b, c)]
    (out,) = run(arch, ["v_dot2_f32_f16 v8, v2, v4, v6 clamp"], *arrays)
    wanted = (a[:, :2].astype(np.float64) * b[:, :2]).sum(1) + c[:, 0]
    assert (wanted > 1).any()
    assert (wanted < 0).any()
    np.testing.assert_array_equal(out.view(np.float32)[::2], wanted.astype(np.float32))


@pytest.mark.parametrize("arch", RDNA)
def test_permlane64_in_a_wave_of_32_lanes(arch):
    arrays = [words(seed) for seed in range(3)]
    (out,) = run(arch, ["v_permlane64_b32 v8, v2"], *arrays)
    np.testing.assert_array_equal(out, arrays[2])
