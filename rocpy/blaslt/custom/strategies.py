# SPDX-License-Identifier: MIT
"""Strategies for a product with an epilogue of the user's: what each begins with, its algorithms, its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rocpy import platform
from rocpy._operand import resolve_stream
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.executables import LibraryExecutable, TileExecutable, native_call, planned_call
from rocpy.blaslt.custom.fused import fused_of
from rocpy.blaslt.custom.generated import generated_of
from rocpy.blaslt.custom.triton_kernel import TritonProduct, triton_product_of
from rocpy.blaslt.engine.streams import SynchronizeStream, refuse_capturing
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.executable import Executable
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model.product_types import unit_scales
from rocpy.blaslt.model.scale_arguments import SCALES, scales_of
from rocpy.errors import LibraryError, UnsupportedError

if TYPE_CHECKING:
    from rocpy.epilogues import Expression
    from rocpy.epilogues.lowering.match import NativeForm

__all__ = ["STRATEGIES", "Strategy"]


class Owner(Protocol):
    """What a strategy asks of the planned product that has it.

    Attributes
    ----------
    operands, inputs
        Operands and the function's inputs, by name.
    alpha, beta
        Factors of the product and of c.
    settings
        The other arguments of the product inside.
    options, stream
        As the user gave them.
    bound
        The function bound to its inputs.
    epilogue_name, device_index
        The epilogue's name, and the number of the device that it runs on.
    """

    operands: dict[str, Any]
    inputs: dict[str, Any]
    alpha: Any
    beta: Any
    settings: dict[str, Any]
    bound: _custom.Bound
    options: Options
    stream: Any
    epilogue_name: str
    device_index: int


def _call(owner: Owner, outs: tuple[Any, ...] = ()) -> ProductCall:
    """Return a planned product as a call that is not executed."""
    return planned_call(
        owner.operands, owner.inputs, owner.alpha, owner.beta, owner.settings, owner.options, None, outs
    )


class Strategy:
    """One lowering of a product that is planned.

    Attributes
    ----------
    label, lowering
        Its name among the strategies, and that of its lowering.
    because
        How it computes, in a sentence.
    """

    label = lowering = ""
    because = ""

    def __init__(self, owner: Owner) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Give back the plan."""

    def release(self) -> None:
        """Let go of the operands."""

    def prepare(self) -> None:
        """Do what the first execution of each algorithm would do besides computing."""

    def plan(self, requested: int) -> list[Algorithm]:
        """Return the algorithms, best first."""
        raise NotImplementedError

    def reset(self, owner: Owner) -> None:
        """Take the owner's operands as they are now."""

    def execute(self, call: ProductCall, position: int) -> tuple[Any, ...]:
        """Return the results of the planned product, as a call, by an algorithm."""
        raise NotImplementedError

    def executable(self, position: int, named: bool) -> Executable | None:
        """Return how the function form computes the same by an algorithm, which the user may have named.

        ``None`` where the function form cannot be told to take that algorithm.
        """
        raise NotImplementedError


# ---- strategies that begin with a product of the library ----


def _missing_scales(bound: _custom.Bound, dtype: str) -> dict[str, Any]:
    """Return scales of 1 where the product inside gives floats of whole numbers that have none."""
    problem = bound.problem
    missing = unit_scales(problem.a.dtype, problem.b.dtype, dtype)
    return {name: one for name, one in missing.items() if not getattr(problem, name)}


