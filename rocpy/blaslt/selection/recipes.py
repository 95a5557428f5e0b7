# SPDX-License-Identifier: MIT
"""How a product that the library cannot fuse may begin: with which native product, and whether that serves."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

from rocpy import dtypes, platform
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import RESULT_TYPES, OperandInfo, Problem
from rocpy.blaslt.model.product_types import find_family, needs_scales
from rocpy.blaslt.selection import library as _library
from rocpy.errors import UnsupportedError


class Recipe(NamedTuple):
    """The native product that an unfused one begins with.

    Parameters
    ----------
    epilogue, dtype
        Of that product.
    operands
        Type that a and b are converted to first; empty: they go in as they are.
    scaled
        Whether it applies the scales of a and b; if not, they and ``alpha`` and ``c`` are applied afterwards.
    blocks
        Whether a and b are multiplied by their scales by blocks when they are converted.
    """

    epilogue: str
    dtype: str
    operands: str = ""
    scaled: bool = True
    blocks: bool = False

    @property
    def text(self) -> str:
        """The recipe in words."""
        times = " times their scales" if self.blocks else ""
        before = f"a and b{times} as {self.operands}, " if self.operands else ""
        after = "" if self.scaled else ", then the scales"
        return f"{before}epilogue {self.epilogue} in {self.dtype}{after}"


class PlanAnswer(NamedTuple):
    """What planning a problem came to.

    Parameters
    ----------
    algorithms
        Of its launch, in the platform's order.
    copies
        Names of the arrays that must be copied instead, before it is planned again.
    recipe
        The native product that it begins with instead, where the library cannot fuse it.
    """

    algorithms: list[Algorithm]
    copies: tuple[str, ...] = ()
    recipe: Recipe | None = None


def working_type(result: str) -> str:
    """Return the type in which an unfused epilogue is computed."""
    row = dtypes.lookup(result)
    if row.kind == "complex":
        return result
    # float64 holds every int32.
    return "float64" if result == "float64" or row.kind == "int" else "float32"


@functools.cache
def recipes(
    epilogue: str,
    operand: str,
    result: str,
    column_bias: bool,
    scales: bool,
    blocks: bool = False,
    amax: bool = False,
) -> tuple[Recipe, ...]:
    """Return what an unfused product may begin with, the most exact and least work first.

    ``scales`` are those of a and b that may as well be applied to the product, ``blocks`` those along K, and ``amax``
    the wish for the largest magnitude.
    """
    row = EPILOGUES[epilogue]
    kind = dtypes.lookup(result).kind
    if not has_function(row, kind, scales):
        return ()
    first = ("bias", "default") if row.bias and not column_bias else ("default",)
    native_types = RESULT_TYPES.get(operand, ())
    # A sum along a or b leaves the result as it is; everything else is computed from the widest product there is. One
    # of eight bits is rounded after its scale, and one of integers saturates after all else.
    wide = "int32" if kind == "int" else working_type(result)
    if dtypes.lookup(result).bits == 8:
        wanted: tuple[str, ...] = (wide,)
    else:
        wanted = (result,) if row.gradient in ("bgrada", "bgradb") and not amax else (wide, result)
    direct = [Recipe(name, dtype) for dtype in dict.fromkeys(wanted) if dtype in native_types for name in first]
    # A product that is rounded to the result's type before its epilogue is not the same one: it comes last.
    candidates = [recipe for recipe in direct if recipe.dtype == wanted[0]]
    if operand == "int8" and (scales or kind != "int"):
        # Sums of int8 are exact in nothing else. Integers that no scale makes fractions of stay integers, and wrap.
        candidates.insert(0 if scales else len(candidates), Recipe("default", "int32", scaled=False))
    if scales:
        candidates += [
            Recipe("default", dtype, scaled=False) for dtype in ("float32", "bfloat16") if dtype in native_types
        ]
    narrow = dtypes.lookup(operand)
    if narrow.kind == "float" and narrow.bits <= 16:
        # Every value of eight bits is one of bfloat16's too, and every one of sixteen is float32's.
        for wider in ("bfloat16", "float32") if narrow.bits == 8 else ("float32",):
            candidates += [Recipe("default", "float32", wider, scaled=not scales)]
    if blocks:
        candidates += [Recipe(name, "float32", "float32", blocks=True) for name in first]
    candidates += direct
    if amax:  # of values that are not rounded yet
        candidates = [recipe for recipe in candidates if recipe.dtype in ("int32", "float32", working_type(result))]
    # The product itself serves where only its largest magnitude is missing.
    return tuple(dict.fromkeys(recipe for recipe in candidates if amax or recipe != Recipe(epilogue, result)))


def recipes_of(problem: Problem) -> tuple[Recipe, ...]:
    """Return the recipes of a problem."""
    return recipes(
        problem.epilogue,
        problem.a.dtype,
        problem.dtype,
        problem.column_bias,
        _movable_scales(problem),
        _has_blocks(problem),
        problem.amax,
    )


def _movable_scales(problem: Problem) -> bool:
    """Whether a and b have scales that may as well be applied to the product: none along K."""
    return any((problem.scale_a, problem.scale_b)) and not _has_blocks(problem)


def _has_blocks(problem: Problem) -> bool:
    """Whether a and b have scales along K."""
    return "block32" in (problem.scale_a, problem.scale_b)


# Functions of which every framework gives the same bits wherever an element lies.
_EXACT = ("default", "bias", "relu", "clamp", "drelu", "bgrada", "bgradb")


def has_exact_function(row: EpilogueRow) -> bool:
    """Whether every framework gives the same bits of an epilogue's function wherever an element lies."""
    return function_of(row) in _EXACT


