# SPDX-License-Identifier: MIT
"""How far each element may be from the float64 oracle, derived from K, the accumulation dtype and the roundings.

Derivation. Let u be the unit roundoff of the accumulation dtype (2^-24 for float32, 2^-53 for float64).

1. A dot product of length K, summed in any order and with or without fused multiply-add, errs by at most gamma_K |A||B|
   with gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Rounding and
   applying alpha, rounding and applying beta, adding C and adding the bias put at most six more roundings on any term,
   so the pre-activation X errs by dX <= gamma_{K+6} (|alpha| |A||B| + |beta C| + |bias|). The oracle, in float64, errs
   the same way with u = 2^-53; the two are added. Underflow adds half a smallest subnormal for each of the K+6
   operations.
2. The function f carries that on by |f'(X)| dX + max|f''| dX^2 / 2, never more than max|f'| dX. For relu and clamp it
   is dX.
3. f itself is evaluated with an error of its own. Sigmoid and SiLU are held to 4 ulp of the accumulation dtype for
   X >= -1 and to 2^-24 absolute below, where the value goes to zero (2^-50 in float64). The tanh GELU is allowed what
   its textbook form X (1 + t) / 2 with t = tanh w leaves. GPUs take t from e = exp(2 w): w has 4 roundings and the
   product with 2 log2(e) two more, so that e is off by 2 |w| 6 u relative, and t by (1 - t^2) |w| 6 u <= 2.7 u, since
   (1 - t^2) |w| is at most 0.448. exp, the sum, the reciprocal and the difference add 1 u each or less of numbers up
   to 2: at most 5 u. Where t goes to -1 the sum 1 + t keeps that error of 8 u whole, however small it is itself, and
   multiplied by |X| / 2 it is 4 u |X|. The sum and the two products add 3 u of the value. (The host platform promises
   more, 3 ulp for X >= -1 and 2^-24 absolute below: the tests of its functions hold it to that.) The derivative of
   GELU is allowed 2^-19 absolute in float32, because hipBLASLt's constants for it have six digits.
4. The value is rounded once to the output dtype: half an ulp of that dtype, taken at the largest value the errors
   allow.
5. A sum over M rows of the unrounded result adds gamma_{M} times the sum of absolute values to the sum of the elements'
   own bounds; the sums over K of A or B, whose elements are exact, have only their gamma_K. Then rule 4.

6. Scales of a and b are two more factors of each term: four more roundings at most, so that rule 1 has K+10 where there
   are any. Products of 8-bit and narrower floats are exact in float32, and so are scales that are powers of two. A
   scale of the result multiplies it and its bound, with one rounding, before rule 4; the largest magnitude errs by no
   more than the worst element before that, and one rounding to float32.
7. A product of int8 is summed in integers: what is left are the conversion of the sum, the scales, alpha, beta, C and
   the bias, at most 12 roundings whatever K is. An integer result is exact, and saturates.
8. A component of a complex product is a sum of 2K real ones, whose magnitudes add up to |A||B| at most (Cauchy and
   Schwarz); alpha and beta are complex products too. So each component errs by gamma_{2K+12} of the same magnitudes as
   in rule 1, and is rounded by itself.
9. 8-bit floats saturate: beyond the largest number the oracle's value is that number.
10. Where X is infinite or NaN, dX is 0: what f makes of it has the bound of rules 3 and 4 alone.

Small-integer operands have no rounding before the last one: there the correctly rounded value is demanded bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocpy.errors import InvalidOperandError, InvalidProblemError

from . import oracles
from .arrays import to_numpy
from .oracles import Expected

Array = np.ndarray


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: explicit fraction bits and the exponent of the smallest normal number."""

    fraction_bits: int
    min_exponent: int
    max_value: float


FORMATS: dict[str, Format] = {
    "float64": Format(52, -1022, float(np.finfo(np.float64).max)),
    "float32": Format(23, -126, float(np.finfo(np.float32).max)),
    "float16": Format(10, -14, 65504.0),
    "bfloat16": Format(7, -126, float.fromhex("0x1.fep127")),
    "float8_e4m3fn": Format(3, -6, 448.0),
    "float8_e5m2": Format(2, -14, 57344.0),
    "float8_e4m3fnuz": Format(3, -7, 240.0),
    "float8_e5m2fnuz": Format(2, -15, 57344.0),
    "float6_e2m3fn": Format(3, 0, 7.5),
    "float6_e3m2fn": Format(2, -2, 28.0),
    "float4_e2m1fn": Format(1, 0, 6.0),
    "int8": Format(7, 7, 127.0),
    "int32": Format(31, 31, 2147483647.0),
}
# Components of a complex number are numbers of these types.
COMPONENTS = {"complex64": "float32", "complex128": "float64"}
FORMATS.update({name: FORMATS[component] for name, component in COMPONENTS.items()})