class Native(Strategy):
    """The library's own epilogue."""

    label = lowering = "native"
    #: What computes the rest of the function; ``None`` where nothing is left.
    last: Any = None

    def __init__(self, owner: Owner) -> None:
        form = _custom.whole_form(owner.bound)
        if form is None:
            raise UnsupportedError(f"epilogue {owner.epilogue_name!r} is not one of the library's")
        self.begin(owner, form, owner.bound.out_types[0])
        self.because = f"it is the library's epilogue {form.epilogue}"

    def begin(self, owner: Owner, form: NativeForm, dtype: Any, fallback: Literal["allow", "error"] = "error") -> None:
        """Make the product that it begins with; ``fallback`` as in the options."""
        self.form, self.bound = form, owner.bound
        call = native_call(form, _call(owner))
        epilogue: Any = form.epilogue  # one of the names
        self.inner = ComposedProduct(
            call.a,
            call.b,
            call.c,
            alpha=call.alpha,
            beta=call.beta,
            bias=call.bias,
            epilogue=epilogue,
            clamp=form.clamp,
            dtype=dtype,
            options=dataclasses.replace(owner.options, fallback=fallback),
            stream=owner.stream,
            **{**owner.settings, **_missing_scales(owner.bound, dtype)},
        )

    def close(self) -> None:
        self.inner.close()

    def release(self) -> None:
        self.inner.release_operands()

    def plan(self, requested: int) -> list[Algorithm]:
        return self.inner.plan(max_algorithms=requested)

    def reset(self, owner: Owner) -> None:
        call = native_call(self.form, _call(owner))
        changes = {name: getattr(call, name) for name in ("a", "b", "c", "alpha", "beta", "bias")}
        if call.beta is None and call.c is not None:
            changes["beta"] = 1.0
        changes |= {name: owner.settings.get(name) for name in SCALES}
        self.inner.reset_operands(**{name: value for name, value in changes.items() if value is not None})

    def execute(self, call: ProductCall, position: int) -> tuple[Any, ...]:
        return (self.inner.execute(algorithm=position, out=call.out[0], stream=call.stream),)

    def executable(self, position: int, named: bool) -> Executable | None:
        if named and self.inner.unfused is not None:
            return None
        # Without a name the function form's product makes its own choice.
        algorithm = self.inner.algorithms[position] if named else None
        dtype = self.inner.problem.dtype
        missing = _missing_scales(self.bound, dtype)
        return LibraryExecutable(self.bound, self.form, dtype, missing, self.last, algorithm)


# Of the strategies that compose it, the pass over the result weighs more than the product's algorithm.
_COMPOSED = 4


class _Composed(Native):
    """The nearest of the library's epilogues, then what is left of the expression."""

    #: What may be done where the library has no such product at all.
    base_fallback: Literal["allow", "error"] = "error"

    def compose(self, owner: Owner) -> Expression:
        """Make the product to begin with, and return what is left after it."""
        from rocpy.epilogues.lowering.match import NativeForm

        bound = owner.bound
        form, rest = _custom.nearest_form(bound)
        dtype = _custom.base_type(bound)
        whole = bound.resolved.expression
        for begins, left in ((form, rest), (NativeForm(), whole)):
            try:
                self.begin(owner, begins, dtype)
                self.inner.plan(max_algorithms=1)
            except UnsupportedError:
                continue
            return left
        self.begin(owner, NativeForm(), dtype, self.base_fallback)
        return whole

    @property
    def base(self) -> str:
        """What it begins with, in words."""
        return f"epilogue {self.form.epilogue} in {self.inner.problem.dtype}"

    def plan(self, requested: int) -> list[Algorithm]:
        return super().plan(requested)[:_COMPOSED]

    def execute(self, call: ProductCall, position: int) -> tuple[Any, ...]:
        self.last.refuse_capture(call.inputs, self.bound, call.out, call.stream)
        base = self.inner.execute(algorithm=position, stream=call.stream)
        return tuple(self.last.finish(base, call.inputs, self.bound, call.out, call.options, call.stream))


class WithKernel(_Composed):
    """The rest by one generated HIP kernel."""

    label = lowering = "native+kernel"

    def __init__(self, owner: Owner) -> None:
        rest = self.compose(owner)
        try:
            self.last = generated_of(owner.bound, rest, self.inner.problem.dtype, owner.device_index)
        except LibraryError as error:
            raise UnsupportedError(f"epilogue {owner.epilogue_name!r}: its kernel does not compile: {error}") from error
        self.because = f"{self.base}, then one generated kernel"


