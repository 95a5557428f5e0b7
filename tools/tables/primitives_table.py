# SPDX-License-Identifier: MIT
"""Write the table of docs/kernels/README.md from the primitives' records and code; --check says if it is fresh."""

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

import markers
import numpy as np

from rocpy import cooperative as coop
from rocpy.cooperative.api.table import PRIMITIVES, SCALAR, THREAD_DATA, Primitive
from rocpy.errors import KernelTypeError
from rocpy.testing import amdgpu

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "kernels"
PAGE = FOLDER / "README.md"
ARCH, THREADS, ITEMS, LANES = "gfx942", 256, 4, 64
DEFINED = {"first": "rank 0, all by `all=True`", "all": "all ranks", "some": "see its page"}
TAKEN = {(SCALAR,): "one item", (THREAD_DATA,): "`ThreadData`", (SCALAR, THREAD_DATA): "items"}
GROUPS = {"block": "coop.this_block()", "warp": "coop.this_warp()"}

# What a call is given for each parameter that has no default.
ARGUMENTS = {
    "op": "'+'",
    "lengths": "value",
    "values": "value",
    "keys": "value",
    "value": "value",
    "items": "4",
    "k": "4",
    "distance": "1",
    "bins": "64",
    "bins_per_thread": "1",
    "out": "value",
    "source": "x",
    "target": "out",
}
MODES = {"shuffle": "'up'", "exchange": "'blocked_to_striped'"}
ONE_NUMBER = ("reduce", "sum", "min", "max", "run_length_decode_into")
# Calls that cost something else than those without options.
OPTIONS = {name: {"": "", "transposes": ", algorithm='transpose'"} for name in ("load", "store")}

_KERNEL = """
def kernel(x, out):
    i = coop.threadIdx.x
    value = coop.ThreadData(4, np.int32)
    for k in range(4):
        value[k] = x[4 * i + k]
    {scalar}
    result = coop.{call}
    {end}
"""


@dataclass(frozen=True)
class Cost:
    """What a call costs a group: barriers that each thread comes to, and shared memory of a block."""

    barriers: int
    lds_bytes: int


def titles() -> dict[str, str]:
    """Return the page of each primitive: that whose title names it."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        if path != PAGE:
            found |= dict.fromkeys(title.split(", "), path.name)
    if set(found) != set(PRIMITIVES):
        raise ValueError(f"titles of docs/kernels and primitives differ in {sorted(set(found) ^ set(PRIMITIVES))}")
    return found


def call_of(record: Primitive, group: str, option: str) -> str:
    """Return a kernel's source that calls the primitive once."""
    given = ARGUMENTS | {"group": GROUPS[group], "mode": MODES.get(record.name, "")}
    arguments = []
    for name, parameter in inspect.signature(record.function).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            keyword = f"{name}=" if parameter.kind is parameter.KEYWORD_ONLY else ""
            arguments.append(keyword + given[name])
    scalar = "" if THREAD_DATA in record.payloads else "value = x[i]"
    call = f"{record.name}({', '.join(arguments)}{option})"
    return _KERNEL.format(call=call, scalar=scalar, end="; ".join(uses_of(record)))


def uses_of(record: Primitive) -> list[str]:
    """Return the statements that write what the primitive gave, so that the compiler keeps it."""
    if record.name == "store":
        return ["pass"]
    if record.name in ONE_NUMBER or THREAD_DATA not in record.payloads:
        return ["out[i] = result"]
    parts = {"load": ["value"], "run_length_decode": ["result[0]"]}.get(record.name, ["result"])
    if record.name.endswith("_pairs"):
        parts = ["result[0]", "result[1]"]
    count = 1 if record.name == "histogram" else ITEMS
    return [f"out[{k} * {THREADS} + i] = {part}[{k % count}]" for k, part in enumerate(parts * count)]


def cost(record: Primitive, group: str, option: str) -> Cost | None:
    """Compile a call, run it, and return what it cost; None: the primitive is not for this group."""
    names = {"__name__": __name__, "coop": coop, "np": np}
    exec(compile(call_of(record, group, option), f"<{record.name}>", "exec"), names)
    try:
        code = coop.compile(coop.jit(names["kernel"]), "void(int32[::1],int32[::1])", ARCH, threads=THREADS)
    except KernelTypeError:
        return None
    x, out = (np.zeros(2 * ITEMS * THREADS, np.int32) for _ in range(2))
    arrays = [number for array in (x, out) for number in (array, *array.shape, *array.strides)]
    report = amdgpu.run(code.code, code.name, 1, THREADS, *arrays)
    return Cost(report.opcodes.get("s_barrier", 0) // (THREADS // LANES), code.info.lds_bytes)


def rows() -> list[str]:
    """Return the lines of the table: one for the primitives of a page that are alike."""
    pages, alike = titles(), {}
    for record in PRIMITIVES.values():
        for label, option in OPTIONS.get(record.name, {"": ""}).items():
            block, warp = (cost(record, group, option) for group in GROUPS)
            returns = inspect.signature(record.function).return_annotation != "None"
            where = DEFINED[record.defined] if returns else "-"
            key = (pages[record.name], label, record.payloads, where, block, warp)
            alike.setdefault(key, []).append(f"`{record.name}`")
    lines = []
    for (page, label, payloads, where, block, warp), names in alike.items():
        what = f"[{', '.join(names)}]({page})" + (f" {label}" if label else "")
        taken = TAKEN[payloads]
        costs = [f"{block.barriers} | {block.lds_bytes}" if block else "- | -", str(warp.lds_bytes) if warp else "-"]
        lines.append(f"| {what} | {taken} | {where} | {' | '.join(costs)} |")
    return lines


def table() -> str:
    """Return the text between the markers."""
    head = "| primitives | takes | result in | block: barriers | block: bytes | warp: bytes |"
    return "\n".join([head, "|---" * 6 + "|", *rows()])


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return markers.update(PAGE, lambda page: markers.replace(page, "primitives", table()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
