# SPDX-License-Identifier: MIT
"""What the library cannot fuse: its nearest product, then the framework's own operations on the result.

The arithmetic between the product and the one rounding to the result's type is in float32 (float64 for float64 and
integer results), wherever the library gives the product in that type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rocpy import dtypes, platform
from rocpy.blaslt._framework import Framework, framework_of, values
from rocpy.blaslt._options import Options
from rocpy.blaslt._policy import assign
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.problem import RESULT_TYPES, OperandInfo, Problem, is_column_bias
from rocpy.errors import UnsupportedError
from rocpy.runtime.memory import Buffer

# A call's kind, in the bits of CachedCall::copies above those of the operands: it is unfused, and by which recipe.
UNFUSED_BIT = 7
RECIPE_SHIFT = 8


@dataclass(frozen=True, slots=True)
class Recipe:
    """The native product that an unfused one begins with.

    Parameters
    ----------
    epilogue, dtype
        Of that product.
    operands
        Type that a and b are converted to first; empty: they go in as they are.
    scaled
        Whether it applies the scales of a and b; if not, they and ``alpha`` and ``c`` are applied afterwards.
    """

    epilogue: str
    dtype: str
    operands: str = ""
    scaled: bool = True

    @property
    def text(self) -> str:
        """The recipe in words."""
        before = f"a and b as {self.operands}, " if self.operands else ""
        after = "" if self.scaled else ", then the scales"
        return f"{before}epilogue {self.epilogue} in {self.dtype}{after}"


def working_type(result: str) -> str:
    """Return the type in which an unfused epilogue is computed."""
    row = dtypes.lookup(result)
    if row.kind == "complex":
        return result
    # float64 holds every int32.
    return "float64" if result == "float64" or row.kind == "int" else "float32"


@functools.cache
def recipes(epilogue: str, operand: str, result: str, column_bias: bool, scales: bool) -> tuple[Recipe, ...]:
    """Return what an unfused product may begin with, the most exact and least work first."""
    row = EPILOGUES[epilogue]
    first = ("bias", "default") if row.bias and not column_bias else ("default",)
    given = RESULT_TYPES.get(operand, ())
    # A sum along a or b leaves the result as it is; everything else is computed from the widest product there is.
    wanted = (result,) if row.gradient in ("bgrada", "bgradb") else (working_type(result), result)
    found = [Recipe(name, dtype) for dtype in dict.fromkeys(wanted) if dtype in given for name in first]
    if operand == "int8" and result != "int32":
        found.append(Recipe("default", "int32", scaled=False))
    if scales:
        found += [Recipe("default", dtype, scaled=False) for dtype in ("float32", "bfloat16") if dtype in given]
    narrow = dtypes.lookup(operand)
    if narrow.kind == "float" and narrow.bits <= 16:
        # Every value of eight bits is one of bfloat16's too, and every one of sixteen is float32's.
        for wider in ("bfloat16", "float32") if narrow.bits == 8 else ("float32",):
            found += [Recipe("default", "float32", wider, scaled=not scales)]
    return tuple(dict.fromkeys(recipe for recipe in found if recipe != Recipe(epilogue, result)))


def recipes_of(problem: Problem) -> tuple[Recipe, ...]:
    """Return the recipes of a problem; their places are what a cached call keeps."""
    return recipes(problem.epilogue, problem.a.dtype, problem.dtype, problem.column_bias, False)


def kind_bits(problem: Problem, place: int) -> int:
    """Return the bits of a cached call that is done by the problem's recipe of that place."""
    return 1 << UNFUSED_BIT | (int(problem.column_bias) | place << 2) << RECIPE_SHIFT


def recipe_of(bits: int, epilogue: str, operand: str, dtype: str) -> Recipe:
    """Return the recipe of a cached call's bits."""
    kind = bits >> RECIPE_SHIFT
    return recipes(epilogue, operand, dtype, bool(kind & 1), bool(kind & 2))[kind >> 2]


# Functions of which every framework gives the same bits wherever an element lies.
_EXACT = ("default", "bias", "relu", "clamp", "drelu", "bgrada", "bgradb")


def required_traits(options: Options) -> int:
    """Return what an algorithm must promise under these options, as bits of ROCPY_EXT_ALGO_*."""
    return {False: 0, True: 1, "batch": 3}[options.reproducible]


