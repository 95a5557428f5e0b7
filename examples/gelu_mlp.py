# SPDX-License-Identifier: MIT
"""A two-layer perceptron: gelu_aux_bias forward, dgelu_bgrad and bgradb backward, checked by finite differences."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

import rocpy

Array = np.ndarray


@dataclass
class Perceptron:
    """x -> gelu(x @ w1 + b1) @ w2 + b2."""

    w1: Array
    b1: Array
    w2: Array
    b2: Array

    @classmethod
    def random(cls, inputs: int, hidden: int, outputs: int, dtype: type = np.float32, seed: int = 0) -> Perceptron:
        """Return one with normal weights, scaled so that activations stay near one."""
        rng = np.random.default_rng(seed)
        w1 = rng.standard_normal((inputs, hidden)) / np.sqrt(inputs)
        w2 = rng.standard_normal((hidden, outputs)) / np.sqrt(hidden)
        return cls(w1.astype(dtype), np.zeros(hidden, dtype), w2.astype(dtype), np.zeros(outputs, dtype))

    def forward(self, x: Array) -> tuple[Array, Array, dict[str, Array]]:
        """Return output, hidden activations, and the pre-activation that the backward pass needs."""
        hidden, aux = rocpy.matmul(x, self.w1, epilogue="gelu_aux_bias", bias=self.b1)
        return rocpy.matmul(hidden, self.w2, epilogue="bias", bias=self.b2), hidden, aux

    def gradients(self, x: Array, target: Array) -> tuple[float, dict[str, Array]]:
        """Return half the mean squared error over the rows, and its gradients."""
        y, hidden, aux = self.forward(x)
        error = (y - target) / len(x)
        loss = 0.5 * float(np.sum((y - target).astype(np.float64) ** 2)) / len(x)
        # One call: the product with the weights, the derivative of gelu, and the sum over rows, the bias's gradient.
        dpre, sums = rocpy.matmul(error, self.w2.T, epilogue="dgelu_bgrad", aux=aux)
        dw2, sums2 = rocpy.matmul(hidden.T, error, epilogue="bgradb")
        return loss, {"w1": rocpy.matmul(x.T, dpre), "b1": sums["bgrad"], "w2": dw2, "b2": sums2["bgradb"]}

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        """Move against the gradients."""
        for name, gradient in gradients.items():
            getattr(self, name)[...] -= (rate * gradient).astype(gradient.dtype)


def largest_gradient_error(seed: int = 1) -> float:
    """Compare some gradient entries with central differences in float64; return the largest relative difference."""
    model = Perceptron.random(7, 16, 5, np.float64, seed)
    rng = np.random.default_rng(seed)
    x, target = rng.standard_normal((9, 7)), rng.standard_normal((9, 5))
    _, gradients = model.gradients(x, target)
    worst, h = 0.0, 1e-6
    for name, gradient in gradients.items():
        values = getattr(model, name).reshape(-1)
        for index in rng.choice(values.size, size=min(8, values.size), replace=False):
            kept = values[index]
            values[index] = kept + h
            above, _ = model.gradients(x, target)
            values[index] = kept - h
            below, _ = model.gradients(x, target)
            values[index] = kept
            numeric = (above - below) / (2 * h)
            worst = max(worst, abs(numeric - gradient.reshape(-1)[index]) / max(1e-3, abs(numeric)))
    return worst


def main() -> int:
    """Check the gradients, then fit sin(x)."""
    error = largest_gradient_error()
    print(f"largest relative difference from finite differences: {error:.1e}")
    if error > 1e-6:
        return 1
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (256, 1)).astype(np.float32)
    target = np.sin(x)
    model = Perceptron.random(1, 64, 1)
    first, _ = model.gradients(x, target)
    for step in range(1001):
        loss, gradients = model.gradients(x, target)
        if step % 250 == 0:
            print(f"step {step:4d}: loss {loss:.5f}")
        model.step(gradients, rate=0.02)
    print(f"loss fell from {first:.4f} to {loss:.4f}")
    return int(not loss < first / 10)


if __name__ == "__main__":
    sys.exit(main())
