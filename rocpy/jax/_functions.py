# SPDX-License-Identifier: MIT
"""rocpy.jax's public functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np

from rocpy import dtypes
from rocpy.blaslt.model.call_arguments import AnyBounds, AnyOptions, AnyReal
from rocpy.blaslt.model.epilogues import Epilogue, PairEpilogue, PlainEpilogue, find_epilogue, is_custom, stored_aux
from rocpy.blaslt.model.options import resolve_options
from rocpy.blaslt.model.product_types import RESULT_TYPES, find_family, needs_scales
from rocpy.blaslt.model.scale_arguments import check_scale_number
from rocpy.blaslt.model.settings import check_whole_factors, clamp_bounds, real_number, refuse_recorded
from rocpy.blaslt.model.weight_operand import WeightOperand
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.jax._call import OPERANDS, Spec, options_text, problem_of, spelled_out
from rocpy.jax._gradients import product
from rocpy.typing import ComputeName, ResultDType

__all__ = ["matmul"]

ArrayLike: TypeAlias = jax.Array | np.ndarray[Any, Any]


def _operand(x: Any, name: str) -> Any:
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))  # jax has no other
    if isinstance(x, (jax.Array, np.ndarray)):
        if str(x.dtype) in dtypes.DTYPES and dtypes.DTYPES[str(x.dtype)].bits < 8:
            raise UnsupportedError(
                f"{name}: products of {x.dtype} need scales by blocks, which rocpy.jax does not take; use rocpy.matmul "
                "outside of jax's transformations, with numpy arrays"
            )
        if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer) and x.is_deleted():
            raise InvalidOperandError(f"{name}: a jax array that was deleted or donated; pass one that has its values")
        try:
            return jnp.asarray(x)
        except (TypeError, ValueError) as error:
            raise InvalidOperandError(f"{name}: numpy array of {x.dtype}, which jax does not have: {error}") from None
    kind = f"{type(x).__module__}.{type(x).__name__}"
    raise InvalidOperandError(f"{name}: got {kind}; rocpy.jax takes jax and numpy arrays: {_advice(x, name)}")


def _advice(x: Any, name: str) -> str:
    """Return what to do with what is no array of jax's or numpy's."""
    if x is None:
        return "a product has two operands"
    if isinstance(x, jax.Ref):
        return f"pass {name}[...]"
    if isinstance(x, (bool, int, float, complex, np.generic)):
        return "multiply by it with *"
    if isinstance(x, jax.ShapeDtypeStruct):
        return "it has no values; pass it to jax.eval_shape, jax.jit(...).lower or jax.export, which trace a call"
    advised = _array_of(x, name)
    if advised == f"jax.numpy.asarray({name})":
        try:
            jnp.asarray(x)
        except (TypeError, ValueError, OverflowError):
            return "it is no array of numbers"
    return f"pass {advised}"


def _array_of(x: Any, text: str) -> str:
    """Return the expression of a jax or numpy array of an operand's elements; ``text`` is that of the operand."""
    if isinstance(x, WeightOperand):
        return _array_of(x.source, f"{text}.source" + ("" if x.layout == "kn" else ".T"))
    if isinstance(x, (jax.Array, np.ndarray)):
        return text
    if hasattr(x, "__dlpack__"):
        return f"jax.dlpack.from_dlpack({text}{'.detach()' if hasattr(x, 'detach') else ''})"
    if hasattr(x, "todense"):  # jax's and scipy's sparse arrays
        return f"{text}.todense()"
    return f"jax.numpy.asarray({text})"


def _number(x: Any, name: str) -> float:
    if isinstance(x, jax.core.Tracer):
        raise UnsupportedError(f"{name}: traced by jax; it must be known when the function is traced: multiply by it")
    if hasattr(type(x), "requires_grad"):
        refuse_recorded(x, name)
    try:
        return real_number(x)
    except (TypeError, ValueError, OverflowError):
        shape = getattr(x, "shape", None)
        if shape:
            raise InvalidOperandError(
                f"{name}: got an array of shape {tuple(shape)}, expected a real number; multiply by the array yourself"
            ) from None
        advice = "; multiply by it yourself" if isinstance(x, (complex, np.complexfloating)) else ""
        raise InvalidOperandError(f"{name}: got {x!r} ({type(x).__name__}), expected a real number{advice}") from None