def has_function(row: EpilogueRow, kind: str, scales: bool = False) -> bool:
    """Whether an epilogue's function is one of results of this kind of numbers."""
    if kind == "complex":
        return function_of(row) in ("default", "bias", "bgrada", "bgradb")
    # The functions of an epilogue are those of real numbers; of whole ones they would be rounded away.
    return kind != "int" or scales or has_exact_function(row)


def check_function(problem: Problem) -> None:
    """Refuse an epilogue of real numbers for a result of others, which neither libraries nor recipes have."""
    scales = bool(problem.scale_a or problem.scale_b)
    if not has_function(problem.row, dtypes.lookup(problem.dtype).kind, scales):
        kind = "complex products have none" if problem.is_complex else "integer products have 'relu' and 'clamp' alone"
        raise UnsupportedError(
            f"epilogue {problem.epilogue!r}: a function of real numbers, and the result is {problem.dtype}; {kind}: "
            "apply the function to the product"
        )


class AlgorithmTraits(NamedTuple):
    """What a platform promises of an algorithm; csrc/abi/types_extension.h says what that is."""

    run_to_run: bool
    batch_invariant: bool


def required_traits(options: Options) -> AlgorithmTraits:
    """Return what an algorithm must promise under these options."""
    return AlgorithmTraits(run_to_run=bool(options.reproducible), batch_invariant=options.reproducible == "batch")


def check_reproducible(problem: Problem, options: Options) -> None:
    """Refuse to compose what could break a promise: a framework may compute a function otherwise at an array's end."""
    name = function_of(problem.row)
    if options.reproducible == "batch" and not has_exact_function(problem.row):
        raise UnsupportedError(
            f"options(reproducible='batch'): epilogue {problem.epilogue!r} is composed here from the framework's own "
            f"operations, and their {name} may depend on an array's shape; apply it to the plain product, or omit the "
            "option"
        )


def strict(options: Options) -> Options:
    """Return the options of the native product inside an unfused one."""
    return replace(options, fallback="error")


def base_problem(problem: Problem, recipe: Recipe) -> Problem:
    """Return the native product that a recipe begins with, as a problem of its own."""
    a, b, bias, c = problem.a, problem.b, problem.bias, problem.c
    if recipe.operands:
        a, b = (OperandInfo.dense(operand.shape, recipe.operands) for operand in (a, b))
    if recipe.epilogue != "bias":
        bias = None
    elif bias is not None and bias.dtype not in ("float32", recipe.dtype):
        bias = OperandInfo.dense(bias.shape, recipe.dtype)
    if c is not None and c.dtype != recipe.dtype:
        c = OperandInfo.dense(c.shape, recipe.dtype)
    return Problem.make(
        a,
        b,
        c if recipe.scaled else None,
        bias=bias,
        epilogue=recipe.epilogue,
        dtype=recipe.dtype,
        compute=problem.compute if problem.compute == "tf32" and not recipe.operands else None,
        **_scales_of(problem, recipe),
    )