def compute_dtype(dtype: npt.DTypeLike) -> str:
    """Return what products of `dtype` are scaled in: float64 for itself, float32 for everything narrower."""
    return "float64" if np.dtype(dtype).name in ("float64", "complex128") else "float32"


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return the largest relative error of one rounding to `dtype`."""
    return 2.0 ** -(FORMATS[np.dtype(dtype).name].fraction_bits + 1)


def ulp(x: Array, dtype: npt.DTypeLike) -> Array:
    """Return the spacing of `dtype` at |x|: the subnormal one near zero, infinite where x is not finite."""
    form = FORMATS[np.dtype(dtype).name]
    x = np.abs(np.asarray(x, dtype=np.float64))
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    exponent = np.where(x == 0.0, form.min_exponent, exponent)
    spacing = np.ldexp(1.0, np.maximum(exponent - 1, form.min_exponent) - form.fraction_bits)
    return np.where(np.isfinite(x), spacing, np.inf)


def gamma(n: int, u: float) -> float:
    """Return Higham's gamma_n = n u / (1 - n u)."""
    if n * u >= 0.5:
        raise ValueError(f"gamma: {n} operations of unit roundoff {u:g} have no useful bound")
    return n * u / (1.0 - n * u)


def _own_error(function: str, x: Array, value: Array, compute: str) -> Array:
    if function == "gelu":
        u = unit_roundoff(compute)
        return 4.0 * u * np.where(np.isfinite(x), np.abs(x), 0.0) + 3.0 * u * value
    tail = 2.0**-24 if compute == "float32" else 2.0**-50
    return np.where(x >= -1.0, oracles.SMOOTH[function].ulps * ulp(value, compute), tail)


def roundings(expected: Expected) -> int:
    """Return how many roundings a term of the pre-activation goes through at most: rules 1, 6, 7 and 8."""
    if expected.kind == "integer":
        return 12
    if expected.kind == "complex":
        return 2 * expected.inner + 12
    return expected.inner + (10 if expected.scaled else 6)


def pre_activation_bound(expected: Expected, compute: str) -> Array:
    """Return rule 1, the bound of the unrounded pre-activation."""
    count = roundings(expected)
    relative = gamma(count, unit_roundoff(compute)) + gamma(count, 2.0**-53)
    form = FORMATS[compute]
    return relative * expected.magnitude + count * 2.0 ** (form.min_exponent - form.fraction_bits - 1)


def _value_bound(expected: Expected, compute: str) -> Array:
    # Rules 2 and 3, in the shape of `pre`.
    function, x = expected.oracle.function, expected.pre
    # Infinity and NaN are exact, whatever the function makes of them.
    dx = np.where(np.isfinite(x), pre_activation_bound(expected, compute), 0.0)
    if function in ("identity", "relu", "clamp"):
        return dx
    u = unit_roundoff(compute)
    if function == "drelu":
        assert expected.aux_in is not None
        return dx * (expected.aux_in > 0)
    if function in ("dgelu", "dgelu_erf", "dsilu"):
        assert expected.aux_in is not None
        factor_error = 2.0**-19 if compute == "float32" else 2.0**-46
        factor = np.abs(oracles.FUNCTIONS[function](expected.aux_in))
        return factor * dx + factor_error * (np.abs(x) + dx) + u * factor * np.abs(x)
    smooth = oracles.SMOOTH[function]
    local = np.abs(smooth.derivative(x)) * dx + 0.5 * smooth.curvature * dx * dx
    carried = np.minimum(smooth.steepest * dx, local)
    value = np.abs(expected.result.reshape(x.shape)) + carried
    return carried + _own_error(function, x - dx, value, compute)


def _rounded(value: Array, bound: Array | float, dtype: npt.DTypeLike) -> Array:
    # Rule 4.
    return bound + 0.5 * ulp(np.abs(value) + bound, dtype)


def bounds(
    expected: Expected, dtype: npt.DTypeLike, *, compute: str | None = None, aux_dtype: npt.DTypeLike | None = None
) -> dict[str, Array]:
    """Return the error bounds of a product's outputs.

    Parameters
    ----------
    expected : Expected
        What `evaluate` returned.
    dtype : dtype
        Of the result.
    compute : str, optional
        Accumulation dtype; by default float64 for float64 results and float32 for the rest.
    aux_dtype : dtype, optional
        Of the further outputs; by default `dtype`.

    Returns
    -------
    dict of str to ndarray
        ``"result"`` and one entry per further output, each of that output's shape.
    """
    if not isinstance(expected, oracles.Expected):
        raise InvalidOperandError(f"expected: got {type(expected).__name__}, expected what `evaluate` returns")
    compute = compute_dtype(dtype) if compute is None else compute
    aux_dtype = dtype if aux_dtype is None else aux_dtype
    with np.errstate(invalid="ignore", over="ignore"):
        value = _value_bound(expected, compute)
        u = unit_roundoff(compute)
        errors = {}
        if expected.amax is not None:
            worst = float(np.max(value, initial=0.0))
            errors["amax"] = np.asarray(_rounded(np.asarray(expected.amax), worst, "float32"))
        if expected.scale_d != 1.0:
            value = abs(expected.scale_d) * value + u * np.abs(expected.result.reshape(value.shape))
        errors["result"] = _rounded(expected.result, value.reshape(expected.shape), dtype)
        oracle = expected.oracle
        if oracle.aux_out is not None:
            dx = pre_activation_bound(expected, compute).reshape(expected.shape)
            errors[oracle.aux_out] = _rounded(expected.aux[oracle.aux_out], dx, aux_dtype)
        if oracle.sums is not None:
            terms = expected.rows if oracle.sums == "bgrad" else expected.inner
            relative = gamma(terms, unit_roundoff(compute)) + gamma(terms, 2.0**-53)
            assert expected.sum_magnitude is not None
            error = relative * expected.sum_magnitude
            if oracle.sums == "bgrad":
                error = error + (1.0 + relative) * value.sum(axis=-2)
            errors[oracle.sums] = _rounded(expected.aux[oracle.sums], error, aux_dtype)
    return errors


