# SPDX-License-Identifier: MIT
"""The public calls on one page: the function form, a plan, a packed weight, and the explanation of a choice."""

import numpy as np

import rocpy

rng = np.random.default_rng(0)
a = rng.standard_normal((64, 768), dtype=np.float32)
b = rng.standard_normal((768, 3072), dtype=np.float32) / 28
bias = rng.standard_normal(3072, dtype=np.float32)

# Function form: plans are cached, so that a second call with the same shapes does no planning.
d = rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias)
print(f"function form: {d.shape} {d.dtype}")

# With an _aux epilogue the pre-activation is returned with the result.
d, aux = rocpy.matmul(a, b, epilogue="gelu_aux_bias", bias=bias)
print(
    f"pre-activation: {aux['gelu_aux'].shape}, largest difference from a @ b + bias:"
    f" {np.abs(aux['gelu_aux'] - (a @ b + bias)).max():.1e}"
)

# A plan: choose among the platform's algorithms, then execute as often as needed.
with rocpy.Matmul(a, b, epilogue="gelu_bias", bias=bias) as product:
    for algorithm in product.plan():
        print(f"algorithm: {algorithm}")
    first = product.execute()
    product.reset_operands(a=2 * a)
    second = product.execute()
    last = product.execute(algorithm=product.algorithms[-1])
print(f"two algorithms differ by at most {np.abs(second - last).max():.1e}")

# A weight is packed once for the platform and carries its bias: this is how a model calls it.
weight = rocpy.Weight(b, bias=bias)
for rows in (1, 8, 64):
    d = rocpy.matmul(a[:rows], weight, epilogue="gelu_bias")
print(f"with a Weight: {d.shape}, largest difference from the plan: {np.abs(d - first).max():.1e}")

print(rocpy.explain(a, weight, epilogue="gelu_bias"))
