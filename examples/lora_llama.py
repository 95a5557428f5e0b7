# SPDX-License-Identifier: MIT
"""Trains LoRA adapters of a small random Llama with PEFT and transformers' Trainer, with and without rocpy.

    pip install '.[examples]'
    python examples/lora_llama.py

The program is what one writes without rocpy, but for the line with replace_linear. All runs see the same text in the
same order, so that their losses differ by rounding alone; how far they may is derived in finetune.py, from a run in
float64.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from finetune import bounds
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

import rocpy.torch as rt

TEXT = Path(__file__).with_name("questions.tsv")
HIDDEN, INTERMEDIATE = 128, 344


class Letters(Dataset):
    """The text in sequences of equal length, one number for each letter."""

    def __init__(self, length: int = 64) -> None:
        text = TEXT.read_text(encoding="utf-8")
        letters = sorted(set(text))
        self.size = len(letters)
        numbers = torch.tensor([letters.index(letter) for letter in text])
        self.pieces = numbers[: len(numbers) // length * length].view(-1, length)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.pieces[index], "labels": self.pieces[index]}


def run(
    data: Letters, steps: int, by_rocpy: bool, dtype: torch.dtype = torch.float32
) -> tuple[list[float], rt.ReplaceReport | None]:
    """Return the loss of each step, and what was replaced."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=data.size,
            hidden_size=HIDDEN,
            intermediate_size=INTERMEDIATE,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).to(dtype)
    model = get_peft_model(
        model,
        LoraConfig(
            r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"]
        ),
        autocast_adapter_dtype=False,
    )
    report = rt.replace_linear(model) if by_rocpy else None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row], report


def main() -> int:
    """Train three times, compare, and return 0 if the losses agree and rocpy computed every layer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    # Warnings of the packages themselves, about settings that this program does not change.
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    data = Letters()
    theirs, _ = run(data, arguments.steps, by_rocpy=False)
    exact, _ = run(data, arguments.steps, by_rocpy=False, dtype=torch.float64)
    with rt.counters() as counts:
        ours, report = run(data, arguments.steps, by_rocpy=True)
    assert report is not None
    # PEFT keeps a copy of each layer that it trains completely, and runs one of the two.
    layers = [row for row in report.replaced if "original_module" not in row.name]
    complete = counts.layers == arguments.steps * len(layers)
    fused = counts.activations == arguments.steps * len(report.fused)
    limits = bounds(theirs, exact, INTERMEDIATE)
    ratio = max(abs(x - y) / limit for x, y, limit in zip(ours, exact, limits, strict=True))
    good = complete and fused and ratio <= 1
    if arguments.json:
        document = {"rocpy": ours, "torch": theirs, "exact": exact, "bounds": limits}
        document |= {"largest_error_over_bound": ratio}
        document |= {"replaced": len(report.replaced), "fused": len(report.fused), "counts": counts.to_dict()}
        print(json.dumps(document))
        return 0 if good else 1
    print(report)
    for step in sorted({0, len(ours) // 2, len(ours) - 1}):
        print(f"step {step + 1:3d}: loss {ours[step]:.4f} with rocpy, {theirs[step]:.4f} with torch")
    print(f"largest difference from float64, over its bound: {ratio:.2f}")
    print(f"{counts.layers} products of layers through rocpy, {counts.activations} of them with their activation")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
