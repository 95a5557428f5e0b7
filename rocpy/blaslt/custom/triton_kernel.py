# SPDX-License-Identifier: MIT
"""Custom epilogues by one Triton kernel: which variant operands need, its arguments, and its launch."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
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
    refuse_host_operands,
    results_of,
    write,
)
from rocpy.blaslt.model.algorithms import Algorithm, origin
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.product_types import FLOAT8
from rocpy.blaslt.model.scale_arguments import ScaleArguments, all_scales
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime.kernels import compilation

if TYPE_CHECKING:
    from rocpy.blaslt.model.product_call import ProductCall
    from rocpy.epilogues import FusedKernel, Tile

__all__ = ["TritonProduct", "check", "triton_product_of"]

# What a stride may be, and how far a matrix may reach: the kernel counts elements of a matrix in 32 bits.
_REACH = 1 << 31
_MOST_BATCH = 65535
_ALIGNMENT = 16
_OPERANDS = ("float16", "bfloat16", "float32", *FLOAT8)


def check(bound: _custom.Bound, options: Any) -> None:
    """Refuse a product that the kernel does not compute, whatever the device.

    Raises
    ------
    UnsupportedError
        With the reason.
    """
    problem = bound.problem
    if problem.a.dtype != problem.b.dtype or problem.a.dtype not in _OPERANDS:
        raise UnsupportedError(f"a Triton kernel multiplies two operands of one dtype: {', '.join(_OPERANDS)}")
    if problem.c is not None:
        raise UnsupportedError("a Triton kernel does not add c; pass it as an input of the epilogue")
    for name in ("scale_a", "scale_b"):
        kind = getattr(problem, name)
        if kind not in ("", "scalar") or getattr(problem, f"{name}_batch"):
            raise UnsupportedError(
                f"a Triton kernel multiplies by one number for all of an operand, and {name} has one per row, column "
                "or block; pass those of rows and columns as inputs of the epilogue"
            )
    if problem.scale_d:
        raise UnsupportedError("a Triton kernel takes no scale_d; multiply by it in the epilogue")
    if problem.compute != "float32":
        raise UnsupportedError(f"a Triton kernel accumulates in float32, not {problem.compute}; omit compute=")
    if min(len(problem.a.shape), len(problem.b.shape)) < 2:
        raise UnsupportedError("a Triton kernel multiplies matrices, and an operand is a vector")
    if problem.batch > _MOST_BATCH:
        raise UnsupportedError(f"a Triton kernel supports at most {_MOST_BATCH} batch entries, got {problem.batch}")
    if options.reproducible == "batch":
        raise UnsupportedError("options(reproducible='batch'): a Triton kernel's tiles are chosen by M")


def _kinds(bound: _custom.Bound) -> dict[str, str]:
    """Return what each input broadcasts along."""
    kinds = {}
    for name, info in bound.inputs:
        rows, columns = (1, 1, *info.shape)[-2:]
        if math.prod(info.shape) == 1:
            kinds[name] = "scalar"
        elif rows == 1:
            kinds[name] = "row"
        elif columns == 1:
            kinds[name] = "column"
        else:
            kinds[name] = "full"
    return kinds


class TritonProduct:
    """Kernels for products of one kind on one device, each compiled when it is first needed.

    Parameters
    ----------
    bound
        The epilogue for the operands.
    device
        Number of the device.

    Raises
    ------
    UnsupportedError
        If it is no GPU of AMD's that Triton knows, or the kernel has no such type.
    """

    def __init__(self, bound: _custom.Bound, device: int) -> None:
        from rocpy.epilogues.lowering import triton as _triton

        self.bound, self.kinds = bound, _kinds(bound)
        self.arch = compilation.device_arch(device)
        if self.arch not in _triton.ARCHITECTURES:
            raise UnsupportedError(
                f"Triton kernels are generated for {', '.join(_triton.ARCHITECTURES)}, not {self.arch}"
            )
        problem = bound.problem
        self.tiles: tuple[Tile, ...] = _triton.tiles(problem.m, problem.n, self.arch, problem.a.dtype)
        self.version = zlib.crc32(f"{_triton._FORMAT} {_triton._version()}".encode()) & 0x7FFFFFFF
        self.origin = origin(device)
        self._kernels: dict[tuple[Any, ...], FusedKernel] = {}
        self._variants: list[tuple[str, bool, tuple[str, ...]]] = []

    def kernel(self, tile: Tile, layout: str, aligned: bool, scales: tuple[str, ...] = ()) -> FusedKernel:
        """Return a variant, compiled now or before; ``scales`` are those that lie in the device's memory."""
        from rocpy.epilogues.lowering import triton as _triton
        from rocpy.epilogues.lowering.triton_source import kernel_text

        even_k = self.bound.problem.k % tile.k == 0
        key = (tile, layout, aligned, scales)
        compiled = self._kernels.get(key)
        if compiled is None:
            text = kernel_text(self.bound.resolved, self.bound.problem.a.dtype, layout, self.kinds, scales)
            compiled = _triton.compile_text(text, self.arch, tile=tile, even_k=even_k, aligned=aligned)
            self._kernels[key] = compiled
            if (layout, aligned, scales) not in self._variants:
                self._variants.append((layout, aligned, scales))
        return compiled

    def compile_all(self) -> None:
        """Compile every candidate for the operands that have been seen."""
        for tile in self.tiles:
            for layout, aligned, scales in self._variants:
                try:
                    self.kernel(tile, layout, aligned, scales)
                except (LibraryError, UnsupportedError):
                    continue  # its execution says why

    def algorithms(self, requested: int) -> list[Algorithm]:
        """Return the candidates, best first."""
        library, arch = self.origin
        return [
            Algorithm(
                id=self.version,
                name=f"triton {tile.name}",
                workspace_bytes=0,
                waves=0.0,
                lowering="fused",
                rank=rank,
                library=library,
                arch=arch,
            )
            for rank, tile in enumerate(self.tiles[:requested])
        ]

    def operands(self, a: Any, b: Any, options: Any, stream: Any = None) -> tuple[dict[str, Placed], str]:
        """Return a and b as the kernel reads them, and the letters of their layouts."""
        if is_weight(b):
            b = b.matrix()
        refuse_host_operands(a, options)
        located, letters = {}, ""
        for name, array in (("a", a), ("b", b)):
            one = placed(array, name)
            letter = _letter(one)
            if not letter or one.steps(self._shape(name)) is None:
                one, letter = dense(one, name, None, options, stream), "n"
            located[name] = one
            letters += letter
        return located, letters

    def _shape(self, name: str) -> tuple[int, ...]:
        problem = self.bound.problem
        ends = {"a": (problem.m, problem.k), "b": (problem.k, problem.n)}
        return (*problem.batch_shape, *ends[name])

    def run(self, position: int, call: ProductCall) -> tuple[Any, ...]:
        """Return the results of one candidate, written where the user wants them."""
        a, b, stream = call.a, call.b, call.stream
        options = resolve_options(call.options)
        refuse_captured_outs(call.out, stream)
        problem, shape = self.bound.problem, self.bound.result_shape
        arrays, layout = self.operands(a, b, options, stream)
        scales, numbers = _scales(b, call.scales)
        like = arrays["a"].array
        results = results_of(like, shape, self.bound.out_types)
        steps = {name: _known(arrays[name].steps(self._shape(name))) for name in "ab"}
        for name in self.kinds:
            arrays[f"in_{name}"], steps[f"in_{name}"] = self._input(name, call.inputs[name], options, stream)
        for number, one in enumerate(results):
            arrays[f"out{number}"], steps[f"out{number}"] = one, _known(one.steps(shape))
        lines = {name: own[1] for name, own in steps.items()} | _lines(steps, layout)
        extents = {"M": problem.m, "N": problem.n, "K": problem.k}
        _check_reach(lines, extents)
        kernel = self.kernel(self.tiles[position], layout, _aligned(arrays, lines), tuple(scales))
        arrays |= scales
        arguments: list[Any] = []
        for name, _ in kernel.arguments:
            if name in arrays:
                arguments.append(arrays[name].argument)
            elif name in extents:
                arguments.append(np.int32(extents[name]))
            elif name == "alpha":
                arguments.append(np.float32(call.alpha * numbers))
            elif name.startswith("batch_"):
                arguments.append(np.int64(steps[name.removeprefix("batch_")][0]))
            else:
                arguments.append(np.int32(lines[name.removeprefix("s_")]))
        if math.prod(shape):
            launch(
                kernel.code, kernel.name, device_of(like, stream), kernel.grid(problem.m, problem.n, problem.batch),
                kernel.threads, [*arguments, None, None], like=like, stream=stream, shared_bytes=kernel.shared_bytes,
            )  # fmt: skip
        return write(results, call.out, a, stream)

    def first(self, a: Any, b: Any, scales: ScaleArguments | None, options: Any) -> None:
        """Compile the first candidate for operands."""
        arrays, layout = self.operands(a, b, options)
        read = tuple(_scales(b, scales)[0])
        steps = {name: _known(arrays[name].steps(self._shape(name))) for name in "ab"}
        self.kernel(self.tiles[0], layout, _aligned(arrays, _lines(steps, layout)), read)

    def _input(self, name: str, value: Any, options: Any, stream: Any) -> tuple[Placed, tuple[int, ...]]:
        """Return an input and its steps; a dense copy where the kernel cannot walk it."""
        shape = self.bound.result_shape
        one = placed(value, name)
        steps = one.steps(shape)
        if steps is None or (self.kinds[name] in ("row", "full") and steps[2] not in (0, 1)):
            one = dense(one, name, shape if steps is None else None, options, stream)
        return one, _known(one.steps(shape))


