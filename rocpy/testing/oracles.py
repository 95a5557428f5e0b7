# SPDX-License-Identifier: MIT
"""The reference: numpy in float64, one row per epilogue; never a platform's own answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import InvalidProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray

SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
GELU_CUBIC = 0.044715


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow on either side."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def gelu(x: Array) -> Array:
    """Return GELU in its tanh form, as x * sigmoid(2 u), which loses no digits in the negative tail."""
    with np.errstate(invalid="ignore", over="ignore"):
        u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)
        y = x * sigmoid(2.0 * u)
    return np.where(np.isneginf(x), -0.0, y)


def gelu_gradient(x: Array) -> Array:
    """Return the derivative of the tanh GELU; 0 and 1 at the infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)
        du = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * x * x)
        s = sigmoid(2.0 * u)
        # 1 - s as sigmoid(-2u) keeps the digits where s is close to one.
        slope = 2.0 * x * s * sigmoid(-2.0 * u) * du
    # Beyond 40 the second term is below the smallest float64; left alone it is inf * 0 at the infinities.
    return s + np.where(np.abs(x) > 40.0, 0.0, slope)


def silu(x: Array) -> Array:
    """Return x * sigmoid(x), with its limit at minus infinity."""
    with np.errstate(invalid="ignore"):
        y = x * sigmoid(x)
    return np.where(np.isneginf(x), -0.0, y)


_normal_cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2.0)), otypes=[np.float64])


def gelu_erf(x: Array) -> Array:
    """Return GELU by the normal distribution function, with its limit at minus infinity."""
    with np.errstate(invalid="ignore"):
        y = x * _normal_cdf(x)
    return np.where(np.isneginf(x), -0.0, y)