def _bounds(clamp: Any) -> tuple[float, float]:
    members = clamp if isinstance(clamp, (tuple, list)) else (clamp,)
    if any(isinstance(bound, jax.core.Tracer) for bound in members):
        raise UnsupportedError(
            "clamp: traced by jax; the bounds must be known when the function is traced: apply jax.numpy.clip to the "
            "product"
        )
    return clamp_bounds(clamp)


def _scale(x: Any, name: str) -> float | None:
    if x is None:
        return None
    number = _number(x, name)
    value = x.item() if hasattr(x, "item") else x
    if isinstance(value, bool):
        raise InvalidOperandError(f"{name}: got {value}, expected a real number")
    check_scale_number(name, value)
    return number


def _check_scales(a: Any, b: Any, dtype: str | None, scales: Collection[str]) -> None:
    """Refuse quantized operands without scales, in the words of this function: after the product was refused."""
    names = str(a.dtype), str(b.dtype)
    missing = [f"{name}=1.0" for name in ("scale_a", "scale_b") if name not in scales]
    if not missing or not set(names) <= RESULT_TYPES.keys():
        return
    family = find_family(*names)
    if not needs_scales(family, dtype or family.results[0]):
        return
    raise InvalidProblemError(
        f"a and b: {' and '.join(names)} are quantized values, which need scales: pass {' and '.join(missing)} for no "
        "scaling, or their scales as numbers; multiply by arrays of scales yourself"
    )


@overload
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: AnyReal = 1.0,
    beta: AnyReal | None = None,
    epilogue: PlainEpilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | Mapping[str, ArrayLike] | None = None,
    clamp: AnyBounds | None = None,
    scale_a: float | None = None,
    scale_b: float | None = None,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    options: AnyOptions | None = None,
) -> jax.Array: ...
@overload
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: AnyReal = 1.0,
    beta: AnyReal | None = None,
    epilogue: PairEpilogue,
    bias: ArrayLike | None = None,
    aux: ArrayLike | Mapping[str, ArrayLike] | None = None,
    clamp: AnyBounds | None = None,
    scale_a: float | None = None,
    scale_b: float | None = None,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    options: AnyOptions | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]: ...
