# SPDX-License-Identifier: MIT
"""Loads and stores against numpy: halves of registers, and the range checks of buffers."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import ARCHITECTURES, instruction_kernels

from rocpy.errors import KernelError, KernelIndexError
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


# ---- loads into shared memory ----

SHARED_TYPES = {"dword": np.uint32, "ubyte": np.uint8, "sbyte": np.int8, "ushort": np.uint16, "sshort": np.int16}
CDNA = pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if is_gfx9(arch)])
FILL = 0x5A5A5A5A


def shared_load(arch, kind, form, words):
    """Return a body: lanes load at the offsets of v4 into shared memory, and each reads back what its place holds.

    M0 is 32 bytes and more for the second wave; the instruction's offset of 8 counts on both sides.
    """
    apart = 4 if words == 1 else 16
    access = {
        "global": f"global_load_{kind} v4, s[8:9] offset:8 lds"
        if arch == "gfx90a"
        else f"global_load_lds_{kind} v4, s[8:9] offset:8",
        "buffer": f"buffer_load_{kind} v4, s[16:19], s20 offen offset:8 lds",
    }[form]
    return f"""
  v_mov_b32 v14, {FILL}
  v_mov_b32 v15, v14
  v_lshlrev_b32 v13, 4, v0
  ds_write_b64 v13, v[14:15]
  ds_write_b64 v13, v[14:15] offset:8
  ds_write_b64 v13, v[14:15] offset:64
  {resource(None, 8 * THREADS - 64)} s_mov_b32 s20, 0
  v_readfirstlane_b32 s21, v0
  s_mul_i32 s21, s21, {apart}
  s_add_u32 s21, s21, 32
  s_mov_b32 m0, s21
  s_mov_b64 s[22:23], exec
  s_mov_b32 exec_lo, 0xffff7fff
  {access}
  s_waitcnt vmcnt(0)
  s_mov_b64 exec, s[22:23]
  v_lshlrev_b32 v13, {2 if words == 1 else 4}, v0
  ds_read_b32 v8, v13 offset:40
  v_mov_b32 v9, 0
  """ + (f"ds_read_b64 v[8:9], v13 offset:{40 if words < 4 else 48}" if words > 1 else "")


@CDNA
@pytest.mark.parametrize("form", ["global", "buffer"])
def test_loads_into_shared_memory(arch, form):
    kinds = dict.fromkeys(SHARED_TYPES, 1) | ({"dwordx3": 3, "dwordx4": 4} if arch == "gfx950" else {})
    code = instruction_kernels([shared_load(arch, kind, form, words) for kind, words in kinds.items()], arch)
    memory, rng = slots(1), np.random.default_rng(2)
    raw = memory.view(np.uint8)
    offsets = rng.permutation(THREADS).astype(np.uint64) * 8 % np.uint64(8 * THREADS - 32)
    for number, (kind, words) in enumerate(kinds.items()):
        dtype = np.dtype(SHARED_TYPES.get(kind, np.uint32))
        out = np.zeros(THREADS, np.uint64)
        launch(code, number, memory, offsets, slots(3), out)
        wanted = np.full((THREADS, 4), FILL, np.uint32)
        for lane, offset in enumerate(offsets.astype(int) + 8):
            if lane % 64 == 15:
                continue  # not active
            for k in range(words):
                at = offset + 4 * k
                outside = form == "buffer" and at + dtype.itemsize > 8 * THREADS - 64
                value = 0 if outside else raw[at : at + dtype.itemsize].copy().view(dtype)[0].astype(np.int64)
                wanted[lane, k] = np.int64(value).astype(np.uint32)
        first = 2 if words == 4 else 0
        seen = out.view(np.uint32).reshape(-1, 2)
        shown = 1 if words == 1 else 2
        np.testing.assert_array_equal(seen[:, :shown], wanted[:, first : first + shown], err_msg=kind)


def test_a_load_outside_shared_memory_is_stopped():
    body = "s_mov_b32 m0, 0x1000\n global_load_lds_dword v4, s[8:9]"
    with pytest.raises(KernelIndexError, match="shared memory"):
        launch(instruction_kernels([body], "gfx942"), 0, *(np.zeros(THREADS, np.uint64) for _ in range(4)))


# ---- transposed reads of shared memory ----


def elements_of(lines, bits):
    """Return the elements of each line of bytes, of so many bits, as numbers."""
    flat = np.unpackbits(lines, axis=1, bitorder="little").reshape(len(lines), -1, bits)
    return flat @ (1 << np.arange(bits))


@pytest.mark.parametrize(("name", "bits", "size"), [("b64", 16, 8), ("b64", 8, 8), ("b64", 4, 8), ("b96", 6, 12)])
def test_transposed_reads(name, bits, size):
    """Each 16 lanes read lines of 16 elements, at any addresses, and lane c gets column c."""
    registers, last = ("v[8:9]", "") if size == 8 else ("v[8:10]", "v_mov_b32 v8, v10")
    read = f"ds_write_b64 v1, v[2:3]\n s_barrier\n ds_read_{name}_tr_b{bits} {registers}, v4"
    code = instruction_kernels([read, f"{read}\n {last}"], "gfx950")
    memory = slots(1)
    raw = memory.view(np.uint8)
    addresses = np.random.default_rng(4).permutation(THREADS - 2).astype(np.uint64) * np.uint64(8)
    addresses = np.resize(addresses, THREADS)
    out = [np.zeros(THREADS, np.uint64) for _ in range(2)]
    for number in range(2):
        launch(code, number, memory, addresses, slots(3), out[number])
    seen = np.concatenate([out[0].view(np.uint32).reshape(-1, 2), out[1].view(np.uint32).reshape(-1, 2)[:, :1]], axis=1)
    seen = elements_of(np.ascontiguousarray(seen[:, : size // 4]).view(np.uint8), bits)
    lanes = np.stack([raw[at : at + size] for at in addresses.astype(int)])
    for row in range(0, THREADS, 16):
        matrix = elements_of(lanes[row : row + 16], bits).reshape(-1, 16)
        np.testing.assert_array_equal(seen[row : row + 16], matrix.T, err_msg=f"{bits} {row}")


def test_a_transposed_read_takes_all_lanes():
    body = "s_mov_b64 exec, 0xff\n ds_read_b64_tr_b16 v[8:9], v1\n s_mov_b64 exec, -1"
    with pytest.raises(KernelError, match="all lanes, and 8 of 64 are active"):
        launch(instruction_kernels([body], "gfx950"), 0, *(np.zeros(THREADS, np.uint64) for _ in range(4)))
