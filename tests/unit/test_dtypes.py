# SPDX-License-Identifier: MIT
"""The dtype table against those who own its columns: numpy, ml_dtypes, DLPack's numbers, hipDataType, torch."""

import copy
import dataclasses
import pickle
import re
from pathlib import Path

import generate_abi
import ml_dtypes
import numpy as np
import pytest

from rocpy import dtypes
from rocpy.errors import InvalidOperandError

ALL = list(dtypes.DTYPES.values())
HIP_NAMES = {
    "float64": "HIP_R_64F",
    "float32": "HIP_R_32F",
    "float16": "HIP_R_16F",
    "bfloat16": "HIP_R_16BF",
    "float8_e4m3fn": "HIP_R_8F_E4M3",
    "float8_e5m2": "HIP_R_8F_E5M2",
    "float8_e4m3fnuz": "HIP_R_8F_E4M3_FNUZ",
    "float8_e5m2fnuz": "HIP_R_8F_E5M2_FNUZ",
    "float8_e8m0fnu": "HIP_R_8F_UE8M0",
    "float6_e2m3fn": "HIP_R_6F_E2M3",
    "float6_e3m2fn": "HIP_R_6F_E3M2",
    "float4_e2m1fn": "HIP_R_4F_E2M1",
    "int8": "HIP_R_8I",
    "int32": "HIP_R_32I",
    "complex64": "HIP_C_32F",
    "complex128": "HIP_C_64F",
}


@pytest.mark.parametrize("row", ALL, ids=str)
def test_every_name_of_a_row_leads_to_it(row):
    assert dtypes.lookup(row) is row
    assert dtypes.lookup(row.name) is row
    assert dtypes.lookup(row.numpy) is row
    assert dtypes.lookup(row.numpy.type) is row
    assert dtypes.from_hip(row.hip) is row
    assert dtypes.from_dlpack(*row.dlpack) is row
    assert getattr(dtypes, row.name) is row


@pytest.mark.parametrize("row", ALL, ids=str)
def test_bits_and_name_are_the_owners(row):
    owner = np if row.module == "numpy" else ml_dtypes
    assert np.dtype(getattr(owner, row.name)) == row.numpy
    assert row.numpy.name == row.name
    if row.module == "numpy":
        assert row.bits == row.numpy.itemsize * 8
    elif row.kind == "float":
        assert row.bits == ml_dtypes.finfo(row.numpy).bits
    assert row.itemsize == row.numpy.itemsize


def test_hip_numbers_are_the_contracts():
    text = Path(generate_abi.ABI, "types_hipblaslt.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"\b(HIP_[RC]_\w+) = (\d+)", text)}
    found = {row.name: row.hip for row in ALL}
    assert {name: found.pop(name) for name in HIP_NAMES} == {
        name: numbers[of_hip] for name, of_hip in HIP_NAMES.items()
    }
    assert not set(found.values()) & set(numbers.values()), "a type that HIP lacks has a number of HIP's"


@pytest.mark.parametrize("row", [row for row in ALL if row.module == "numpy"], ids=str)
def test_dlpack_numbers_of_numpy(row):
    kinds = {"f": 2, "i": 0, "c": 5}
    assert row.dlpack == (kinds[row.numpy.kind], row.numpy.itemsize * 8)


@pytest.mark.parametrize("alias", ["f4", "<f4", "single", "torch.float32", float, complex])
def test_other_spellings(alias):
    wanted = {float: dtypes.float64, complex: dtypes.complex128}.get(alias, dtypes.float32)
    assert dtypes.lookup(alias) is wanted


@pytest.mark.parametrize(
    "value",
    [
        "float31",
        ">f4",
        "uint8",
        np.dtype("int64"),
        np.dtype([("x", "f4")]),
        None,
        3,
        object(),
        bool,
        "",
        "torch.quint8",
        [],
    ],
)
def test_what_is_no_dtype_of_ours_is_refused(value):
    with pytest.raises(InvalidOperandError, match="not one of rocpy's"):
        dtypes.lookup(value)


def test_numbers_that_nobody_has_are_refused():
    with pytest.raises(InvalidOperandError, match="hipDataType 999"):
        dtypes.from_hip(999)
    with pytest.raises(InvalidOperandError, match="code 2, 24 bits"):
        dtypes.from_dlpack(2, 24)
    with pytest.raises(InvalidOperandError, match="4 lanes"):
        dtypes.from_dlpack(2, 32, 4)
    assert dtypes.from_dlpack(*dtypes.float4_e2m1fn.dlpack, 2) is dtypes.float4_e2m1fn


def test_rows_are_plain_and_fixed():
    row = dtypes.lookup("bfloat16")
    assert (str(row), repr(row)) == ("bfloat16", "rocpy.dtypes.bfloat16")
    assert len({*ALL}) == len(ALL)
    with pytest.raises(AttributeError):
        row.bits = 8
    with pytest.raises(TypeError):
        dtypes.DTYPES["float31"] = row


@pytest.mark.torch
def test_torch_dtypes():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    found = {row.name for row in ALL if row.torch and hasattr(torch, row.torch)}
    assert {
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "int32",
        "complex64",
    } <= found
    for name in found:
        row = dtypes.DTYPES[name]
        torch_dtype = getattr(torch, row.torch)
        assert dtypes.lookup(torch_dtype) is row
        assert torch_dtype.itemsize == row.itemsize
    for other in (torch.int64, torch.bool, torch.uint8):
        with pytest.raises(InvalidOperandError):
            dtypes.lookup(other)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
@pytest.mark.parametrize("row", ALL, ids=str)
def test_copies_of_a_row_are_the_row(row, again):
    assert again(row) is row
    assert dtypes.lookup(dataclasses.replace(row)) is row


def test_a_row_that_rocpy_does_not_have():
    made_up = [
        dataclasses.replace(dtypes.float32, bits=31),
        dataclasses.replace(dtypes.float32, name="float31"),
        dataclasses.replace(dtypes.float32, name=[]),
    ]
    for row in made_up:
        assert copy.deepcopy(row) == row
        with pytest.raises(InvalidOperandError, match="that rocpy does not have"):
            dtypes.lookup(row)


@pytest.mark.parametrize("number", [[], True, 0.0, "0", None, 10**30, -1])
def test_numbers_that_no_library_has(number):
    with pytest.raises(InvalidOperandError, match="hipDataType"):
        dtypes.from_hip(number)
    for numbers in ((number, 32), (2, number), (2, 32, number)):
        with pytest.raises(InvalidOperandError, match="DLPack type"):
            dtypes.from_dlpack(*numbers)


def test_numbers_of_numpy():
    assert dtypes.from_hip(np.int32(0)) is dtypes.float32
    assert dtypes.from_dlpack(np.uint8(2), np.uint8(32), np.uint16(1)) is dtypes.float32
    assert dtypes.from_dlpack(17, 4, 2) is dtypes.float4_e2m1fn