def not_in_rows(problem: Problem) -> str:
    """Return why nothing is promised of the rows of a product that the library computes lying in columns."""
    return (
        f"options(reproducible='batch'): the library computes {problem} column by column and gives no guarantee for "
        "its rows"
    )


def _scales_of(problem: Problem, recipe: Recipe) -> dict[str, Any]:
    """Return what of a problem's scales and conjugates its native product has too."""
    names = ["conj_a", "conj_b"]
    if recipe.scaled and not recipe.operands:
        names += ["scale_a", "scale_b", "scale_a_batch", "scale_b_batch"]
    candidates = {name: getattr(problem, name) for name in names}
    if has_unit_scales(recipe, problem.a.dtype, problem.b.dtype):
        candidates.update(scale_a="scalar", scale_b="scalar")
    return candidates


def has_unit_scales(recipe: Recipe, a: str, b: str) -> bool:
    """Whether the native product of quantized values has scales of 1, since its own are applied afterwards."""
    if recipe.scaled or recipe.operands:
        return False
    return needs_scales(find_family(a, b), recipe.dtype)


def keeps_scales(problem: Problem, recipe: Recipe) -> bool:
    """Whether a product by a recipe has the problem's scales: those of blocks along K only the library applies."""
    return recipe.blocks or not _has_blocks(problem) or (recipe.scaled and not recipe.operands)


def composed(problem: Problem, looped: tuple[int, ...]) -> str:
    """Return why a product is composed on every platform; empty where it need not be.

    ``looped`` are the batch axes for which the library is called once for each position.
    """
    family = find_family(problem.a.dtype, problem.b.dtype, _has_blocks(problem))
    if problem.amax and family.name in ("MX", "int8"):
        return f"amax: hipBLASLt does not compute it for {family.name} operands"
    if problem.amax and looped:
        return f"amax: hipBLASLt computes it separately for each of the batch positions {looped}"
    if (problem.scale_a or problem.scale_b) and problem.dtype in ("int8", "int32"):
        return f"scale_a and scale_b: hipBLASLt applies none to an int8 product with a {problem.dtype} result"
    return ""


def no_enumerator(problem: Problem) -> str:
    """Return why an epilogue that hipBLASLt has no number for cannot be fused."""
    return f"epilogue {problem.epilogue!r}: hipBLASLt has no such epilogue"


def why(problem: Problem, recipe: Recipe) -> str:
    """Return why a problem is unfused and what it begins with, in a sentence."""
    reason = (
        _library.refusal(problem)
        or composed(problem, ())
        or (
            f"hipBLASLt has no epilogue {problem.epilogue}"
            if problem.row.enumerator is None
            else "amax: hipBLASLt computes it separately for each batch position, or not at all"
            if problem.amax
            else f"the {platform.current().name} platform has no algorithm for it"
        )
    )
    return f"{reason}: {recipe.text}, then the framework's own operations"


_FORBIDDEN = "; options(fallback='error') forbids composing it from the framework's operations"


def refused(why: str) -> UnsupportedError:
    """Return the error for a composition that the options forbid."""
    return UnsupportedError(why + _FORBIDDEN)


def not_composed(why: str, error: Exception | None) -> UnsupportedError:
    """Return the error for a product that the library cannot fuse and that is not composed; ``error``: of the last try.

    The native product that a composition begins with has no fallback, which its message is not to speak of.
    """
    reason = str(error).removesuffix(_FORBIDDEN)
    if error is None or reason == why:
        return UnsupportedError(why)
    return UnsupportedError(f"{why}; the product that it would be composed from is not available either: {reason}")


def function_of(row: EpilogueRow) -> str:
    """Return the name of an epilogue's elementwise function."""
    name = row.name
    for suffix in ("_bgrad", "_bias", "_aux"):
        name = name.removesuffix(suffix)
    return name
