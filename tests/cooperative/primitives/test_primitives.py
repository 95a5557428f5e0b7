# SPDX-License-Identifier: MIT
"""Each record of the table of primitives is complete, and each docstring's example runs."""

import doctest
import inspect

import pytest
from numba.core import types

from rocpy import cooperative as coop
from rocpy.cooperative.api.table import PRIMITIVES
from rocpy.cooperative.numba.groups import BLOCK, WARP
from rocpy.cooperative.numba.primitives import resolve
from rocpy.cooperative.numba.types import ThreadDataType
from rocpy.testing import primitives

VECTOR = types.Array(types.float32, 1, "C")
ITEMS = ThreadDataType(types.float32, 4)
NUMBERS = ThreadDataType(types.int32, 4)
WORDS = {
    "shuffle": {"mode": "up"},
    "exchange": {"mode": "blocked_to_striped"},
    "reduce": {"op": "+"},
    "reduce_batched": {"op": "+"},
    "inclusive_scan": {"op": "+"},
    "exclusive_scan": {"op": "+"},
}
# Types of the arguments that a call must have, beside the group.
NEEDED = {
    "value": ITEMS, "keys": ITEMS, "values": NUMBERS, "lengths": NUMBERS, "source": VECTOR, "target": VECTOR,
    "out": ITEMS, "distance": types.int64, "k": types.int64, "items": types.literal(2), "bins": types.literal(8),
    "bins_per_thread": types.literal(1),
}  # fmt: skip


def arguments_of(record):
    """Numba types of a call's arguments, and the names of those that are left out."""
    ordered, omitted = [], []
    for name, parameter in inspect.signature(record.function).parameters.items():
        if name == "group":
            ordered.append(WARP if record.name in ("ballot", "match") else BLOCK)
        elif name in WORDS.get(record.name, {}):
            ordered.append(types.literal(WORDS[record.name][name]))
        elif parameter.default is inspect.Parameter.empty or (record.name == "broadcast" and name == "source"):
            wanted = types.int64 if record.name == "broadcast" and name == "source" else NEEDED[name]
            if record.name == "histogram" and name == "value":
                wanted = NUMBERS
            if wanted in (ITEMS, NUMBERS) and "ThreadData" not in record.payloads:
                wanted = wanted.dtype
            ordered.append(wanted)
        else:
            ordered.append(types.none)
            omitted.append(name)
    return tuple(ordered), tuple(omitted)


@pytest.mark.parametrize("record", PRIMITIVES.values(), ids=lambda record: record.name)
def test_a_record_is_complete(record):
    assert record.family in primitives.ORACLES
    assert getattr(coop, record.name) is record.function
    assert record.name in coop.__all__
    for heading in ("Parameters", "Returns", "Examples"):
        assert heading in record.function.__doc__ or (heading == "Returns" and record.name in ("load", "store"))
    assert "{" not in record.function.__doc__
    plan = resolve(record.name, *arguments_of(record)).plan
    assert tuple(plan.choices) == record.choices
    assert next(iter(plan.parameters)) == "group"


PUBLIC = [name for name in coop.__all__ if ">>>" in (getattr(coop, name).__doc__ or "")]
QUICK = ("histogram", "merge_sort_keys", "store", "any")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PUBLIC]
)
def test_examples_run(name):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder(exclude_empty=True).find(getattr(coop, name), name, module=False, globs={}):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("function", [coop.shared.array, coop.local.array], ids=lambda function: function.__name__)
def test_examples_of_arrays_run(function):
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=False).find(function, function.__name__, globs={}):
        assert test.examples
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_public_functions_have_examples():
    functions = {name for name in coop.__all__ if inspect.isfunction(getattr(coop, name))}
    assert not functions - set(PUBLIC)