@overload
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: AnyReal = 1.0,
    beta: AnyReal | None = None,
    epilogue: PlainEpilogue | PairEpilogue | Epilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | Mapping[str, ArrayLike] | None = None,
    clamp: AnyBounds | None = None,
    scale_a: float | None = None,
    scale_b: float | None = None,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    options: AnyOptions | None = None,
) -> Any: ...
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: AnyReal = 1.0,
    beta: AnyReal | None = None,
    epilogue: PlainEpilogue | PairEpilogue | Epilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | Mapping[str, ArrayLike] | None = None,
    clamp: AnyBounds | None = None,
    scale_a: float | None = None,
    scale_b: float | None = None,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    options: AnyOptions | None = None,
) -> Any:
    """Return ``epilogue(alpha * a @ b + beta * c + bias)`` inside and outside ``jax.jit``, with gradients.

    This is :func:`rocpy.matmul` as an operation of XLA: it works under ``jax.jit``, ``jax.grad``, ``jax.vmap``,
    ``jax.checkpoint``, ``jax.lax`` loops and ``jax.export``, and shares the plan cache of :func:`rocpy.matmul`.

    Parameters
    ----------
    a
        Left operand, shape ``(..., M, K)`` or ``(K,)``.
    b
        Right operand, shape ``(..., K, N)`` or ``(K,)``, of a's dtype. Batch axes broadcast.
    c
        Addend of the result's dtype, broadcast to the result's shape.
    alpha, beta
        Real numbers known when the function is traced, 32-bit integers for an integer result without scales; ``beta``
        defaults to 1 if ``c`` is passed. Complex factors are for you to multiply by.
    epilogue
        Name or :class:`rocpy.Epilogue`; ``"gelu"`` is the tanh form.
    bias
        For epilogues with a bias: length N, ``(batch, N)``, or ``(M, 1)``. Which one it is, the shapes say when the
        function is traced; devices and exported programs keep to it.
    aux
        For gradient epilogues: the pre-activation, as the array or as the dict that the forward call returned.
    clamp
        ``(low, high)`` of the clamp epilogues.
    scale_a, scale_b
        Numbers known when the function is traced; required for 8-bit floats, and for int8 with a float result. 1.0
        means no scaling.
    dtype
        Element type of the result.
    compute
        ``"tf32"`` allows reduced precision inside a float32 product.
    options
        :class:`rocpy.blaslt.Options` or a dict; by default the options active when the function is traced.

    Returns
    -------
    jax.Array or tuple
        The result; with an ``_aux`` or bias-gradient epilogue a pair of it and a dict.

    Raises
    ------
    InvalidOperandError
        If an operand is not a jax or numpy array.
    InvalidProblemError
        If shapes or dtypes, known or symbolic, do not fit; raised when the function is traced.
    UnsupportedError
        If there is no such product; raised when the function is traced, too, where the types say so.

    Notes
    -----
    Reverse-mode differentiation works to any order: the forward product of a GELU stores its pre-activation with the
    ``_aux`` epilogue, and the product that computes b's gradient also computes the bias gradient. Forward mode
    (``jax.jvp``) is refused by jax.

    Stream: XLA's own on a ROCm device; on the CPU the results are complete when XLA continues.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, rocpy.jax
    >>> x, w, bias = jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.full(4, -1.0)
    >>> layer = jax.jit(lambda x, w: rocpy.jax.matmul(x, w, epilogue="relu_bias", bias=bias))
    >>> float(layer(x, w).sum()), jax.grad(lambda w: layer(x, w).sum())(w)[0].tolist()
    (16.0, [2.0, 2.0, 2.0, 2.0])
    """
    if is_custom(epilogue):
        raise UnsupportedError(
            "epilogue: rocpy.jax.matmul takes no custom epilogues (created by @rocpy.epilogue); pass an epilogue's "
            "name, or compute the function of the result with jax.numpy"
        )
    row = find_epilogue(epilogue)
    if row.bias and bias is None:
        raise InvalidProblemError(f"epilogue {row.name!r} needs bias=, of length N, the last axis of the result")
    aux = stored_aux(aux) if isinstance(aux, Mapping) else aux
    operands_by_name = dict(zip(OPERANDS, (a, b, c, bias, aux), strict=True))
    operands = [
        _operand(x, name) if x is not None or name in ("a", "b") else None for name, x in operands_by_name.items()
    ]
    share = (0.0 if c is None else 1.0) if beta is None else _number(beta, "beta")
    if c is None and share != 0:
        raise InvalidProblemError(f"beta = {beta} scales c, and there is no c; pass c= or omit beta")
    spec = Spec(
        epilogue=row.name,
        alpha=_number(alpha, "alpha"),
        beta=share,
        clamp=None if clamp is None else _bounds(clamp),
        dtype=None if dtype is None else dtypes.lookup(dtype).name,
        compute=compute,
        options=options_text(resolve_options(options)),
        scale_a=_scale(scale_a, "scale_a"),
        scale_b=_scale(scale_b, "scale_b"),
    )
    try:
        # A mistake is told here, not from inside jax's transformations.
        problem, shapes = problem_of(spec, operands)
    except InvalidProblemError:
        _check_scales(operands[0], operands[1], spec.dtype, spec.scales)
        raise
    if dtypes.lookup(problem.dtype).kind == "int" and not spec.scales:
        check_whole_factors(spec.alpha, spec.beta)
    a, b, c, bias, aux = operands
    results = product(spec, a, b, c, None if bias is None else spelled_out(bias, problem, shapes[0].shape), aux)
    return (results[0], {row.outputs[0]: results[1]}) if row.outputs else results[0]