def check_reproducible(problem: Problem, options: Options) -> None:
    """Refuse to compose what could break a promise: a framework may compute a function otherwise at an array's end."""
    name = _function_of(problem.row)
    if options.reproducible == "batch" and name not in _EXACT:
        raise UnsupportedError(
            f"options(reproducible='batch'): epilogue {problem.epilogue!r} is composed here of the framework's own "
            f"operations, and their {name} may depend on an array's shape; apply it to the plain product, or leave the "
            "option away"
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
        **({} if recipe.operands else scales_of(problem)),
    )


def not_in_rows(problem: Problem) -> str:
    """Return why nothing is promised of the rows of a product that the library computes lying in columns."""
    return f"options(reproducible='batch'): the library computes {problem} in columns, and promises nothing of its rows"


def scales_of(problem: Problem) -> dict[str, Any]:
    """Return what of a problem's scales and conjugates its native product has too."""
    names = ("scale_a", "scale_b", "scale_a_batch", "scale_b_batch", "conj_a", "conj_b")
    return {name: getattr(problem, name) for name in names}


def keeps_scales(problem: Problem, recipe: Recipe) -> bool:
    """Whether a recipe's native product applies the problem's scales: nothing after it does."""
    if problem.scale_c or problem.scale_d or problem.amax:
        return False
    return not (problem.scale_a or problem.scale_b) or (recipe.scaled and not recipe.operands)


def no_enumerator(problem: Problem) -> str:
    """Return why an epilogue that hipBLASLt has no number for cannot be fused."""
    return f"epilogue {problem.epilogue!r}: hipBLASLt has no such epilogue"


def why(problem: Problem, recipe: Recipe) -> str:
    """Return why a problem is unfused and what it begins with, in a sentence."""
    reason = (
        f"hipBLASLt has no epilogue {problem.epilogue}"
        if problem.row.enumerator is None
        else f"the {platform.current().name} platform has no algorithm for it"
    )
    return f"{reason}: {recipe.text}, then the framework's own operations"


def refused(why: str) -> UnsupportedError:
    """Return the error for a composition that the options forbid."""
    return UnsupportedError(f"{why}; options(fallback='error') forbids composing it of the framework's operations")