def gelu_erf_gradient(x: Array) -> Array:
    """Return the derivative of `gelu_erf`; 0 and 1 at the infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        slope = x * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    return _normal_cdf(x) + np.where(np.abs(x) > 40.0, 0.0, slope)


def silu_gradient(x: Array) -> Array:
    """Return the derivative of `silu`; 0 and 1 at the infinities."""
    with np.errstate(invalid="ignore", over="ignore"):
        slope = x * sigmoid(x) * sigmoid(-x)
    return sigmoid(x) + np.where(np.abs(x) > 800.0, 0.0, slope)


def sigmoid_gradient(x: Array) -> Array:
    """Return the derivative of `sigmoid`."""
    return sigmoid(x) * sigmoid(-x)


def relu(x: Array) -> Array:
    """Return max(x, 0); NaN stays NaN."""
    return np.maximum(x, 0.0)


def identity(x: Array) -> Array:
    """Return the argument itself."""
    return x


@dataclass(frozen=True)
class Oracle:
    """What one epilogue computes.

    Attributes
    ----------
    function : str
        Key of `FUNCTIONS`: what is applied to the pre-activation, or, for a gradient, to the auxiliary input.
    bias : bool
        Whether a bias is added before the function.
    aux_out, aux_in : str or None
        Name under which the pre-activation is returned, or expected back.
    sums : str or None
        Name of the sums that are returned beside the result: ``bgrad``, ``bgrada`` or ``bgradb``.
    """

    function: str = "identity"
    bias: bool = False
    aux_out: str | None = None
    aux_in: str | None = None
    sums: str | None = None

    @property
    def is_linear(self) -> bool:
        """True when integer operands give an integer result, so that it must be exact."""
        return self.function in ("identity", "relu", "clamp", "drelu")

    @property
    def takes_clamp(self) -> bool:
        """True when the epilogue reads ``clamp=(low, high)``."""
        return self.function == "clamp"


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "identity": identity,
    "relu": relu,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "silu": silu,
    "sigmoid": sigmoid,
    "drelu": lambda e: (e > 0).astype(np.float64),
    "dgelu": gelu_gradient,
    "dgelu_erf": gelu_erf_gradient,
    "dsilu": silu_gradient,
}


@dataclass(frozen=True)
class Smooth:
    """What the error bound of a smooth activation needs to know of it.

    Attributes
    ----------
    derivative
        Its first derivative.
    steepest, curvature
        Largest magnitudes of the first and the second derivative over the real line, rounded up; the library's own
        tests check them on a fine grid.
    ulps
        Error of its own evaluation where the argument is -1 or more; 0 for GELU by tanh, whose bound has a form of
        its own.
    """

    derivative: Callable[[Array], Array]
    steepest: float
    curvature: float
    ulps: float


SMOOTH: dict[str, Smooth] = {
    "gelu": Smooth(gelu_gradient, 1.13, 0.80, 0.0),
    "gelu_erf": Smooth(gelu_erf_gradient, 1.13, 0.80, 4.0),
    "silu": Smooth(silu_gradient, 1.10, 0.51, 4.0),
    "sigmoid": Smooth(sigmoid_gradient, 0.25, 0.0963, 4.0),
}

ORACLES: dict[str, Oracle] = {
    "default": Oracle(),
    "bias": Oracle(bias=True),
    "relu": Oracle("relu"),
    "relu_bias": Oracle("relu", bias=True),
    "gelu": Oracle("gelu"),
    "gelu_bias": Oracle("gelu", bias=True),
    "silu": Oracle("silu"),
    "silu_bias": Oracle("silu", bias=True),
    "sigmoid": Oracle("sigmoid"),
    "sigmoid_bias": Oracle("sigmoid", bias=True),
    "gelu_erf": Oracle("gelu_erf"),
    "gelu_erf_bias": Oracle("gelu_erf", bias=True),
    "clamp": Oracle("clamp"),
    "clamp_bias": Oracle("clamp", bias=True),
    "relu_aux": Oracle("relu", aux_out="relu_aux"),
    "relu_aux_bias": Oracle("relu", bias=True, aux_out="relu_aux"),
    "gelu_aux": Oracle("gelu", aux_out="gelu_aux"),
    "gelu_aux_bias": Oracle("gelu", bias=True, aux_out="gelu_aux"),
    "gelu_erf_aux": Oracle("gelu_erf", aux_out="gelu_erf_aux"),
    "gelu_erf_aux_bias": Oracle("gelu_erf", bias=True, aux_out="gelu_erf_aux"),
    "silu_aux": Oracle("silu", aux_out="silu_aux"),
    "silu_aux_bias": Oracle("silu", bias=True, aux_out="silu_aux"),
    "clamp_aux": Oracle("clamp", aux_out="clamp_aux"),
    "clamp_aux_bias": Oracle("clamp", bias=True, aux_out="clamp_aux"),
    "drelu": Oracle("drelu", aux_in="relu_aux"),
    "drelu_bgrad": Oracle("drelu", aux_in="relu_aux", sums="bgrad"),
    "dgelu": Oracle("dgelu", aux_in="gelu_aux"),
    "dgelu_bgrad": Oracle("dgelu", aux_in="gelu_aux", sums="bgrad"),
    "dgelu_erf": Oracle("dgelu_erf", aux_in="gelu_erf_aux"),
    "dgelu_erf_bgrad": Oracle("dgelu_erf", aux_in="gelu_erf_aux", sums="bgrad"),
    "dsilu": Oracle("dsilu", aux_in="silu_aux"),
    "dsilu_bgrad": Oracle("dsilu", aux_in="silu_aux", sums="bgrad"),
    "bgrada": Oracle(sums="bgrada"),
    "bgradb": Oracle(sums="bgradb"),
}

ALIASES: dict[str, str] = {"swish": "silu", "swish_bias": "silu_bias"}


@dataclass(frozen=True)
class Expected:
    """A product's exact result and what its error bound is made of; every array is float64.

    Attributes
    ----------
    result : ndarray
        D, of numpy.matmul's shape.
    pre : ndarray
        The function's argument: alpha A B + beta C + bias, in shape (..., M, N).
    magnitude : ndarray
        ``|alpha| |A| |B| + |beta C| + |bias|``, elementwise like `pre`: the scale of the rounding errors made on the
        way to it.
    aux : dict of str to ndarray
        Further outputs by name: the pre-activation, and the sums of the gradient epilogues.
    aux_in : ndarray or None
        The auxiliary input of a gradient epilogue.
    inner, rows : int
        K and M.
    sum_magnitude : ndarray or None
        Sums of absolute values that belong to the returned sums.
    kind : str
        ``"real"``, ``"integer"`` or ``"complex"``: what the operands are.
    scaled : bool
        Whether a or b has a scale.
    scale_d : float
        Scale of the result, which `result` has in it.
    amax : float or None
        Largest magnitude of the result before that scale, where it was asked for.
    shape : tuple of int
        Shape of the result as numpy.matmul gives it.
    """

    oracle: Oracle
    result: Array
    pre: Array
    magnitude: Array
    inner: int
    rows: int
    shape: tuple[int, ...]
    clamp: tuple[float, float] | None = None
    aux: dict[str, Array] = field(default_factory=dict)
    aux_in: Array | None = None
    sum_magnitude: Array | None = None
    kind: str = "real"
    scaled: bool = False
    scale_d: float = 1.0
    amax: float | None = None


def lookup(epilogue: str | None) -> Oracle:
    """Return the oracle of an epilogue, by its name or an alias."""
    name = "default" if epilogue is None else epilogue
    oracle = ORACLES.get(ALIASES.get(name, name)) if isinstance(name, str) else None
    if oracle is None:
        raise InvalidProblemError(
            f"epilogue: there is no oracle of {name!r}{did_you_mean(name, ORACLES)}; there are {', '.join(ORACLES)}"
        )
    return oracle


def _check_operands(epilogue: str | None, oracle: Oracle, *, bias: bool, aux: bool, clamp: bool) -> None:
    """Refuse operands that an epilogue lacks, and those that it has no use for, as a product does."""
    for name, passed, needed in (
        ("bias", bias, oracle.bias), ("aux", aux, oracle.aux_in is not None), ("clamp", clamp, oracle.takes_clamp),
    ):  # fmt: skip
        if passed != needed:
            what = f"needs it; pass {name}=" if needed else f"takes none; omit {name}="
            raise InvalidProblemError(f"{name}: epilogue {epilogue or 'default'!r} {what}")


def spread(scale: Array | float, shape: tuple[int, ...], side: int, batch: tuple[int, ...] = ()) -> Array:
    """Return the scales of a (side 0) or b (side 1), as given to a product, for each element of an operand's shape.

    ``batch`` are the product's batch axes, to which those of the scales broadcast.
    """
    array = np.asarray(scale)
    if array.dtype.name in ("uint8", "float8_e8m0fnu"):
        codes = array.view(np.uint8).astype(np.float64)
        values = np.where(codes == 255, np.nan, np.exp2(codes - 127.0))
        axis = values.ndim - 1 if side == 0 else max(values.ndim - 2, 0)
        return np.repeat(values, 32, axis=axis)
    values = array.astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    lines = (shape[-2] if len(shape) > 1 else 1, 1) if side == 0 else (1, shape[-1] if len(shape) > 1 else 1)
    full = (*batch, *lines)
    short = values[..., :, None] if side == 0 else values[..., None, :]
    readings = [x for x in (values, short) if x.ndim <= len(full) and x.shape[-2:] == lines[-x.ndim :]]
    readings = [x for x in readings if all(p in (1, q) for p, q in zip(x.shape[-3::-1], batch[::-1], strict=False))]
    if len({np.broadcast_to(x, full).tobytes() for x in readings}) != 1:
        raise ValueError(f"scales of shape {array.shape} have {len(readings)} readings for a product of {full}")
    reading = readings[0]
    return reading.reshape(reading.shape[-1]) if len(shape) == 1 and reading.ndim == 2 else reading


def _product_shape(a: Array, b: Array) -> tuple[int, ...]:
    try:
        return np.matmul(np.empty(a.shape, dtype=np.bool_), np.empty(b.shape, dtype=np.bool_)).shape
    except ValueError:
        raise InvalidProblemError(f"a and b: shapes {a.shape} and {b.shape}, of which there is no product") from None


def _scaled(operand: Array, scale: Array | float, side: int, batch: tuple[int, ...]) -> Array:
    """Return an operand with its scales applied; those that do not fit it are refused."""
    try:
        product: Array = operand * spread(scale, operand.shape, side, batch)
    except (TypeError, ValueError) as error:
        raise InvalidProblemError(
            f"scale_{'ab'[side]}: does not fit the operand of shape {operand.shape}: {error}"
        ) from None
    return product


def _as_matrix_bias(bias: Array, shape: tuple[int, ...]) -> Array:
    # Of a result of two axes or more: (M, 1) is a bias per row; everything else has N last and gets a row axis of one.
    # With N = 1 a shape that is both stands for one bias for each batch entry.
    bias = np.asarray(bias)
    bias = bias.astype(np.complex128 if bias.dtype.kind == "c" else np.float64)
    if bias.ndim >= 2 and bias.shape[-2:] == (shape[-2], 1) and bias.shape != (*shape[:-2], shape[-1]):
        return bias
    return bias[..., None, :]


def _epilogue_result(oracle: Oracle, pre: Array, aux: Array | None, clamp: tuple[float, float] | None) -> Array:
    """Return the epilogue's function of the pre-activation, before a scale of the result."""
    if aux is not None:
        factor = FUNCTIONS[oracle.function](aux)
        # drelu selects: where the forward pass gave 0, the gradient is 0 even if what comes in is not finite.
        return np.where(factor > 0, pre, 0.0) if oracle.function == "drelu" else factor * pre
    if oracle.takes_clamp:
        assert clamp is not None
        low, high = clamp
        return np.maximum(low, np.minimum(pre, high))
    return FUNCTIONS[oracle.function](pre)


