# SPDX-License-Identifier: MIT
"""What the per-call path leaves to Python: copies of odd layouts, forced algorithms, explanations, refusals."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocpy import platform
from rocpy.blaslt._options import Options
from rocpy.blaslt._weight_operand import is_weight
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.lowering import lower
from rocpy.blaslt.problem import Problem
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError, UnsupportedError
from rocpy.runtime.memory import Buffer

__all__ = ["Explanation", "explain"]

# Bits of a call whose operands must be copied, by the user's names.
COPY_BITS = {"a": 0, "b": 1, "c": 2, "bias": 3, "aux": 4, "out": 5, "columns": 6}
# ROCPY_EXT_ORDER_PACKED of csrc/abi/types_extension.h.
ORDER_PACKED = 7498593
_COMPUTE_CODES = {"float32": 0, "tf32": 1, "float64": 2, "int32": 3}
SCALES = ("scale_a", "scale_b", "scale_c", "scale_d", "amax")


def compute_code(compute: object) -> int:
    """Return the key's number of a compute type; an unknown one is refused here, before it can share a key."""
    code = _COMPUTE_CODES.get(compute) if isinstance(compute, str) else None
    if code is None:
        raise InvalidProblemError(f"compute={compute!r}; it may be {', '.join(map(repr, _COMPUTE_CODES))}")
    return code


def clamp_bounds(clamp: object) -> tuple[float, float]:
    """Return the bounds of a clamp epilogue as two floats."""
    try:
        low, high = map(float, clamp)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblemError(f"clamp={clamp!r}; it must be a pair of numbers (low, high)") from None
    if not low <= high:  # NaN fails this too
        raise InvalidProblemError(f"clamp={clamp!r}; low must not be above high, and neither may be NaN")
    return low, high


def nothing_found(problem: Problem, options: Options) -> str:
    """Return the message for a problem that the platform has no algorithm for."""
    chosen = platform.current()
    if options.reproducible:
        return (
            f"the {chosen.name} platform has no algorithm for {problem} that promises reproducible="
            f"{options.reproducible!r} within {options.max_workspace_bytes} bytes of workspace; leave the option away, "
            "or run where the platform promises it: rocpy.blaslt.supported(..., options=...) tells"
        )
    return (
        f"the {chosen.name} platform has no algorithm for {problem} within {options.max_workspace_bytes} bytes "
        "of workspace; "
        "try another dtype, epilogue='default' with the epilogue applied afterwards, or a larger "
        "options(max_workspace_bytes=...)"
    )


def refuse_later(**arguments: object) -> None:
    """Refuse the arguments that matmul takes by name and cannot serve yet."""
    given = [name for name, value in arguments.items() if value is not None and value is not False]
    raise UnsupportedError(f"{', '.join(given)}: not supported yet; leave {'it' if len(given) == 1 else 'them'} away")


def weight_scales(given: tuple[Any, ...] | None, scale: Any) -> tuple[Any, ...]:
    """Return the scales of a product with a Weight's own among them; that they are is told by the sixth place."""
    if given is None:
        return (None, scale, None, None, False, True)
    if given[1] is not None:
        raise InvalidProblemError("scale_b: the Weight carries a scale already; leave it away")
    return (given[0], scale, *given[2:5], True)


