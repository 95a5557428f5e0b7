# SPDX-License-Identifier: MIT
"""CustomProduct: a planned product with an epilogue of the user's, by one of several strategies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from rocpy._fp_environment import default_arithmetic
from rocpy._memory_record import records_of
from rocpy._operand import TorchLayerRequired, readable
from rocpy.blaslt.arrays.views import viewed, viewed_inputs
from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.execution import CustomExecution
from rocpy.blaslt.custom.strategies import STRATEGIES, Strategy
from rocpy.blaslt.engine.streams import device_and_stream
from rocpy.blaslt.model import algorithms as _algorithms
from rocpy.blaslt.model.algorithms import LISTED, Algorithm
from rocpy.blaslt.model.executable import Executable
from rocpy.blaslt.model.lowering import lower, with_copies
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.weight_operand import snapshot_of
from rocpy.blaslt.selection import choice as _choice
from rocpy.errors import (
    InvalidProblemError,
    RocpyError,
    UnsupportedError,
)

__all__ = ["CustomProduct"]

P = ParamSpec("P")
T = TypeVar("T")


def _exclusive(
    method: Callable[Concatenate[CustomProduct, P], T],
) -> Callable[Concatenate[CustomProduct, P], T]:
    """Make a method refuse to run while another thread is in one."""

    @functools.wraps(method)
    def run(self: CustomProduct, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.enter()
        try:
            return method(self, *args, **kwargs)
        finally:
            self.leave()

    return cast("Callable[Concatenate[CustomProduct, P], T]", run)


class CustomProduct(CustomExecution):
    """A planned product with an epilogue of the user's."""

    __slots__ = ("absent", "device_index", "epilogue", "epilogue_name", "numbers", "problem", "weight_bias")
    problem: Problem

    @default_arithmetic
    def __init__(
        self,
        a: Any,
        b: Any,
        /,
        c: Any = None,
        *,
        alpha: Any = 1.0,
        beta: Any = None,
        epilogue: Any = None,
        bias: Any = None,
        aux: Any = None,
        clamp: Any = None,
        epilogue_inputs: Any = None,
        amax: bool = False,
        dtype: Any = None,
        options: Any = None,
        stream: Any = None,
        **settings: Any,
    ) -> None:
        _custom.refuse_operands(bias=bias, aux=aux, clamp=clamp, amax=amax or None)
        self.options = resolve_options(options)
        self.epilogue = epilogue
        self.epilogue_name = str(epilogue.name)
        self.single = epilogue.expression.single
        self.alpha, self.beta, self.stream = alpha, beta, stream
        self.settings = {name: value for name, value in settings.items() if value is not None}
        self._like = readable(a, "a")
        a, c = viewed(self._like, "a"), viewed(c, "c")
        self.right = viewed(b, "b")
        b = snapshot_of(self.right)
        self.inputs = viewed_inputs(_custom.complete(epilogue, epilogue_inputs, b))
        #: Whether the function's bias is the one that the Weight carries.
        self.weight_bias = getattr(b, "bias", None) is not None and self.inputs.get("bias") is b.bias
        _custom.check_inputs(self.inputs)
        self.operands = {"a": a, "b": b, "c": c}
        self._strategies, self._positions = {}, {}
        self._bind(dtype)
        self.absent: dict[str, str] = {}
        self.closed = False

    def _bind(self, dtype: Any) -> None:
        operands = self.operands
        plain = ComposedProduct(
            operands["a"], operands["b"], operands["c"], alpha=self.alpha, beta=self.beta, dtype=dtype,
            options=self.options, stream=self.stream, **self.settings,
        )  # fmt: skip
        problem = plain.problem
        self.bound, self.numbers = _custom.bound_of(self.epilogue, self.inputs, problem)
        self.problem = _custom.problem_of(self.bound)
        self._plain = plain
        self.device_index = device_and_stream(plain.operand_arrays["a"], self.stream)[0]
        # The function's inputs are read where they lie, in the shapes that they had when they were bound.
        self._records = records_of({f"epilogue_inputs[{name!r}]": value for name, value in self.inputs.items()})

    # ---- what is asked of it ----

    @_exclusive
    @default_arithmetic
    def plan(
        self,
        *,
        algorithms: Sequence[Algorithm | Mapping[str, Any] | str] | None = None,
        max_algorithms: int = LISTED,
    ) -> list[Algorithm]:
        """Ask the platform for algorithms of every strategy."""
        self.check_open()
        self._close_strategies()
        self._positions, self.absent, self.planned_algorithms = {}, {}, None
        refusal: RocpyError | None = None
        offers: list[Algorithm] = []
        for kind in STRATEGIES:
            try:
                strategy = kind(self)
                offered = strategy.plan(max_algorithms)
            except TorchLayerRequired:
                raise
            except (UnsupportedError, InvalidProblemError) as error:
                refusal = error
                self.absent[kind.label] = str(error)
                continue
            self._strategies[strategy.label] = strategy
            for position, one in enumerate(offered):
                name = one.name if strategy.lowering == "native" else f"{one.name} ({strategy.lowering})"
                self._positions[len(offers)] = (strategy.label, position)
                offers.append(dataclasses.replace(one, name=name, lowering=strategy.lowering, rank=len(offers)))
        if refusal is not None and not self._strategies:
            raise refusal
        self.planned_algorithms = self._tuned(offers)
        if algorithms is not None:
            chosen = [self._find(one) for one in algorithms]
            self.planned_algorithms = [dataclasses.replace(one, source="pinned") for one in dict.fromkeys(chosen)]
        self.chosen = self.planned_algorithms[0].rank if self.planned_algorithms else 0
        return list(self.planned_algorithms)

    def _tuned(self, candidates: list[Algorithm]) -> list[Algorithm]:
        """Put what was measured to be the fastest first."""
        device = self.device_index
        problem = self.launched
        position, source = _choice.choose(problem, self.options, device, candidates) if candidates else (0, "")
        if source == "tuned":
            chosen = _choice.labelled(candidates[position], source, problem, self.options, device)
            return [chosen, *candidates[:position], *candidates[position + 1 :]]
        return candidates

    def _find(self, algorithm: Any) -> Algorithm:
        listed = self.planned_algorithms or []
        match = _algorithms.find(algorithm, listed, self.device_index, self.problem)
        if match is None:
            raise _algorithms.missing(algorithm, listed)
        return match

    @_exclusive
    def pin(self, algorithm: Any) -> Algorithm:
        """Make execute() take one algorithm from now on, until the next plan."""
        if not self._strategies:
            self.plan()
        mine = self._find(algorithm)
        pinned = dataclasses.replace(mine, source="pinned")
        self.planned_algorithms = [pinned if one is mine else one for one in self.planned_algorithms or []]
        self.chosen = pinned.rank
        return pinned

    @_exclusive
    @default_arithmetic
    def reset_operands(
        self,
        *,
        a: Any = None,
        b: Any = None,
        c: Any = None,
        bias: Any = None,
        aux: Any = None,
        alpha: Any = None,
        beta: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_c: Any = None,
        scale_d: Any = None,
        epilogue_inputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Put other operands in the place of those given before; ``epilogue_inputs`` are those that change."""
        self.check_open()
        _custom.refuse_operands(bias=bias, aux=aux)
        like = self._like if a is None else readable(a, "a")
        b = viewed(b, "b")
        right, b = self.right if b is None else b, snapshot_of(b)
        changed = {"a": None if a is None else viewed(like, "a"), "b": b, "c": viewed(c, "c")}
        before = (
            self.operands,
            self.inputs,
            self.alpha,
            self.beta,
            self.settings,
            self.bound,
            self.numbers,
            self.problem,
            self.right,
            self._plain,
            self.device_index,
            self._records,
        )
        self.right = right
        self.operands = {name: self.operands[name] if new is None else new for name, new in changed.items()}
        scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_c": scale_c, "scale_d": scale_d}
        scales = {name: value for name, value in scales.items() if value is not None}
        self.settings = {**self.settings, **scales}
        self.alpha = self.alpha if alpha is None else alpha
        self.beta = self.beta if beta is None else beta
        try:
            new_inputs = dict(epilogue_inputs or {})
            if self.weight_bias and b is not None and "bias" not in new_inputs and getattr(b, "bias", None) is not None:
                new_inputs["bias"] = b.bias  # of the new Weight
            self.inputs = viewed_inputs(self.epilogue.complete({**self.inputs, **new_inputs}))
            _custom.check_inputs(self.inputs)
            old, numbers = self.problem, self.numbers
            self._bind(old.dtype)
            if self.problem != old:
                self._check_same(old)
            if self.problem != old or self.numbers != numbers or scales:
                self._replan()
            else:
                for strategy in self._strategies.values():
                    strategy.reset(self)
        except Exception:
            (self.operands, self.inputs, self.alpha, self.beta, self.settings, self.bound, self.numbers,
             self.problem, self.right, self._plain, self.device_index, self._records) = before  # fmt: skip
            raise
        self._like = like

    def _check_same(self, old: Problem) -> None:
        """Refuse operands of other shapes and types, but for an M that may change."""
        new = self.problem
        pairs = [(name, getattr(old, name), getattr(new, name)) for name in ("a", "b", "c")]
        pairs += [(f"epilogue_inputs[{x!r}]", p, q) for (x, p), (_, q) in zip(old.inputs, new.inputs, strict=False)]
        for name, before, after in pairs:
            if before is None or after is None or (before.shape, before.dtype) == (after.shape, after.dtype):
                continue
            if before.dtype == after.dtype and self.options.dynamic == "m" and name != "b":
                continue
            raise InvalidProblemError(
                f"{name}: it was shape {before.shape}, {before.dtype} and would become shape {after.shape}, "
                f"{after.dtype}; create a new Matmul for another problem"
            )

    def _replan(self) -> None:
        if self._strategies:
            self._close_strategies()
            self.plan()

    @_exclusive
    def release_operands(self) -> None:
        """Let go of the operands and keep the plan."""
        self.check_open()
        for strategy in self._strategies.values():
            strategy.release()
        self._plain.release_operands()
        self.operands = dict.fromkeys(self.operands)
        self.right, self._like, self._records = None, None, ()

    # ---- what it says ----

    @property
    def strategy(self) -> Strategy:
        """The strategy that execute() chooses by itself."""
        return self._strategies[self.position_of(self.chosen)[0]]

    @property
    def executable(self) -> Executable:
        """How the function form computes the same."""
        label, position = self.position_of(self.chosen)
        return self._strategies[label].executable(position)

    def prepare(self) -> None:
        """Prepare each strategy for its trials."""
        for strategy in self._strategies.values():
            strategy.prepare()

    @property
    def why(self) -> str:
        """How it is computed, in a sentence."""
        return self.strategy.because if self._strategies else ""

    @property
    def copies(self) -> tuple[str, ...]:
        """Names of operands that are copied at each execution."""
        return tuple(self._plain.copies)

    @property
    def converted(self) -> tuple[str, ...]:
        """Names of operands of which a copy in another form is read."""
        return tuple(self._plain.converted)

    @property
    def staged(self) -> tuple[str, ...]:
        """Names of operands in CPU memory that are copied to the device when they are given."""
        return tuple(self._plain.staged)

    @property
    def launched(self) -> Problem:
        """The problem that is measured: with dense operands where copies are made."""
        problem = self.problem
        if not (problem.m and problem.n and problem.batch):
            return problem
        return with_copies(problem, lower(problem).copies)

    @property
    def operand_arrays(self) -> dict[str, Any]:
        """The operands by name, as the products inside have them."""
        return dict(self._plain.operand_arrays)

    def scalars(self) -> dict[str, Any]:
        """Return alpha and beta as keyword arguments."""
        return {"alpha": self.alpha, "beta": self.beta}

    @property
    def packed(self) -> bool:
        """Whether b is a packed Weight."""
        return bool(self._plain.packed)

    @property
    def device_name(self) -> str:
        """Name of the device that it runs on."""
        return str(self._plain.device_name)

    def _close_strategies(self) -> None:
        for strategy in self._strategies.values():
            strategy.close()
        self._strategies = {}

    @_exclusive
    def close(self) -> None:
        """Give back the plans and the operands. Closing twice is harmless."""
        self.closed = True
        self._close_strategies()
        self._plain.close()
        self.operands, self.inputs, self._like, self._records = dict.fromkeys(self.operands), {}, None, ()
