# SPDX-License-Identifier: MIT
"""Whether there is a product of given types, layouts and epilogue, and why not; nothing is allocated to find out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rocpy import dtypes, platform
from rocpy.blaslt.arrays.blocks import lies_along_k, packing_refused
from rocpy.blaslt.arrays.staging import refuse_copies
from rocpy.blaslt.composed.product import why_unfused
from rocpy.blaslt.custom.support import custom_answer, input_infos
from rocpy.blaslt.engine import build as _build
from rocpy.blaslt.model.call_arguments import AnyEpilogue, AnyOptions
from rocpy.blaslt.model.epilogues import EpilogueRow, find_epilogue, is_custom, refuse_inputs
from rocpy.blaslt.model.lowering import with_copies
from rocpy.blaslt.model.options import Options, resolve_options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.product_types import bias_types, find_family
from rocpy.blaslt.model.refusals import copy_refused, readable_form
from rocpy.blaslt.model.settings import clamp_bounds
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import recipes as _recipes
from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.typing import ComputeName, ResultDType

__all__ = ["Support", "supported"]

# As many as a plan asks for; hipBLASLt walks its whole library when asked for more than it ranked.
_REQUESTED = 32
Layout: TypeAlias = Literal["nn", "nt", "tn", "tt"]
ScaleKind: TypeAlias = Literal["scalar", "vector", "block32"]
_LAYOUTS, _SCALE_KINDS = get_args(Layout), get_args(ScaleKind)


@dataclass(frozen=True, slots=True)
class Support:
    """The answer of :func:`supported`: true or false, with reasons.

    Parameters
    ----------
    problem
        The problem in question; ``None`` if the arguments do not form a problem.
    platform
        The platform that was queried; ``""`` if none was needed for the answer.
    reasons
        Why there is no such product, or, if there is one, why the library does not fuse it.
    lowering
        ``"native"``, ``"fused"``, ``"native+kernel"``, ``"unfused"``, or ``""`` if there is none.
    algorithms
        Number of algorithms that the platform's heuristic offered, at most 32; also 0 for an empty result.
    copies
        Operands that would be copied first, because the library does not support their layout.

    Examples
    --------
    >>> import rocpy
    >>> answer = rocpy.blaslt.supported("float32", dtype="float16")
    >>> bool(answer), answer.lowering
    (False, '')
    >>> print(answer)
    no: dtype: a float32 product cannot return float16; expected float32
    """

    problem: Problem | None
    platform: str
    reasons: list[str]
    lowering: str
    algorithms: int
    copies: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is such a product."""
        return self.lowering != ""

    def __repr__(self) -> str:
        """Return what ``str`` does, in brackets."""
        return f"<Support: {self}>"

    def __str__(self) -> str:
        """Return yes or no, and why."""
        if not self:
            return f"no: {'; '.join(self.reasons)}"
        count = f", {self.algorithms} algorithm{'' if self.algorithms == 1 else 's'}" if self.algorithms else ""
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        copied = f"; copied first: {', '.join(self.copies)}" if self.copies else ""
        return f"yes, {self.lowering} on {self.platform}{count}{why}{copied}"


