# SPDX-License-Identifier: MIT
"""What notebooks and logs show: a line as repr, tables as HTML, messages of the logger; what cannot be pickled."""

import copy
import importlib
import logging
import pickle
from contextlib import contextmanager, nullcontext
from html.parser import HTMLParser

import numpy as np
import pytest

import rocpy
from rocpy import cooperative, rccl
from rocpy._messages.html import table
from rocpy.compat import nccl, nvmath
from rocpy.compat.nvmath import linalg
from rocpy.compat.nvmath.linalg import advanced

A, B = np.ones((4, 6), np.float32), np.ones((6, 8), np.float32)


class Cells(HTMLParser):
    """Counts the tags that are open, and collects the cells' text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def tuned():
    with rocpy.Matmul(A, B) as product:
        return product.autotune(budget_ms=5)


SHOWN = {
    "explanation": (lambda: rocpy.explain(A, B, epilogue="relu"), ["platform", "algorithm", "heuristic"]),
    "groups": (lambda: rocpy.explain([A, A[:2]], [B, B]), ["groups", "problem"]),
    "algorithm": (lambda: rocpy.explain(A, B).algorithm, ["workspace_bytes", "lowering"]),
    "tuning": (tuned, ["algorithm", "cold ms", "*"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_reprs_are_short_and_tables_are_whole(name):
    make, words = SHOWN[name]
    value = make()
    assert "\n" not in repr(value)
    assert len(repr(value)) < 300
    assert repr(value).startswith("<")
    texts = " ".join(Cells(value._repr_html_()).texts)
    for word in words:
        assert word in texts


def planned():
    with rocpy.Matmul(A, B) as product:
        return product.plan()


def remembered():
    with rocpy.Matmul(A, B) as product:
        product.plan()
        return product.algorithms


def planned_with_own_epilogue():
    with rocpy.Matmul(A, B, epilogue=rocpy.epilogue(lambda x: x + 1)) as product:
        assert product.algorithms == []
        assert product.plan() == product.algorithms
        return product.algorithms


def traced():
    with communicator() as comm:
        comm.all_reduce(A)
        return comm.trace()


def recorded():
    with rocpy.tuning.record() as shapes:
        rocpy.matmul(A, B)
    return shapes


LISTS = {
    "plan": (planned, ["workspace bytes", "lowering", "heuristic"]),
    "algorithms": (remembered, ["workspace bytes", "lowering", "heuristic"]),
    "own epilogue": (planned_with_own_epilogue, ["workspace bytes", "lowering"]),
    "trace": (traced, ["all_reduce", "float32", "24"]),
    "shapes": (recorded, ["(4 x 6) @ (6 x 8)"]),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_lists_with_a_table(name):
    make, words = LISTS[name]
    value = make()
    assert isinstance(value, list)
    assert value
    texts = " ".join(Cells(value._repr_html_()).texts)
    for word in words:
        assert word in texts
    assert repr(value) == repr(list(value))
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert again == value == list(value)
        assert again._repr_html_() == value._repr_html_()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rocpy.explain(A, B).problem, "<Problem (4 x 6) @ (6 x 8), float32 -> float32, epilogue default>"),
        (rocpy.platform.current, f"<Platform {rocpy.platform.current().name}, from "),
        (lambda: rocpy.options(copies="error", dynamic="m"), "rocpy.options(copies='error', dynamic='m')"),
        (rocpy.tuning.record, "<rocpy.tuning.record of 0 problems>"),
        (lambda: rocpy.tuning.Database([]), "<rocpy.tuning.Database in memory>"),
    ],
)
def test_reprs_say_what_it_is_on_a_short_line(make, words):
    text = repr(make())
    assert text.startswith(words)
    assert "\n" not in text
    assert len(text) < 120


def test_reprs_of_switches():
    with rocpy.tuning.enable(budget_ms=5) as on, rocpy.tuning.disable() as off:
        assert (repr(on), repr(off)) == ("rocpy.tuning.enable(budget_ms=5)", "rocpy.tuning.disable()")


def test_cells_are_escaped():
    assert "<script>" not in table("<script>", ("<b>",), [("<script>", None, 3)])
    assert Cells(table("t", ("a", "b"), [("<x>", None)])).texts == ["t", "a", "b", "<x>"]


@pytest.mark.torch
def test_reports_of_models(torch):
    rt = importlib.import_module("rocpy.torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4)).eval()
    report = rt.replace_linear(model)
    assert "linear layers replaced" in " ".join(Cells(report._repr_html_()).texts)
    frozen = rt.freeze(model)
    assert "\n" not in repr(frozen)
    assert "layers frozen" in " ".join(Cells(frozen._repr_html_()).texts)
    frozen.undo()


def test_spans():
    from rocpy import distributed

    with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm, distributed.overlap_trace() as spans:
        distributed.row_linear(A, np.ones((3, 6), np.float32), comm=comm, chunks=2)
    assert repr(spans) == "<Spans: 4 operations>"
    assert Cells(spans._repr_html_()).texts.count("collective") == 2


def test_logger_tells_of_plans_fallbacks_copies_and_tuning(caplog, fresh_plan_cache):
    with caplog.at_level(logging.DEBUG, logger="rocpy"):
        rocpy.matmul(A, B, epilogue="relu")
        rocpy.matmul(np.ones((8, 12), np.float32)[::2, ::-2], B)
        with rocpy.Matmul(A, B) as product:
            product.autotune(budget_ms=5)
        with rocpy.Matmul(A.astype(np.float64), B.astype(np.float64), epilogue="dgelu", aux=np.ones((4, 8))) as product:
            product.plan()
            is_composed = product.unfused is not None
    text = caplog.text
    for words in ("planned", "copied a (" if rocpy.platform.current().host_memory else "copied the operands", "tuned"):
        assert words in text
    assert ("composed" in text) == is_composed
    assert {record.name for record in caplog.records} == {"rocpy"}
    rocpy.matmul(A, B, epilogue="relu")  # planned anew, since tuning drops the plans that it may change
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="rocpy"):
        rocpy.matmul(A, B, epilogue="relu")
    told = [record.getMessage() for record in caplog.records]
    assert [one for one in told if not one.startswith("copied the operands")] == []  # a plan that is kept tells nothing


def test_logging_is_imported_by_products_alone(run_python):
    run_python("import sys, numpy, rocpy; assert 'logging' not in sys.modules")


COPIES = [pickle.dumps, copy.copy, copy.deepcopy]


def communicator():
    return rccl.Communicator.init(1, 0, rccl.UniqueId.make())


@contextmanager
def of_compat():
    with communicator() as own:
        yield nccl.Communicator(own)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: rocpy.Matmul(A, B), "export()"),
        (rocpy.Stream, "create one in the process"),
        (rocpy.Event, "create one in the process"),
        (communicator, "UniqueId"),
        (lambda: rocpy.Buffer(16), "to_numpy()"),
        (lambda: rccl.empty(16), "to_numpy()"),
        (lambda: nullcontext(rocpy.tuning.record()), "Shapes"),
        (rocpy.tuning.disable, "in the other process"),
        (lambda: nullcontext(rocpy.tuning.Database([])), "Database("),
        (of_compat, "unique id"),
        (lambda: advanced.Matmul(A, B), "same arguments"),
        (lambda: linalg.Matmul(A, B), "same arguments"),
        (lambda: nullcontext(nvmath.MemoryPointer(4096, 64, None)), "allocate"),
        (lambda: nullcontext(cooperative.jit(lambda x: None)[1, 1]), "kernel[grid, block]"),
    ],
)
@pytest.mark.parametrize("way", COPIES)
def test_what_belongs_to_a_process_is_not_pickled(make, advice, way):
    with (
        make() as value,
        pytest.raises(TypeError, match="belongs to this process and cannot be pickled or copied") as caught,
    ):
        way(value)
    assert advice in str(caught.value)


@pytest.mark.parametrize("way", COPIES)
def test_parts_of_a_communicator_are_not_pickled(way):
    has_windows = "ncclCommWindowRegister" not in rocpy.platform.missing()["rccl"]
    with communicator() as comm:
        memory = comm.empty(4, window=has_windows)
        parts = [comm.empty(4), memory, comm.premul_sum(2.0), comm.register_buffer(memory)]
        parts += [comm.window(memory)] if has_windows else []
        parts += [comm.all_reduce(A, block=False)]
        for part in parts:
            with pytest.raises(TypeError, match=f"a {type(part).__name__} belongs to this process"):
                way(part)


def test_kernels_are_not_pickled_and_are_their_own_copies():
    @cooperative.jit
    def filled(x):
        x[0] = 1

    with pytest.raises(
        TypeError, match="kernel filled belongs to this process and cannot be pickled; import its module"
    ):
        pickle.dumps(filled)
    assert copy.copy(filled) is copy.deepcopy([filled])[0] is filled


def test_weights_are_pickled_as_arrays():
    weight = pickle.loads(pickle.dumps(rocpy.Weight(B)))
    assert (rocpy.matmul(A, weight) == 6).all()


def test_names_for_type_checkers_are_those_that_there_are():
    from typing import get_args

    from rocpy import _operand, dtypes
    from rocpy.blaslt.model import epilogues, options, settings
    from rocpy.typing import ArrayDTypeName, ComputeName, DTypeName

    plain = {row.name for row in epilogues.EPILOGUES.values() if not row.outputs}
    pairs = set(epilogues.EPILOGUES) - plain
    grouped = {row.name for row in epilogues.EPILOGUES.values() if row.aux != "load" and not row.gradient}
    for names, expected in (
        (epilogues.PlainEpilogue, plain | set(epilogues._ALIASES)),
        (epilogues.PairEpilogue, pairs),
        (epilogues.GroupedPlainEpilogue, plain & grouped | set(epilogues._ALIASES)),
        (epilogues.GroupedPairEpilogue, pairs & grouped),
    ):
        members = [each for each in get_args(names) if isinstance(each, epilogues.Epilogue)]
        strings = [each for each in get_args(names) if not isinstance(each, epilogues.Epilogue)]
        assert (set(strings), set(members)) == (expected, expected - set(epilogues._ALIASES))
    assert set(get_args(DTypeName)) == set(dtypes.DTYPES)
    assert set(get_args(ArrayDTypeName)) == set(_operand.array_types())
    assert set(get_args(ComputeName)) == set(settings._COMPUTE_CODES)
    assert set(options.OptionsDict.__annotations__) == set(options.Options.__dataclass_fields__)


@pytest.mark.torch
def test_names_of_activations_for_type_checkers_are_those_that_there_are():
    from typing import get_args

    activations = importlib.import_module("rocpy.torch.operators.activations")
    names = {name for name, _ in activations._PUBLIC if name is not None}
    assert set(get_args(activations.ActivationName)) == names | set(activations._ALIASES)
    assert set(get_args(activations.Approximation)) == {approximate for _, approximate in activations._PUBLIC}