class Unfused(_Composed):
    """The rest by the framework's own operations."""

    label = lowering = "unfused"
    base_fallback: Literal["allow", "error"] = "allow"

    def __init__(self, owner: Owner) -> None:
        if owner.options.fallback == "error":
            raise UnsupportedError(
                f"epilogue {owner.epilogue_name!r}: the {platform.current().name} platform computes it only as a "
                "product "
                "followed by the framework's own operations, which options(fallback='error') forbids"
            )
        _custom.check_promise(owner.bound, owner.options)
        self.last = _Rest(self.compose(owner))
        self.because = f"{self.base}, then the framework's own operations"


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of an expression, for a framework to evaluate."""

    expression: Expression

    def refuse_capture(
        self,
        inputs: Mapping[str, Any],  # noqa: ARG002
        bound: _custom.Bound,
        outs: tuple[Any, ...],  # noqa: ARG002
        stream: Any,
    ) -> None:
        """Refuse a stream that is being captured: a graph contains none of the framework's operations."""
        name = bound.resolved.expression.name
        refuse_capturing(
            stream, f"epilogue {name!r} is composed", "see rocpy.explain(), and call it outside of the capture"
        )

    def finish(
        self,
        base: Any,
        inputs: Mapping[str, Any],
        bound: _custom.Bound,
        outs: tuple[Any, ...],
        options: Any,  # noqa: ARG002 (nothing is copied)
        stream: Any,
    ) -> tuple[Any, ...]:
        """Return the results, written where the user wants them."""
        from rocpy.epilogues.expressions.evaluate import evaluate

        synchronize = None if stream is None else SynchronizeStream(resolve_stream(stream, base), base)
        if synchronize is not None:
            synchronize()  # the framework's operations do not follow the order of a stream that the user gave
        results = evaluate(self.expression, base, inputs, str(base.dtype).removeprefix("torch."), bound.out_types)
        written = []
        for result, out in zip(results, outs, strict=True):
            if out is not None:
                _copies.assign(out, result)
            written.append(result if out is None else out)
        if synchronize is not None:
            synchronize()
        return tuple(written)


# ---- strategies that are one kernel ----


class Tiled(Strategy):
    """A tile program of the platform."""

    label, lowering = "fused by tile programs", "fused"
    because = "a tile program applies it to the product while that is in cache"

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.fused = fused_of(owner.bound)
        self.executables = [TileExecutable(owner.bound, self.fused, 0)]

    def plan(self, requested: int) -> list[Algorithm]:
        bound = self.owner.bound
        listed = self.executables[0].algorithms(_call(self.owner, (None,) * len(bound.out_types)), requested)
        self.executables += [TileExecutable(bound, self.fused, rank) for rank in range(1, len(listed))]
        return listed

    def execute(self, call: ProductCall, position: int) -> tuple[Any, ...]:
        return self.executables[position].finish(call, None)

    def executable(self, position: int, named: bool) -> Executable:  # noqa: ARG002
        return self.executables[position]


class Triton(Strategy):
    """A kernel that Triton compiles."""

    label, lowering = "fused by Triton", "fused"
    because = "one Triton kernel multiplies and applies it"

    def __init__(self, owner: Owner) -> None:
        a, b = owner.operands["a"], owner.operands["b"]
        self.product = triton_product_of(
            owner.bound, a, b, scales_of(owner.settings), owner.options, owner.device_index
        )

    def plan(self, requested: int) -> list[Algorithm]:
        return self.product.algorithms(requested)

    def prepare(self) -> None:
        self.product.compile_all()

    def execute(self, call: ProductCall, position: int) -> tuple[Any, ...]:
        return self.product.run(position, call)

    def executable(self, position: int, named: bool) -> Executable:  # noqa: ARG002
        return _TritonExecutable(self.product, position)


class _TritonExecutable(Executable):
    def __init__(self, product: TritonProduct, position: int) -> None:
        super().__init__(product.bound)
        self._product, self._position = product, position

    def finish(self, call: ProductCall, base: Any) -> tuple[Any, ...]:  # noqa: ARG002 (there is none)
        return self._product.run(self._position, call)


# Best first; what several of them offer are candidates of one plan.
STRATEGIES: tuple[type[Strategy], ...] = (Native, Tiled, Triton, WithKernel, Unfused)
