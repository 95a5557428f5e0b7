# SPDX-License-Identifier: MIT
"""The Cython declarations made from the contract: every type, every row, and what they look like."""

import os
import re

import abi_pxd
import generate_abi
import pytest

TEXT = abi_pxd.pxd([generate_abi.ABI / name for name in abi_pxd.HEADERS], generate_abi.all_rows())


@pytest.mark.parametrize("row", generate_abi.all_rows(), ids=lambda row: row.name)
def test_a_row_is_a_slot_and_a_call(row):
    assert TEXT.count(f'"rocpy::table.{row.name}"(') == 1
    kind = "int" if row.result in abi_pxd.STATUS_TYPES else re.escape(row.result)
    promise = "except -1 nogil" if row.result in abi_pxd.STATUS_TYPES else "noexcept nogil"
    assert re.search(rf"^cdef inline {kind} {row.name}\(.*\) {promise}:$", TEXT, re.MULTILINE)
    if row.result in abi_pxd.STATUS_TYPES:
        assert f'raise_status(library_{row.library}, answer, b"{row.name}")' in TEXT


def test_every_type_of_the_headers_is_declared():
    for name in abi_pxd.HEADERS:
        source = re.sub(r"/\*.*?\*/", "", (generate_abi.ABI / name).read_text(), flags=re.DOTALL)
        for declared in re.findall(r"\}\s*(\w+);|typedef [^{}();]*?(\w+);|typedef [^{}]*?\(\*(\w+)\)", source):
            wanted = next(filter(None, declared))
            assert re.search(rf"(ctypedef .*\b{wanted}\b)", TEXT), wanted


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("typedef enum A { X = 1, Y } A;", ["    ctypedef enum A:", "        X", "        Y"]),
        ("enum { X = 1 };", ["    enum:", "        X"]),
        (
            "typedef struct S { int a[3]; unsigned b : 1; const char *c; } S;",
            ["    ctypedef struct S:", "        int a[3]", "        unsigned b", "        const char * c"],
        ),
        ("typedef struct t *T;", ["    cdef struct t", "    ctypedef t* T"]),
        ("typedef void (*F)(int x);", ["    ctypedef void (*F)(int x) noexcept"]),
        ("#define FLAG 0x4u\n", ["    const unsigned int FLAG"]),
        ("#define NULLISH ((T)2)\n", ["    const T NULLISH"]),
        ("#ifndef GUARD_H\n#define GUARD_H\n#endif\n/* typedef int no; */", []),
    ],
)
def test_a_declaration(source, wanted):
    assert [re.sub(r"(?<=\S) +", " ", line) for line in abi_pxd.declarations(source)] == wanted


def test_a_field_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="cannot read field"):
        list(abi_pxd.declarations("typedef struct S { broken; } S;"))


def test_rows_are_those_that_cython_files_name(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "module.pyx").write_text("cimport abi\nabi.hipFree(pointer)\nabi.slot_hipInit(0)\n")
    (tmp_path / "module.pxd").write_text("from abi cimport ncclCommCount\n")
    (tmp_path / "module.py").write_text("hipMalloc\n")
    assert [row.name for row in generate_abi.named_rows(tmp_path)] == ["hipInit", "hipFree", "ncclCommCount"]


def test_a_file_that_would_be_the_same_is_not_written(tmp_path):
    output = tmp_path / "abi.pxd"
    for _ in range(2):
        assert generate_abi.main(["pxd", str(tmp_path), str(output)]) == 0
        output.chmod(0o444)
        os.utime(output, (1, 1))
    assert output.stat().st_mtime == 1
