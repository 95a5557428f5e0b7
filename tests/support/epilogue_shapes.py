# SPDX-License-Identifier: MIT
"""Layouts, factors, batch axes and biases that each epilogue is tested with, as arguments of a Case."""

SHAPES = (
    {"layout": "nn"},
    {"layout": "tt", "alpha": 0.75, "beta": -0.5},
    {"layout": "xr"},
    {"batch_a": (3,), "batch_b": (3,), "bias": "batch"},
    {"batch_a": (2, 1), "batch_b": (1, 3)},
    {"bias": "column"},
)