@dataclass(frozen=True)
class Comparison:
    """How an output compares with its oracle.

    `ratio` is the largest error over its bound: at most 1 when the output is right, infinite when shapes, dtypes or the
    positions of NaN and infinity differ. `index` is where.
    """

    ratio: float
    max_error: float
    index: tuple[int, ...]
    message: str

    @property
    def ok(self) -> bool:
        """Whether every element is within its bound."""
        return self.ratio <= 1.0


def _worse(first: Comparison, second: Comparison) -> Comparison:
    return second if second.ratio > first.ratio else first


def compare(
    actual: npt.ArrayLike, expected: npt.ArrayLike, bound: npt.ArrayLike, *, name: str = "result"
) -> Comparison:
    """Compare one output with its oracle, element by element; NaN and infinities must be where the oracle has them.

    Arrays may be of numpy, tensors of torch or Buffers. A bound that is not finite allows no error.

    Raises
    ------
    InvalidOperandError
        If one of the arrays has no numbers.
    InvalidProblemError
        If the bound's shape does not broadcast to that of the oracle.
    """
    arrays = {"actual": to_numpy(actual), "expected": to_numpy(expected), "bound": to_numpy(bound)}
    for argument, array in arrays.items():
        if array.dtype.kind in "OSUMm":
            raise InvalidOperandError(f"{argument}: got an array of {array.dtype}, expected numbers")
    shape, limits = arrays["expected"].shape, arrays["bound"].astype(np.float64)
    try:
        np.broadcast_to(limits, shape)
    except ValueError:
        raise InvalidProblemError(
            f"bound: got shape {limits.shape}, expected the oracle's, {shape}, or one that broadcasts to it"
        ) from None
    return _compare(arrays["actual"], arrays["expected"], limits, name)


def _compare(actual: Array, expected: Array, bound: Array, name: str) -> Comparison:
    if actual.shape != expected.shape:
        return Comparison(np.inf, np.inf, (), f"{name}: shape {actual.shape}, expected {expected.shape}")
    if actual.size == 0:
        return Comparison(0.0, 0.0, (), "")
    form = FORMATS.get(actual.dtype.name)
    if actual.dtype.kind == "c" or expected.dtype.kind == "c":
        return _worse(
            _compare(actual.real, expected.real, bound, name + ".real"),
            _compare(actual.imag, expected.imag, bound, name + ".imag"),
        )
    value = actual.astype(np.float64)
    if form is not None and actual.dtype.itemsize == 1:
        expected = np.clip(expected, -form.max_value - (actual.dtype.name == "int8"), form.max_value)
    bound = np.where(np.isfinite(bound), bound, 0.0)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(expected)
        # Infinity is right where a value within the bound lies beyond the format's largest, on that side.
        overflow = np.isinf(value) & finite
        overflow &= np.sign(value) * expected + bound > (form.max_value if form else np.inf)
        same = (value == expected) | (np.isnan(value) & np.isnan(expected))
        error = np.where(same, 0.0, np.where(finite, np.abs(value - expected), np.inf))
        error = np.where(overflow, 0.0, error)
        error = np.where(np.isnan(error), np.inf, error)
        with np.errstate(over="ignore"):  # a bound of zero
            ratio = np.where(error == 0.0, 0.0, error / np.where(bound > 0, bound, np.finfo(np.float64).tiny))
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    index = tuple(int(i) for i in worst)
    message = ""
    if ratio[worst] > 1.0:
        message = (
            f"{name}{list(index)}: {value[worst]:.9g}, expected {expected[worst]:.9g}, error {error[worst]:.3g} is"
            f" {ratio[worst]:.3g} times its bound; {int((ratio > 1).sum())} of {ratio.size} elements are out of bounds"
        )
    return Comparison(float(ratio[worst]), float(error[worst]), index, message)
