# SPDX-License-Identifier: MIT
"""The recorder of the problems that a program meets, and the document of problems."""

import threading

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidProblemError
from rocpy.tuning import Shapes


def test_each_problem_once_also_those_planned_before():
    a, b = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
    rocpy.matmul(a, b)
    with rocpy.tuning.record() as shapes:
        for _ in range(3):
            rocpy.matmul(a, b)
            rocpy.matmul(a, b, epilogue="relu")
        with rocpy.Matmul(a[:2], b) as product:
            product.plan()
    assert [(problem.m, problem.epilogue) for problem in shapes] == [(6, "default"), (6, "relu"), (2, "default")]
    rocpy.matmul(a[:3], b)
    assert len(shapes) == 3


def test_a_recorded_call_is_planned_once_more_and_no_oftener():
    a, b = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
    with rocpy.tuning.record():
        rocpy.matmul(a, b)
        misses = rocpy.plan_cache.info()["misses"]
        for _ in range(10):
            rocpy.matmul(a, b)
        assert rocpy.plan_cache.info()["misses"] == misses


def test_recorders_may_be_nested_and_threads_are_seen():
    a, b = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
    with rocpy.tuning.record() as outer:
        rocpy.matmul(a, b)
        with rocpy.tuning.record() as inner:
            thread = threading.Thread(target=rocpy.matmul, args=(a[:4], b))
            thread.start()
            thread.join()
    assert [problem.m for problem in outer] == [6, 4]
    assert [problem.m for problem in inner] == [4]


def test_to_json_and_back(tmp_path):
    with rocpy.tuning.record() as shapes:
        rocpy.matmul(np.ones((3, 6, 5)), np.ones((5, 7)), epilogue="gelu_bias", bias=np.ones(7))
        rocpy.matmul(np.ones((6, 5), np.float32), rocpy.Weight(np.ones((5, 7), np.float32)))
    shapes.save(tmp_path / "shapes.json")
    assert Shapes.load(tmp_path / "shapes.json") == shapes
    assert Shapes.from_json(f"[{shapes[0].to_json()}]") == shapes[:1], "a bare list is taken too"


@pytest.mark.parametrize("text", ["", "{}", "7", "[7]", '{"problems": [{}]}', '[{"a": null}]'])
def test_what_is_no_document_of_problems_is_told(text):
    with pytest.raises(InvalidProblemError):
        Shapes.from_json(text)
