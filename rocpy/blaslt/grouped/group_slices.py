# SPDX-License-Identifier: MIT
"""Packed groups as products of their own: their problems, their operands, what they measure, and their explanations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rocpy import platform
from rocpy._operand import allocate_like
from rocpy.blaslt.front.explain_product import explain_product
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.grouped.scales import Lines, of_group
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import find_epilogue
from rocpy.blaslt.model.explanation import Explanation
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import tuner as _tuner
from rocpy.errors import UnsupportedError
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer

__all__: list[str] = []

# The axis of each operand that the groups share out, by form.
_SHARED = {"m": {"a": 0}, "n": {"b": 1, "bias": 0}, "k": {"a": 1, "b": 0}}


class GroupSlices:
    """The groups of one grouped product.

    Parameters
    ----------
    form
        The extent that they share out: ``"m"``, ``"n"`` or ``"k"``.
    starts
        Their boundaries.
    operands
        The user's ``a``, ``b``, ``bias``, ``out``, ``scale_a`` and ``scale_b``.
    dtype
        Type of the results.
    arguments
        Keyword arguments of :func:`rocpy.matmul` that all groups have.
    steps
        For ``a``, ``b`` and ``bias``, in elements: from one element of the shared axis to the next, and from one group
        to the next.
    """

    def __init__(
        self,
        form: str,
        starts: Sequence[int],
        operands: tuple[Any, ...],
        dtype: str,
        arguments: dict[str, Any],
        steps: dict[str, tuple[int, int]],
    ) -> None:
        self.form, self.starts, self.dtype = form, starts, dtype
        self.a, self.b, self.bias, self.out, self.scale_a, self.scale_b = operands
        self.arguments = arguments
        self.steps = steps

    def problem(self, one: Problem, extent: int, count: int) -> Problem:
        """Return the problem of some groups of one extent, from that of one group of another extent.

        Where the result lies is left out, so that what was measured for the product by itself serves.
        """
        shared = _SHARED[self.form]

        def operand(name: str) -> OperandInfo | None:
            seen: OperandInfo | None = getattr(one, name)
            if seen is None:
                return None
            shape, strides = seen.shape, seen.strides
            if name in shared:
                shape = (*shape[: shared[name]], extent, *shape[shared[name] + 1 :])
            index, group = self.steps[name]
            if count > 1 and (name != "bias" or index or group):
                shape, strides = (count, *shape), (index * extent + group, *strides)
            return replace(seen, shape=shape, strides=strides)

        a, b = operand("a"), operand("b")
        assert a is not None
        assert b is not None
        return Problem.make(
            a,
            b,
            bias=operand("bias"),
            epilogue=one.epilogue,
            dtype=one.dtype,
            compute=one.compute,
            clamp=one.clamp,
            scale_a=one.scale_a,
            scale_b=one.scale_b,
        )

    def operands(self, group: int) -> dict[str, Any]:
        """Return the operands of one group, as :func:`rocpy.matmul` takes them."""
        low, high = self.starts[group], self.starts[group + 1]
        shared, groups = slice(low, high), len(self.starts) - 1
        bias = self.bias
        if self.form == "m":
            a, b = self.a[shared], self.b[group]
        elif self.form == "n":
            a, b = self.a[group], self.b[:, shared]
        else:
            a, b = self.a[:, shared], self.b[shared]
        if bias is not None:
            bias = bias[shared] if self.form == "n" else bias[group] if len(bias.shape) == 2 else bias
        operands = {"a": a, "b": b, "bias": bias}
        lines = {
            "scale_a": Lines(self.a.shape[-2], self.form == "m"),
            "scale_b": Lines(self.b.shape[-1], self.form == "n"),
        }
        for name, each in lines.items():
            value = getattr(self, name)
            if value is not None:
                operands[name] = of_group(value, name, each, groups, group, low, high)
        return operands

    def measure(self, problem: Problem, options: Options, first: int, count: int) -> None:
        """Measure the product of some groups of one size, where nothing was measured of it before."""
        self._fetch()
        if not hasattr(self.a, "__getitem__"):
            return  # there is no view of a part of it
        if count == 1:
            operands = self.operands(first)
        else:
            operands = self._together(problem, first, count)
        a, b, bias = operands.pop("a"), operands.pop("b"), operands.pop("bias")
        arguments = {name: value for name, value in self.arguments.items() if name != "options"}
        _tuner.measure(problem, options, (a, b, None, bias, None, None), {**arguments, "dtype": self.dtype, **operands})

    def _together(self, problem: Problem, first: int, count: int) -> dict[str, Any]:
        """Return the operands of neighbouring groups of one size as those of one product with a batch axis."""
        shared = slice(self.starts[first], self.starts[first + count])
        every = slice(first, first + count)
        bias = self.bias
        if self.form == "m":
            a, b = self.a[shared].reshape(problem.a.shape), self.b[every]
        elif self.form == "n":
            a, b = self.a[every], self.b[:, shared].swapaxes(0, 1).reshape(*problem.b.shape[::2], -1).swapaxes(-1, -2)
        else:
            a = self.a[:, shared].swapaxes(0, 1).reshape(*problem.a.shape[::2], -1).swapaxes(-1, -2)
            b = self.b[shared].reshape(problem.b.shape)
        if bias is not None and len(bias.shape) == 2:
            bias = bias[every]
        elif bias is not None and self.form == "n":
            bias = bias[shared].reshape(count, -1)
        # Groups whose scales differ are no batch.
        scales = {"scale_a": self.scale_a, "scale_b": self.scale_b}
        present = {name: value for name, value in scales.items() if value is not None}
        shapes = {name: len(getattr(value, "shape", ())) for name, value in present.items()}
        return {"a": a, "b": b, "bias": bias} | {
            name: value[0] if shapes[name] == 3 else value for name, value in present.items()
        }

    def one_by_one(self, synchronize: Callable[[], None]) -> Any:
        """Compute each group of what the library cannot fuse by itself, with the operations of the framework."""
        if isinstance(self.a, Buffer):
            return self._by_numpy(synchronize)
        groups = len(self.starts) - 1
        shape: tuple[int, ...] = (self.a.shape[-2], self.b.shape[-1])
        shape = (groups, *shape) if self.form == "k" else shape

        def zeros(like: Any) -> Any:
            array = allocate_like(like, shape, self.dtype)
            if hasattr(array, "__setitem__"):
                array[...] = 0
            return array

        target = zeros(self.a if self.out is None else self.out)  # a group that is refused leaves out as it is
        if not hasattr(target, "__setitem__"):
            raise UnsupportedError(
                f"a: a {type(self.a).__name__}; groups that the library cannot fuse are written one by one, which "
                "requires numpy arrays or torch tensors"
            )
        name = next(iter(find_epilogue(self.arguments["epilogue"]).outputs), None)
        auxiliary = None if name is None else zeros(self.a)
        positions: list[Any] = []
        for group, (low, high) in enumerate(itertools.pairwise(self.starts)):
            if low == high and self.form != "k":
                continue
            operands = self.operands(group)
            result = matmul(operands.pop("a"), operands.pop("b"), **{"dtype": self.dtype, **operands, **self.arguments})
            synchronize()
            position: Any = group
            if self.form != "k":
                position = slice(low, high) if self.form == "m" else (slice(None), slice(low, high))
            if auxiliary is not None:
                result, extra = result
                auxiliary[position] = extra[name]
            target[position] = result
            positions.append(position)
        if self.out is not None:
            for position in positions:
                self.out[position] = target[position]
            target = self.out
        synchronize()
        return target if auxiliary is None else (target, {name: auxiliary})

    def _fetch(self) -> None:
        """Take what lies in bare memory of the device as numpy's, which has views of its parts."""
        for name in ("a", "b", "bias", "scale_a", "scale_b"):
            value = getattr(self, name)
            if isinstance(value, Buffer):
                setattr(self, name, value.to_numpy())

    def _by_numpy(self, synchronize: Callable[[], None]) -> Any:
        """Compute groups that lie in bare memory of the device by numpy's operations, and give results of that kind."""
        synchronize()
        self._fetch()
        out, self.out = self.out, None
        outputs = self.one_by_one(synchronize)
        result, extra = outputs if isinstance(outputs, tuple) else (outputs, {})
        returned = Buffer(result.shape, result.dtype) if out is None else out
        for low, high in itertools.pairwise(self.starts):
            if out is None:
                break
            # What no group covers keeps what it held.
            whole = out.to_numpy()
            position: Any = slice(low, high) if self.form == "m" else (slice(None), slice(low, high))
            whole[... if self.form == "k" else position] = result[... if self.form == "k" else position]
            out.copy_from(whole)
        if out is None:
            returned.copy_from(result)
        auxiliaries = {}
        for name, value in extra.items():
            auxiliaries[name] = Buffer(value.shape, value.dtype)
            auxiliaries[name].copy_from(value)
        return (returned, auxiliaries) if auxiliaries else returned

    def explained(self) -> Iterator[tuple[int, int, Explanation]]:
        """Yield the explanation of each group that is computed by itself."""
        self._fetch()
        for group, (low, high) in enumerate(itertools.pairwise(self.starts)):
            if low == high and self.form != "k":
                continue
            operands = self.operands(group)
            yield (
                group,
                1,
                explain_product(operands.pop("a"), operands.pop("b"), dtype=self.dtype, **operands, **self.arguments),
            )


def explanation_of(
    problem: Problem, algorithms: Sequence[Algorithm], chosen: int, source: str, device: int, options: Options
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
