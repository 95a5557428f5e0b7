# SPDX-License-Identifier: MIT
"""Write the tables of docs/support.md from rocpy.blaslt.supported; with --check, say whether they are up to date."""

import sys
from pathlib import Path

import markers

import rocpy
from rocpy.blaslt import EPILOGUES, supported
from rocpy.blaslt.model.product_types import FAMILIES, Family, needs_scales
from rocpy.blaslt.selection.releases import RELEASES, ROWS, Row, first_release

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "support.md"
LAYOUTS = ("nn", "nt", "tn", "tt")


def cell(family: Family, result: str, epilogue: str) -> str:
    """Return what the platform answers for one type of result and one epilogue, over the layouts."""
    scales = dict.fromkeys(("scale_a", "scale_b"), family.scales[0]) if needs_scales(family, result) else {}
    answers = {
        layout: supported(family.operands[0], dtype=result, epilogue=epilogue, layout=layout, **scales).lowering
        for layout in LAYOUTS
    }
    parts = []
    for lowering, word in (("native", "fused"), ("fused", "fused by a tile program"), ("unfused", "composed")):
        layouts = [layout for layout, answer in answers.items() if answer == lowering]
        if layouts:
            parts.append(word if len(layouts) == len(LAYOUTS) else f"{word}: {' '.join(layouts)}")
    return ", ".join(parts) or "no"


def scale_kinds(family: Family) -> str:
    """Return the kinds of scales of a and b that the platform takes, and what else of scales."""
    a, result = family.operands[0], family.results[0]
    wide = next((name for name in family.results if not name.startswith("int")), result)
    kinds = [kind for kind in family.scales if supported(a, dtype=wide, scale_a=kind, scale_b=kind)]
    narrow = [name for name in family.results if name.startswith("float8")]
    both = {"scale_a": "scalar", "scale_b": "scalar"}
    extra = [name for name in ("scale_d", "amax") if narrow and supported(a, dtype=narrow[0], **both, **{name: True})]
    return ", ".join([*kinds, *(f"`{name}`" for name in extra)])


def table(family: Family) -> list[str]:
    """Return one family's table: a row for the epilogues that are answered alike."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for epilogue in EPILOGUES:
        rows.setdefault(tuple(cell(family, result, epilogue) for result in family.results), []).append(epilogue)
    lines = [f"### {family.name}", ""]
    lines.append(f"Operands: {', '.join(f'`{name}`' for name in family.operands)}.")
    kinds = scale_kinds(family)
    if kinds:
        lines[-1] += f" Scales: {kinds}."
    lines += ["", f"| epilogue | {' | '.join(f'-> `{name}`' for name in family.results)} |"]
    lines.append("|---" * (len(family.results) + 1) + "|")
    lines += [f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |" for cells, names in rows.items()]
    return [*lines, ""]


def tables() -> str:
    """Return the text between the markers."""
    lines = [line for family in FAMILIES for line in table(family)]
    return "\n".join([f"Answers of the `{rocpy.platform.current().name}` platform.", "", *lines]).rstrip()


def version_text(version: int) -> str:
    """Return a version of hipBLASLt as people write it."""
    return f"{version // 100000}.{version // 100 % 1000}.{version % 100}"


def since(row: Row) -> str:
    """Return since which release a row is there, with its numbers where they differ."""
    present = [(version, number) for version, number in row.numbers if number is not None]
    if not present:
        return ""
    first = next((rocm for rocm, version in RELEASES.items() if version >= present[0][0]), "")
    if len(row.numbers) == 1:
        return "all releases" if first == first_release(ROWS[0]) else f"ROCm {first} ({version_text(present[0][0])})"
    ends = [version for version, _ in row.numbers[1:]] + [0]
    return "; ".join(
        f"{number} in {version_text(version)}" + (f" until {version_text(end)}" if end else " on")
        for (version, number), end in zip(row.numbers, ends, strict=True)
        if number is not None
    )


def release_rows(kind: str) -> list[str]:
    """Return the lines of the table of releases for one kind of row."""
    lines = []
    for row in ROWS:
        if row.kind != kind:
            continue
        doubts = "; ".join(
            one.reason + ("" if one.until > 1 << 30 else f" (until {version_text(one.until)})") for one in row.doubts
        )
        number = row.numbers[-1][1] if len(row.numbers) == 1 and kind != "combination" else ""
        name = f"`{row.name}`" if kind != "combination" else row.name
        lines.append(f"| {name} | {number} | {since(row)} | {doubts} | {row.source} |")
    return lines


def release_tables() -> str:
    """Return what the binding knows of hipBLASLt's releases."""
    text = []
    for kind, title in (("epilogue", "epilogue"), ("attribute", "attribute"), ("combination", "combination")):
        text += [f"| {title} | number | since | why it is composed, until a self-test finds it correct | source |"]
        text += ["|---|---|---|---|---|", *release_rows(kind), ""]
    return "\n".join(text).rstrip()


def fresh_page(page: str) -> str:
    """Return the page with both of its parts as the code gives them now."""
    return markers.replace(markers.replace(page, "support", tables()), "releases", release_tables())


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return markers.update(PAGE, fresh_page, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
