# SPDX-License-Identifier: MIT
"""hipBLASLt's product in numpy float64, in its own column-major terms, with a bound for each element."""

import numpy as np

# Epilogue -> activation, bias added, aux stored, aux read, bias gradient over (d: the result's rows, a, b).
EPILOGUES = {
    1: ("none", False, False, False, ""),
    2: ("relu", False, False, False, ""),
    4: ("none", True, False, False, ""),
    6: ("relu", True, False, False, ""),
    32: ("gelu", False, False, False, ""),
    36: ("gelu", True, False, False, ""),
    130: ("relu", False, True, False, ""),
    134: ("relu", True, True, False, ""),
    136: ("drelu", False, False, True, ""),
    152: ("drelu", False, False, True, "d"),
    160: ("gelu", False, True, False, ""),
    164: ("gelu", True, True, False, ""),
    192: ("dgelu", False, False, True, ""),
    208: ("dgelu", False, False, True, "d"),
    256: ("none", False, False, False, "a"),
    512: ("none", False, False, False, "b"),
    1024: ("sigmoid", False, False, False, ""),
    65536: ("silu", False, False, False, ""),
    65540: ("silu", True, False, False, ""),
    131072: ("clamp", False, False, False, ""),
    131076: ("clamp", True, False, False, ""),
    131200: ("clamp", False, True, False, ""),
    131204: ("clamp", True, True, False, ""),
}

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_ROOT = np.sqrt(2 / np.pi)


def _tanh_argument(x):
    return _ROOT * x * (1 + 0.044715 * x * x)


def activate(name, y, aux, low, high):
    """The activation on the pre-activation `y`; gradients read `aux`."""
    if name == "relu":
        return np.maximum(y, 0)
    if name == "gelu":
        return 0.5 * y * (1 + np.tanh(_tanh_argument(y)))
    if name == "silu":
        return y / (1 + np.exp(-y))
    if name == "sigmoid":
        return 1 / (1 + np.exp(-y))
    if name == "clamp":
        return np.maximum(low, np.minimum(y, high))
    if name == "drelu":
        return np.where(aux > 0, y, 0)
    if name == "dgelu":
        t = np.tanh(_tanh_argument(aux))
        slope = 0.5 * (1 + t) + 0.5 * aux * (1 - t * t) * _ROOT * (1 + 3 * 0.044715 * aux * aux)
        return slope * y
    return y


def expected(op_a, op_b, c, alpha, beta, epilogue, out, bias=None, aux=None, low=0.0, high=0.0):
    """(D, bound), (aux, bound), (bias gradient, bound) for op(A) (batch, m, k) and op(B) (batch, k, n) in float64.

    Error of a sum of k products in precision u: at most (k + 3) u times the sum of magnitudes with alpha; every
    later step adds one rounding of what it makes; activations have slopes below 1.13 and are good to a few roundings;
    the store rounds once.
    """
    name, _, stores_aux, _, gradient = EPILOGUES.get(epilogue, EPILOGUES[1])
    u, u_out = (2.0**-53 if out == "float64" else 2.0**-24), UNIT_ROUNDOFF[out]
    tiny = 2.0**-25 if out == "float16" else 0.0
    alpha = np.asarray(alpha, np.float64)
    factors = alpha[:, None] if alpha.ndim else alpha
    y = factors * (op_a @ op_b)
    error = u * (op_a.shape[-1] + 3) * np.abs(factors) * (np.abs(op_a) @ np.abs(op_b))
    if beta != 0:
        y = y + beta * c
        error = error + 2 * u * (np.abs(beta * c) + np.abs(y))
    if bias is not None:
        y = y + bias[..., :, None]
        error = error + u * np.abs(y)

    def with_store(value, err):
        return value, err + u_out * (np.abs(value) + err) + tiny

    saved = with_store(y, error) if stores_aux else None
    z = activate(name, y, aux, low, high)
    if name not in ("none", "drelu"):
        error = 1.13 * error + 8 * u * (np.abs(z) + np.abs(y) + 1)
    sums = None
    if gradient == "d":
        sums = with_store(z.sum(-1), error.sum(-1) + u * z.shape[-1] * np.abs(z).sum(-1))
    elif gradient == "a":
        sums = with_store(op_a.sum(-1), u * op_a.shape[-1] * np.abs(op_a).sum(-1))
    elif gradient == "b":
        sums = with_store(op_b.sum(-2), u * op_b.shape[-2] * np.abs(op_b).sum(-2))
    return with_store(z, error), saved, sums