def _scales(b: Any, scales: ScaleArguments | None) -> tuple[dict[str, Placed], float]:
    """Return the scales that are arrays of one number, for the kernel to read, and the product of those on the host."""
    arrays, numbers = {}, 1.0
    scales = all_scales(b, scales) or ScaleArguments()
    for name, value in (("scale_a", scales.a), ("scale_b", scales.b)):
        if isinstance(value, (int, float, np.generic)):
            numbers *= float(value)
        elif value is not None:
            arrays[name] = placed(value, name)
    return arrays, numbers


def _known(steps: tuple[int, ...] | None) -> tuple[int, ...]:
    assert steps is not None  # asked of arrays that were made dense where need be
    return steps


def _lines(steps: Mapping[str, tuple[int, ...]], layout: str) -> dict[str, int]:
    """Return how far the rows of a and b, or their columns where they lie so, are apart."""
    return {name: steps[name][1 if letter == "n" else 2] for name, letter in zip("ab", layout, strict=True)}


def _aligned(arrays: Mapping[str, Placed], lines: Mapping[str, int]) -> bool:
    """Whether vectors of 16 bytes begin where the kernel would read them."""
    starts = all(one.address % _ALIGNMENT == 0 for one in arrays.values())
    return starts and all(lines[name] % _ALIGNMENT == 0 for name in "ab")


def _letter(one: Placed) -> str:
    """Return how an operand lies: ``n`` row by row, ``t`` column by column, empty for neither."""
    (rows, columns), (down, right) = one.shape[-2:], one.strides[-2:]
    if right == 1 or columns == 1:
        return "n"
    return "t" if down == 1 or rows == 1 else ""


def _check_reach(lines: Mapping[str, int], extents: Mapping[str, int]) -> None:
    longest = max(extents.values())
    for name, step in lines.items():
        if abs(step) * longest >= _REACH:
            raise UnsupportedError(
                f"{name.removeprefix('in_')}: its rows are {step} elements apart; a Triton kernel supports strides "
                f"below {_REACH}"
            )


def triton_product_of(
    bound: _custom.Bound, a: Any, b: Any, scales: ScaleArguments | None, options: Any, device: int
) -> TritonProduct:
    """Return the kernels of a product, the first candidate compiled.

    Raises
    ------
    UnsupportedError
        If there is no such kernel, with the reason.
    """
    check(bound, options)
    product = TritonProduct(bound, device)
    product.first(a, b, scales, options)
    return product
