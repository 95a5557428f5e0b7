# SPDX-License-Identifier: MIT
"""What a record is filed under: texts that stored records have, and what a plan's look-up costs."""

import dataclasses
import json

import numpy as np
import pytest
from made_up_records import record

import rocpy
from rocpy.blaslt import OperandInfo, Options, Problem
from rocpy.blaslt.model import lowering
from rocpy.tuning import Database, _lookup, database, problem_key

dense = OperandInfo.dense
A, B, BIAS = dense((8, 32), "float32"), dense((32, 16), "float32"), dense((16,), "float32")
BATCH = dense((3, 5, 8, 32), "float32"), OperandInfo((3, 1, 32, 16), (512, 512, 16, 1), "float32")
PROBLEMS = {
    "plain": Problem.make(A, B),
    "half": Problem.make(dense((8, 32), "float16"), dense((32, 16), "float16"), dtype="float32"),
    "tf32": Problem.make(A, B, compute="tf32"),
    "transposed": Problem.make(A, OperandInfo((32, 16), (1, 32), "float32")),
    "vector": Problem.make(dense((32,), "float32"), B),
    "c": Problem.make(A, B, dense((8, 16), "float32")),
    "in columns": Problem.make(A, B, out=OperandInfo((8, 16), (1, 8), "float32")),
    "bias": Problem.make(A, B, bias=BIAS, epilogue="gelu_bias"),
    "column bias": Problem.make(A, B, bias=dense((8, 1), "float32"), epilogue="bias"),
    "aux": Problem.make(A, B, bias=BIAS, epilogue="gelu_aux_bias"),
    "gradient": Problem.make(A, B, epilogue="bgradb"),
    "clamp": Problem.make(A, B, epilogue="clamp", clamp=(-0.0, float("inf"))),
    "batch": Problem.make(*BATCH),
    "outer loop": Problem.make(dense((3, 5, 8, 32), "float32"), dense((5, 32, 16), "float32")),
    "conjugate": Problem.make(dense((8, 32), "complex64"), OperandInfo((32, 16), (1, 32), "complex64"), conj_b=True),
    "packed": Problem.make(A, dataclasses.replace(B, packed=True)),
    "scales": Problem.make(
        dense((8, 32), "float8_e4m3fn"), dense((32, 16), "float8_e4m3fn"), dtype="bfloat16", scale_a="vector",
        scale_b="vector",
    ),
    "custom": dataclasses.replace(
        Problem.make(A, B), expression='{"name":"f"}',
        inputs=(("r", dense((8, 16), "float32")), ("s", dense((), "float32"))),
    ),
}  # fmt: skip


def spelled_out(problem, limit):
    """The text of a problem, as every schema-1 record has it, from the dataclasses field by field."""
    lowered = lowering.lower(problem)
    terms = {name: value for name, value in dataclasses.asdict(lowered).items() if name not in {"copies", "swapped"}}
    terms |= {"pointer_mode": "host", "batch_mode": "strided", "alpha_vector": False, "sm_count": 0, "stream_k": 0}
    terms["uniform_order"] = False
    for name in ("a", "b", "c", "bias", "aux"):
        operand = getattr(problem, name)
        terms[f"{name}_type"] = None if operand is None else operand.dtype
    terms |= {"has_c": problem.c is not None, "swapped": lowered.swapped, "packed": problem.b.packed}
    held = {"a", "b", "c", "bias", "aux", "out", "m", "n", "k", "batch_shape", "result_shape"}
    for field in dataclasses.fields(problem):
        value = getattr(problem, field.name)
        if field.name not in held and value not in (None, False, "", ()):
            terms[field.name] = value
    terms["max_workspace_bytes"] = limit
    return json.dumps(terms, sort_keys=True, separators=(",", ":"), default=str)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_text_is_that_of_stored_records(name):
    problem, options = PROBLEMS[name], Options(max_workspace_bytes=1 << 20)
    assert problem_key(problem, options) == spelled_out(problem, 1 << 20)


def test_the_text_of_one_problem_in_full():
    assert problem_key(PROBLEMS["clamp"], Options(max_workspace_bytes=7)) == (
        '{"a":{"batch_stride":0,"columns":32,"ld":16,"rows":16},"a_type":"float32","alpha_vector":false,"aux_'
        'batch_stride":128,"aux_ld":16,"aux_type":null,"auxiliaries":[],"b":{"batch_stride":0,"columns":8,"ld'
        '":32,"rows":32},"b_type":"float32","batch_count":1,"batch_mode":"strided","bias_batch_stride":0,"bia'
        's_type":null,"c":{"batch_stride":0,"columns":8,"ld":16,"rows":16},"c_type":null,"clamp":[-0.0,Infini'
        'ty],"columns":false,"compute":"float32","d":{"batch_stride":0,"columns":8,"ld":16,"rows":16},"dtype"'
        ':"float32","epilogue":"clamp","has_c":false,"max_workspace_bytes":7,"op_a":111,"op_b":111,"outer_sha'
        'pe":[],"outer_strides":{"a":[],"aux":[],"b":[],"bias":[],"c":[],"d":[],"scale_a":[],"scale_b":[]},"p'
        'acked":false,"pointer_mode":"host","scale_mode_a":0,"scale_mode_b":0,"scale_type":0,"sm_count":0,"st'
        'ream_k":0,"swapped":true,"transposed":false,"uniform_order":false}'
    )


def test_lists_describe_an_operand_as_tuples_do():
    listed = Problem.make(OperandInfo([8, 32], [32, 1], "float32"), B, epilogue="clamp", clamp=[0.0, 1.0])
    assert listed == Problem.make(A, B, epilogue="clamp", clamp=(0.0, 1.0))
    assert problem_key(listed) == spelled_out(listed, Options().max_workspace_bytes)


@pytest.mark.parametrize("custom", [False, True])
def test_a_plan_lowers_and_spells_out_each_problem_once(monkeypatch, fresh_plan_cache, custom):
    base = Database([])
    base.store(record())
    monkeypatch.setattr(database, "_current", base)
    texts, lowerings = [], []
    spell, init = _lookup.problem_key, lowering._Lowering.__init__
    monkeypatch.setattr(_lookup, "problem_key", lambda *given: texts.append(given[0]) or spell(*given))
    monkeypatch.setattr(
        lowering._Lowering, "__init__", lambda self, problem: lowerings.append(problem) or init(self, problem)
    )
    a, b = np.ones((37 + custom, 23), np.float32), np.ones((23, 29), np.float32)
    rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: np.maximum(x, 0) * 3) if custom else None)
    assert texts
    assert len(texts) == len(set(texts))
    assert len(lowerings) == len(set(lowerings))


def test_bounds_of_either_zero_are_looked_up_apart(monkeypatch):
    base = Database([])
    base.store(record())
    monkeypatch.setattr(database, "_current", base)
    asked = []
    monkeypatch.setattr(base, "find", lambda scope, key: asked.append(json.loads(key)["clamp"]))
    for low in (0.0, -0.0):
        problem = Problem.make(A, B, epilogue="clamp", clamp=(low, 1.0))
        _lookup.DatabaseChoices().lookup(problem, Options(), 0)
    assert [str(low) for low, _ in asked] == ["0.0", "-0.0"]


@pytest.mark.parametrize("device", ["0", 99, -1, True, 1.5, [0]])
def test_what_is_no_device_has_no_scope(device):
    with pytest.raises((rocpy.InvalidOperandError, rocpy.InvalidProblemError), match="^index: "):
        rocpy.tuning.scope(device)
