# SPDX-License-Identifier: MIT
"""Matrix instructions for the emulator's tests: their operands, where elements lie, and a kernel around each.

Layouts are those of AMD's documents: "General input and output layout" of the CDNA 3 and 4 instruction sets, the WMMA
chapters of RDNA 3 and 4.
"""

import functools
import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from amdgpu_code import code_object

# After result and rows x columns: the name on MI200, then on MI300 what follows the columns.
MFMA = """
f32_32x32x1f32/1_2b_f32 f32_16x16x1f32/1_4b_f32 f32_4x4x1f32/1_16b_f32 f32_32x32x2f32/2_f32 f32_16x16x4f32/4_f32
f32_32x32x4f16/4_2b_f16 f32_16x16x4f16/4_4b_f16 f32_4x4x4f16/4_16b_f16 f32_32x32x8f16/8_f16 f32_16x16x16f16/16_f16
f32_32x32x4bf16_1k/4_2b_bf16 f32_16x16x4bf16_1k/4_4b_bf16 f32_4x4x4bf16_1k/4_16b_bf16 f32_32x32x8bf16_1k/8_bf16
f32_16x16x16bf16_1k/16_bf16 f32_32x32x2bf16 f32_16x16x2bf16 f32_4x4x2bf16 f32_32x32x4bf16 f32_16x16x8bf16
i32_32x32x4i8/4_2b_i8 i32_16x16x4i8/4_4b_i8 i32_4x4x4i8/4_16b_i8 i32_32x32x8i8 i32_16x16x16i8 i32_32x32x16_i8
i32_16x16x32_i8 i32_16x16x64_i8 i32_32x32x32_i8 f32_16x16x32_f16 f32_32x32x16_f16 f32_16x16x32_bf16 f32_32x32x16_bf16
f32_16x16x32_fp8_fp8 f32_16x16x32_fp8_bf8 f32_16x16x32_bf8_fp8 f32_16x16x32_bf8_bf8
f32_32x32x16_fp8_fp8 f32_32x32x16_fp8_bf8 f32_32x32x16_bf8_fp8 f32_32x32x16_bf8_bf8
f32_16x16x8_xf32 f32_32x32x4_xf32 f64_16x16x4f64/4_f64 f64_4x4x4f64/4_4b_f64
"""
WMMA = """
f32_16x16x16_f16 f32_16x16x16_bf16 f16_16x16x16_f16 bf16_16x16x16_bf16 i32_16x16x16_iu8 i32_16x16x16_iu4
i32_16x16x32_iu4 f32_16x16x16_fp8_fp8 f32_16x16x16_fp8_bf8 f32_16x16x16_bf8_fp8 f32_16x16x16_bf8_bf8
"""
BITS = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "xf32": 32,
    "f64": 64,
    "fp8": 8,
    "bf8": 8,
    "i8": 8,
    "iu8": 8,
    "iu4": 4,
    "i32": 32,
}
# Names of MI200 do not tell how many blocks there are.
BLOCKS = {"32x32x1": 2, "16x16x1": 4, "4x4x1": 16, "4x4x4": 16, "4x4x2": 16, "32x32x2bf": 2, "16x16x2": 4}
BLOCKS |= {"32x32x4f16": 2, "16x16x4f16": 4, "32x32x4bf16_1k": 2, "16x16x4bf16_1k": 4, "32x32x4i8": 2, "16x16x4i8": 4}
BLOCKS |= {"4x4x4f64": 4}


