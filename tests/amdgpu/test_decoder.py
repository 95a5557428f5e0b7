# SPDX-License-Identifier: MIT
"""The decoder against LLVM: what it prints, LLVM's assembler turns into the bytes that it was given."""

import importlib.util
import re

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

import emulator_table
from amdgpu_code import ARCHITECTURES, compiled, encodings, text_section
from amdgpu_kernels import KERNELS

from rocpy.errors import UnsupportedError
from rocpy.testing import amdgpu

# Forms that the tables of instructions do not tell: modifiers, lanes, constants, cache policies.
FORMS = """
s_add_u32 s4, s5, 0x12345678
s_mov_b64 s[4:5], 0.5
s_mov_b32 m0, -16
s_and_b64 vcc, exec, s[6:7]
s_or_b64 s[10:11], ttmp[4:5], 64
s_load_dwordx4 s[8:11], s[4:5], s7
s_load_dword s8, s[4:5], -0x10
s_load_b128 s[8:11], s[4:5], s7 offset:0x10
s_setreg_imm32_b32 hwreg(1, 4, 4), 15
s_getreg_b32 s3, hwreg(1, 0, 32)
v_add_f32_e64 v1, -v2, |v3|
v_add_f32_e64 v1, s2, -4.0 clamp
v_mul_f32_e64 v1, v2, 0.15915494 mul:2
v_mul_f32_e64 v1, v2, v3 div:2
v_fma_f64 v[2:3], -v[4:5], |v[6:7]|, 2.0
v_mov_b32_e32 v1, 0x3f9df3b6
v_add_u32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xa bank_mask:0x5
v_add_f32_dpp v1, -v2, |v3| row_shr:4 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_mov_b32_dpp v1, v2 row_shl:15 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_ror:3 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_bcast:15 row_mask:0xa bank_mask:0xf
v_mov_b32_dpp v1, v2 row_bcast:31 row_mask:0xc bank_mask:0xf
v_mov_b32_dpp v1, v2 wave_shr:1 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_newbcast:5 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_share:5 row_mask:0xf bank_mask:0xf fi:1
v_mov_b32_dpp v1, v2 row_xmask:9 row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0]
v_add_f32_e64_dpp v1, v2, v3 clamp row_shr:1 row_mask:0xf bank_mask:0xf
v_add_u16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:WORD_0
v_mov_b32_sdwa v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1
v_cmp_eq_u32_sdwa s[6:7], v2, v3 src0_sel:WORD_1 src1_sel:DWORD
v_pk_fma_f16 v1, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,1,0]
v_pk_mul_f32 v[2:3], v[4:5], s[6:7] op_sel_hi:[1,0]
v_fma_mix_f32 v1, v2, -v3, |v4| op_sel:[0,1,0] op_sel_hi:[0,1,0]
v_fma_f16 v1, v2, v3, v4 op_sel:[1,0,0,1]
v_bitop3_b32 v1, v2, s3, v4 bitop3:0x6c
v_bitop3_b16 v1, v2, v3, v4 bitop3:0xd1 op_sel:[0,1,0,1]
ds_read2_b64 v[4:7], v1 offset0:3 offset1:7
ds_load_2addr_stride64_b32 v[4:5], v1 offset0:3 offset1:7
ds_read_b128 v[4:7], v1 offset:4096
ds_swizzle_b32 v1, v2 offset:0x1e0
ds_add_rtn_u32 v1, v2, v3 offset:8
global_load_dwordx4 v[4:7], v[2:3], off offset:-16
global_load_dword v4, v2, s[6:7] offset:64 sc0 nt sc1
global_load_dword v4, v2, s[6:7] offset:64 glc slc
global_load_b32 v4, v2, s[6:7] offset:64 th:TH_LOAD_NT scope:SCOPE_DEV
global_atomic_add v1, v2, v3, s[6:7] sc0
global_atomic_add_u32 v1, v2, v3, s[6:7] th:TH_ATOMIC_RETURN
scratch_load_dword v1, v2, s3 offset:4
scratch_load_dword v1, off, s3 offset:4
scratch_store_b32 off, v1, s3 offset:4
buffer_load_dword v1, v2, s[4:7], 0 offen offset:4092
buffer_load_dwordx4 v[4:7], v[2:3], s[4:7], s3 idxen offen
buffer_load_b32 v1, v2, s[4:7], null offen offset:16
buffer_load_dword v2, s[4:7], s3 offen offset:8 lds
buffer_load_ushort off, s[4:7], 0 lds
buffer_load_dwordx4 v[2:3], s[4:7], s3 idxen offen lds
global_load_dword v[2:3], off offset:8 lds
global_load_sbyte v2, s[6:7] lds
global_load_lds_dword v[2:3], off offset:8
global_load_lds_dwordx4 v2, s[6:7]
scratch_load_dword off, s3 lds
scratch_load_lds_ushort v2, off offset:4
ds_read_b64_tr_b16 v[2:3], v4 offset:8
ds_read_b96_tr_b6 v[3:5], v4
s_set_gpr_idx_on s3, 0x9
s_set_gpr_idx_mode 0x2
s_set_gpr_idx_idx m0
s_movrels_b64 s[2:3], s[4:5]
s_movrelsd_2_b32 s1, s2
v_movrels_b32 v1, v2
v_movrelsd_2_b32 v1, v2
v_swaprel_b32 v1, v2
flat_store_dword v[2:3], v4 offset:8
v_dual_add_f32 v0, v2, v3 :: v_dual_mul_f32 v1, s4, v5
v_dual_fmaak_f32 v0, v2, v3, 0x42 :: v_dual_mov_b32 v1, 0x42
v_dual_cndmask_b32 v0, v2, v3 :: v_dual_max_num_f32 v1, v4, v5
v_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15] cbsz:1 abid:1 blgp:1
v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]
v_readlane_b32 s3, v4, s5
v_writelane_b32 v4, s3, m0
v_permlanex16_b32 v1, v2, s3, s4 op_sel:[1,0]
v_permlanex16_b32 v1, v2, -1, -1
s_barrier_signal -1
s_barrier_wait -1
s_waitcnt vmcnt(0) lgkmcnt(0)
s_wait_loadcnt 0x3
""".strip().splitlines()


