# SPDX-License-Identifier: MIT
"""A planned product that the library may not be able to fuse: a native one, then the framework's operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rocpy._messages.log import info
from rocpy.blaslt.arrays.views import delivered, viewed
from rocpy.blaslt.composed.product import Unfused, bias_gradient_of_empty, why_unfused
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments, scale_keywords
from rocpy.blaslt.native.plan import NativeProduct
from rocpy.blaslt.selection.recipes import Recipe, strict

__all__ = ["ComposedProduct", "UnfusedPlan"]


class UnfusedPlan:
    """What a product has that the library cannot fuse: the native one as a product of its own, and the rest."""

    def __init__(
        self,
        recipe: Recipe,
        problem: Problem,
        operands: dict[str, Any],
        options: Options,
        stream: Any,
        arguments: dict[str, Any],
        scales: ScaleArguments | None,
    ) -> None:
        operands = self._views_of(operands)
        self.product = Unfused(recipe, problem.epilogue, problem.dtype, operands, arguments, scales)
        #: How it is done and why, in a sentence.
        self.text = why_unfused(problem, recipe)
        info("composed %s: %s", problem, self.text)
        native = self.product.native_operands()
        # Made of the user's operands, which may have changed at the next execution.
        self.replaced_names = [
            name for name, value in native.items() if value is not None and value is not operands[name]
        ]
        a, b = native.pop("a"), native.pop("b")
        own = {**self.product.native_arguments(), **scale_keywords(self.product.native_scales(), b)}
        self.native = NativeProduct(a, b, **native, **own, options=strict(options), stream=stream)

    def _views_of(self, operands: dict[str, Any]) -> dict[str, Any]:
        """Return the operands that the framework's operations are applied to, and note whose the results will be."""
        views = {name: viewed(value, name) for name, value in operands.items()}
        self._like = None if views["a"] is operands["a"] else operands["a"]
        return views

    def plan(self, requested: int) -> list[Algorithm]:
        """Return the algorithms of the native product, as ways to compute the whole."""
        return [replace(x, lowering="unfused") for x in self.native.plan(max_algorithms=requested)]

    def execute(self, rank: int, stream: Any, synchronize: Callable[[], None]) -> Any:
        """Return the result, or a pair of it and what goes beside it."""
        chosen = next(one for one in self.native.algorithms if one.rank == rank)
        if self.replaced_names:
            if stream is not None:
                synchronize()
            native = self.product.native_operands()
            scalars = self.product.native_scalars() if self.product.recipe.blocks else {}
            self.native.reset_operands(**{name: native[name] for name in self.replaced_names}, **scalars)
        base = self.native.execute(algorithm=chosen, stream=stream)
        if stream is not None:
            synchronize()
        result, extra = self.product.finish(base)
        if self._like is not None:
            result, extra = delivered((result, extra), self._like)
        if stream is not None:
            synchronize()
        if "amax" in extra:
            amax = extra.pop("amax")
            return result, next(iter(extra.values()), None), amax
        return (result, *extra.values()) if extra else result

    def reset(self, operands: dict[str, Any], scalars: dict[str, Any], scales: ScaleArguments | None) -> None:
        """Take other operands of the same problem, other scalars and other scales."""
        self.product.reset(self._views_of(operands), scalars, scales)
        native = {name: value for name, value in self.product.native_operands().items() if value is not None}
        own = scale_keywords(self.product.native_scales(), native["b"]) if self.product.recipe.scaled else {}
        self.native.reset_operands(**native, **self.product.native_scalars(), **own)

    def release(self) -> None:
        """Let go of the operands."""
        self._like = None
        self.product.operands = dict.fromkeys(self.product.operands)
        self.native.release_operands()

    def close(self) -> None:
        """Give back the native product's plan and the operands."""
        self._like = None
        self.product.operands = dict.fromkeys(self.product.operands)
        self.native.close()


class ComposedProduct(NativeProduct):
    """A planned product that is composed where the library cannot fuse it; not for the user's own epilogues."""

    __slots__ = ()

    def _compose(self, recipe: Recipe) -> UnfusedPlan:
        arguments = {**self.scalars(), "clamp": self.clamp, "compute": self.compute}
        return UnfusedPlan(
            recipe, self.problem, self.operand_arrays, self.options, self.stream, arguments, self.scale_values
        )

    def _bias_gradient_of_empty(self, result: Any) -> Any:
        problem, operands = self.problem, self.operand_arrays
        return bias_gradient_of_empty(
            problem.epilogue, operands["a"], operands["b"], self.scale_values, result, problem.dtype
        )
