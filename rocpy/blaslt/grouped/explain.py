# SPDX-License-Identifier: MIT
"""How a grouped product would be computed, without computing it."""

from __future__ import annotations

from typing import Any

from rocpy._operand import describe
from rocpy.blaslt.arrays.copies import contiguous
from rocpy.blaslt.arrays.staging import check_allowed, needed, take, upload_scale
from rocpy.blaslt.front.explain_product import explain_product
from rocpy.blaslt.grouped._packed import check_settings, explain_packed
from rocpy.blaslt.grouped.groups import aligned, check_epilogue, in_group, read_each
from rocpy.blaslt.grouped.scales import of_lists
from rocpy.blaslt.model.epilogues import find_epilogue
from rocpy.blaslt.model.explanation import GroupedExplanation
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.problem import OperandInfo
from rocpy.blaslt.model.refusals import copy_refused
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.runtime.memory import Buffer


def explain_groups(a: Any, b: Any, **arguments: Any) -> GroupedExplanation:
    """Return how ``rocpy.grouped_matmul`` with these arguments would be computed."""
    check_settings(arguments)
    if arguments.get("offsets") is None:
        return _explain_lists(a, b, **arguments)
    options = resolve_options(arguments.get("options"))
    copies: tuple[str, ...] = ()
    moved: list[Any] = []
    if needed(a):
        check_allowed(options)
        operands = {"a": a, "b": b, "bias": arguments.get("bias")}
        copies = tuple(name for name, value in operands.items() if value is not None)
        moved = [take(value, name, options) for name, value in operands.items()]
        a, b, arguments["bias"] = moved
        for name in ("scale_a", "scale_b"):
            arguments[name] = upload_scale(arguments.get(name), name)
        arguments["out"] = None
    arguments.update(a=a, b=b)
    operands = {name: arguments.get(name) for name in ("a", "b", "bias")}
    copies += tuple(name for name, value in operands.items() if value is not None and describe(value, name)["copied"])
    how = explain_packed(**arguments)
    while how.copies:
        if options.copies == "error":
            view = describe(arguments[how.copies[0]], how.copies[0])
            layout = OperandInfo(tuple(view["shape"]), tuple(view["strides"]), view["dtype"])
            raise copy_refused(how.copies[0], layout.text)
        copies += how.copies
        arguments.update({name: None if name == "out" else contiguous(arguments[name]) for name in how.copies})
        how = explain_packed(**arguments)
    for value in moved:
        if isinstance(value, Buffer):
            value.close()
    return GroupedExplanation(how.runs, copies)


def _explain_lists(a: Any, b: Any, **arguments: Any) -> GroupedExplanation:
    """Return how each product of lists would be computed."""
    arguments.pop("offsets", None)
    check_epilogue(find_epilogue(arguments.get("epilogue")))
    bias, out = arguments.pop("bias", None), arguments.pop("out", None)
    lefts, rights, biases, _ = aligned(a, b, bias, out, arguments.pop("groups", None))
    lefts, rights, biases = read_each(lefts, "a"), read_each(rights, "b"), read_each(biases, "bias")
    scales = {name: of_lists(arguments.pop(name, None), name, len(lefts)) for name in ("scale_a", "scale_b")}
    runs = []
    for group, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        group_scales = {name: values[group] for name, values in scales.items()}
        try:
            how = explain_product(left, right, bias=biases[group], **group_scales, **arguments)
        except (InvalidOperandError, InvalidProblemError, UnsupportedError) as error:
            raise in_group(error, group) from None
        runs.append((group, 1, how))
    return GroupedExplanation(tuple(runs))