# The assembler drops cache policies that an instruction has no use for.
CACHE = re.compile(r" (glc|slc|dlc|scc|sc0|sc1|nt|th:\w+|scope:\w+)\b")


def check(arch, pieces):
    texts = [amdgpu.decode(arch, piece)[0] for piece in pieces]
    again = encodings([text or "undecoded" for _, _, text in texts], arch)
    for piece, (_, length, text), made in zip(pieces, texts, again, strict=True):
        assert made is not None, f"{arch}: {piece[:length].hex()} is printed as {text!r}, which LLVM does not take"
        assert made[:length] == piece[:length], (
            f"{arch}: {piece[:length].hex()} is printed as {text!r}, which is {made[:length].hex()}"
        )


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_forms(arch):
    made = [code for code in encodings(FORMS, arch) if code is not None]
    assert len(made) > 20
    check(arch, made)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiled_code(arch, kernel):
    text = text_section(compiled(KERNELS[kernel], arch))
    found = amdgpu.decode(arch, text)
    assert all(text for _, _, text in found), "an instruction of a compiled kernel is unknown"
    assert sum(length for _, length, _ in found) == len(text)
    check(arch, [text[offset : offset + length] for offset, length, _ in found])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_instruction_is_one_of_llvm(arch):
    """Random fields around every number of the tables: where both sides know the bytes, they agree."""
    rng = np.random.default_rng(5)
    pieces = []
    for words in rng.integers(0, 1 << 32, (4000, 4), dtype=np.uint32):
        piece = words.tobytes()
        _, length, text = amdgpu.decode(arch, piece)[0]
        if text and not text.startswith("v_pk_fmac"):  # whose constants LLVM writes as literals
            pieces.append((piece, length, text))
    assert len(pieces) > 500
    again = encodings([text for _, _, text in pieces], arch)
    taken = [(piece, length, text, made) for (piece, length, text), made in zip(pieces, again, strict=True) if made]
    assert len(taken) > 200
    names = [(CACHE.sub("", text), CACHE.sub("", amdgpu.decode(arch, made)[0][2])) for _, _, text, made in taken]
    assert all(first == second for first, second in names), [pair for pair in names if pair[0] != pair[1]][:5]