def evaluate(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    epilogue: str | None = None,
    bias: Array | None = None,
    aux: Array | None = None,
    clamp: tuple[float, float] | None = None,
    scale_a: Array | float | None = None,
    scale_b: Array | float | None = None,
    scale_c: float | None = None,
    scale_d: float | None = None,
    amax: bool = False,
) -> Expected:
    """Compute D = f(alpha A B + beta C + bias) in float64 from operands that already have their dtype's values.

    Complex operands are computed in complex128; sums of int8 products are exact below 2^53.

    Parameters
    ----------
    a, b : ndarray
        Shapes as for numpy.matmul: (..., M, K) and (..., K, N), either may be one-dimensional.
    c : ndarray, optional
        Broadcast to (..., M, N). Not read when `beta` is 0; `beta` is 1 when it is None and `c` is given.
    bias : ndarray, optional
        Length N, (M, 1), or with batch dimensions in front.
    aux : ndarray, optional
        Pre-activation of the forward product, for the gradient epilogues.
    scale_a, scale_b, scale_c, scale_d
        As `rocpy.matmul` takes them; exponents of blocks as float8_e8m0fnu or bytes.
    amax : bool
        Whether the largest magnitude is an output.

    Returns
    -------
    Expected
        Result, further outputs and the magnitudes that `rocpy.testing.bounds` needs.
    """
    oracle = lookup(epilogue)
    _check_operands(epilogue, oracle, bias=bias is not None, aux=aux is not None, clamp=clamp is not None)
    kind = {"c": "complex", "i": "integer"}.get(np.asarray(a).dtype.kind, "real")
    wide = np.complex128 if kind == "complex" else np.float64
    a, b = (np.asarray(x).astype(wide) for x in (a, b))
    scaled = scale_a is not None or scale_b is not None
    shape = _product_shape(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if scale_a is not None:
        a = _scaled(a, scale_a, 0, batch)
    if scale_b is not None:
        b = _scaled(b, scale_b, 1, batch)
    a2 = a[None, :] if a.ndim == 1 else a
    b2 = b[:, None] if b.ndim == 1 else b
    m, k = a2.shape[-2:]
    factor = alpha if k else 0.0  # as BLAS has it: no sum is multiplied
    with np.errstate(invalid="ignore", over="ignore"):
        pre, magnitude = factor * np.matmul(a2, b2), abs(factor) * np.matmul(np.abs(a2), np.abs(b2))
        if not factor:  # the operands are not read
            pre, magnitude = np.zeros_like(pre), np.zeros_like(magnitude)
        terms = []
        if c is not None and beta != 0.0:
            term = (1.0 if beta is None else beta) * np.asarray(c).astype(wide)
            term = term * (1.0 if scale_c is None else float(scale_c))
            terms.append(np.broadcast_to(term, shape).reshape(pre.shape))
        if bias is not None:
            terms.append(_as_matrix_bias(bias, pre.shape))
        for term in terms:
            pre, magnitude = pre + term, magnitude + np.abs(term)

        outputs: dict[str, Array] = {}
        aux_in = None
        if oracle.aux_out is not None:
            outputs[oracle.aux_out] = pre.reshape(shape)
        if oracle.aux_in is not None:
            aux_in = np.asarray(aux).astype(np.float64).reshape(pre.shape)
        result = _epilogue_result(oracle, pre, aux_in, clamp)

        sum_magnitude = None
        if oracle.sums is not None:
            source, axis = {"bgrad": (result, -2), "bgrada": (a2, -1), "bgradb": (b2, -2)}[oracle.sums]
            outputs[oracle.sums] = source.sum(axis=axis)
            sum_magnitude = np.abs(source).sum(axis=axis)
        factor_d = 1.0 if scale_d is None else float(np.asarray(scale_d).astype(np.float64).reshape(()))
        largest = float(np.max(np.abs(result), initial=0.0)) if amax else None
        result = result * factor_d if scale_d is not None else result
    return Expected(
        oracle=oracle,
        result=result.reshape(shape),
        pre=pre,
        magnitude=magnitude,
        inner=k,
        rows=m,
        shape=shape,
        clamp=clamp,
        aux=outputs,
        aux_in=aux_in,
        sum_magnitude=sum_magnitude,
        kind=kind,
        scaled=scaled,
        scale_d=factor_d,
        amax=largest,
    )
