# SPDX-License-Identifier: MIT
"""Write the README's table of times from the benchmarks' JSON; with --check, say whether it is up to date."""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
# What a column is called, and the folder of its results below that one: the second and third are of one machine.
COLUMNS = {"AMD EPYC, AVX-512": "", "Intel Xeon, AVX-512": "xeon", "Intel Xeon, AVX2": "xeon-avx2"}
EXPLAINED = """\
Times faster than the fastest other; in brackets both medians of interleaved rounds, each process on one thread. Under AVX2 the others are held
to it too; the Xeon's matrix units for bfloat16 (AMX) are used by torch alone. Made by `rocpy bench` with `--output` and `make tables`.\
"""  # noqa: E501
Documents = dict[str, dict[str, Any]]
BEGIN, END = "<!-- begin: benchmark -->", "<!-- end: benchmark -->"

# Benchmark, the cases of it that the README shows, what they are called there, and the rival that stands for rocpy.
SHOWN = (
    ("overhead", r"^4x4x4 float32, (\w+) operands$", r"one call, 4x4x4 float32, \1 arrays", r"^rocpy matmul$"),
    ("epilogue", r"^((?!1024x)\w+) (float32|bfloat16) gelu_bias$", r"gelu(x @ w + bias), \1 \2", r"^rocpy gelu_bias$"),
    ("matmul", r"^(2048x2048x2048) float32$", r"a @ b, \1 float32", r"^rocpy( matmul)?$"),
    (
        "custom_epilogue",
        r"^(512x3072x768) float32 silu\(bias\) \+ residual$",
        r"silu(x @ w + bias) + residual, a function of the user, \1 float32",
        r"^rocpy silu",
    ),
    (
        "collectives",
        r"^all-reduce of (4 KiB|64 MiB), (\d) ranks$",
        r"all-reduce of \1 of float32, \2 processes",
        r"^rocpy$",
    ),
)


def best(rows: list[dict[str, Any]], pattern: str, *, others: bool = False) -> dict[str, Any] | None:
    """Return the fastest row whose label matches; with `others`, the fastest rival that computes the same."""
    if others:
        chosen = [row for row in rows if "rocpy" not in row["label"] and not row["label"].endswith(" plain")]
    else:
        chosen = [row for row in rows if re.search(pattern, row["label"])]
    return min(chosen, key=lambda row: row["median_us"], default=None)


def figures(documents: Documents) -> dict[tuple[int, str], str]:
    """Return a cell for each case that is there, by the place of its benchmark and its name: how many times faster."""
    found = {}
    for place, (benchmark, cases, title, own) in enumerate(SHOWN):
        rows = [row for row in documents.get(benchmark, {}).get("rows", []) if row["threads"] == 1]
        for case in dict.fromkeys(row["case"] for row in rows if re.search(cases, row["case"])):
            group = [row for row in rows if row["case"] == case]
            ours, other = best(group, own), best(group, own, others=True)
            if ours is None or other is None:
                continue
            ratio = other["median_us"] / ours["median_us"]
            name = re.sub(cases, title, case)
            found[place, name] = f"**{ratio:.2f}** ({duration(ours)}; {other['label']} {duration(other)})"
    return found


def duration(row: dict[str, Any]) -> str:
    """Return a row's median with its unit."""
    value = row["median_us"]
    return f"{value / 1e3:.1f} ms" if value >= 1e4 else f"{value:.0f} µs" if value >= 100 else f"{value:.2f} µs"


def footer(title: str, documents: Documents) -> str:
    """Return where the numbers of a column come from, and whose kernels were compared."""
    shown = {benchmark for benchmark, *_ in SHOWN}
    rows = [row for benchmark, document in documents.items() if benchmark in shown for row in document["rows"]]
    versions = dict(item for row in rows for item in row["versions"].items())
    kernels = dict(item for row in rows for item in row.get("kernels", {}).items())
    parts = [
        "; ".join(dict.fromkeys(f"{row['device']}, platform {row['platform']}" for row in rows)),
        "kernels: " + ", ".join(f"{label} {name}" for label, name in kernels.items()) if kernels else "",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commits " + ", ".join(dict.fromkeys(row["commit"] for row in rows)),
    ]
    return f"{title}: {'; '.join(filter(None, parts))}."


def read(folder: Path) -> Documents:
    """Return the results of a folder by benchmark, without those of quick runs."""
    documents = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("rows") and not document.get("quick"):
            documents[document["benchmark"]] = document
    return documents


def table(folder: Path) -> str:
    """Return the text between the markers: a column for each machine and instruction set that there are results for."""
    columns = {title: read(folder / below) for title, below in COLUMNS.items()}
    cells = {title: figures(documents) for title, documents in columns.items()}
    titles = [title for title in columns if cells[title]]
    if not titles:
        return "No results yet: `make bench`, then `make tables`."
    lines = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    rows = sorted(dict.fromkeys(row for title in titles for row in cells[title]), key=lambda row: row[0])
    lines += [f"| {row[1]} | {' | '.join(cells[title].get(row, '') for title in titles)} |" for row in rows]
    return "\n".join([*lines, "", EXPLAINED, " ".join(footer(title, columns[title]) for title in titles)])


def replace(page: str, text: str) -> str:
    """Return the page with `text` between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page needs one '{BEGIN}' and one '{END}'")
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    page = README.read_text(encoding="utf-8")
    fresh = replace(page, table(RESULTS))
    if "--check" in arguments:
        if fresh != page:
            print("README.md is out of date: run tools/tables/readme_table.py", file=sys.stderr)
        return int(fresh != page)
    README.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