def test_what_is_no_code():
    assert amdgpu.decode("gfx942", b"\xff" * 8) == [(0, 4, ""), (4, 4, "")]
    assert amdgpu.decode("gfx942", b"") == []
    with pytest.raises(UnsupportedError, match="NoBinaryForGpu"):
        amdgpu.decode("gfx803", b"\0" * 4)


# An instruction, and for each of its pairs of registers the byte and the bit of the number's lowest bit.
TUPLES = {
    "v_add_f64 v[2:3], v[4:5], v[6:7]": [(0, 0), (4, 0), (5, 1)],
    "v_lshlrev_b64 v[2:3], v4, v[6:7]": [(0, 0), (5, 1)],
    "v_pk_add_f32 v[2:3], v[4:5], v[6:7]": [(0, 0), (4, 0), (5, 1)],
    "v_cvt_f64_f32_e32 v[2:3], v4": [(2, 1)],
    "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]": [(0, 0), (4, 0), (5, 1), (6, 2)],
    "global_load_dwordx4 v[4:7], v[2:3], off": [(4, 0), (7, 0)],
    "global_store_dwordx2 v[2:3], v[4:5], off": [(4, 0), (5, 0)],
    "flat_atomic_add_x2 v[2:3], v[4:5]": [(4, 0), (5, 0)],
    "scratch_load_dwordx3 v[4:6], off, s3": [(7, 0)],
    "buffer_load_dwordx2 v[4:5], v[2:3], s[4:7], s3 idxen offen": [(4, 0), (5, 0)],
    "ds_read_b128 v[4:7], v3": [(7, 0)],
    "ds_write2_b64 v3, v[4:5], v[6:7]": [(5, 0), (6, 0)],
}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_pairs_of_registers_begin_with_an_even_one(arch):
    """LLVM's assembler takes no odd ones there, and the decoder none either."""
    tried = 0
    for (text, places), code in zip(TUPLES.items(), encodings(list(TUPLES), arch), strict=True):
        if code is None:
            continue
        assert amdgpu.decode(arch, code)[0][2], text
        for byte, bit in places:
            changed = bytearray(code)
            changed[byte] ^= 1 << bit
            assert amdgpu.decode(arch, bytes(changed))[0][2] == "", (text, byte)
            tried += 1
    assert tried >= 20
    odd = ["v_add_f64 v[3:4], v[4:5], v[6:7]", "ds_read_b128 v[5:8], v3", "ds_read_b96_tr_b6 v[3:5], v4"]
    assert [made is not None for made in encodings(odd, arch)] == [False, False, arch == "gfx950"]


def test_pairs_of_registers_on_rdna():
    (code,) = encodings(["v_add_f64 v[3:4], v[5:6], v[7:8]"], "gfx1100")
    assert amdgpu.decode("gfx1100", code)[0][2] == "v_add_f64 v[3:4], v[5:6], v[7:8]"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_names_are_those_of_the_assembler(arch):
    """The decoder's own table has no name that LLVM's does not take, halves of dual instructions aside."""
    names = [one.name for one in amdgpu.opcodes() if arch in one.numbers and not one.encoding.startswith("VOPD")]
    taken = set(emulator_table.accepted(sorted({*names, *emulator_table.mnemonics()}), arch))
    # Moves of half a register are taken on GFX12 where its registers are named by half.
    assert set(names) - taken <= {"v_mov_b16"}


def test_the_assemblers_list_is_read():
    names = emulator_table.mnemonics()
    assert len(names) > 2000
    assert {"v_add_f32", "s_set_gpr_idx_on", "ds_read_b64_tr_b16", "image_load", "v_smfmac_f32_16x16x32_f16"} <= {
        *names
    }
