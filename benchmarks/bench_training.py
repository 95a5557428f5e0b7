# SPDX-License-Identifier: MIT
"""A training step of a small GPT (forward, loss, backward, AdamW): torch's layers, rocpy's, and replace_linear."""

import copy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness import Entry, Groups, Session, main
from peers import torch_with

# Width, heads, blocks, and the sentences and tokens of a batch.
SIZES = ((96, 4, 3, 16, 64), (192, 6, 3, 16, 64), (384, 6, 3, 8, 128), (768, 12, 2, 4, 128))
WORDS = 256
THEIRS = "torch"


def gpt(torch: Any, width: int, heads: int, blocks: int, tokens: int, *, layers: Any) -> Any:
    """Return a GPT whose feed-forward blocks `layers(width)` makes."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = layers.linear(width, 3 * width)
            self.out = layers.linear(width, width)

        def forward(self, x: Any) -> Any:
            sentences, count, _ = x.shape
            parts = self.qkv(x).view(sentences, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(sentences, count, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.mlp = layers.mlp(width)

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
            self.norm = nn.LayerNorm(width)
            self.head = layers.linear(width, WORDS)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places.weight[: ids.shape[1]]
            return self.head(self.norm(self.blocks(x)))

    return Gpt()


class OfTorch:
    """Torch's own layers."""

    def __init__(self, torch: Any) -> None:
        self.nn = torch.nn
        self.linear = torch.nn.Linear

    def mlp(self, width: int) -> Any:
        """Return the feed-forward block."""
        nn = self.nn
        return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))


class OfRocpy:
    """rocpy's layers."""

    def __init__(self) -> None:
        import rocpy.torch as rt

        self.rt = rt
        self.linear = rt.Linear

    def mlp(self, width: int) -> Any:
        """Return the feed-forward block."""
        return self.rt.MLP(width, 4 * width, activation="gelu", approximate="tanh")


def step_of(torch: Any, model: Any, ids: Any, *, bfloat16: bool) -> Any:
    """Return a function that makes one training step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = ids[:, :-1], ids[:, 1:].reshape(-1)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.float().reshape(-1, WORDS), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def groups(*, quick: bool) -> Groups:
    for size in ((16, 2, 1, 2, 8),) if quick else SIZES:
        width, _, blocks, sentences, tokens = size
        for dtype in ("float32", "bfloat16"):
            name = f"GPT, width {width}, {blocks} blocks, {sentences} x {tokens} tokens, {dtype}"
            yield name, partial(train, name=name, size=size, dtype=dtype)


def run(session: Session, measures: Sequence[Callable[[Session, Any], None]]) -> None:
    torch = torch_with(session)
    if torch is None:
        session.note("torch is not installed: nothing to compare")
        return
    for measure in measures:
        measure(session, torch)


def train(session: Session, torch: Any, *, name: str, size: tuple[int, int, int, int, int], dtype: str) -> None:
    """Compare the steps of three models with the same parameters."""
    import rocpy.torch as rt

    width, heads, blocks, sentences, tokens = size
    torch.manual_seed(0)
    theirs = gpt(torch, width, heads, blocks, tokens, layers=OfTorch(torch))
    ours = gpt(torch, width, heads, blocks, tokens, layers=OfRocpy())
    # The layers of an MLP have names, those of a Sequential numbers; their order is the same.
    with torch.no_grad():
        for to, value in zip(ours.parameters(), theirs.parameters(), strict=True):
            to.copy_(value)
    replaced = copy.deepcopy(theirs)
    rt.replace_linear(replaced)
    ids = torch.randint(0, WORDS, (sentences, tokens + 1))
    models = {THEIRS: theirs, "rocpy layers": ours, "rocpy replace_linear": replaced}
    steps = {label: step_of(torch, model, ids, bfloat16=dtype == "bfloat16") for label, model in models.items()}
    losses = {label: [step() for _ in range(3)] for label, step in steps.items()}
    error = max(abs(x - y) for values in losses.values() for x, y in zip(values, losses[THEIRS], strict=True))
    if error > (2e-3 if dtype == "float32" else 0.05):
        raise RuntimeError(f"{name}: the losses differ by {error:g}")
    entries = [Entry(label, "step()", {"step": step}) for label, step in steps.items()]
    session.compare(name, entries, against=THEIRS, dtype=dtype)


if __name__ == "__main__":
    sys.exit(main("training", groups, run))
