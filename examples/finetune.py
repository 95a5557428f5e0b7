# SPDX-License-Identifier: MIT
"""Fine-tunes all-MiniLM-L6-v2 as a classifier of questions, with rocpy and with torch, and draws both loss curves.

    pip install '.[examples]'
    python examples/finetune.py --plot loss.png

How far the losses may differ. Both runs take the same steps on the same questions; they differ in the order in which
the products add. Rounding is the only source of that difference, and what it does to a training run depends on the
run: a disturbance of the weights grows or fades from step to step with the curvature that it meets. So the size is
measured where it can be told apart from everything else: torch's own float32 run against the same run in float64,
whose rounding is smaller by 2**-29. Let e[t] be the largest difference between those two losses up to step t.

A product of length K has, in any order of its sum, an error of at most K u |a| |b| (u = 2**-24), and one of about
sqrt(K) u |a| |b| if the roundings are independent. rocpy's run is the exact one with such errors, and so is torch's:
two draws of the same size. The difference of both from the exact run is bounded by

    bound[t] = 8 e[t] + sqrt(K) u loss[t]

with K = 1536, the longest sum. The second term is the first step's, where e is a single draw that may be zero by
chance. 8 stands for the ratio of two draws of one size: e[t] is the largest of t values, so that it is not small.
The growth with t is in e itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from torch_minilm import embed, model_folder
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

import rocpy.torch as rt

QUESTIONS = Path(__file__).with_name("questions.tsv")
UNIT, LONGEST_SUM, FACTOR = 2.0**-24, 1536, 8.0


class Classifier(nn.Module):
    """The model's sentence vector, and a layer that classifies the question."""

    def __init__(self, encoder: BertModel, types: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, types)
        # A few hundred questions are too few to train a table of 30522 words.
        self.encoder.embeddings.requires_grad_(False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the scores of each type."""
        # Vectors of length 1 are close to each other; a temperature lets the layer separate them sooner.
        return self.head(10.0 * embed(self.encoder, batch))


def questions() -> list[tuple[str, str]]:
    """Return type and text of each question."""
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]


def train(model: Classifier, batches: list[tuple[dict[str, Tensor], Tensor]], rate: float) -> tuple[list[float], float]:
    """Return the loss of each step, and the total time in seconds."""
    # Without dropout: its random numbers are the same in each run, but not for another dtype.
    model.eval()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, momentum=0.9)
    losses = []
    start = time.perf_counter()
    for batch, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, time.perf_counter() - start


def accuracy(model: Classifier, batch: dict[str, Tensor], labels: Tensor) -> float:
    """Return the fraction of questions that are classified correctly."""
    with torch.no_grad():
        return float((model(batch).argmax(1) == labels).double().mean())


def bounds(torchs: list[float], exact: list[float], longest_sum: int = LONGEST_SUM) -> list[float]:
    """Return how far each step's loss may be from the exact one."""
    largest, found = 0.0, []
    for one, other in zip(torchs, exact, strict=True):
        largest = max(largest, abs(one - other))
        found.append(FACTOR * largest + longest_sum**0.5 * UNIT * abs(other))
    return found


def draw(path: Path, losses: dict[str, list[float]], limits: list[float]) -> None:
    """Save the loss curves, and below them their distance from the exact one, with the bound."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
    for name, style in (("torch", "-"), ("rocpy", "--")):
        above.plot(losses[name], style, label=name)
        differences = [abs(x - y) for x, y in zip(losses[name], losses["exact"], strict=True)]
        below.semilogy([max(value, 1e-12) for value in differences], style, label=name)
    below.semilogy(limits, ":", color="black", label="bound for rocpy")
    above.set(ylabel="loss", title="all-MiniLM-L6-v2 as a classifier of questions")
    below.set(xlabel="step", ylabel="difference from float64")
    above.legend()
    below.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    """Train three times, compare, and return 0 if rocpy's losses are within the bound and it computed all layers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=12, help="questions in a step")
    parser.add_argument("--rate", type=float, default=0.004)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="where to save the loss curves (.png or .svg)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(model_folder(), local_files_only=True)
    rows = questions()
    types = sorted({kind for kind, _ in rows})

    def tokens(chosen: list[int]) -> tuple[dict[str, Tensor], Tensor]:
        batch = tokenizer([rows[i][1] for i in chosen], padding=True, return_tensors="pt")
        return dict(batch), torch.tensor([types.index(rows[i][0]) for i in chosen])

    torch.manual_seed(arguments.seed)
    order = torch.randperm(len(rows)).tolist()
    held_out = tokens(order[:60])
    pool = order[60:]
    picks = [torch.randperm(len(pool))[: arguments.batch].tolist() for _ in range(arguments.steps)]
    batches = [tokens([pool[i] for i in pick]) for pick in picks]
    encoder = BertModel.from_pretrained(model_folder(), local_files_only=True, add_pooling_layer=False)
    models = {"torch": Classifier(encoder, len(types))}
    models["rocpy"] = copy.deepcopy(models["torch"])
    models["exact"] = copy.deepcopy(models["torch"]).double()
    report = rt.replace_linear(models["rocpy"])
    before = accuracy(models["torch"].eval(), *held_out)
    losses, seconds, counts = {}, {}, rt.counters()
    for name, model in models.items():
        with counts if name == "rocpy" else rt.counters() as ran:
            losses[name], seconds[name] = train(model, batches, arguments.rate)
        if name != "rocpy" and ran.products:
            raise SystemExit(f"{name}: {ran.products} products went through rocpy, which it is compared with")
    limits = bounds(losses["torch"], losses["exact"])
    ratios = [abs(x - y) / z for x, y, z in zip(losses["rocpy"], losses["exact"], limits, strict=True)]
    steps = len(batches)
    complete = (counts.layers, counts.activations) == (len(report.replaced) * steps, len(report.fused) * steps)
    right = {name: accuracy(model.eval(), *held_out) for name, model in models.items()}
    good = max(ratios) <= 1 and complete
    if arguments.plot:
        draw(arguments.plot, losses, limits)
    if arguments.json:
        document = {"losses": losses, "bounds": limits, "largest_error_over_bound": max(ratios), "seconds": seconds}
        document |= {"accuracy": right, "accuracy_before": before, "counts": counts.to_dict()}
        document |= {"replaced": len(report.replaced), "fused": len(report.fused)}
        print(json.dumps(document))
        return 0 if good else 1
    print(f"{len(rows)} questions of {len(types)} types, {len(rows) - 60} for training, 60 held out")
    print(f"{len(report.replaced)} layers computed by rocpy, {len(report.fused)} with their activation")
    for step in sorted({0, steps // 4, steps // 2, 3 * steps // 4, steps - 1}):
        values = "  ".join(f"{name} {losses[name][step]:.6f}" for name in ("rocpy", "torch", "exact"))
        print(f"step {step + 1:3d}: loss  {values}  bound {limits[step]:.1e}")
    print(f"largest difference from float64, over its bound: {max(ratios):.2f}")
    print(f"accuracy on those held out: {before:.0%} before; " + ", ".join(f"{right[n]:.0%} with {n}" for n in right))
    print(f"{seconds['rocpy']:.1f} s with rocpy, {seconds['torch']:.1f} s with torch")
    print(f"{counts.layers} products of layers, {counts.gradients} of gradients through rocpy")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
