# SPDX-License-Identifier: MIT
"""The pages of primitives say what the code does: signatures, pictures, HIP C++ and the table of costs."""

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np
import primitives_table
import pytest
from amdgpu_code import compiled

from rocpy.cooperative.amdgpu import device_library
from rocpy.cooperative.api.table import PRIMITIVES
from rocpy.testing import amdgpu

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "kernels"
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path.name != "README.md"
}
# What hipRTC and hipcc define.
_HIP = """
#define __global__ __attribute__((global))
struct ThreadIndex { unsigned x; };
static __attribute__((device)) ThreadIndex thread_index() { return {__builtin_amdgcn_workitem_id_x()}; }
#define threadIdx thread_index()
"""
# Threads, input and output of the kernel on each page.
RAW = {
    "adjacent_difference": (
        3,
        [1, 4, 9, 16, 25, 36],
        [1, 3, 1, 3, -3, -5, 5, 7, 5, 16, -7, -9, 9, 11, 25, 36, -11, -13],
    ),
    "broadcast": (4, [10, 11, 12, 13], [12, 11, 12, 11, 12, 13, 12, 13]),
    "discontinuity": (3, [7, 7, 8, 8, 8, 7], [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1]),
    "exchange": (3, [0, 1, 5, 0, 2, 3, 1, 2, 4, 5, 4, 3], [0, 3, 1, 2, 1, 4, 3, 5, 2, 5, 4, 0]),
    "histogram": (3, [0, 1, 3, 3, 1, 3], [1, 3, 2, 0, 0, 0]),
    "load": (3, [0, 1, 2, 3, 4, 5], [0, 1, 0, 3, 0, 1, 2, 3, 1, 4, 2, 3, 4, 5, 2, 5, -1, -1]),
    "match": (4, [5, 6, 5, 7], [1, 2, 1, 2]),
    "merge_sort": (3, [3, 1, 2, 9, 1, 0], [0, 1, 5, 1, 9, 3, 1, 2, 4, 2, 2, 1, 3, 9, 0, 3, 1, 0]),
    "radix_sort": (3, [19, 49, 34, 18, 50, 33], [18, 19, 49, 33, 5, 0, 33, 34, 34, 18, 2, 3, 49, 50, 50, 19, 4, 1]),
    "reduce": (5, [3, 1, 4, 1, 5], [4, 14, 3, 4, 14, 3, 5, 14, 3, 5, 14, 3, 5, 14, 3]),
    "reduce_batched": (2, [1, 2, 3, 10, 20, 30], [11, 22, 33, 11, 22, 33]),
    "run_length_decode": (
        3,
        [10, 20, 2, 0, 30, 40, 1, 3, 50, 60, 0, 1],
        [10, 10, 0, 1, 30, 40, 0, 0, 40, 40, 1, 2, 10, 10, 30, 40, 40, 40, 60],
    ),
    "scan": (4, [3, 1, 2, 0, 4, 1, 1, 1], [0, 3, 4, 6, 6, 10, 11, 12]),
    "shuffle": (5, [10, 11, 12, 13, 14], [10, 11, 10, 10, 11, 13, 12, 12, 13, 14]),
    "store": (3, [10, 11, 20, 21, 30, 31], [10, 11, 20, 21, 30, 31, 10, 20, 30, 11, 21, 31, 10, 11, 20, 21]),
    "topk": (3, [3, 1, 2, 9, 1, 9], [9, 9, 3, 3, 5, 0]),
    "votes": (4, [5, 6, 5, 7], [1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0, 2]),
}


def blocks(text, language):
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def signature_of(record):
    """Return a primitive's signature without types."""
    described = inspect.signature(record.function)
    bare = [each.replace(annotation=each.empty) for each in described.parameters.values()]
    return f"coop.{record.name}{described.replace(parameters=bare, return_annotation=described.empty)}"


def picture_rows(text):
    """Return the numbers between the bars of each row of the pictures, but of those that number ranks."""
    for block in blocks(text, "text"):
        for line in block.splitlines():
            label, _, cells = line.partition("|")
            if cells and not label.startswith("rank "):
                yield label.strip(), [int(word) for word in cells.rpartition("|")[0].split() if word not in "|."]


def numbers_of(text):
    """Return the numbers of all lists in the examples, in their order."""
    lists = [
        (block, node.lineno, node.col_offset, ast.literal_eval(node))
        for block, code in enumerate(blocks(text, "python"))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.List) and all(isinstance(each, (ast.Constant, ast.UnaryOp)) for each in node.elts)
    ]
    return [number for *_, numbers in sorted(lists) for number in numbers]


def holds(numbers, row):
    """Return whether a row is somewhere among the numbers."""
    return any(numbers[i : i + len(row)] == row for i in range(len(numbers)))


def test_every_primitive_has_one_page():
    assert set(primitives_table.titles()) == set(PRIMITIVES)
    named = [name for text in PAGES.values() for name in text.partition("\n")[0].removeprefix("# ").split(", ")]
    assert sorted(named) == sorted(PRIMITIVES)
    index = primitives_table.PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in index for name in PRIMITIVES)


@pytest.mark.parametrize("page", PAGES)
def test_signatures_are_those_of_the_code(page):
    names = PAGES[page].partition("\n")[0].removeprefix("# ").split(", ")
    assert blocks(PAGES[page], "text")[0].splitlines() == [signature_of(PRIMITIVES[name]) for name in names]


@pytest.mark.parametrize("page", PAGES)
def test_pictures_have_the_numbers_of_the_example(page):
    numbers, rows = numbers_of(PAGES[page]), list(picture_rows(PAGES[page]))
    assert len(rows) >= 2
    missing = [label for label, row in rows if not holds(numbers, row)]
    assert not missing, f"{page}: the example asserts nothing of {missing}"


def test_a_wrong_picture_is_noticed():
    text = PAGES["match.md"].replace("  5 |  2 |  5 |  8 |", "  5 |  2 |  5 |  9 |")
    assert not all(holds(numbers_of(text), row) for _, row in picture_rows(text))


def test_no_sentence_is_on_two_pages():
    seen = {}
    for page, text in {**PAGES, "README.md": primitives_table.PAGE.read_text(encoding="utf-8")}.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for sentence in re.split(r"(?<=[.:;])\s+|\|\n|\n\n", prose):
            words = " ".join(sentence.split())
            if len(words.split()) > 7:
                assert seen.setdefault(words, page) == page, f"{page} and {seen[words]}: {words}"


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no compiler for AMD GPUs: pip install ziglang")
def test_hip_kernels_of_the_pages_do_what_the_pictures_show():
    sources = {page: blocks(text, "c++") for page, text in PAGES.items()}
    source = _HIP + "\n".join(code for several in sources.values() for code in several)
    code = compiled(source, "gfx942", "-I", str(device_library.header_folder()))
    assert all(len(several) == 1 for several in sources.values())
    assert sorted(re.findall(r"__global__ void (\w+)", source)) == sorted(RAW)
    for name, (threads, x, expected) in RAW.items():
        out = np.full(len(expected), -99, np.int32)
        amdgpu.run(code, name, 1, threads, np.array(x, np.int32), out)
        np.testing.assert_array_equal(out, expected, err_msg=name)


@pytest.mark.slow
def test_costs_are_those_of_the_code():
    assert primitives_table.main(["--check"]) == 0, "run `make tables`"
