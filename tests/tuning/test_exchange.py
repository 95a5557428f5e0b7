# SPDX-License-Identifier: MIT
"""Records in and out of files: JSON there and back, TunableOp's CSV and hipBLASLt's offline tuning file."""

import json

import pytest
from made_up_records import SCOPE, problem, record

from rocpy.blaslt import OperandInfo, Problem
from rocpy.errors import InvalidProblemError
from rocpy.tuning import export_hipblaslt, export_json, export_tunableop, import_json, problem_key


def test_json_there_and_back():
    records = [record(1), record(2, date=7.5)]
    assert import_json(export_json(records)) == records


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": "another"}, "format"),
        ({"schema": 99}, "schema 99"),
        ({"records": [{}]}, "record 0: scope is None"),
        ({"records": [7]}, "record 0"),
    ],
)
def test_what_is_no_document_of_records_is_told(change, match):
    document = {**json.loads(export_json([record()])), **change}
    with pytest.raises(InvalidProblemError, match=match):
        import_json(json.dumps(document))


@pytest.mark.parametrize(
    ("field", "value"), [("solution", "x"), ("solution", True), ("measured_us", 0.0), ("kernel", None)]
)
def test_a_record_with_a_wrong_field_is_told(field, value):
    document = json.loads(export_json([record(), record(1)]))
    document["records"][1][field] = value
    with pytest.raises(InvalidProblemError, match=f"record 1: .*{field}"):
        import_json(json.dumps(document))


def test_tunableop():
    # Row-major 8 x 32 @ 32 x 16 is hipBLASLt's 16 x 8 x 32 without transposition.
    text, left_out = export_tunableop([record(0, made=problem(8, 16, 32), solution=572)], torch_version="2.10.0")
    assert left_out == 0
    assert text.splitlines() == [
        "Validator,PT_VERSION,2.10.0",
        "Validator,HIPBLASLT_VERSION,100401-abc123",
        "Validator,GCN_ARCH_NAME,gfx942",
        "GemmTunableOp_Half_NN,nn_16_8_32_ld_16_32_16,Gemm_Hipblaslt_NN_572,0.08",
    ]


def test_tunableop_of_a_transposed_weight_and_of_a_batch():
    a = OperandInfo.dense((8, 32), "bfloat16")
    transposed = Problem.make(a, OperandInfo((32, 16), (1, 32), "bfloat16"))
    batch = Problem.make(OperandInfo.dense((3, 8, 32), "float32"), OperandInfo.dense((3, 32, 16), "float32"))
    text, left_out = export_tunableop([record(1, made=transposed), record(2, made=batch)])
    assert left_out == 0
    assert "GemmTunableOp_BFloat16_TN,tn_16_8_32_ld_32_32_16,Gemm_Hipblaslt_TN_1,0.08" in text
    assert "GemmStridedBatchedTunableOp_float_NN,nn_16_8_32_B_3_ld_16_32_16,Gemm_Hipblaslt_NN_2,0.08" in text


def test_the_offline_tuning_file():
    text, left_out = export_hipblaslt([record(0, made=problem(8, 16, 32), solution=572)])
    assert left_out == 0
    assert text.splitlines() == [
        "Git Version: abc123",
        "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index",
        "N,N,1,16,8,32,f16_r,f16_r,f16_r,f32_r,572",
    ]


def test_of_two_records_with_one_offline_key_the_faster_is_written():
    wide = Problem.make(OperandInfo((8, 32), (64, 1), "float16"), OperandInfo.dense((32, 16), "float16"))
    records = [record(1, made=problem(8, 16, 32), measured_us=9.0), record(2, made=wide, measured_us=5.0)]
    assert problem_key(wide) != problem_key(problem(8, 16, 32))
    text, _ = export_hipblaslt(records)
    assert text.splitlines()[-1].endswith(",2")
    assert text.count("Git Version") == 1
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
def test_what_the_formats_cannot_say_is_left_out_and_counted(export):
    fused = problem(8, 16, 32, epilogue="gelu")
    host = json.dumps({**json.loads(SCOPE), "platform": "host"})
    text, left_out = export([record(1, made=fused), record(2, scope=host)])
    assert (text, left_out) == ("", 2)
    text, left_out = export([record(1, made=fused), record(3)])
    assert left_out == 1
    assert text


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
def test_one_file_is_of_one_environment(export):
    other = json.dumps({**json.loads(SCOPE), "arch": "gfx90a"})
    with pytest.raises(InvalidProblemError, match=r"2 environments.*gfx90a.*gfx942"):
        export([record(1), record(2, scope=other)])
