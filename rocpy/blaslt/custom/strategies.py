# SPDX-License-Identifier: MIT
"""The ways to compute a product with an epilogue of the user's: what each begins with, its algorithms, its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rocpy import platform
from rocpy._operand import resolve_stream
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.composed.plan import ComposingMatmul
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.fused import Fused, fused_algorithms, fused_of, fused_product
from rocpy.blaslt.custom.generated import generated_of
from rocpy.blaslt.custom.triton_kernel import TritonProduct, triton_product_of
from rocpy.blaslt.engine.streams import Settle
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.options import Options, resolve_options
from rocpy.blaslt.model.product_types import unit_scales
from rocpy.errors import LibraryError, UnsupportedError

if TYPE_CHECKING:
    from rocpy.epilogues import Expression
    from rocpy.epilogues._match import NativeForm

__all__ = ["WAYS", "Kept", "Way"]


@dataclass(frozen=True, slots=True)
class Call:
    """The operands of one call of the function form.

    Parameters
    ----------
    run
        The function form for the library's own epilogues.
    a, b, c, inputs, outs
        Operands, inputs, and where the results go.
    arguments
        The other arguments of the function form.
    """

    run: Callable[..., Any]
    a: Any
    b: Any
    c: Any
    inputs: Mapping[str, Any]
    outs: tuple[Any, ...]
    arguments: Mapping[str, Any]

    @property
    def options(self) -> Options:
        """The options, as they hold here."""
        return resolve_options(self.arguments["options"])

    @property
    def scalars(self) -> tuple[Any, Any]:
        """The factors of the product and of c."""
        return self.arguments["alpha"], self.arguments["beta"]


class Kept:
    """How products of some kind are computed, without their operands; what the function form keeps."""

    def product(self, call: Call) -> tuple[Any, ...]:
        """Return the results."""
        raise NotImplementedError


class Owner(Protocol):
    """What a way asks of the planned product that it is one of.

    Attributes
    ----------
    operands, inputs
        Operands and the function's inputs, by name.
    alpha, beta
        Factors of the product and of c.
    settings
        The other arguments of the product inside.
    bound
        The function bound to its inputs.
    """

    operands: dict[str, Any]
    inputs: dict[str, Any]
    alpha: Any
    beta: Any
    settings: dict[str, Any]
    bound: _custom.Bound
    chosen_options: Options
    given_stream: Any

    @property
    def epilogue_name(self) -> str:
        """Name of the epilogue."""
        ...

    @property
    def device_index(self) -> int:
        """Number of the device that it runs on."""
        ...


class Way:
    """One lowering of a product that is planned.

    Attributes
    ----------
    label, lowering
        Its name among the ways, and that of its lowering.
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

    def execute(self, owner: Owner, place: int, outs: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
        """Return the results."""
        raise NotImplementedError

    def kept(self, place: int) -> Kept:
        """Return how the function form computes the same by an algorithm."""
        raise NotImplementedError


# ---- ways that begin with a product of the library ----


@dataclass(frozen=True, slots=True)
class _Base(Kept):
    """A product with one of the library's own epilogues, and what is done after it."""

    form: NativeForm
    dtype: str
    bound: _custom.Bound
    last: Any = None
    epilogue: str = field(init=False)
    missing: dict[str, Any] = field(init=False)  # scales of 1 that the product inside wants

    def __post_init__(self) -> None:
        object.__setattr__(self, "epilogue", self.form.epilogue)
        object.__setattr__(self, "missing", _missing_scales(self.bound, self.dtype))

    def product(self, call: Call) -> tuple[Any, ...]:
        arguments, form = call.arguments, self.form
        given = _custom.native_operands(form, call.inputs, call.c, arguments["alpha"], arguments["beta"])
        for name in _PASSED:
            given[name] = arguments[name]
        given.update(self.missing)
        out = call.outs[0] if self.last is None else None
        base = call.run(call.a, call.b, epilogue=self.epilogue, clamp=form.clamp, dtype=self.dtype, out=out, **given)
        if self.last is None:
            return (base,)
        stream = arguments["stream"]
        return tuple(self.last.finish(base, call.inputs, self.bound, call.outs, call.options, stream))


_PASSED = ("compute", "options", "stream", "scale_a", "scale_b", "scale_c", "scale_d")


def _missing_scales(bound: _custom.Bound, dtype: str) -> dict[str, Any]:
    """Return scales of 1 where the product inside gives floats of whole numbers that have none."""
    problem = bound.problem
    missing = unit_scales(problem.a.dtype, problem.b.dtype, dtype)
    return {name: one for name, one in missing.items() if not getattr(problem, name)}


class Native(Way):
    """The library's own epilogue."""

    label = lowering = "native"

    def __init__(self, owner: Owner) -> None:
        form = _custom.whole_form(owner.bound)
        if form is None:
            raise UnsupportedError(f"epilogue {owner.epilogue_name!r} is none of the library's own")
        self.begin(owner, form, owner.bound.out_types[0])
        self.because = f"it is the library's epilogue {form.epilogue}"

    def begin(self, owner: Owner, form: NativeForm, dtype: Any, fallback: Literal["allow", "error"] = "error") -> None:
        """Make the product that it begins with; ``fallback`` as in the options."""
        self.form, self.bound = form, owner.bound
        self.inner = ComposingMatmul(
            owner.operands["a"],
            owner.operands["b"],
            **_custom.native_operands(form, owner.inputs, owner.operands["c"], owner.alpha, owner.beta),
            **_custom.native_settings(form),
            dtype=dtype,
            options=dataclasses.replace(owner.chosen_options, fallback=fallback),
            stream=owner.given_stream,
            **{**owner.settings, **_missing_scales(owner.bound, dtype)},
        )

    def close(self) -> None:
        self.inner.close()

    def release(self) -> None:
        self.inner.release_operands()

    def plan(self, requested: int) -> list[Algorithm]:
        return self.inner.plan(max_algorithms=requested)

    def reset(self, owner: Owner) -> None:
        made = _custom.native_operands(self.form, owner.inputs, owner.operands["c"], owner.alpha, owner.beta)
        given = {"a": owner.operands["a"], "b": owner.operands["b"], **made}
        self.inner.reset_operands(**{name: value for name, value in given.items() if value is not None})

    def execute(self, owner: Owner, place: int, outs: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:  # noqa: ARG002
        return (self.inner.execute(algorithm=place, out=outs[0], stream=stream),)

    def kept(self, place: int) -> Kept:  # noqa: ARG002 (the function form's product makes its own choice)
        return _Base(self.form, self.inner.problem.dtype, self.bound)


# Of the ways to compose it, the pass over the result weighs more than the product's algorithm.
_COMPOSED = 4


class _Composed(Native):
    """The nearest of the library's epilogues, then what is left of the expression."""

    last: Any = None
    #: What may be done where the library has no such product at all.
    base_fallback: Literal["allow", "error"] = "error"

    def compose(self, owner: Owner) -> Expression:
        """Make the product to begin with, and return what is left after it."""
        from rocpy.epilogues._match import NativeForm

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

    def execute(self, owner: Owner, place: int, outs: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
        base = self.inner.execute(algorithm=place, stream=stream)
        return tuple(self.last.finish(base, owner.inputs, owner.bound, outs, owner.chosen_options, stream))

    def kept(self, place: int) -> Kept:  # noqa: ARG002 (the function form's product makes its own choice)
        return _Base(self.form, self.inner.problem.dtype, self.bound, self.last)


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
        if owner.chosen_options.fallback == "error":
            raise UnsupportedError(
                f"epilogue {owner.epilogue_name!r}: the {platform.current().name} platform computes it in no way but a "
                "product followed by the framework's own operations, and options(fallback='error') forbids that"
            )
        _custom.check_promise(owner.bound, owner.chosen_options)
        self.last = _Rest(self.compose(owner))
        self.because = f"{self.base}, then the framework's own operations"


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of an expression, for a framework to evaluate."""

    expression: Expression

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
        from rocpy.epilogues._evaluate import evaluate

        settle = None if stream is None else Settle(resolve_stream(stream, base))
        if settle is not None:
            settle()  # the framework's operations do not follow the order of a stream that the user gave
        results = evaluate(self.expression, base, inputs, str(base.dtype).removeprefix("torch."), bound.out_types)
        if settle is not None:
            settle()
        made = []
        for result, out in zip(results, outs, strict=True):
            if out is not None:
                _copies.assign(out, result)
            made.append(result if out is None else out)
        return tuple(made)


# ---- ways that are one kernel ----


class Tiled(Way):
    """A tile program of the platform."""

    label, lowering = "fused by tile programs", "fused"
    because = "a tile program applies it to the product while that is in cache"

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.fused = fused_of(owner.bound)

    def plan(self, requested: int) -> list[Algorithm]:
        own = self.owner
        a, b, c = (own.operands[name] for name in ("a", "b", "c"))
        return fused_algorithms(self.fused, a, b, c, own.inputs, own.settings, own.chosen_options, requested)

    def execute(self, owner: Owner, place: int, outs: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
        a, b, c = (owner.operands[name] for name in ("a", "b", "c"))
        return fused_product(
            self.fused, a, b, c, owner.inputs, (owner.alpha, owner.beta),
            owner.settings, outs, owner.chosen_options, stream, place,
        )  # fmt: skip

    def kept(self, place: int) -> Kept:
        return _KeptTiles(self.fused, place)


@dataclass(frozen=True, slots=True)
class _KeptTiles(Kept):
    fused: Fused
    place: int

    def product(self, call: Call) -> tuple[Any, ...]:
        options, stream = call.arguments["options"], call.arguments["stream"]
        return fused_product(
            self.fused, call.a, call.b, call.c, call.inputs, call.scalars, call.arguments, call.outs, options, stream,
            self.place,
        )  # fmt: skip


class Triton(Way):
    """A kernel that Triton compiles."""

    label, lowering = "fused by Triton", "fused"
    because = "one Triton kernel multiplies and applies it"

    def __init__(self, owner: Owner) -> None:
        a, b = owner.operands["a"], owner.operands["b"]
        self.made = triton_product_of(owner.bound, a, b, owner.settings, owner.chosen_options, owner.device_index)

    def plan(self, requested: int) -> list[Algorithm]:
        return self.made.algorithms(requested)

    def prepare(self) -> None:
        self.made.compile_all()

    def execute(self, owner: Owner, place: int, outs: tuple[Any, ...], stream: Any) -> tuple[Any, ...]:
        a, b = owner.operands["a"], owner.operands["b"]
        return self.made.run(place, a, b, owner.inputs, owner.alpha, owner.settings, outs, owner.chosen_options, stream)

    def kept(self, place: int) -> Kept:
        return _KeptTriton(self.made, place)


@dataclass(frozen=True, slots=True)
class _KeptTriton(Kept):
    made: TritonProduct
    place: int

    def product(self, call: Call) -> tuple[Any, ...]:
        stream = call.arguments["stream"]
        return self.made.run(
            self.place, call.a, call.b, call.inputs, call.scalars[0], call.arguments, call.outs, call.options, stream
        )


# Best first; what several of them offer are candidates of one plan.
WAYS: tuple[type[Way], ...] = (Native, Tiled, Triton, WithKernel, Unfused)