def all_scales(b: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the scales of a product with that of a Weight among them; ``None`` where there are none."""
    chosen = None if all(value is None or value is False for value in given) else given
    scale = b.factors if is_weight(b) else None
    return chosen if scale is None else weight_scales(chosen, scale)


def scale_arguments(b: Any, scales: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return the scales as keyword arguments, without that which b brings along."""
    if scales is None:
        return {}
    found = {
        name: value for name, value in zip(SCALES, scales, strict=False) if value is not None and value is not False
    }
    if getattr(b, "scale", None) is not None and is_weight(b):
        found.pop("scale_b", None)
    return found


def copy_refused(name: str, layout: str) -> UnsupportedError:
    """Return the error for a copy that the options forbid."""
    return UnsupportedError(
        f"{name}: {layout}: the library cannot take this layout, and options(copies='error') forbids the copy; "
        "pass an array whose last or last but one axis is contiguous"
    )


def cast_refused(out: str, dtype: str) -> UnsupportedError:
    """Return the error for a result that would be computed aside and cast, where the options forbid copies."""
    return UnsupportedError(
        f"out is {out} and the result is {dtype}: it would be computed aside and cast, and options(copies='error') "
        f"forbids that; pass out= of {dtype}"
    )


def contiguous(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return a C-contiguous copy of an array by its own framework, broadcast to ``shape`` if one is given."""
    if isinstance(array, np.ndarray):
        source = array if shape is None else np.broadcast_to(array, shape)
        try:
            return np.array(source, order="C", copy=True)
        except MemoryError:
            raise OutOfMemoryError(
                f"an array of shape {source.shape}, {source.dtype}, must be copied and there is no memory for "
                "it; pass a contiguous array"
            ) from None
    if isinstance(array, Buffer):
        made = Buffer(array.shape if shape is None else shape, array.dtype)
        made.copy_from(array if shape is None else np.ascontiguousarray(np.broadcast_to(array.to_numpy(), shape)))
        return made
    if hasattr(array, "contiguous") and not isinstance(array, memoryview):  # torch's name for it
        if array.is_conj():
            array = array.resolve_conj()
            if shape is None and array.is_contiguous():
                return array
        source = array if shape is None else array.expand(shape)
        return source.contiguous() if not source.is_contiguous() else source.clone()
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if module is not None and hasattr(module, "ascontiguousarray"):
        return module.ascontiguousarray(array if shape is None else module.broadcast_to(array, shape))
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 1:
        return contiguous(np.from_dlpack(array), shape)
    if hasattr(array, "__array_interface__"):
        return contiguous(np.asarray(array), shape)
    try:
        return contiguous(np.asarray(memoryview(array)), shape)
    except TypeError:
        raise UnsupportedError(
            f"a {type(array).__module__}.{type(array).__name__} of this layout must be copied, and rocpy does "
            "not know how; "
            "pass a contiguous array"
        ) from None


def snapshot(array: Any) -> Any:
    """Return a copy of an array, lying as it does where its framework can; one that cannot change is itself."""
    return np.array(array, order="K", copy=True) if isinstance(array, np.ndarray) else contiguous(array)


def checksum(array: Any) -> int:
    """Return a number that changes with an array's values."""
    if array is None or not hasattr(array, "shape"):
        return 0
    from rocpy.blaslt._framework import root, values

    if root(array) == "torch":
        torch = sys.modules["torch"]
        plain = array.detach().resolve_conj().resolve_neg().contiguous()
        array = plain.reshape(-1).view(torch.uint8).cpu().numpy()
    seen = np.ascontiguousarray(values(array))
    return zlib.crc32(seen.view(np.uint8).data if seen.size else b"")


def copy_of(array: Any, name: str, problem: Problem) -> Any:
    """Return a copy of an operand that the library can take in the place of the one given."""
    if name != "c":
        return contiguous(array)
    shape = problem.result_shape
    return in_columns(array, shape) if lower(problem).columns else contiguous(array, shape)


def in_columns(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a copy whose matrices lie in columns, broadcast to ``shape``, by the array's own framework."""
    if isinstance(array, np.ndarray):
        wide = np.broadcast_to(array, shape)
    elif hasattr(array, "expand"):  # torch's name for it
        wide = array.expand(shape)
    else:
        raise UnsupportedError(
            f"c: a {type(array).__module__}.{type(array).__name__} must be copied into columns for a result that lies "
            "so, and rocpy does not know how; pass a numpy array or a torch tensor"
        )
    return contiguous(wide.swapaxes(-1, -2)).swapaxes(-1, -2)


def assign(out: Any, result: Any) -> None:
    """Write a result that was computed aside into ``out``, cast to its type, by out's own framework."""
    if isinstance(out, Buffer):
        if isinstance(result, Buffer) and result.dtype == out.dtype:
            out.copy_from(result)
            return
        values = result.to_numpy() if isinstance(result, Buffer) else np.asarray(result)
        with np.errstate(all="ignore"):
            out.copy_from(np.ascontiguousarray(values, out.dtype))
    elif hasattr(out, "copy_"):
        out.copy_(result)
    elif hasattr(out, "__setitem__"):
        with np.errstate(all="ignore"):  # what is too large for out's type is infinity, as in any product
            out[...] = result
    else:
        raise InvalidOperandError(
            f"out: a {type(out).__name__} of this layout cannot be written; pass a row-major array"
        )


def copied_product(
    run: Callable[..., Any],
    bits: int,
    options: Options,
    operands: tuple[Any, ...],
    layouts: tuple[str, ...],
    result_shape: tuple[int, ...],
    result_dtype: str,
    arguments: dict[str, Any],
    settle: Callable[[], None],
) -> Any:
    """Copy what the library cannot take as it lies, run, and put the result where the user wants it.

    ``settle`` waits until a stream that the user gave is idle: copies are made by the operands' framework, outside
    that stream's order.
    """
    named = dict(zip(COPY_BITS, operands, strict=False))
    chosen = [name for name, bit in COPY_BITS.items() if bits >> bit & 1]
    if options.copies == "error":
        layout = layouts[COPY_BITS[chosen[0]]]
        if chosen[0] == "out" and not layout.endswith(f" {result_dtype}"):
            raise cast_refused(layout.rpartition(" ")[2], result_dtype)
        raise copy_refused(chosen[0], layout)
    settle()
    for name in chosen:
        if name == "c" and "columns" in chosen and len(result_shape) > 1:
            named[name] = in_columns(named[name], result_shape)
        elif name not in ("out", "columns"):
            named[name] = contiguous(named[name], result_shape if name == "c" else None)
    if "out" not in chosen:
        settle()
        return run(**named, **arguments)
    out, named["out"] = named["out"], None
    settle()
    result = run(**named, **{**arguments, "dtype": result_dtype})
    settle()
    assign(out, result[0] if isinstance(result, tuple) else result)
    return (out, result[1]) if isinstance(result, tuple) else out


def unpacked(weight: Any, bias: Any) -> Any:
    """Return what stands for a packed weight in a product with this bias: one per row takes the weight as it came."""
    shape = tuple(getattr(bias, "shape", ()))
    if not weight.packed or len(shape) < 2 or shape[-1] != 1:
        return weight
    return weight.matrix()


def turned_rows(array: Any) -> Any:
    """Return a dense array of shape (..., N, M) as one of shape (..., M, N), by its own framework."""
    if isinstance(array, Buffer):
        rows = turned_rows(array.to_numpy())
        made = Buffer(rows.shape, array.dtype)
        made.copy_from(rows)
        array.close()
        return made
    rows = array.swapaxes(-1, -2)
    # Frameworks that have neither (jax) make arrays of their own of whatever they give.
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if hasattr(rows, "contiguous"):
        return rows.contiguous()
    return getattr(module, "ascontiguousarray", lambda array: array)(rows)


def turned_product(outputs: Any, out: Any, settle: Callable[[], None]) -> Any:
    """Return results that were computed in columns as the user wants them: in rows, or in ``out``."""
    settle()
    result, *more = outputs if isinstance(outputs, tuple) else (outputs,)
    if out is None:
        result = turned_rows(result)
    else:
        assign(out, turned_rows(result) if isinstance(result, Buffer) else result.swapaxes(-1, -2))
        result = out
    if not more:
        return result
    return (result, None if more[0] is None else turned_rows(more[0]), *more[1:])


def refuse_turning(options: Options, bias: str) -> None:
    """Refuse the copy of a result that was computed in columns, where the options forbid copies."""
    if options.copies == "error":
        raise UnsupportedError(
            f"bias: {bias}: one per row, which the library adds to a result in columns, and options(copies='error') "
            "forbids the copy of it into rows; pass an out= whose columns are contiguous"
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a product would be computed; its ``str`` is meant to be read.

    Parameters
    ----------
    platform, device
        Where it runs.
    problem
        The validated problem.
    algorithm
        The algorithm that the function form takes, ``None`` for an empty result.
    candidates
        How many algorithms there were to choose from.
    source
        Where the choice came from: ``"heuristic"``, ``"tuned"`` with the measured time as the algorithm's
        ``elapsed_ms``, or ``"nothing to compute"``.
    copies
        Operands that are copied first, because the library cannot take them as they lie or its device cannot reach
        them; ``"result"``: it is computed in columns, for a bias per row, and copied into rows.
    packed
        Whether b is a packed :class:`rocpy.Weight`.
    unfused
        Why the product is not fused and what is done instead; empty where it is.
    absent
        Of a custom epilogue: the ways that there are not, each with the reason.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> how = rocpy.explain(np.ones((8, 8)), np.ones((8, 8)), epilogue="relu")
    >>> how.source, how.copies, how.packed
    ('heuristic', (), False)
    """

    platform: str
    device: str
    problem: Problem
    algorithm: Algorithm | None
    candidates: int
    source: str
    copies: tuple[str, ...]
    packed: bool
    unfused: str = ""
    absent: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return one line for each fact."""
        algorithm = self.algorithm
        lines = [f"problem    {self.problem}", f"platform   {self.platform} ({self.device})"]
        if algorithm is not None:
            lines += [
                (
                    f"algorithm  {algorithm.name or 'unnamed'} (id {algorithm.id}), "
                    f"number {algorithm.rank + 1} of {self.candidates}"
                ),
                f"lowering   {algorithm.lowering}",
                f"workspace  {algorithm.workspace_bytes} bytes",
            ]
        if self.unfused:
            lines.append(f"because    {self.unfused}")
        lines += [f"not        {way}: {reason}" for way, reason in self.absent]
        measured = "" if algorithm is None or algorithm.elapsed_ms is None else f", {algorithm.elapsed_ms:.4g} ms"
        lines.append(f"chosen by  {self.source}{measured}")
        if self.packed:
            lines.append("weights    packed for the platform")
        if self.copies:
            lines.append(f"copies     {', '.join(self.copies)}")
        return "\n".join(lines)


def _copied_names(product: Any) -> tuple[str, ...]:
    """Return what a planned product copies: operands that the library cannot take or reach, and a turned result."""
    names = [name for name in COPY_BITS if name in product.copies or name in product.staged]
    problem = product.problem
    if problem.column_bias and 0 not in problem.result_shape and lower(problem).turned:
        names.append("result")
    return tuple(names)


def _why(product: Any) -> str:
    """Return why a planned product is computed as it is, where it is not one of the library's own."""
    if product.problem.expression:
        return str(product.why)
    return product.unfused.text if product.unfused is not None else ""


def explain(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Any:
    """Return how ``rocpy.matmul`` or ``rocpy.grouped_matmul`` would compute these arguments, without computing it.

    Parameters
    ----------
    a, b, c
        Operands as for :func:`rocpy.matmul`.
    **arguments
        Keyword arguments of :func:`rocpy.matmul`; with lists as a or b, or ``offsets=``, those of
        :func:`rocpy.grouped_matmul`.

    Returns
    -------
    Explanation or GroupedExplanation
        Platform, algorithm, lowering, workspace in bytes, and where the choice came from; of groups, one for each
        launch.

    Raises
    ------
    RocpyError
        What the product itself would raise.

    References
    ----------
    ``hipblasLtMatmulAlgoGetHeuristic``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> x = np.ones((8, 16), np.float32)
    >>> print(rocpy.explain(x, rocpy.Weight(np.ones((16, 4), np.float32))).algorithm.lowering)
    native
    """
    from rocpy.blaslt.stateful import Matmul

    if "offsets" in arguments or isinstance(a, list | tuple) or isinstance(b, list | tuple):
        from rocpy.blaslt._group_pieces import explain_groups

        return explain_groups(a, b, **arguments)
    arguments.pop("autotune", None)
    arguments.pop("algorithm", None)
    with Matmul(a, b, c, **arguments) as product:
        algorithms = product.plan()
        algorithm, source = product.choice
        chosen = platform.current()
        return Explanation(
            platform=chosen.name,
            device=product.device_name,
            problem=product.problem,
            algorithm=algorithm,
            candidates=len(algorithms),
            source=source,
            copies=_copied_names(product),
            packed=product.packed,
            unfused=_why(product),
            absent=tuple(getattr(product, "absent", {}).items()),
        )


def forced_product(a: Any, b: Any, c: Any, algorithm: Any, out: Any, stream: Any, arguments: dict[str, Any]) -> Any:
    """Run a product by the algorithm that the user names."""
    from rocpy.blaslt.stateful import Matmul

    with Matmul(a, b, c, stream=stream, **arguments) as product:
        if isinstance(algorithm, Mapping):
            algorithm = product.pin(algorithm)
        return product.execute(out=out, algorithm=algorithm)
