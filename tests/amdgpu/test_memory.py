# SPDX-License-Identifier: MIT
"""Loads and stores against numpy: halves of registers, and the range checks of buffers."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import ARCHITECTURES, instruction_kernels

from rocpy.testing import amdgpu

THREADS = 128
EVERY_ARCHITECTURE = pytest.mark.parametrize("arch", ARCHITECTURES)


def is_gfx9(arch):
    return arch.startswith("gfx9")


def launch(code, number, *arrays):
    amdgpu.run(code, f"k{number}", 1, THREADS, *arrays)


def slots(seed):
    return np.random.default_rng(seed).integers(0, 1 << 64, THREADS, dtype=np.uint64)


# ---- loads of 8 and 16 bits into half of a register ----

SMALL = {  # name on GFX9, and after: type of the value, its half
    ("ubyte_d16", "d16_u8"): (np.uint8, 0),
    ("ubyte_d16_hi", "d16_hi_u8"): (np.uint8, 1),
    ("sbyte_d16", "d16_i8"): (np.int8, 0),
    ("sbyte_d16_hi", "d16_hi_i8"): (np.int8, 1),
    ("short_d16", "d16_b16"): (np.uint16, 0),
    ("short_d16_hi", "d16_hi_b16"): (np.uint16, 1),
}
SMALL_SHARED = {
    "u8_d16": (np.uint8, 0),
    "u8_d16_hi": (np.uint8, 1),
    "i8_d16": (np.int8, 0),
    "i8_d16_hi": (np.int8, 1),
    "u16_d16": (np.uint16, 0),
    "u16_d16_hi": (np.uint16, 1),
}


def small_loads(arch):
    """Return bodies that load the low bytes of the first array into a register with the third, and their cases."""
    if is_gfx9(arch):
        add = "v_add_co_u32 v10, vcc, s8, v1\n v_mov_b32 v11, s9\n v_addc_co_u32 v11, vcc, 0, v11, vcc\n"
        store, write, read, resource = "scratch_store_dword", "ds_write_b64", "ds_read", 0
    else:
        add = "v_add_co_u32 v10, vcc_lo, s8, v1\n v_mov_b32 v11, s9\n v_add_co_ci_u32 v11, vcc_lo, 0, v11, vcc_lo\n"
        store, write, read, resource = "scratch_store_b32", "ds_store_b64", "ds_load", 3 << 28
    buffer = (
        f"s_mov_b64 s[16:17], s[8:9]\n s_mov_b32 s18, {8 * THREADS}\n s_mov_b32 s19, {resource}\n s_mov_b32 s20, 0\n"
    )
    bodies, cases = [], []
    for names, case in SMALL.items():
        name = names[0] if is_gfx9(arch) else names[1]
        bodies += [
            f"global_load_{name} v8, v1, s[8:9]",
            f"{add} flat_load_{name} v8, v[10:11]",
            f"{buffer} buffer_load_{name} v8, v1, s[16:19], s20 offen",
            f"s_mov_b32 s20, 4\n {store} off, v2, s20\n scratch_load_{name} v8, off, s20",
        ]
        cases += [case] * 4
    for name, case in SMALL_SHARED.items():
        bodies.append(f"{write} v1, v[2:3]\n {read}_{name} v8, v1")
        cases.append(case)
    return bodies, cases


def with_error_correction(code, setting):
    """Return the code object as one that was compiled for a device with SRAM ECC on or off."""
    flags = int.from_bytes(code[48:52], "little") & ~0xC00 | setting << 10
    return code[:48] + flags.to_bytes(4, "little") + code[52:]


@EVERY_ARCHITECTURE
def test_loads_into_half_of_a_register(arch):
    """With SRAM ECC the other half becomes zero, else it is kept."""
    bodies, cases = small_loads(arch)
    code = instruction_kernels(bodies, arch, ".amdhsa_private_segment_fixed_size 16")
    variants = [(code, is_gfx9(arch))]
    if is_gfx9(arch):
        variants += [(with_error_correction(code, 3), True), (with_error_correction(code, 2), False)]
    a, b, c = slots(1), slots(2), slots(3)
    for variant, has_error_correction in variants:
        for number, (dtype, half) in enumerate(cases):
            out = np.zeros(THREADS, np.uint64)
            launch(variant, number, a, b, c, out)
            loaded = a.view(dtype)[:: 8 // np.dtype(dtype).itemsize].astype(np.int64).astype(np.uint16)
            wanted = (np.zeros_like(c) if has_error_correction else c).astype(np.uint32).view(np.uint16).reshape(-1, 2)
            wanted[:, half] = loaded
            np.testing.assert_array_equal(
                out.astype(np.uint32), wanted.view(np.uint32)[:, 0], err_msg=f"{bodies[number]} {has_error_correction}"
            )


# ---- ranges of buffers ----

STRIDE = 24


def is_inside(arch, mode, records, index, offset, scalar, end):
    """Whether the bytes before `end` of an access may be touched, by AMD's documents of the instruction sets.

    `mode` is None for an access with no index to a buffer with no stride, else OOB_SELECT of a buffer of records.
    """
    if is_gfx9(arch):
        return offset + end + scalar <= records if mode is None else index < records
    if mode is None or mode == 3:
        return offset + end + scalar <= records
    return [index < records and offset + end <= STRIDE, index < records, records != 0][mode]


def resource(mode, records):
    stride, select = (0, 3) if mode is None else (STRIDE, mode)
    return (
        f"s_mov_b32 s16, s8\n s_or_b32 s17, s9, {stride << 16}\n s_mov_b32 s18, {records}\n"
        f" s_mov_b32 s19, {select << 28}\n"
    )


def names(arch, words):
    return f"dword{'' if words == 1 else f'x{words}'}" if is_gfx9(arch) else f"b{32 * words}"


def registers(first, words):
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def ranges(arch):
    """Return cases: OOB_SELECT, records, scalar offset, offset of the instruction, and each lane's index and offset."""
    rng = np.random.default_rng(7)
    lanes = np.arange(THREADS, dtype=np.uint32)
    none = np.zeros(THREADS, np.uint32)
    size = 8 * THREADS
    near = (size - 64 + rng.integers(-40, 40, THREADS)).astype(np.uint32)
    before = np.where(lanes % 3 == 0, np.uint32((1 << 32) - 4) - 4 * (lanes % 5), lanes * 4).astype(np.uint32)
    found = [
        (None, size - 64, 0, 0, none, near),
        (None, size - 63, 0, 16, none, near - np.uint32(16)),
        (None, size - 62, 12, 0, none, near),
        (None, size - 61, 8, 4, none, near),
        (None, 0, 0, 0, none, lanes * 4),
        (None, size, 0, 0, none, before),
    ]
    spread, within = (lanes % 43).astype(np.uint32), (lanes % 7 * 4).astype(np.uint32)
    for mode in range(1) if is_gfx9(arch) else range(4):
        found += [(mode, 20, 0, 0, spread if mode < 2 else lanes % 20, within), (mode, 20, 4, 8, lanes % 21, within)]
    return found if is_gfx9(arch) else [*found, (3, 20 * STRIDE, 4, 8, lanes % 20, within)]


