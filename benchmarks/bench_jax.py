# SPDX-License-Identifier: MIT
"""rocpy.jax.matmul inside jax.jit against jax's own product and activation: forward, and with gradients."""

import os
import sys
from collections.abc import Sequence

from harness import Entry, Groups, Session, main
from peers import normal, optional, shape_name

SHAPES = ((512, 3072, 768), (64, 3072, 768), (1024, 1024, 1024))
EPILOGUES = ("default", "bias", "relu_bias", "gelu_bias", "silu_bias")
THEIRS = "jax"


def groups(*, quick: bool) -> Groups:
    for shape in ((8, 16, 12),) if quick else SHAPES:
        for epilogue in EPILOGUES:
            yield f"{shape_name(shape)} {epilogue}", (shape, epilogue)


def run(session: Session, layers: Sequence[tuple[tuple[int, int, int], str]]) -> None:
    # XLA sizes its pool by the CPUs that it may use, and reads that once.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: session.threads])
    jax = optional("jax")
    if jax is None:
        session.note("jax is not installed: nothing to compare")
        return
    for shape, epilogue in layers:
        compare(session, jax, shape, epilogue)


def pair(jax, epilogue):
    """Return the layer by rocpy and by jax."""
    import rocpy.jax

    def ours(x, w, bias):
        more = {"bias": bias} if epilogue.endswith("bias") else {}
        return rocpy.jax.matmul(x, w, epilogue=epilogue, **more)

    def theirs(x, w, bias):
        y = x @ w
        y = y + bias if epilogue.endswith("bias") else y
        function = {"relu_bias": jax.nn.relu, "gelu_bias": jax.nn.gelu, "silu_bias": jax.nn.silu}.get(epilogue)
        return y if function is None else function(y)

    return ours, theirs


def compare(session, jax, shape, epilogue) -> None:
    m, n, k = shape
    x, w, bias = (jax.numpy.asarray(normal(name, *s)) for name, s in (("x", (m, k)), ("w", (k, n)), ("bias", (n,))))
    names = {"x": x, "w": w, "bias": bias}
    for kind, flops in (("forward", 2.0 * m * n * k), ("forward and gradients", 6.0 * m * n * k)):
        made = {}
        for name, layer in zip(("ours", "theirs"), pair(jax, epilogue), strict=True):
            function = layer
            if kind != "forward":
                function = jax.grad(lambda *a, layer=layer: (layer(*a) ** 2).sum(), (0, 1, 2))
            made[name] = jax.jit(function)
        results = [jax.tree.leaves(f(x, w, bias)) for f in made.values()]
        for ours, theirs in zip(*results, strict=True):
            error = float(abs(ours - theirs).max() / (1.0 + abs(theirs).max()))
            if error > 1e-4:
                raise RuntimeError(f"{epilogue}, {kind}: rocpy and jax differ by {error:g}")
        names |= made | {"ready": jax.block_until_ready}
        session.compare(
            f"{shape_name(shape)} {epilogue} in jit, {kind}",
            [
                Entry("rocpy.jax", "ready(ours(x, w, bias))", dict(names)),
                Entry(THEIRS, "ready(theirs(x, w, bias))", dict(names)),
            ],
            against=THEIRS,
            flops=flops,
        )


if __name__ == "__main__":
    sys.exit(main("jax", groups, run))