class Unfused:
    """One unfused product: the arguments of its native one, and what is done to the result.

    Parameters
    ----------
    recipe
        How it begins.
    epilogue, dtype
        Of the whole.
    operands
        The user's ``a``, ``b``, ``c``, ``bias`` and ``aux``, by name.
    arguments
        ``alpha``, ``beta``, ``clamp`` and the scales, by name.
    """

    def __init__(
        self, recipe: Recipe, epilogue: str, dtype: str, operands: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        self.recipe = recipe
        self.row: EpilogueRow = EPILOGUES[epilogue]
        self.dtype = dtype
        self.work = working_type(dtype)
        self.operands = operands
        self.arguments = arguments
        a, b = operands["a"], operands["b"]
        self.a_ndim, self.b_ndim = len(a.shape), len(b.shape)

    def native_operands(self) -> dict[str, Any]:
        """Return the operands of the native product: some converted, those that come later left out."""
        made = {name: self.operands[name] for name in ("a", "b", "c", "bias")}
        recipe = self.recipe
        if type(made["b"]).__name__ == "Weight" and recipe.operands:
            made["b"] = _matrix_of(made["b"])
        like = made["a"]
        for name in ("a", "b"):
            if recipe.operands:
                made[name] = convert(made[name], recipe.operands, like)
        if recipe.epilogue != "bias":
            made["bias"] = None
        elif dtypes.lookup(made["bias"].dtype).name not in ("float32", recipe.dtype):
            made["bias"] = convert(made["bias"], recipe.dtype, like)
        if not recipe.scaled:
            made["c"] = None
        elif made["c"] is not None and dtypes.lookup(made["c"].dtype).name != recipe.dtype:
            made["c"] = convert(made["c"], recipe.dtype, like)
        return made

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the native product."""
        made = dict(self.arguments)
        made.update(epilogue=self.recipe.epilogue, dtype=self.recipe.dtype)
        if not self.recipe.scaled:
            made.update(alpha=1.0, beta=None)
        made.pop("clamp")
        if made.get("compute") != "tf32" or self.recipe.operands:
            made["compute"] = None
        return made

    def native_scalars(self) -> dict[str, Any]:
        """Return the host scalars of the native product."""
        if not self.recipe.scaled:
            return {"alpha": 1.0}
        return {"alpha": self.arguments["alpha"], "beta": self.arguments["beta"]}

    def reset(self, operands: dict[str, Any], scalars: dict[str, Any]) -> None:
        """Take other operands of the same problem, and other scalars."""
        self.operands = operands
        self.arguments = {**self.arguments, **scalars}

    def finish(self, base: Any) -> tuple[Any, dict[str, Any]]:
        """Return the result, and what goes beside it, from what the native product gave."""
        if isinstance(base, Buffer):
            result, extra = self.finish(base.to_numpy())
            base.close()
            return _buffer(result), {name: _buffer(value) for name, value in extra.items()}
        framework = framework_of(base)
        shape = tuple(base.shape)
        with np.errstate(all="ignore"):
            x = framework.wide(base, self.work, base).reshape(self._full(shape))
            x = self._biased(framework, self._scaled(framework, x))
            extra = {}
            if self.row.aux == "store":
                extra[self.row.aux_name] = framework.narrow(x, self.dtype).reshape(shape)
            y = self._activated(framework, x)
            if self.row.gradient:
                extra[self.row.gradient] = self._gradient(framework, y)
            return framework.narrow(y, self.dtype).reshape(shape), extra

    def _full(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (..., M, N) behind numpy's rules for vectors."""
        full = (*shape, 1) if self.b_ndim == 1 else shape
        return (*full[:-1], 1, full[-1]) if self.a_ndim == 1 else full

    def _scaled(self, framework: Framework, x: Any) -> Any:
        if self.recipe.scaled:
            return x
        x = x * float(self.arguments["alpha"])
        c, beta = self.operands["c"], self.arguments["beta"]
        if c is not None and beta != 0.0:
            x = x + framework.wide(c, self.work, x) * (1.0 if beta is None else float(beta))
        return x

    def _biased(self, framework: Framework, x: Any) -> Any:
        if not self.row.bias or self.recipe.epilogue == "bias":
            return x
        bias = framework.wide(self.operands["bias"], self.work, x)
        batch, m, n = tuple(x.shape[:-2]), x.shape[-2], x.shape[-1]
        if is_column_bias(tuple(bias.shape), m, n, batch, min(self.a_ndim, self.b_ndim) > 1):
            return x + bias
        return x + bias[..., None, :]

    def _activated(self, framework: Framework, x: Any) -> Any:
        name = _function_of(self.row)
        if name == "clamp":
            low, high = self.arguments["clamp"]
            return framework.clamp(x, low, high)
        if self.row.aux == "load":
            aux = framework.wide(self.operands["aux"], self.work, x).reshape(x.shape)
            return framework.where(aux > 0, x, 0.0) if name == "drelu" else x * _gelu_slope(framework, aux)
        return _ACTIVATIONS[name](framework, x) if name in _ACTIVATIONS else x

    def _gradient(self, framework: Framework, y: Any) -> Any:
        if self.row.gradient == "bgrad":
            sums = framework.sum(y, -2)
        else:
            name = "a" if self.row.gradient == "bgrada" else "b"
            operand = self.operands[name]
            if type(operand).__name__ == "Weight":
                operand = _matrix_of(operand)
            wide = framework.wide(operand, self.work, y)
            vector = len(wide.shape) == 1
            sums = framework.sum(wide, -1 if name == "a" or vector else -2)
            sums = sums.reshape((1,)) if vector else sums
        return framework.narrow(sums, self.dtype)


def _negligible(framework: Framework, x: Any, value: Any) -> Any:
    # Far to the left the value is 0 in every type, and at minus infinity the product would be infinity times 0.
    return framework.where(~(x < -1000.0), value, -0.0)


def _sigmoid(framework: Framework, x: Any) -> Any:
    return framework.sigmoid(x)


def _silu(framework: Framework, x: Any) -> Any:
    return _negligible(framework, x, x * framework.sigmoid(x))


def _gelu(framework: Framework, x: Any) -> Any:
    # y/2 (1 + tanh u) as y sigmoid(2u), which loses no digits on the left.
    return _negligible(framework, x, x * framework.sigmoid(_gelu_argument(x)))


def _gelu_argument(x: Any) -> Any:
    return (x * x * 0.044715 + 1.0) * x * (2.0 * math.sqrt(2.0 / math.pi))


def _gelu_slope(framework: Framework, x: Any) -> Any:
    s = framework.sigmoid(_gelu_argument(x))
    inner = (x * x * (3.0 * 0.044715) + 1.0) * x * (2.0 * math.sqrt(2.0 / math.pi))
    other = framework.sigmoid(-_gelu_argument(x))
    # Beyond 40 the second term is 0 in every type, and at the infinities it would be infinity times 0.
    return s + framework.where((x < 40.0) & (x > -40.0), inner * s * other, 0.0)


def _gelu_erf(framework: Framework, x: Any) -> Any:
    return _negligible(framework, x, x * 0.5 * framework.erfc(x * -math.sqrt(0.5)))


_ACTIVATIONS: dict[str, Callable[[Framework, Any], Any]] = {
    "relu": lambda framework, x: framework.relu(x),
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "silu": _silu,
    "sigmoid": _sigmoid,
}


def _function_of(row: EpilogueRow) -> str:
    """Return the name of an epilogue's elementwise function."""
    name = row.name
    for suffix in ("_bgrad", "_bias", "_aux"):
        name = name.removesuffix(suffix)
    return name


def _matrix_of(weight: Any) -> Any:
    """Return a Weight's array as (K, N)."""
    return weight.source if weight.layout == "kn" else weight.source.swapaxes(-1, -2)


def _buffer(array: np.ndarray[Any, Any]) -> Buffer:
    made = Buffer(array.shape, array.dtype)
    made.copy_from(np.ascontiguousarray(array))
    return made


def convert(array: Any, dtype: str, like: Any) -> Any:
    """Return an operand in another type, of the framework that ``like`` belongs to."""
    if isinstance(like, Buffer):
        return _buffer(np.asarray(values(array)).astype(dtypes.lookup(dtype).numpy))
    return framework_of(like).wide(array, dtype, like)


def unfused_product(
    run: Callable[..., Any],
    bits: int,
    epilogue: str,
    operand: str,
    dtype: str,
    operands: tuple[Any, ...],
    options: Options,
    arguments: dict[str, Any],
    settle: Callable[[], None],
) -> Any:
    """Run an unfused product: the native one by ``run``, then the rest.

    ``bits`` are the cached call's, ``operand`` and ``dtype`` the types of a and of the result. ``settle`` waits for a
    stream that the user gave, whose order the framework's operations do not follow.
    """
    named = dict(zip(("a", "b", "c", "bias", "aux"), operands, strict=False))
    out = operands[5]
    recipe = recipe_of(bits, epilogue, operand, dtype)
    own = arguments["stream"] is not None
    product = Unfused(recipe, epilogue, dtype, named, arguments)
    if own:
        settle()
    native = product.native_operands()
    if own:
        settle()
    base = run(**native, aux=None, out=None, clamp=None, **product.native_arguments(), options=strict(options))
    if own:
        settle()
    result, extra = product.finish(base)
    if out is not None:
        assign(out, result)
        result = out
    if own:
        settle()
    return (result, extra) if extra else result


class UnfusedPlan:
    """What a Matmul holds for an unfused product: the native one as a Matmul of its own, and the rest."""

    def __init__(
        self,
        bits: int,
        problem: Problem,
        operands: dict[str, Any],
        options: Options,
        stream: Any,
        arguments: dict[str, Any],
    ) -> None:
        from rocpy.blaslt.stateful import Matmul

        recipe = recipe_of(bits, problem.epilogue, problem.a.dtype, problem.dtype)
        self.product = Unfused(recipe, problem.epilogue, problem.dtype, operands, arguments)
        #: How it is done and why, in a sentence.
        self.text = why(problem, recipe)
        native = self.product.native_operands()
        a, b = native.pop("a"), native.pop("b")
        self.native = Matmul(a, b, **native, **self.product.native_arguments(), options=strict(options), stream=stream)

    def plan(self, requested: int) -> list[Algorithm]:
        """Return the algorithms of the native product, as ways to compute the whole."""
        return [replace(x, lowering="unfused") for x in self.native.plan(max_algorithms=requested)]

    def execute(self, rank: int, stream: Any, settle: Callable[[], None]) -> Any:
        """Return the result, or a pair of it and what goes beside it."""
        chosen = next(one for one in self.native.algorithms if one.rank == rank)
        base = self.native.execute(algorithm=chosen, stream=stream)
        if stream is not None:
            settle()
        result, extra = self.product.finish(base)
        if stream is not None:
            settle()
        return (result, *extra.values()) if extra else result

    def reset(self, operands: dict[str, Any], scalars: dict[str, Any], scales: dict[str, Any]) -> None:
        """Take other operands of the same problem, other scalars and other scales."""
        self.product.reset(operands, {**scalars, **scales})
        native = {name: value for name, value in self.product.native_operands().items() if value is not None}
        self.native.reset_operands(**native, **self.product.native_scalars(), **scales)

    def release(self) -> None:
        """Let go of the operands."""
        self.product.operands = dict.fromkeys(self.product.operands)
        self.native.release_operands()
