# SPDX-License-Identifier: MIT
"""Count the layers of transformers' models that are computed together with their activation.

Usage: python tools/fused_pairs.py [--compile] [MODEL ...]

The models are small, of random weights, made of their configurations alone: nothing is downloaded. Without ``--compile`` it
counts what ``rocpy.torch.replace_linear`` fuses in a model that runs as it is; with it, what the backend ``rocpy`` of
``torch.compile`` fuses in a model that nothing else has touched. It needs what requirements/examples.txt lists.
"""

from __future__ import annotations

# ruff: noqa: E501, E402
import argparse
import contextlib
import inspect
import json
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")

import torch
import transformers

import rocpy.torch as rt

TEXT = [
    "albert",
    "bart",
    "bert",
    "bert-generation",
    "big_bird",
    "biogpt",
    "bloom",
    "camembert",
    "clip_text_model",
    "codegen",
    "cohere",
    "convbert",
    "ctrl",
    "deberta",
    "deberta-v2",
    "deepseek_v3",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "falcon",
    "fnet",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_oss",
    "gptj",
    "granite",
    "layoutlm",
    "llama",
    "longformer",
    "m2m_100",
    "mistral",
    "mixtral",
    "modernbert",
    "mpnet",
    "mpt",
    "nemotron",
    "nystromformer",
    "olmo",
    "olmo2",
    "olmoe",
    "opt",
    "pegasus",
    "persimmon",
    "phi",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "roberta",
    "roformer",
    "stablelm",
    "starcoder2",
    "t5",
    "umt5",
    "xglm",
    "xlm",
    "xlnet",
]
OTHERS = ["vit", "siglip_vision_model"]
MODELS = [*TEXT, *OTHERS]

# Whatever of these a configuration has.
SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "embedding_size": 16, "d_model": 32, "d_ff": 48, "d_kv": 8,
    "num_layers": 2, "num_heads": 4, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_ctx": 64, "dim": 32,
    "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "ffn_dim": 48, "attention_heads": 4,
    "head_dim": 8, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "q_lora_rank": 16,
    "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "rotary_dim": 4, "emb_dim": 32,
    "word_embed_proj_dim": 32, "d_inner": 48, "image_size": 16, "patch_size": 8, "max_source_positions": 64, "dff": 48,
    "query_pre_attn_scalar": 8, "attention_window": [4, 4], "block_size": 4, "num_random_blocks": 1, "num_decoder_layers": 2,
    "segment_means_seq_len": 8, "num_landmarks": 4, "d_head": 8, "first_k_dense_replace": 1,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "mask_token_id": 3, "sep_token_id": 2,
    "cls_token_id": 1, "mlp_layer_types": None, "decoder_sparse_step": 1, "max_sequence_length": 64, "max_seq_len": 64,
}  # fmt: skip
# What the rule above does not make small, or not consistent.
OWN = {
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global"], 2]], "attention_layers": ["global", "global"]},
    "esm": {"pad_token_id": 0, "mask_token_id": 3},
    "longformer": {"attention_window": [4, 4]},
    "big_bird": {"attention_type": "original_full"},
    "mpt": {"expansion_ratio": 2},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"original_max_position_embeddings": 64},
}


def configuration(name: str) -> transformers.PreTrainedConfig:
    """Return a model's configuration, made small."""
    if name not in transformers.models.auto.configuration_auto.CONFIG_MAPPING:
        raise SystemExit(f"transformers {transformers.__version__} has no model {name!r}")
    default = transformers.AutoConfig.for_model(name)
    attributes = default.to_dict()
    names = {getattr(default, "attribute_map", {}).get(key, key): key for key in SMALL}
    small = {key: SMALL[old] for key, old in names.items() if key in attributes and SMALL[old] is not None}
    if "layer_types" in attributes and isinstance(attributes["layer_types"], list):
        small["layer_types"] = attributes["layer_types"][:2]
    if "num_key_value_heads" in attributes and attributes["num_key_value_heads"] is None:
        small["num_key_value_heads"] = 4
    return transformers.AutoConfig.for_model(name, **(small | OWN.get(name, {})))


def model_of(name: str) -> torch.nn.Module:
    """Return a small model of random weights, in eval mode."""
    torch.manual_seed(0)
    config = configuration(name)
    return transformers.AutoModel.from_config(config).eval()


def inputs_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what a model's forward takes."""
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, model.config.image_size, model.config.image_size)}
    ids = torch.arange(16).reshape(2, 8) + 5
    given = {"input_ids": ids}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        given["decoder_input_ids"] = ids
    return given


def count_replaced(name: str) -> tuple[int, str]:
    """Return how many pairs `replace_linear` fuses, and the report."""
    report = rt.replace_linear(model_of(name))
    return len(report.fused), repr(report)


def count_compiled(name: str) -> tuple[int, str]:
    """Return how many pairs the compiled model computes fused in one call."""
    torch._dynamo.reset()
    model = model_of(name)
    given = inputs_of(model)
    compiled = torch.compile(model, backend="rocpy", options={"rest": "eager"})
    with torch.no_grad():
        expected = model(**given)[0]
        found = compiled(**given)[0]
        with rt.counters() as counts:
            compiled(**given)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    return counts.activations, f"{counts.layers} layers"


def main() -> None:
    """Count, print a line for each model and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--reports", action="store_true", help="print each model's report")
    parser.add_argument("--json", help="a file for the counts")
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    counts = {}
    for name in arguments.models:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                counts[name], text = (count_compiled if arguments.compile else count_replaced)(name)
        except Exception as error:  # noqa: BLE001  a model that cannot be made is a mistake of this file
            print(f"{name:20} {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
            counts[name] = -1
            continue
        print(f"{name:20} {counts[name]}", flush=True)
        if arguments.reports:
            print(text)
    failed = [name for name, count in counts.items() if count < 0]
    fused = [count for count in counts.values() if count > 0]
    print(f"{sum(fused)} pairs in {len(fused)} of {len(counts)} models; {len(failed)} failed {failed}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
