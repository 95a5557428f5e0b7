# SPDX-License-Identifier: MIT
"""Records in and out of files: JSON there and back, TunableOp's CSV and hipBLASLt's offline tuning file."""

import dataclasses
import json

import pytest
from made_up_records import SCOPE, problem, record

from rocpy.blaslt import Algorithm, OperandInfo, Problem
from rocpy.errors import InvalidProblemError, RocpyWarning
from rocpy.tuning import Shapes, export_hipblaslt, export_json, export_tunableop, import_json, problem_key


def test_json_there_and_back():
    records = [record(1), record(2, date=7.5)]
    assert import_json(export_json(records)) == records


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": "another"}, "format"),
        ({"schema": 99}, "schema 99"),
        ({"records": 7}, "records are int"),
        ({"records": {}}, "records are dict"),
    ],
)
def test_what_is_no_document_of_records_is_told(change, match):
    document = {**json.loads(export_json([record()])), **change}
    with pytest.raises(InvalidProblemError, match=match):
        import_json(json.dumps(document))


@pytest.mark.parametrize(
    ("field", "value"),
    [("solution", "x"), ("solution", True), ("solution", -1), ("solution", 1 << 70), ("solution", 1 << 33),
     ("measured_us", 0.0), ("measured_us", 1e-320), ("measured_us", float("nan")), ("baseline_us", float("inf")),
     ("baseline_us", 10**400), ("spread", -1.0), ("date", 1e300), ("workspace_bytes", 1.5), ("kernel", None),
     ("kernel", "\ud800"), ("scope", ["{}"])],
)  # fmt: skip
def test_a_record_with_a_wrong_field_is_left_out_and_named(field, value):
    document = json.loads(export_json([record(), record(1)]))
    document["records"][1][field] = value
    with pytest.warns(RocpyWarning, match=f"record 1: .*{field}"):
        assert import_json(json.dumps(document)) == [record()]


@pytest.mark.parametrize("row", [None, 7, [], {}, "x"])
def test_what_is_no_record_is_left_out(row):
    document = json.loads(export_json([record()]))
    document["records"] += [row, row]
    with pytest.warns(RocpyWarning, match="record 1: .* and 1 more"):
        assert import_json(json.dumps(document)) == [record()]


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "", "\0", "9" * 5000, "{", '{"format": "rocpy tuning records"}']
)
def test_what_is_no_document_is_refused(text):
    with pytest.raises(InvalidProblemError):
        import_json(text)
    with pytest.raises(InvalidProblemError):
        Shapes.from_json(text)
    with pytest.raises(InvalidProblemError):
        Algorithm.from_json(text)
    with pytest.raises(InvalidProblemError):
        Problem.from_json(text)


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
@pytest.mark.parametrize("field", ["scope", "key"])
@pytest.mark.parametrize(
    "text", ["", "[]", "7", "null", "{}", "[" * 100_000, '{"platform": "amd", "epilogue": "default"}']
)
def test_records_whose_texts_are_no_records_are_left_out(export, field, text):
    sound, strange = record(), dataclasses.replace(record(1), **{field: text})
    with pytest.warns(RocpyWarning, match="record 1: "):
        found, left_out = export([sound, strange])
    assert (found, left_out) == (export([sound])[0], 1)


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
@pytest.mark.parametrize(
    ("name", "value"), [("batch_count", "2"), ("batch_count", 1e9), ("op_a", []), ("d", {}), ("a", None)]
)
def test_records_with_terms_that_are_none_are_left_out(export, name, value):
    strange = record(1)
    strange = dataclasses.replace(strange, key=json.dumps({**json.loads(strange.key), name: value}))
    with pytest.warns(RocpyWarning, match="record 0: "):
        assert export([strange]) == ("", 1)


def test_tunableop():
    # Row-major 8 x 32 @ 32 x 16 is hipBLASLt's 16 x 8 x 32 without transposition.
    text, left_out = export_tunableop([record(0, of_problem=problem(8, 16, 32), solution=572)], torch_version="2.10.0")
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
    text, left_out = export_tunableop([record(1, of_problem=transposed), record(2, of_problem=batch)])
    assert left_out == 0
    assert "GemmTunableOp_BFloat16_TN,tn_16_8_32_ld_32_32_16,Gemm_Hipblaslt_TN_1,0.08" in text
    assert "GemmStridedBatchedTunableOp_float_NN,nn_16_8_32_B_3_ld_16_32_16,Gemm_Hipblaslt_NN_2,0.08" in text


def test_the_offline_tuning_file():
    text, left_out = export_hipblaslt([record(0, of_problem=problem(8, 16, 32), solution=572)])
    assert left_out == 0
    assert text.splitlines() == [
        "Git Version: abc123",
        "transA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index",
        "N,N,1,16,8,32,f16_r,f16_r,f16_r,f32_r,572",
    ]


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
def test_of_records_with_one_key_the_fastest_is_written_once(export):
    with_c = problem(8, 16, 32, c=OperandInfo.dense((8, 16), "float16"))
    records = [record(n, of_problem=with_c if n % 2 else problem(8, 16, 32), measured_us=us) for n, us in
               ((1, 5.0), (2, 1.0), (3, 3.0))]  # fmt: skip
    assert export(records) == export([records[1]])
    assert export(records[::-1]) == export([records[1]])


def test_of_two_records_with_one_offline_key_the_faster_is_written():
    wide = Problem.make(OperandInfo((8, 32), (64, 1), "float16"), OperandInfo.dense((32, 16), "float16"))
    records = [record(1, of_problem=problem(8, 16, 32), measured_us=9.0), record(2, of_problem=wide, measured_us=5.0)]
    assert problem_key(wide) != problem_key(problem(8, 16, 32))
    text, _ = export_hipblaslt(records)
    assert text.splitlines()[-1].endswith(",2")
    assert text.count("Git Version") == 1
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
@pytest.mark.parametrize("custom", [{"expression": "{}"}, {"inputs": (("r", OperandInfo.dense((8, 16), "float16")),)}])
def test_choices_for_an_epilogue_of_the_users_are_left_out_and_counted(export, custom):
    of_custom = dataclasses.replace(problem(8, 16, 32), **custom)
    assert export([record(1, of_problem=of_custom)]) == ("", 1)


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
def test_what_the_formats_cannot_say_is_left_out_and_counted(export):
    fused = problem(8, 16, 32, epilogue="gelu")
    host = json.dumps({**json.loads(SCOPE), "platform": "host"})
    text, left_out = export([record(1, of_problem=fused), record(2, scope=host)])
    assert (text, left_out) == ("", 2)
    text, left_out = export([record(1, of_problem=fused), record(3)])
    assert left_out == 1
    assert text


@pytest.mark.parametrize("export", [export_tunableop, export_hipblaslt])
def test_one_file_is_of_one_environment(export):
    other = json.dumps({**json.loads(SCOPE), "arch": "gfx90a"})
    with pytest.raises(InvalidProblemError, match=r"2 environments.*gfx90a.*gfx942"):
        export([record(1), record(2, scope=other)])
