# SPDX-License-Identifier: MIT
"""The lowering native+kernel: what is left of an expression after the library's product, by one generated kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.launch import (
    Placed,
    dense,
    device_of,
    launch,
    placed,
    refuse_captured_outs,
    results_of,
    write,
)
from rocpy.blaslt.engine.streams import refuse_capturing
from rocpy.blaslt.model.refusals import readable_form
from rocpy.runtime.kernels import compilation

if TYPE_CHECKING:
    from rocpy.epilogues import Expression
    from rocpy.epilogues.lowering.hip import HipKernel

__all__ = ["Generated", "generated_of"]

_NAME = "rocpy_epilogue"


@dataclass(frozen=True, slots=True)
class Generated:
    """A kernel for the operands of one product, compiled.

    Parameters
    ----------
    kernel
        Its source.
    code
        Its code object.
    """

    kernel: HipKernel
    code: bytes

    def refuse_capture(
        self, inputs: Mapping[str, Any], bound: _custom.Bound, outs: tuple[Any, ...], stream: Any
    ) -> None:
        """Refuse copies on a stream that is being captured."""
        refuse_captured_outs(outs, stream)
        for name in self.kernel.inputs:
            if placed(inputs[name], name).steps(bound.result_shape) is None:
                refuse_capturing(stream, f"{name} must be copied", readable_form(name))

    def finish(
        self,
        base: Any,
        inputs: Mapping[str, Any],
        bound: _custom.Bound,
        outs: tuple[Any, ...],
        options: Any,
        stream: Any,
    ) -> tuple[Any, ...]:
        """Return the results of what is left after the product, written where the user wants them."""
        shape = bound.result_shape
        x = placed(base, "the product")
        results = results_of(x.array, shape, bound.out_types)
        if math.prod(shape):
            whole = (1,) * max(0, 2 - len(shape)) + shape
            batch, (rows, columns) = math.prod(whole[:-2]), whole[-2:]
            arguments: list[Any] = [x.argument]
            for name in self.kernel.inputs:
                one, steps = _walked(placed(inputs[name], name), name, shape, options)
                arguments += [one.argument, *map(np.int64, steps)]
            grid = self.kernel.grid(batch, rows, columns)
            arguments += [one.argument for one in results]
            arguments += map(np.int64, (batch, rows, columns, grid[2], grid[1]))
            launch(
                self.code, self.kernel.name, device_of(x.array, stream), grid, self.kernel.threads, arguments,
                like=x.array, stream=stream,
            )  # fmt: skip
        return write(results, outs, base, stream)


def _walked(one: Placed, name: str, shape: tuple[int, ...], options: Any) -> tuple[Placed, tuple[int, ...]]:
    """Return an input and its steps; a dense copy where its batch axes have none."""
    steps = one.steps(shape)
    if steps is None:
        one = dense(one, name, shape, options)
        steps = one.steps(shape)
        assert steps is not None  # a dense array's axes are one
    return one, steps


@functools.lru_cache(maxsize=256)
def source_of(bound: _custom.Bound, rest: Expression, x_type: str) -> HipKernel:
    """Return the kernel of what is left of an epilogue after a product of some type.

    Raises
    ------
    UnsupportedError
        If generated kernels do not compute it.
    """
    from rocpy.epilogues.expressions.resolve import resolve
    from rocpy.epilogues.lowering.hip import block_threads, kernel_source

    resolved = bound.resolved
    # Everything has been resolved: what is left computes in one type, and its inputs are read as that.
    named = {name: (resolved.compute or own, rank) for name, (own, rank) in resolved.inputs}
    left = resolve(rest, resolved.compute or resolved.x_type, named)
    read = tuple((name, kind) for name, kind in resolved.inputs if name in left.expression.used_inputs)
    left = replace(left, out_types=bound.out_types, inputs=read)
    columns = bound.result_shape[-1] if bound.result_shape else 1
    return kernel_source(left, _NAME, x_type, block_threads(columns))


def generated_of(bound: _custom.Bound, rest: Expression, x_type: str, device: int) -> Generated:
    """Return the kernel of what is left of an epilogue, compiled for a device.

    Raises
    ------
    UnsupportedError
        If it is no GPU of AMD's, there is no compiler, or kernels do not compute it.
    """
    arch = compilation.device_arch(device)
    kernel = source_of(bound, rest, x_type)
    return Generated(kernel, compilation.code_object(kernel.source, kernel.name, arch))