def expected_bytes(arch, case, words):
    """For each lane: the address of its access in the buffer, and how many words it reaches."""
    mode, records, scalar, constant, index, offset = case
    address, reached = [], []
    for lane in range(THREADS):
        at = (int(offset[lane]) + constant) % (1 << 32)
        inside = [is_inside(arch, mode, records, int(index[lane]), at, scalar, 4 * k + 4) for k in range(words)]
        address.append(scalar + at + (STRIDE * int(index[lane]) if mode is not None else 0))
        reached.append(inside.index(False) if False in inside else words)
    return address, reached


def instruction(arch, case, kind, words, data):
    mode, records, scalar, constant, _, _ = case
    address = "v4" if mode is None else "v[4:5]"
    form = "offen" if mode is None else "idxen offen"
    access = f"buffer_{kind}_{names(arch, words)} {registers(data, words)}, {address}, s[16:19], s20"
    return f"{resource(mode, records)} s_mov_b32 s20, {scalar}\n {access} {form} offset:{constant}"


def addresses(case):
    mode, _, _, _, index, offset = case
    first, second = (offset, index) if mode is None else (index, offset)
    return first.astype(np.uint64) | second.astype(np.uint64) << np.uint64(32)


@EVERY_ARCHITECTURE
@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_each_word_of_a_buffer_load_is_checked_by_itself(arch, words):
    cases = ranges(arch)
    fill = "".join(f"v_mov_b32 v{16 + k}, -1\n " for k in range(4))
    bodies = []
    for case in cases:
        load = fill + instruction(arch, case, "load", words, 16)
        bodies += [f"{load}\n v_mov_b32 v8, v{k}\n v_mov_b32 v9, v{k + 1}" for k in (16, 18)]
    code = instruction_kernels(bodies, arch)
    memory, c = slots(1), slots(3)
    raw = memory.view(np.uint8)
    for number, case in enumerate(cases):
        wanted = np.full((THREADS, 4), 0xFFFFFFFF, np.uint32)
        for lane, (at, reached) in enumerate(zip(*expected_bytes(arch, case, words), strict=True)):
            wanted[lane, :words] = 0
            wanted[lane, :reached] = raw[at : at + 4 * reached].copy().view(np.uint32)
        out = [np.zeros(THREADS, np.uint64) for _ in range(2)]
        for half in range(2):
            launch(code, 2 * number + half, memory, addresses(case), c, out[half])
        made = np.concatenate([half.view(np.uint32).reshape(-1, 2) for half in out], axis=1)
        np.testing.assert_array_equal(made, wanted, err_msg=f"case {number}")


@EVERY_ARCHITECTURE
@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_each_word_of_a_buffer_store_is_checked_by_itself(arch, words):
    cases = ranges(arch)
    data = "v_mov_b32 v16, v6\n v_mov_b32 v17, v7\n v_not_b32 v18, v6\n v_not_b32 v19, v7\n "
    code = instruction_kernels([data + instruction(arch, case, "store", words, 16) for case in cases], arch)
    c = slots(3)
    pair = c.view(np.uint32).reshape(-1, 2)
    stored = np.concatenate([pair, ~pair], axis=1)
    for number, case in enumerate(cases):
        memory, out = slots(1), np.zeros(THREADS, np.uint64)
        wanted = memory.view(np.uint8).copy()
        for lane, (at, reached) in enumerate(zip(*expected_bytes(arch, case, words), strict=True)):
            wanted[at : at + 4 * reached] = stored[lane, :reached].copy().view(np.uint8)
        launch(code, number, memory, addresses(case), c, out)
        np.testing.assert_array_equal(memory.view(np.uint8), wanted, err_msg=f"case {number}")
