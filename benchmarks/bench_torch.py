# SPDX-License-Identifier: MIT
"""Layers of rocpy.torch against torch's own: forward, forward and backward, and what a call of a tiny layer costs."""

import copy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness import Entry, Groups, Session, main
from peers import optional, shape_name, torch_with

SHAPES = ((512, 3072, 768), (64, 3072, 768), (2048, 1024, 1024))
ACTIVATIONS = ((None, "none"), ("relu", "none"), ("gelu", "none"), ("gelu", "tanh"), ("silu", "none"))
THEIRS = "torch"


def groups(*, quick: bool) -> Groups:
    for shape in ((8, 16, 12),) if quick else SHAPES:
        for activation, approximate in ACTIVATIONS:
            name = f"{activation} {approximate}" if activation == "gelu" else activation or "none"
            title = f"{shape_name(shape)} {name}"
            yield title, partial(layer, shape=shape, activation=activation, approximate=approximate, name=name)
    yield "tiny", tiny
    for kind in ("mlp", "gated"):
        yield kind, partial(block, kind=kind)
    yield "minilm", minilm


def run(session: Session, measures: Sequence[Callable[[Session, Any], None]]) -> None:
    torch = torch_with(session)
    if torch is None:
        session.note("torch is not installed: nothing to compare")
        return
    for measure in measures:
        measure(session, torch)


def pair(torch, k, n, activation, approximate):
    """Return our layer and torch's, with the same parameters."""
    import rocpy.torch as rt

    nn = torch.nn
    ours = rt.Linear(k, n, activation=activation, approximate=approximate)
    linear = nn.Linear(k, n)
    linear.load_state_dict(ours.state_dict())
    function = {None: None, "relu": nn.ReLU(), "gelu": nn.GELU(approximate), "silu": nn.SiLU()}[activation]
    return ours, linear if function is None else nn.Sequential(linear, function)


def layer(session, torch, shape, activation, approximate, name) -> None:
    m, n, k = shape
    torch.manual_seed(0)
    ours, theirs = pair(torch, k, n, activation, approximate)
    # The input needs a gradient too, as inside a model.
    x = torch.randn(m, k, requires_grad=True)
    compare(session, torch, f"{m}x{n}x{k} {name}", ours, theirs, x, 2.0 * m * n * k)


def tiny(session, torch) -> None:
    """Compare layers whose product is next to nothing."""
    layer(session, torch, (4, 8, 8), None, "none", "none, tiny")
    layer(session, torch, (4, 8, 8), "gelu", "tanh", "gelu tanh, tiny")


def block(session, torch, kind) -> None:
    import rocpy.torch as rt

    nn = torch.nn
    m, k, n = (8, 12, 16) if session.quick else (512, 768, 3072)
    torch.manual_seed(0)
    x = torch.randn(m, k, requires_grad=True)
    if kind == "mlp":
        ours = rt.MLP(k, n, activation="gelu", approximate="tanh")
        theirs = nn.Sequential(nn.Linear(k, n), nn.GELU("tanh"), nn.Linear(n, k))
        theirs[0].load_state_dict(ours.fc1.state_dict())
        theirs[2].load_state_dict(ours.fc2.state_dict())
        compare(session, torch, f"MLP {m} rows, {k} to {n} to {k}, gelu tanh", ours, theirs, x, 4.0 * m * n * k)
        return

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj = (nn.Linear(k, n, bias=False) for _ in range(2))
            self.down_proj = nn.Linear(n, k, bias=False)

        def forward(self, x):
            return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))

    ours, theirs = rt.GatedMLP(k, n), Gated()
    ours.load_state_dict(theirs.state_dict())
    compare(session, torch, f"GatedMLP {m} rows, {k} to {n} to {k}, silu", ours, theirs, x, 6.0 * m * n * k)


def minilm(session, torch) -> None:
    """Compare a replaced model of MiniLM's extents, randomly initialised, with the original."""
    transformers = optional("transformers")
    if transformers is None:
        session.note("transformers is not installed: no replaced model is measured")
        return
    import rocpy.torch as rt

    layers, width, inside, heads = (1, 16, 32, 2) if session.quick else (6, 384, 1536, 12)
    sentences, words = (2, 4) if session.quick else (32, 24)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=width,
        intermediate_size=inside,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=1000,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False)
    ours = copy.deepcopy(theirs)
    rt.replace_linear(ours, pack=True)
    ids = torch.randint(0, 1000, (sentences, words))

    class Hidden(torch.nn.Module):
        def __init__(self, model) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state

    name = f"MiniLM, {sentences} sentences of {words} tokens"
    flops = 2.0 * layers * sentences * words * (4 * width * width + 2 * width * inside + 2 * words * width)
    compare(session, torch, name, Hidden(ours), Hidden(theirs), ids, flops)


def compare(session, torch, name, ours, theirs, x, flops) -> None:
    y, z = ours(x), theirs(x)
    error = float((y - z).detach().abs().max())
    if error > 1e-3:
        raise RuntimeError(f"{name}: rocpy and torch differ by {error:g}")
    grad = torch.randn_like(y)
    names = {"ours": ours, "theirs": theirs, "x": x, "grad": grad, "torch": torch}

    def inference(module):
        def call():
            with torch.no_grad():
                module(x)

        module.eval()
        call()
        return call

    session.compare(
        f"{name}, forward (recorded)",
        [Entry("rocpy", "ours(x)", names), Entry(THEIRS, "theirs(x)", names)],
        against=THEIRS,
        flops=flops,
    )
    session.compare(
        f"{name}, forward and backward",
        [Entry("rocpy", "ours(x).backward(grad)", names), Entry(THEIRS, "theirs(x).backward(grad)", names)],
        against=THEIRS,
        flops=3 * flops,
    )
    calls = {"ours": inference(ours), "theirs": inference(theirs)}
    session.compare(
        f"{name}, inference",
        [Entry("rocpy", "ours()", calls), Entry(THEIRS, "theirs()", calls)],
        against=THEIRS,
        flops=flops,
    )
    ours.train()
    theirs.train()


if __name__ == "__main__":
    sys.exit(main("torch", groups, run))
