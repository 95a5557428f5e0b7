# SPDX-License-Identifier: MIT
"""rocpy.matmul reads usual arguments itself and leaves the others to a function that takes all: nobody sees which."""

import copy
import functools
import itertools
import pickle
import threading

import numpy as np
import pytest

import rocpy

A = np.arange(6, dtype="float32").reshape(2, 3)
B = np.arange(12, dtype="float32").reshape(3, 4) - 5
C = np.ones((2, 4), "float32")
BIAS = np.arange(4, dtype="float32")


def spelled(keywords):
    """The same keywords under names that are equal to a program's constants without being them."""
    return {"".join(list(name)): value for name, value in keywords.items()}


def outcome(arguments, keywords):
    try:
        result = rocpy.matmul(*arguments, **keywords)
    except (TypeError, rocpy.RocpyError) as error:
        return type(error), str(error)
    if isinstance(result, tuple):
        return [result[0].tolist(), result[0].dtype, {name: value.tolist() for name, value in result[1].items()}]
    return [result.tolist(), result.dtype]


CHOICES = {
    "c": (C, None, "text"),
    "alpha": (2.0, 3, None, "text"),
    "beta": (0.5, None, 0),
    "epilogue": ("relu", "bias", "gelu_aux_bias", "dgelu", "none such", None, 5, rocpy.Epilogue.RELU),
    "bias": (BIAS, BIAS[:3], None),
    "aux": (C, None),
    "clamp": ((-1, 1), None),
    "dtype": ("float32", "float64", None),
    "compute": ("tf32", "f99", None),
    "options": ({"max_workspace_bytes": 0}, {"none such": 1}, None),
    "stream": (None, "text"),
    "amax": (True, False),
    "scale_a": (None, 2.0),
    "autotune": (False, None),
    "algorithm": (None, 7),
    "epilogue_inputs": (None, {}),
    "none_such": (1,),
}


@pytest.mark.parametrize("positional", [0, 1, 2, 3, 4])
def test_one_keyword(positional):
    for name, values in CHOICES.items():
        for value in values:
            arguments, keywords = (A, B, C, C)[:positional], {name: value}
            assert outcome(arguments, keywords) == outcome(arguments, spelled(keywords)), (positional, name, value)


def test_two_keywords():
    for first, second in itertools.permutations(CHOICES, 2):
        for x, y in itertools.product(CHOICES[first][:3], CHOICES[second][:3]):
            keywords = {first: x, second: y}
            assert outcome((A, B), keywords) == outcome((A, B), spelled(keywords)), keywords


def test_c_is_given_once():
    for c in (C, None):
        for first in (C, None):
            with pytest.raises(TypeError, match="multiple values.*'c'"):
                rocpy.matmul(A, B, first, c=c)


def test_out_is_written_either_way():
    for names in (dict, spelled):
        out = np.zeros((2, 4), "float32")
        assert rocpy.matmul(A, B, **names({"out": out})) is out
        np.testing.assert_array_equal(out, A @ B)


def test_operands_that_vanish_meanwhile():
    """Arguments live as long as the call, whoever else drops them."""
    kept = [A.copy(), B.copy()]

    class Dropped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            kept.clear()
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    result = rocpy.matmul(kept[0], kept[1], bias=Dropped(BIAS.copy()), epilogue="bias")
    np.testing.assert_array_equal(np.asarray(result), A @ B + BIAS)


class Holder:
    """Has the function as a method: it is then the left operand."""

    product = rocpy.matmul

    def __array__(self, dtype=None, copy=None):
        return A

    def __dlpack__(self, **keywords):
        return A.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return A.__dlpack_device__()


def test_called_in_every_way():
    expected = (A @ B).tolist()
    assert functools.partial(rocpy.matmul, A)(B).tolist() == expected
    assert functools.partial(rocpy.matmul, alpha=1.0)(A, B).tolist() == expected
    assert [each.tolist() for each in map(rocpy.matmul, [A, A], [B, B])] == [expected] * 2
    assert rocpy.matmul.__call__(A, B, None).tolist() == expected
    assert np.asarray(Holder().product(B)).tolist() == expected
    assert np.asarray(Holder().product(B, bias=BIAS, epilogue="bias")).tolist() == (A @ B + BIAS).tolist()
    with pytest.raises(TypeError, match="strings"):
        rocpy.matmul(A, B, **{1: 2})


def test_threads_call_it_differently():
    """No call's arguments are seen by another."""
    faults = []

    def work(scale):
        for turn in range(300):
            keywords = {"alpha": scale} if turn % 2 else spelled({"alpha": scale})
            if (rocpy.matmul(A, B, **keywords) != scale * (A @ B)).any():
                faults.append((scale, turn))

    threads = [threading.Thread(target=work, args=(scale,)) for scale in (1.0, 2.0, 4.0, 8.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_it_is_one_function():
    assert pickle.loads(pickle.dumps(rocpy.matmul)) is rocpy.matmul is copy.deepcopy(rocpy.matmul)
    assert rocpy.matmul.__name__ == "matmul"
    assert rocpy.matmul.__doc__.count("hipblasLtMatmul")
