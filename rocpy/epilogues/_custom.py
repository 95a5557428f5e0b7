# SPDX-License-Identifier: MIT
"""Custom epilogues: a user's function, and the expression that it was traced into."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rocpy.blaslt.model.epilogues import UserEpilogue
from rocpy.epilogues.expressions.evaluate import evaluate, is_number
from rocpy.epilogues.expressions.expression import Expression, with_bias
from rocpy.epilogues.expressions.gradient import Gradient, gradient_of
from rocpy.epilogues.expressions.inputs import are_known, complete, shape_of, with_numbers
from rocpy.epilogues.expressions.types import plain_number
from rocpy.epilogues.tracing.trace import Traced, applied, trace
from rocpy.errors import InvalidProblemError

__all__ = ["CustomEpilogue", "epilogue"]


class CustomEpilogue(UserEpilogue):
    """A function of a product and of named inputs that :func:`rocpy.matmul` takes as ``epilogue=``.

    Created by :func:`rocpy.epilogue` or :meth:`from_json`. Called on arrays, it calls the user's function. Two
    epilogues are equal if their expressions are.

    Parameters
    ----------
    expression
        The expression that it computes.
    function
        The user's function; ``None`` if there is only the expression, as after unpickling.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> @rocpy.epilogue
    ... def residual_relu(x, bias, residual):
    ...     return np.maximum(x + bias, 0) + residual
    >>> residual_relu
    <rocpy epilogue residual_relu(x, bias, residual) = maximum(x + bias, 0) + residual>
    >>> residual_relu.inputs
    ('bias', 'residual')
    >>> float(residual_relu(np.float32(-3), 1, 5))
    5.0
    """

    __slots__ = ("__dict__", "__weakref__", "_function", "biased", "expression", "text")

    def __init__(self, expression: Expression, function: Callable[..., Any] | None = None) -> None:
        self.expression = expression
        self.text = expression.to_json()  # what operators and problems carry
        # Of the product and a bias, for a layer that has one. Made here: torch's compiler cannot follow the making.
        taken = "bias" in expression.inputs
        self.biased: CustomEpilogue = self if taken else CustomEpilogue(with_bias(expression))
        self._function = function
        if function is not None:
            functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.expression.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs."""
        return self.expression.inputs

    @property
    def outputs(self) -> int:
        """Number of results."""
        return len(self.expression.outputs)

    def __call__(self, x: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the function makes of arrays, or of the values of a function that becomes an epilogue itself.

        Parameters
        ----------
        x
            The product.
        *args, **kwargs
            The inputs.
        """
        if self._function is not None:
            return self._function(x, *args, **kwargs)
        traced = next((one for one in (x, *args, *kwargs.values()) if isinstance(one, Traced)), None)
        if traced is not None:
            return applied(self.expression, traced.builder, x, self.complete(self._named(args, kwargs)))
        return self.evaluate(x, **self._named(args, kwargs))

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.inputs):
            raise InvalidProblemError(f"{self.name} takes {len(self.inputs)} inputs, got {len(args)}")
        twice = [name for name in self.inputs[: len(args)] if name in kwargs]
        if twice:
            raise InvalidProblemError(f"{self.name}: got {', '.join(twice)} both by position and by name; pass one")
        return {**dict(zip(self.inputs, args, strict=False)), **kwargs}

    def evaluate(self, x: Any, /, **inputs: Any) -> Any:
        """Return the value of the expression on arrays, by the operations of x's framework.

        Parameters
        ----------
        x
            The product: a numpy, torch, CuPy or jax array, or a :class:`rocpy.Buffer`.
        **inputs
            The inputs, by name; each broadcasts to x's shape.

        Returns
        -------
        array, or tuple of arrays
            Of the types that torch's rules give; values of float16 and narrower are computed in float32 and rounded
            once.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> halved = rocpy.epilogue(lambda x, bias: (x + bias) / 2)
        >>> halved.evaluate(np.ones((1, 2), np.float32), bias=np.arange(2, dtype=np.float32))
        array([[0.5, 1. ]], dtype=float32)
        """
        inputs = self.complete(inputs)
        arrays = {name: value for name, value in inputs.items() if len(getattr(value, "shape", ()))}
        if hasattr(x, "shape") and are_known(x, *arrays.values()):
            shape_of(self.expression, tuple(x.shape), 2, arrays, "{}")
        numbers = {name: plain_number(value) for name, value in inputs.items() if is_number(value)}
        folded = {name: value for name, value in numbers.items() if value is not None}
        results = evaluate(with_numbers(self.expression, folded, "{}"), x, inputs)
        return results[0] if self.expression.single else results

    def complete(self, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the inputs by name with their defaults; refuses what is missing or unknown.

        Raises
        ------
        InvalidProblemError
            If an input is missing, or there is none of that name.
        """
        return complete(self.expression, inputs)

    def vjp(self) -> Gradient:
        """Return the backward pass: how the gradients of the results become those of the product and the inputs.

        Returns
        -------
        rocpy.epilogues.Gradient
            Its :attr:`~Gradient.expression` is simplified and shares what is common; called on arrays it gives the
            gradients by name.

        Examples
        --------
        >>> import rocpy
        >>> print(rocpy.epilogue(lambda x, residual: 2 * x + residual).vjp().expression)
        f_gradient(x, residual, grad) = (grad * 2, grad)
        """
        return gradient_of(self.expression)

    def to_dict(self) -> dict[str, Any]:
        """Return the expression as plain values for JSON."""
        return self.expression.to_dict()

    def to_json(self) -> str:
        """Return the expression as a JSON object."""
        return self.text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CustomEpilogue:
        """Return the epilogue of an expression's record.

        Raises
        ------
        InvalidProblemError
            If it is no such record, a result does not depend on the product, or results differ in width.
        """
        return cls(_checked(Expression.from_dict(data)))

    @classmethod
    def from_json(cls, text: str) -> CustomEpilogue:
        """Return the epilogue of an expression's JSON object, as :meth:`from_dict` does.

        Examples
        --------
        >>> import rocpy
        >>> doubled = rocpy.epilogue(lambda x: 2 * x)
        >>> rocpy.epilogues.CustomEpilogue.from_json(doubled.to_json()) == doubled
        True
        """
        return cls(_checked(Expression.from_json(text)))

    def __eq__(self, other: object) -> bool:
        """Whether another computes the same expression."""
        return isinstance(other, CustomEpilogue) and self.expression == other.expression

    def __hash__(self) -> int:
        """Return the expression's hash."""
        return hash(self.expression)

    def __repr__(self) -> str:
        """Return the expression's text."""
        return repr(self.expression)

    def __reduce__(self) -> Any:
        """Pickle by the expression."""
        return CustomEpilogue.from_json, (self.to_json(),)


def _checked(expression: Expression) -> Expression:
    """Return an expression that is read from a record; refuses one that no function is traced into."""
    halves = expression.halves
    for number, output in enumerate(expression.outputs):
        if not any(expression.nodes[one].op == "x" for one in expression.uses(output)):
            raise InvalidProblemError(
                f"this is not an epilogue's record: result {number} does not depend on the product"
            )
    if len({halves[output] for output in expression.outputs}) > 1:
        raise InvalidProblemError(
            "this is not an epilogue's record: one result has half the product's columns and another all of them"
        )
    return expression


def epilogue(function: Callable[..., Any]) -> CustomEpilogue:
    """Return a function of a product and of named inputs as an epilogue; a decorator.

    The function is called once, when it is decorated, on placeholders that record the operations applied to them.

    Parameters
    ----------
    function
        Takes the product and any number of named inputs, each of which broadcasts to the product's shape: ``(N,)``
        for one per column, ``(M, 1)`` for one per row, the full shape, or one for all; a number as the default of an
        input makes it optional, and what :class:`functools.partial` sets is a constant. Returns one value or a tuple.
        It may use numpy's ufuncs, torch's functions, operators and methods: arithmetic, comparisons, ``where``,
        ``minimum``, ``maximum``, ``abs``, ``exp``, ``log``, ``sqrt``, ``rsqrt``, ``tanh``, ``erf``, ``sigmoid``,
        ``silu``, ``gelu``, ``relu``, ``clamp``, rounding and casts.

    Returns
    -------
    rocpy.epilogues.CustomEpilogue
        What ``rocpy.matmul(..., epilogue=, epilogue_inputs=)`` takes; called on arrays it is the function itself.

    Raises
    ------
    UnsupportedError
        If the function branches on a value, writes into one, or uses an unsupported operation; the message
        begins with the file and the line.
    InvalidProblemError
        If the function reshapes or reduces, or a result does not depend on the product.
    InvalidOperandError
        If it is no function, or one of a package that takes more than operands, such as ``torch.nn.functional.silu``:
        wrap it, ``lambda x: silu(x)``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> @rocpy.epilogue
    ... def gated(x, bias, residual):
    ...     return np.tanh(x + bias) * 0.5 + residual
    >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> bias, residual = np.full(4, -3, np.float32), np.ones((2, 4), np.float32)
    >>> rocpy.matmul(a, b, epilogue=gated, epilogue_inputs=dict(bias=bias, residual=residual))[0]
    array([1., 1., 1., 1.], dtype=float32)
    """
    if isinstance(function, CustomEpilogue):
        return function
    return CustomEpilogue(trace(function), function)
