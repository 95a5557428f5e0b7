# SPDX-License-Identifier: MIT
"""CustomProduct: a planned product with an epilogue of the user's, by one of several strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocpy._fp_environment import default_arithmetic
from rocpy._memory_record import MemoryRecord, any_moved, records_of
from rocpy._operand import lasting, readable
from rocpy.blaslt.arrays.views import viewed, viewed_inputs
from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.exclusive import exclusive
from rocpy.blaslt.custom.planning import MOST_CACHED_PLANS, CustomPlanning
from rocpy.blaslt.engine.streams import device_and_stream
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import SCALES
from rocpy.blaslt.model.weight_operand import snapshot_of
from rocpy.blaslt.native import reset as _reset
from rocpy.errors import (
    InvalidProblemError,
    RocpyError,
)

__all__ = ["CustomProduct"]


def _label(name: str) -> str:
    """Return an input of the function as errors name it."""
    return f"epilogue_inputs[{name!r}]"


def _lasting_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: lasting(value, _label(name)) for name, value in inputs.items()}


class CustomProduct(CustomPlanning):
    """A planned product with an epilogue of the user's."""

    __slots__ = ("_bounds", "epilogue", "numbers", "weight_bias")

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
        sources = {name: lasting(value, name) for name, value in (("a", a), ("b", b), ("c", c))}
        self._like = readable(sources["a"], "a")
        a, c = viewed(self._like, "a"), viewed(sources["c"], "c")
        self.right = viewed(sources["b"], "b")
        b = snapshot_of(self.right)
        input_sources = _lasting_inputs(_custom.complete(epilogue, epilogue_inputs, b))
        self.inputs = viewed_inputs(input_sources)
        #: Whether the function's bias is the one that the Weight carries.
        self.weight_bias = getattr(b, "bias", None) is not None and self.inputs.get("bias") is b.bias
        _custom.check_inputs(self.inputs)
        self.operands = {"a": a, "b": b, "c": c}
        self._plain = ComposedProduct(
            a, b, c, alpha=alpha, beta=beta, dtype=dtype, options=self.options, stream=stream, **self.settings
        )
        self._bounds: dict[Any, tuple[_custom.Bound, Problem]] = {}
        self.bound, self.problem, self.numbers = self._bound_of(self._plain.problem, self.inputs)
        self.device_index = self._find_device()
        self._records = self._records_of(sources, input_sources)
        self._begin_plans()
        self.closed = False

    def _bound_of(self, problem: Problem, inputs: dict[str, Any]) -> tuple[_custom.Bound, Problem, dict[str, Any]]:
        """Return the function bound to a product and inputs, the problem that they are, and those that are numbers."""
        numbers = _custom.plain_numbers(inputs)
        arrays = {name: _custom.info_of(value, name) for name, value in inputs.items() if name not in numbers}
        # 1, 1.0 and True are three numbers, and -0.0 is not 0.0.
        key = (problem, *arrays.items(), *[(name, type(value), repr(value)) for name, value in numbers.items()])
        entry = self._bounds.get(key)
        if entry is None:
            bound = _custom.bound_of(self.epilogue, numbers, arrays, problem)
            entry = self._bounds[key] = bound, _custom.problem_of(bound)
            if len(self._bounds) > 2 * MOST_CACHED_PLANS:
                del self._bounds[next(iter(self._bounds))]
        return *entry, numbers

    def _records_of(self, operands: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[MemoryRecord, ...]:
        """Return where the memory of the function's inputs is, and of those operands of which numpy's views are read.

        The product inside has records of the other operands.
        """
        arrays = {name: one for name, one in operands.items() if one is not self.operands[name]}
        arrays |= {_label(name): one for name, one in inputs.items()}
        return records_of(arrays, {**self.operands, **{_label(name): one for name, one in self.inputs.items()}})

    def _take_exported(self) -> None:
        """Take those operands and inputs of which numpy's views are read, and whose memory is elsewhere now."""
        changed = {one.name: one.array for one in self._records if one.is_exported and one.moved()}
        if changed:
            inputs = {name: changed.pop(_label(name)) for name in self.inputs if _label(name) in changed}
            self.reset_operands(**changed, epilogue_inputs=inputs)

    def _find_device(self) -> int:
        return device_and_stream(self._plain.operand_arrays["a"], self.stream)[0]

    # ---- its operands ----

    @exclusive
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
        """Put other operands in the place of those before; ``epilogue_inputs`` are those that change."""
        self.check_open()
        _custom.refuse_operands(bias=bias, aux=aux)
        sources = {name: lasting(one, name) for name, one in (("a", a), ("b", b), ("c", c)) if one is not None}
        like = self._like if a is None else readable(sources["a"], "a")
        changes = {name: viewed(like if name == "a" else one, name) for name, one in sources.items()}
        right = changes.get("b", self.right)
        if b is not None:
            changes["b"] = snapshot_of(right)
        scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_c": scale_c, "scale_d": scale_d}
        scales = {name: value for name, value in scales.items() if value is not None}
        inputs, input_sources = self._changed_inputs(epilogue_inputs, changes)
        bound, own, numbers = self.bound, self.problem, self.numbers
        replaced = {*sources, *map(_label, input_sources)}
        records = tuple(one for one in self._records if one.name not in replaced)
        any_moved(records)  # those that stay are refused where they are of another shape than before

        def accept(problem: Problem) -> None:
            nonlocal bound, own, numbers
            if problem is not self._plain.problem or inputs is not self.inputs:
                bound, own, numbers = self._bound_of(problem, inputs)
                self._check_same(bound, numbers)

        self._plain.take(dict(changes), alpha, beta, scales, accept)
        before = (
            self.operands,
            self.inputs,
            self.alpha,
            self.beta,
            self.settings,
            self.right,
            self._like,
            self._records,
        )
        self.operands = {**self.operands, **changes}
        self.alpha = self.alpha if alpha is None else alpha
        self.beta = self.beta if beta is None else beta
        self.settings = {**self.settings, **scales}
        self.inputs, self.right, self._like = inputs, right, like
        self.bound, self.problem, self.numbers = bound, own, numbers
        self._records = records + self._records_of(sources, input_sources)
        if "a" in changes:
            self.device_index = self._find_device()
        key, self._key = self._key, (own, self.device_index)
        if key != self._key:
            self._change_plan(key)
        else:
            try:
                self._reset_strategies()
            except RocpyError:
                self._put_back(*before)
                raise
        self.released = False

    def _put_back(
        self, operands: dict[str, Any], inputs: dict[str, Any], alpha: Any, beta: Any, settings: dict[str, Any],
        right: Any, like: Any, records: tuple[MemoryRecord, ...],
    ) -> None:  # fmt: skip
        """Take the operands before, which differ from those now in nothing that a plan depends on."""
        self.operands, self.inputs, self.alpha, self.beta, self.settings = operands, inputs, alpha, beta, settings
        self.right, self._like, self._records = right, like, records
        if self.released:
            self._release()
            return
        arrays = {name: value for name, value in operands.items() if value is not None}
        unit = 0.0 if operands["c"] is None else 1.0
        scales = {name: settings[name] for name in SCALES if name in settings}
        self._plain.take(arrays, alpha, unit if beta is None else beta, scales, None)
        self.device_index = self._find_device()
        self._reset_strategies()

    def _changed_inputs(
        self, epilogue_inputs: Any, changes: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the function's inputs, and what those are read of that change; all of them must after a release."""
        if epilogue_inputs is not None and not isinstance(epilogue_inputs, Mapping):
            self.epilogue.complete(epilogue_inputs)  # which refuses it
        new = dict(epilogue_inputs or {})
        bias = getattr(changes.get("b"), "bias", None)
        if self.weight_bias and bias is not None:
            new.setdefault("bias", bias)  # of the new Weight
        if self.released:
            lacking = _reset.lacking_operands(self.problem, changes)
            names = [name for name in self.epilogue.inputs if name not in self.inputs and name not in new]
            _reset.refuse_lacking(lacking + [_label(name) for name in names])
        if not new:
            return self.inputs, {}
        new = _lasting_inputs(new)
        inputs = viewed_inputs(self.epilogue.complete({**self.inputs, **new}))
        _custom.check_inputs(inputs)
        return inputs, new

    def _check_same(self, bound: _custom.Bound, numbers: Mapping[str, Any]) -> None:
        """Refuse inputs of other shapes and types, but for an M that may change, and results of other types."""
        old, new = dict(self.bound.inputs), dict(bound.inputs)
        for name in self.epilogue.inputs:
            label = _label(name)
            if name in old and name in new:
                _reset.check_operand(self.bound.problem, label, "c", old[name], new[name], self.options.dynamic)
            elif type(numbers.get(name)) is not type(self.numbers.get(name)):
                before = _reset.text_of(old.get(name), self.numbers.get(name))
                raise InvalidProblemError(
                    f"{label}: it was {before} and would become {_reset.text_of(new.get(name), numbers.get(name))}; "
                    "create a new Matmul for another problem"
                )
        if bound.out_types != self.bound.out_types:
            raise InvalidProblemError(
                f"epilogue_inputs: the result was {', '.join(self.bound.out_types)} and would become "
                f"{', '.join(bound.out_types)}; create a new Matmul for another problem"
            )

    @exclusive
    def release_operands(self) -> None:
        """Let go of the operands and keep the plan."""
        self.check_open()
        self._release()

    def _release(self) -> None:
        for strategy in self._strategies.values():
            strategy.release()
        self._plain.release_operands()
        self.operands = dict.fromkeys(self.operands)
        self.inputs = {name: self.inputs[name] for name in self.numbers}
        self.right, self._like, self._records, self.released = None, None, (), True

    # ---- what it says ----

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

    @exclusive
    def close(self) -> None:
        """Give back the plans and the operands. Closing twice is harmless."""
        self.closed = True
        self._close_plans()
        self._plain.close()
        self.operands, self.inputs, self._like, self._records = dict.fromkeys(self.operands), {}, None, ()
