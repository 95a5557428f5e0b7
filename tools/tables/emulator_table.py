# SPDX-License-Identifier: MIT
"""Write the table of docs/developing/emulator.md; with --check, say whether it is fresh.

What counts is the list of LLVM's assembler, which ziglang brings, and not the emulator's own: each name that the
assembler takes for a chip is executed or not.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import markers

from rocpy.cooperative.amdgpu import device_library
from rocpy.testing import amdgpu

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "developing" / "emulator.md"
ARCHITECTURES = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
GROUPS = {
    "scalar": ("s_",),
    "vector": ("v_",),
    "matrix products": ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac"),
    "shared memory": ("ds_", "lds_"),
    "global memory, a thread's own": ("global_", "flat_", "scratch_"),
    "buffers": ("buffer_",),
    "formatted buffers, images, exports": (
        *("tbuffer_", "image_", "exp", "buffer_load_format", "buffer_store_format", "buffer_load_d16_format"),
        *("buffer_load_d16_hi_format", "buffer_store_d16_format", "buffer_store_d16_hi_format"),
    ),
}
WIDTH = 148
LONGEST_NAME = 60
# Names for what is no instruction of its own: how it is encoded, or which lanes it reads.
FORMS = re.compile(r"(_e32|_e64|_dpp8?|_sdwa)+$")


def mnemonics() -> list[str]:
    """Return the names that the assembler knows, of all chips: its table in zig, each name after its length."""
    data = Path(device_library.zig()).read_bytes()
    anchor = b"s_set_gpr_idx_on"
    at = data.index(bytes([len(anchor)]) + anchor)
    valid = re.compile(rb"[a-z][a-z0-9_]*\Z")
    found, first = [], at
    while data[at] <= LONGEST_NAME and valid.match(name := data[at + 1 : at + 1 + data[at]]):
        found.append(name.decode())
        at += 1 + len(name)
    while True:
        before = [
            n for n in range(1, LONGEST_NAME) if data[first - 1 - n] == n and valid.match(data[first - n : first])
        ]
        if not before:
            break
        found.append(data[first - before[0] : first].decode())
        first -= 1 + before[0]
    return sorted({FORMS.sub("", name) for name in found})


def accepted(names: list[str], arch: str) -> list[str]:
    """Return those that the assembler takes for the chip; it has the operands wrong, or missing, of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "names.s")
        source.write_text("\n".join(names) + "\n", encoding="utf-8")
        command = [device_library.zig(), "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-x", "assembler"]
        done = subprocess.run(
            [*command, "-c", source, "-o", Path(folder, "names.o")], capture_output=True, text=True, check=False
        )
    refused = re.findall(
        r"names\.s:(\d+):\d+: error: (?:instruction not supported on this GPU|invalid instruction)", done.stderr
    )
    if not refused:
        raise RuntimeError(f"the assembler's messages are not understood: {done.stderr[:500]}")
    absent = {int(line) - 1 for line in refused}
    return [name for k, name in enumerate(names) if k not in absent]


def group_of(name: str) -> str:
    """Return the group of the longest beginning that fits."""
    fits = [(len(start), group) for group, starts in GROUPS.items() for start in starts if name.startswith(start)]
    return max(fits)[1] if fits else "others"


def table() -> str:
    """Return how many of the assembler's instructions are executed, and the names of those that are not."""
    known = mnemonics()
    ours = amdgpu.opcodes()
    spelled = {one.name for one in ours}
    groups = [*GROUPS, "others"]
    counts = {group: [] for group in groups}
    missing: dict[str, list[str]] = {}
    for arch in ARCHITECTURES:
        decoded = {one.name for one in ours if arch in one.numbers}
        executed = {one.name for one in ours if arch in one.numbers and one.executed}
        # The assembler also takes the names that other chips have for an instruction of this one.
        here = [name for name in accepted(known, arch) if name in decoded or name not in spelled]
        for group in groups:
            names = [name for name in here if group_of(name) == group]
            counts[group].append(f"{sum(name in executed for name in names)} of {len(names)}" if names else "-")
            for name in names:
                if name not in executed:
                    missing.setdefault(name, []).append(arch)
    lines = [f"| instructions | {' | '.join(ARCHITECTURES)} |", "|---" * (len(ARCHITECTURES) + 1) + "|"]
    lines += [f"| {group} | {' | '.join(cells)} |" for group, cells in counts.items() if set(cells) != {"-"}]
    lines += [
        "",
        "Accepted by the assembler for one of them, and not executed (except those for formatted buffers and images):",
        "",
    ]
    unlisted = "formatted buffers, images, exports"
    return "\n".join([*lines, *wrapped(sorted(name for name in missing if group_of(name) != unlisted))])


def wrapped(names: list[str]) -> list[str]:
    """Return the names as lines of text."""
    lines, line = [], ""
    for name in names:
        word = f"`{name}`" + ("." if name == names[-1] else ",")
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return [*lines, line] if line else lines


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return markers.update(PAGE, lambda page: markers.replace(page, "emulator", table()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
