# SPDX-License-Identifier: MIT
"""Machine code for the emulator's tests: zig's assembler and compiler, and kernels around single instructions."""

import functools
import io
import re
import subprocess
import tempfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

from rocpy.cooperative.amdgpu import device_library

ARCHITECTURES = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SLOT = 32
_TARGET = ("-target", "amdgcn-amd-amdhsa", "-mcode-object-version=5")


def _assembled(text, arch):
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "code.s"), Path(folder, "code.o")
        source.write_text(text)
        command = [
            device_library.zig(),
            "clang",
            *_TARGET,
            f"-mcpu={arch}",
            "-x",
            "assembler",
            "-c",
            source,
            "-o",
            output,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return output.read_bytes() if done.returncode == 0 else None, done.stderr


def text_section(code):
    """Return the instructions of an object or a code object."""
    return ELFFile(io.BytesIO(code)).get_section_by_name(".text").data()


def encodings(lines, arch):
    """Return LLVM's bytes for each line, in slots of 32 bytes; None where the architecture has no such instruction."""
    good = [True] * len(lines)
    for _ in range(4):
        accepted = (line if fine else "s_nop 0" for line, fine in zip(lines, good, strict=True))
        code, messages = _assembled(".text\n" + "".join(f"{line}\n.balign {SLOT},0\n" for line in accepted), arch)
        if code is not None:
            text = text_section(code)
            return [text[SLOT * k : SLOT * (k + 1)] if fine else None for k, fine in enumerate(good)]
        for number in re.findall(r"code\.s:(\d+):\d+: error", messages):
            good[(int(number) - 2) // 2] = False
    raise AssertionError(messages)


@functools.cache
def code_object(assembly, arch):
    """Return the code object of assembly text."""
    code, messages = _assembled(assembly, arch)
    assert code is not None, messages
    return device_library.link([code])


@functools.cache
def compiled(source, arch, *options):
    """Return the code object of HIP C++ that includes no headers."""
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "code.hip"), Path(folder, "code.s")
        path.write_text(source)
        command = [device_library.zig(), "clang", "-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc"]
        command += [f"--offload-arch={arch}", "-O3", "-std=c++17", "-ffp-contract=off", "-mcode-object-version=5"]
        subprocess.run([*command, *options, "-S", path, "-o", output], check=True, capture_output=True)
        return code_object(output.read_text(), arch)


_KERNEL = """
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
  {load}
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 3, v0
  {wide} v[2:3], v1, s[8:9]
  {wide} v[4:5], v1, s[10:11]
  {wide} v[6:7], v1, s[12:13]
  v_mov_b32 v8, v6
  v_mov_b32 v9, v7
  {body}
  {store} v1, v[8:9], s[14:15]
  s_endpgm
.section .rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_next_free_vgpr 24
  .amdhsa_next_free_sgpr 40
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 32
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_float_denorm_mode_32 3
  {settings}
.end_amdhsa_kernel
"""


def instruction_kernels(bodies, arch, settings=""):
    """Return a code object with kernels k0, k1, ...

    Each loads 64 bits of each of its three arrays into v[2:3], v[4:5] and v[6:7], copies the last to v[8:9], runs its
    body, and stores v[8:9] to the fourth array.
    """
    is_gfx9 = arch.startswith("gfx9")
    words = {
        "load": "s_load_dwordx8 s[8:15], s[0:1], 0x0" if is_gfx9 else "s_load_b256 s[8:15], s[0:1], 0x0",
        "wide": "global_load_dwordx2" if is_gfx9 else "global_load_b64",
        "store": "global_store_dwordx2" if is_gfx9 else "global_store_b64",
        "settings": settings + ("\n.amdhsa_accum_offset 24" if is_gfx9 else ""),
    }
    parts = [_KERNEL.format(name=f"k{k}", body=body, **words) for k, body in enumerate(bodies)]
    return code_object("\n".join(parts), arch)