@dataclass(frozen=True)
class Form:
    """An instruction and its matrices: `blocks` products of `rows` x `depth` by `depth` x `columns`."""

    name: str
    a: str
    b: str
    result: str
    rows: int
    columns: int
    depth: int
    blocks: int

    @property
    def is_wmma(self):
        return self.name.startswith("v_wmma")

    def numpy_type(self, element, arch):
        fnuz = "fnuz" if arch == "gfx942" else ""
        known = {
            "f16": "float16",
            "bf16": ml_dtypes.bfloat16,
            "f32": "float32",
            "xf32": "float32",
            "f64": "float64",
            "i32": "int32",
        }
        known |= {"i8": "int8", "iu8": "uint8", "iu4": "uint8"}
        known["fp8"] = ml_dtypes.float8_e4m3fnuz if fnuz else ml_dtypes.float8_e4m3fn
        known["bf8"] = ml_dtypes.float8_e5m2fnuz if fnuz else ml_dtypes.float8_e5m2
        return np.dtype(known[element])


def _blocks(shape, kind):
    told = re.search(r"_(\d+)b_", kind)
    if told:
        return int(told[1])
    return next((BLOCKS[key] for key in (shape + kind, shape + kind[:2], shape) if key in BLOCKS), 1)


def _forms(prefix, text):
    result, rest = text.split("_", 1)
    names = rest.split("/")
    rows, columns, depth, kind = re.match(r"(\d+)x(\d+)x(\d+)(.*)", names[0]).groups()
    types = re.findall(r"xf32|bf16|bf8|fp8|f16|f32|f64|iu8|iu4|i8", kind)
    spellings = [names[0], *(f"{rows}x{columns}x{other}" for other in names[1:])]
    blocks = _blocks(f"{rows}x{columns}x{depth}", kind)
    for spelling in spellings:
        name = f"{prefix}{result}_{spelling}"
        yield Form(name, types[0], types[-1], result, int(rows), int(columns), int(depth), blocks)


FORMS = [form for text in MFMA.split() for form in _forms("v_mfma_", text)]
FORMS += [form for text in WMMA.split() for form in _forms("v_wmma_", text)]


# ---- where elements lie: arrays of lanes and items, in the shape of the matrix ----


def lanes_of(arch):
    return 64 if arch.startswith("gfx9") else 32


