# SPDX-License-Identifier: MIT
"""How a grouped product would be computed, without computing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocpy import platform
from rocpy.blaslt.arrays.copies import contiguous
from rocpy.blaslt.arrays.staging import check_allowed, needed, take, upload_scales
from rocpy.blaslt.front.explain_product import explain_product
from rocpy.blaslt.grouped.function import explain_packed
from rocpy.blaslt.grouped.groups import aligned
from rocpy.blaslt.grouped.scales import of_lists
from rocpy.blaslt.model.explanation import Explanation, GroupedExplanation
from rocpy.blaslt.model.options import Options, resolve_options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.refusals import copy_refused
from rocpy.blaslt.selection import choice as _choice
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer


def explain_groups(a: Any, b: Any, **arguments: Any) -> GroupedExplanation:
    """Return how ``rocpy.grouped_matmul`` with these arguments would be computed."""
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
        scales = upload_scales((arguments.get("scale_a"), arguments.get("scale_b")))
        arguments["scale_a"], arguments["scale_b"] = scales or (None, None)
        arguments["out"] = None
    packed_runs = explain_packed(a, b, **arguments)
    while len(packed_runs) == 1 and isinstance(packed_runs[0], list):
        names = packed_runs[0]
        if options.copies == "error":
            value = {"a": a, "b": b, **arguments}[names[0]]
            raise copy_refused(names[0], f"shape {tuple(value.shape)}")
        copies += tuple(names)
        operands = {"a": a, "b": b, **arguments}
        operands.update({name: None if name == "out" else contiguous(operands[name]) for name in names})
        a, b = operands.pop("a"), operands.pop("b")
        arguments = operands
        packed_runs = explain_packed(a, b, **arguments)
    runs = []
    for run in packed_runs:
        if len(run) == 4:
            runs.append((run[0], run[1], run[3]))
        else:
            first, count, _, problem, algorithms, chosen, source, device = run
            runs.append((first, count, explanation_of(problem, algorithms, chosen, source, device, options)))
    for value in moved:
        if isinstance(value, Buffer):
            value.close()
    return GroupedExplanation(tuple(runs), copies)


def _explain_lists(a: Any, b: Any, **arguments: Any) -> GroupedExplanation:
    """Return how each product of lists would be computed."""
    arguments.pop("offsets", None)
    bias, out = arguments.pop("bias", None), arguments.pop("out", None)
    lefts, rights, biases, _ = aligned(a, b, bias, out, arguments.pop("groups", None))
    scales = {name: of_lists(arguments.pop(name, None), name, len(lefts)) for name in ("scale_a", "scale_b")}
    runs = []
    for group, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        group_scales = {name: values[group] for name, values in scales.items()}
        how = explain_product(left, right, bias=biases[group], **group_scales, **arguments)
        runs.append((group, 1, how))
    return GroupedExplanation(tuple(runs))


def explanation_of(
    problem: Problem, algorithms: Sequence[Any], chosen: int, source: str, device: int, options: Options
) -> Explanation:
    """Return the explanation of a run of groups from its plan."""
    return Explanation(
        platform=platform.current().name,
        device=Device(device).name,
        problem=problem,
        algorithm=_choice.labelled(algorithms[chosen], source, problem, options, device),
        candidates=len(algorithms),
        source=source,
        copies=(),
        packed=problem.b.packed,
    )