def supported(
    a: Problem | ResultDType,
    b: ResultDType | None = None,
    /,
    *,
    dtype: ResultDType | None = None,
    epilogue: AnyEpilogue | None = None,
    epilogue_inputs: Mapping[str, Any] | None = None,
    layout: Layout = "nn",
    m: int = 256,
    n: int = 256,
    k: int = 256,
    batch: int | Sequence[int] = (),
    compute: ComputeName | None = None,
    c: bool = False,
    bias: Literal["column"] | ResultDType | None = None,
    scale_a: ScaleKind | None = None,
    scale_b: ScaleKind | None = None,
    scale_c: bool = False,
    scale_d: bool = False,
    amax: bool = False,
    packed: bool = False,
    options: AnyOptions | None = None,
    device: int | None = None,
    extensions: bool = True,
) -> Support:
    """Return whether a product is supported, and why not, without allocating its operands.

    Rules that apply on every platform are checked first; then the platform's heuristic is queried.

    Parameters
    ----------
    a, b
        Types of the operands; by default ``b`` has the type of ``a``. Four-bit types are assumed to be packed, two
        elements per byte, as in torch. Alternatively ``a`` is a :class:`rocpy.blaslt.Problem`, such as that of a
        :class:`rocpy.Matmul`; the arguments from ``dtype`` to ``amax`` are then ignored.
    dtype
        Type of the result; by default the default type of such a product.
    epilogue
        Name of the epilogue. The bias and the auxiliary matrix that it reads are assumed to be passed, and bounds of a
        clamp that float32 can represent: pass a :class:`rocpy.blaslt.Problem` to ask about others.
    epilogue_inputs
        For an epilogue created by :func:`rocpy.epilogue`: for each input ``"row"``, ``"column"``, ``"full"`` or
        ``"scalar"``, or a pair of one of these and the input's type; by default ``"full"`` and the result's type.
    layout
        One letter for ``a`` and one for ``b``: ``n`` for row-major, ``t`` for a transposed view.
    m, n, k, batch
        Extents; ``batch`` is a number of products or the batch axes.
    compute
        Type of the accumulation, as for :func:`rocpy.matmul`.
    c
        Whether there is a ``c`` operand.
    bias
        Type of the bias, by default that of the result if it is allowed; ``"column"`` for a bias with one value per
        row, of shape ``(M, 1)``.
    scale_a, scale_b
        ``"scalar"``, ``"vector"`` for one per row of ``a`` or column of ``b``, ``"block32"`` for MX formats.
    scale_c, scale_d, amax
        Whether c and the result are scaled, and whether the largest magnitude is requested.
    packed
        Whether ``b`` is a :class:`rocpy.Weight` that the platform packed.
    options
        :class:`rocpy.blaslt.Options` or a dict: with ``fallback="error"`` an unfused product is not supported.
    device
        Index of the device; by default the current one.
    extensions
        Whether products that the host platform supports but AMD lists for no card are counted as supported.

    Returns
    -------
    Support
        True or false, with reasons, lowering and the number of algorithms.

    Raises
    ------
    InvalidProblemError
        If an argument is invalid, such as an unknown epilogue, layout or option.
    InvalidOperandError
        If rocpy does not have such a type.

    References
    ----------
    ``hipblasLtMatmulAlgoGetHeuristic``.

    Examples
    --------
    >>> import rocpy
    >>> bool(rocpy.blaslt.supported("bfloat16", epilogue="gelu_bias", layout="nt"))
    True
    >>> answer = rocpy.blaslt.supported("float32", epilogue="gelu", options={"fallback": "error"})
    >>> answer.lowering, bool(rocpy.blaslt.supported("float32", "float64"))
    ('native', False)
    """
    chosen = resolve_options(options)
    if device is not None and not 0 <= _extent("device", device) < 2**31:
        raise InvalidProblemError(f"device: got {device}, expected the index of a device")
    if isinstance(a, Problem):
        return _ask(a, chosen, packed, device, extensions)
    custom: Any = epilogue if is_custom(epilogue) else None
    if custom is None and epilogue_inputs is not None:
        refuse_inputs(epilogue)
    row = find_epilogue(None if custom is not None else epilogue)
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise InvalidProblemError(f"layout: got {layout!r}, expected {', '.join(map(repr, _LAYOUTS))}")
    left = dtypes.lookup(a).name
    right = left if b is None else dtypes.lookup(b).name
    wanted = None if dtype is None else dtypes.lookup(dtype).name
    if bias is not None and not (isinstance(bias, str) and bias == "column"):
        dtypes.lookup(bias)
    m, n, k = (_extent(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
    axes = _axes(batch)
    _check_arguments(
        compute,
        {"c": c, "scale_c": scale_c, "scale_d": scale_d, "amax": amax, "packed": packed, "extensions": extensions},
    )
    for name, kind in (("scale_a", scale_a), ("scale_b", scale_b)):
        if kind is not None and (not isinstance(kind, str) or kind not in _SCALE_KINDS):
            raise InvalidProblemError(f"{name}: got {kind!r}, expected {', '.join(map(repr, _SCALE_KINDS))}")
    scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_c": scale_c, "scale_d": scale_d, "amax": amax}
    try:
        operands = _inputs(layout, (left, right), (m, n, k), axes, packed)
        problem = _problem(
            row, operands, bias, c, dtype=wanted, compute=compute, **{name: x for name, x in scales.items() if x}
        )
    except (InvalidProblemError, UnsupportedError) as error:
        return Support(None, "", [str(error)], "", 0)
    if custom is None:
        return _ask(problem, chosen, packed, device, extensions)
    try:
        infos = input_infos(custom, epilogue_inputs, problem)
        return _ask_custom(custom.expression, infos, problem, chosen, packed, device)
    except UnsupportedError as error:
        return Support(problem, platform.current().name, [str(error)], "", 0)


def _ask_custom(
    expression: Any,
    infos: Mapping[str, OperandInfo],
    plain: Problem,
    options: Options,
    packed: bool,
    device: int | None,
) -> Support:
    """Ask about a problem with an epilogue of the user's."""
    answer: Support = custom_answer(
        expression, infos, plain, options, lambda one, how: _ask(one, how, packed, device), device
    )
    return answer


def _extent(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidProblemError(f"{name}: got {value!r}, expected an integer")
    return int(value)


def _axes(batch: object) -> tuple[int, ...]:
    """Return the batch axes of an extent or of a sequence of them."""
    if isinstance(batch, int | np.integer) and not isinstance(batch, bool):
        count = _extent("batch", batch)
        return (count,) if count != 1 else ()
    if not isinstance(batch, list | tuple):
        raise InvalidProblemError(f"batch: got {batch!r}, expected a number of products or a tuple of extents")
    return tuple(_extent("batch", extent) for extent in batch)


def _check_arguments(compute: object, flags: dict[str, object]) -> None:
    if compute is not None and not isinstance(compute, str):
        raise InvalidProblemError(f"compute: got {compute!r}, expected the name of a dtype")
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise InvalidProblemError(f"{name}: got {value!r}, expected True or False")


def _inputs(
    layout: str, types: tuple[str, str], extents: tuple[int, int, int], batch: tuple[int, ...], packed: bool
) -> tuple[OperandInfo, OperandInfo]:
    """Return a and b as they are asked about."""
    m, n, k = extents
    if min(m, n, k, *batch) < 0:
        raise InvalidProblemError(f"m={m}, n={n}, k={k}, batch={batch}: extents must not be negative")
    a = _matrix(batch, m, k, types[0], layout[0])
    if packed:
        return a, replace(OperandInfo.dense((k, n), types[1]), packed=True)
    return a, _matrix(batch, k, n, types[1], layout[1])


def _problem(
    row: EpilogueRow,
    operands: tuple[OperandInfo, OperandInfo],
    bias: Any,
    has_c: bool,
    **settings: Any,
) -> Problem:
    """Return the problem, with the operands that its epilogue reads."""
    a, b = operands
    kinds = settings.get("scale_a"), settings.get("scale_b")
    if set(kinds) == {"scalar", "vector"}:
        settings |= {"scale_a": "vector", "scale_b": "vector"}  # as matmul makes them, so that both are of a kind
    # The plain product says which type the result has, and with it those that c, bias and aux must have.
    plain = Problem.make(a, b, **{name: value for name, value in settings.items() if name != "scale_c"})
    result = OperandInfo.dense(plain.result_shape, plain.dtype)
    added = None
    if row.bias:
        family = find_family(a.dtype, b.dtype, "block32" in kinds)
        first = bias_types(family, plain.dtype, bool(plain.scale_a or plain.scale_b))[0]
        own = first if bias in (None, "column") else dtypes.lookup(bias).name
        added = OperandInfo.dense((plain.m, 1) if bias == "column" else (plain.n,), own)
    return Problem.make(
        a,
        b,
        result if has_c else None,
        bias=added,
        aux=result if row.aux == "load" else None,
        epilogue=row.name,
        clamp=clamp_bounds((0.0, 1.0)) if row.clamp else None,
        **settings,
    )


def _matrix(batch: tuple[int, ...], rows: int, columns: int, dtype: str, letter: str) -> OperandInfo:
    if letter == "n":
        return OperandInfo.dense((*batch, rows, columns), dtype)
    transposed = OperandInfo.dense((*batch, columns, rows), dtype)
    return OperandInfo((*batch, rows, columns), (*transposed.strides[:-2], *transposed.strides[:-3:-1]), dtype)


def _ask(problem: Problem, options: Options, packed: bool, device: int | None, extensions: bool = True) -> Support:
    """Ask the platform about a problem that is well formed."""
    name = platform.current().name
    own = "" if extensions else _library.extension(problem, device or 0)
    if own:
        return Support(problem, name, [own], "", 0)
    try:
        if problem.expression:
            from rocpy.epilogues import Expression

            plain = replace(problem, expression="", inputs=())
            return _ask_custom(
                Expression.from_json(problem.expression), dict(problem.inputs), plain, options, packed, device
            )
        return _answer(problem, options, name, packed or problem.b.packed, device)
    except UnsupportedError as error:
        return Support(problem, name, [str(error)], "", 0)


def _answer(problem: Problem, options: Options, name: str, packed: bool, device: int | None) -> Support:
    if packed and problem.column_bias:
        # The call reads the array that the Weight was created from.
        unpacked = replace(problem, b=replace(problem.b, packed=False))
        return replace(_answer(unpacked, options, name, False, device), problem=problem)
    if options.copies == "error":
        _refuse_block_copies(problem)
    brought = _along_k(problem)
    if brought != problem:
        inner = _answer(brought, options, name, packed, device)
        names = tuple(side for side in ("a", "b") if getattr(brought, side) != getattr(problem, side))
        return replace(inner, problem=problem, copies=tuple(dict.fromkeys((*names, *inner.copies))))
    planned = _build.query(problem, options, -1 if device is None else device, packed, _REQUESTED)
    if planned.copies:
        if options.copies == "error":
            refuse_copies(problem)
            raise copy_refused(planned.copies[0], getattr(problem, planned.copies[0]).text)
        inner = _answer(_copied(problem, planned.copies), options, name, packed, device)
        return replace(inner, problem=problem, copies=planned.copies)
    if planned.recipe is not None:
        recipe = planned.recipe
        base = _answer(_recipes.base_problem(problem, recipe), _recipes.strict(options), name, packed, device)
        return Support(problem, name, [why_unfused(problem, recipe)], "unfused", base.algorithms, base.copies)
    algorithms = planned.algorithms
    return Support(problem, name, [], algorithms[0].lowering if algorithms else "native", len(algorithms))


def _refuse_block_copies(problem: Problem) -> None:
    """Refuse operands with scales by blocks that the call would copy; it reads them before it knows the result."""
    if problem.scale_a != "block32":
        return
    for side, operand in (("a", problem.a), ("b", problem.b)):
        if operand.packed or 0 in operand.shape:
            continue
        bits = dtypes.lookup(operand.dtype).bits
        if bits == 6:  # no framework has them packed
            raise packing_refused(side, operand.dtype)
        if bits == 8 and not _lies_along_k(side, operand):
            raise copy_refused(side, operand.text, readable_form(side, blocks=True))


def _lies_along_k(side: str, operand: OperandInfo) -> bool:
    shape, strides = operand.shape, operand.strides
    if side == "b" and len(shape) > 1:
        shape, strides = (*shape[:-2], *shape[:-3:-1]), (*strides[:-2], *strides[:-3:-1])
    return lies_along_k(shape, strides)


def _along_k(problem: Problem) -> Problem:
    """Return a problem with scales by blocks as the call brings its operands into order first."""
    if problem.scale_a != "block32":
        return problem
    a, b = problem.a, problem.b
    if not _lies_along_k("a", a):
        a = OperandInfo.dense(a.shape, a.dtype)
    if not b.packed and len(b.shape) > 1 and not _lies_along_k("b", b):
        b = _matrix(b.shape[:-2], b.shape[-2], b.shape[-1], b.dtype, "t")
    return replace(problem, a=a, b=b)


def _copied(problem: Problem, names: tuple[str, ...]) -> Problem:
    """Return a problem as it is after copies were made."""
    copied = with_copies(problem, names)
    if copied == problem:
        raise UnsupportedError(f"{', '.join(names)}: the library does not support {problem} in any layout")
    return copied