def input_positions(form, arch, extent):
    """Return lane and item of the element of block b, row or column i, depth k, each of shape (blocks, extent, k)."""
    b, i, k = np.indices((form.blocks, extent, form.depth))
    if arch.startswith("gfx9"):
        each = form.depth * extent * form.blocks // 64
        return i + extent * (b + form.blocks * (k // each)), k % each
    if arch == "gfx1100":
        return i, k
    each = form.depth // 2
    return i + 16 * (k // each), k % each


def result_positions(form, arch):
    """Return lane and item of each element of the result, of shape (blocks, rows, columns)."""
    b, i, j = np.indices((form.blocks, form.rows, form.columns))
    if arch == "gfx1100":
        return j + 16 * (i % 2), i // 2
    if arch == "gfx1201":
        return j + 16 * (i // 8), i % 8
    height = 1 if form.result == "f64" else 4
    blocks_each = -(-64 * height // (form.rows * form.columns))
    rows_each = 64 // blocks_each // form.columns
    groups = form.rows // (height * rows_each)
    lane = j + form.columns * (i // height % rows_each + rows_each * (b % blocks_each))
    return lane, i % height + height * (i // (height * rows_each) + groups * (b // blocks_each))


def words_of(form, arch, operand):
    """Return how many registers an operand has."""
    if operand == "d":
        if arch == "gfx1100":
            return 8
        return BITS[form.result] * form.rows * form.columns * form.blocks // lanes_of(arch) // 32
    repeats = 2 if arch == "gfx1100" else 1
    return repeats * BITS[getattr(form, operand)] * form.rows * form.depth * form.blocks // lanes_of(arch) // 32


def pack(elements, positions, bits, words, lanes, apart=None, first=0):
    """Return registers, of shape (words, lanes), that hold the elements' bits at their places."""
    registers = np.zeros((words, lanes), np.uint32)
    raw = np.ascontiguousarray(elements).view(f"u{elements.itemsize}").astype(np.uint64)
    lane, item = positions
    at = item * (apart or bits) + first
    np.bitwise_or.at(registers, (at // 32, lane), (raw << (at % 32).astype(np.uint64)).astype(np.uint32))
    if bits == 64:
        registers[at // 32 + 1, lane] = (raw >> np.uint64(32)).astype(np.uint32)
    return registers


def unpack(registers, positions, dtype, bits, apart=None, first=0):
    """Return the elements that registers hold at their places."""
    lane, item = positions
    at = item * (apart or bits) + first
    raw = registers[at // 32, lane].astype(np.uint64)
    if bits == 64:
        raw |= registers[at // 32 + 1, lane].astype(np.uint64) << np.uint64(32)
    else:
        raw = raw >> (at % 32).astype(np.uint64) & np.uint64((1 << bits) - 1)
    return raw.astype(f"u{dtype.itemsize}").view(dtype)


# ---- kernels ----

_KERNEL = """
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
  {load} s[8:15], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
{body}
  s_endpgm
.section .rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_next_free_vgpr {registers}
  .amdhsa_next_free_sgpr 40
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 32
  .amdhsa_float_denorm_mode_32 3
  {settings}
.end_amdhsa_kernel
"""
A, B, C = 16, 32, 64


def names_of(first, words, kind="v"):
    return f"{kind}{first}" if words == 1 else f"{kind}[{first}:{first + words - 1}]"


def instruction(form, arch, modifiers="", accumulators=False, constant=None):
    """Return the instruction's text: factors in v[16:] and v[32:], sums and results in v[64:] or in a[64:]."""
    a, b, d = (words_of(form, arch, operand) for operand in ("a", "b", "d"))
    result = names_of(C, d, "a" if accumulators else "v")
    third = result if constant is None else constant
    return f"{form.name} {result}, {names_of(A, a)}, {names_of(B, b)}, {third} {modifiers}".strip()


def _moves(arch, word, first, words, base):
    add = "v_add_u32" if arch.startswith("gfx9") else "v_add_nc_u32"
    for k in range(words):
        yield f"  {add} v2, 0x{4 * lanes_of(arch) * k:x}, v1"
        yield "  " + word.format(first + k, base)


def body(form, arch, text):
    """Return the text of a kernel that fills the registers, runs the instruction and stores what it gave."""
    is_gfx9 = arch.startswith("gfx9")
    load = "global_load_dword v{}, v2, s[{}]" if is_gfx9 else "global_load_b32 v{}, v2, s[{}]"
    store = "global_store_dword v2, v{}, s[{}]" if is_gfx9 else "global_store_b32 v2, v{}, s[{}]"
    a, b, d = (words_of(form, arch, operand) for operand in ("a", "b", "d"))
    lines = [*_moves(arch, load, A, a, "8:9"), *_moves(arch, load, B, b, "10:11"), *_moves(arch, load, C, d, "12:13")]
    in_accumulators = range(d) if " a[" in text else range(0)
    moves = [f"v_accvgpr_write_b32 a{C + k}, v{C + k}" for k in in_accumulators]
    back = [f"v_accvgpr_read_b32 v{C + k}, a{C + k}" for k in in_accumulators]
    return "\n".join([*lines, *moves, text, *back, *_moves(arch, store, C, d, "14:15")])


@functools.cache
def kernels(arch, pairs):
    """Return the code object of kernels k0, k1, ... of pairs of a form and the instruction's text."""
    is_gfx9 = arch.startswith("gfx9")
    words = {
        "load": "s_load_dwordx8" if is_gfx9 else "s_load_b256",
        "registers": 256 if is_gfx9 else 128,
        "settings": ".amdhsa_accum_offset 128" if is_gfx9 else "",
    }
    parts = [_KERNEL.format(name=f"k{k}", body=body(form, arch, text), **words) for k, (form, text) in enumerate(pairs)]
    return code_object("\n".join(parts), arch)
