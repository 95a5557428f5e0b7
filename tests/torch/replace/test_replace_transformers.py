# SPDX-License-Identifier: MIT
"""replace_linear on models of transformers and adapters of PEFT, randomly initialised."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
transformers = pytest.importorskip("transformers", reason="the extra `examples` is not installed")
nn = torch.nn
SMALL = {"hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
IDS = torch.tensor([[1, 7, 3, 9], [4, 4, 2, 0]])


def bert(**options):
    config = transformers.BertConfig(**SMALL, max_position_embeddings=16, **options)
    return transformers.BertModel(config, add_pooling_layer=False)


def llama(**options):
    return transformers.LlamaModel(transformers.LlamaConfig(**SMALL, num_key_value_heads=1, **options))


def gemma():
    config = transformers.GemmaConfig(**SMALL, num_key_value_heads=1, head_dim=8)
    return transformers.GemmaModel(config)


def qwen():
    return transformers.Qwen2Model(transformers.Qwen2Config(**SMALL, num_key_value_heads=1))


def distilbert():
    config = transformers.DistilBertConfig(dim=16, hidden_dim=40, n_layers=2, n_heads=2, vocab_size=50)
    return transformers.DistilBertModel(config)


def t5():
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=40, num_layers=2, num_heads=2, vocab_size=50, feed_forward_proj="gated-gelu"
    )
    return transformers.T5EncoderModel(config)


def gpt2():
    return transformers.GPT2Model(
        transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0)
    )


# Model, layers replaced, what is fused in each of its two layers.
MODELS = {
    "bert": (bert, 12, ["gelu"] * 2),
    "bert relu": (lambda: bert(hidden_act="relu"), 12, ["relu"] * 2),
    "bert gelu_new": (lambda: bert(hidden_act="gelu_new"), 12, ["gelu_tanh"] * 2),
    "bert gelu_python": (lambda: bert(hidden_act="gelu_python"), 12, ["gelu"] * 2),
    "bert gelu_pytorch_tanh": (lambda: bert(hidden_act="gelu_pytorch_tanh"), 12, ["gelu_tanh"] * 2),
    "bert swish": (lambda: bert(hidden_act="swish"), 12, ["silu"] * 2),
    "bert quick_gelu": (lambda: bert(hidden_act="quick_gelu"), 12, []),
    "bert gelu_fast": (lambda: bert(hidden_act="gelu_fast"), 12, []),
    "bert gelu_10": (lambda: bert(hidden_act="gelu_10"), 12, []),
    "distilbert": (distilbert, 12, ["gelu"] * 2),
    "llama": (llama, 14, ["silu"] * 2),
    "gemma": (gemma, 14, ["gelu_tanh"] * 2),
    "qwen2": (qwen, 14, ["silu"] * 2),
    "t5 gated": (t5, 14, []),
    "gpt2": (gpt2, 0, []),
}


def run(model):
    model.zero_grad()
    y = model(input_ids=IDS).last_hidden_state
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, layers, fused = MODELS[name]
    torch.manual_seed(3)
    model = make().double().eval()
    keys = list(model.state_dict())
    expected = run(model)
    report = rt.replace_linear(model)
    assert (len(report.replaced), [row.computes for row in report.fused]) == (layers, fused)
    assert list(model.state_dict()) == keys
    assert fused or report.not_fused or report.not_replaced
    with rt.counters() as counts:
        torch.testing.assert_close(run(model), expected, rtol=1e-9, atol=1e-9)
    assert (counts.layers, counts.activations, counts.gradients) == (layers, len(fused), 2 * layers)
    report.undo()
    torch.testing.assert_close(run(model), expected, rtol=0, atol=0)


def test_save_and_load(tmp_path):
    model = bert().eval()
    rt.replace_linear(model)
    model.save_pretrained(tmp_path)
    other = transformers.BertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    assert type(other.encoder.layer[0].intermediate.dense) is nn.Linear
    torch.testing.assert_close(other(IDS).last_hidden_state, model(IDS).last_hidden_state)


def test_generation_is_the_same():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=1, pad_token_id=0, tie_word_embeddings=True)
    model = transformers.LlamaForCausalLM(config).double().eval()
    model.generation_config.eos_token_id = None
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(IDS)}
    expected = model.generate(IDS, **options)
    report = rt.replace_linear(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with rt.counters() as counts:
        assert torch.equal(model.generate(IDS, **options), expected)
    assert counts.layers == 8 * len(report.replaced)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, llama], ids=["bert", "llama"])
def test_layers_compile(make):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    torch.manual_seed(3)
    model = make().eval()
    block = copy.deepcopy(model.encoder.layer[0] if make is bert else model.layers[0].mlp)
    expected = copy.deepcopy(block)
    rt.replace_linear(block)

    def first(y):
        return y[0] if isinstance(y, tuple) else y

    assert torch._dynamo.explain(block)(torch.randn(2, 5, 16)).graph_break_count == 0
    torch._dynamo.reset()
    frames = {}
    for name, module in (("ours", block), ("theirs", expected)):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(module, fullgraph=True, dynamic=True, backend=counter)
        for rows in (3, 2, 5, 8, 13):
            x = torch.randn(rows, 5, 16)
            torch.testing.assert_close(first(compiled(x)), first(expected(x)), rtol=1e-4, atol=1e-5)
            frames.setdefault(name, counter.frame_count)
        assert counter.frame_count == frames[name]
    # Where there is dropout, torch's compiler begins twice at its first call.
    assert frames["ours"] == frames["theirs"]
    torch._dynamo.reset()


# ---- adapters ----


@pytest.fixture
def adapters():
    peft = pytest.importorskip("peft", reason="the extra `examples` is not installed")

    def wrap(model):
        torch.manual_seed(9)
        config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["gate_proj", "q_proj"], init_lora_weights=False)
        return peft.get_peft_model(model, config)

    return wrap


@pytest.mark.parametrize("before", [True, False])
def test_lora(before, adapters):
    torch.manual_seed(3)
    plain = llama().double().eval()
    expected = adapters(copy.deepcopy(plain))
    model = copy.deepcopy(plain)
    if before:
        model = adapters(model)
        report = rt.replace_linear(model)
        # The adapters' own two layers are nn.Linear as well.
        assert len(report.replaced) == 14 + 2 * 2 * 2
        assert not report.fused
        layers = 14 + 8
    else:
        report = rt.replace_linear(model)
        assert len(report.fused) == 2
        model = adapters(model)
        layers = 14
    # The gate has an adapter beside it, so that it runs by itself.
    with rt.counters() as counts:
        torch.testing.assert_close(run(model), run(expected), rtol=1e-9, atol=1e-9)
    assert (counts.layers, counts.activations) == (layers, 0)
    with torch.no_grad():
        y = expected(IDS).last_hidden_state
        for change in ("merge_adapter", "unmerge_adapter"):
            getattr(model, change)()
            torch.testing.assert_close(model(IDS).last_hidden_state, y, rtol=1e-9, atol=1e-9)
        merged = model.merge_and_unload()
        with rt.counters() as counts:
            torch.testing.assert_close(merged(IDS).last_hidden_state, y, rtol=1e-9, atol=1e-9)
    assert (counts.layers, counts.activations) == (14, 0 if before else 2)
    report.undo()
    torch.testing.assert_close(merged(IDS).last_hidden_state.detach(), y, rtol=1e-9, atol=1e-9)
    assert not any(isinstance(module, rt.Linear) for module in merged.modules())


# ---- the Trainer ----


@pytest.mark.parametrize("packs", ["default", "pack", "frozen"])
def test_a_gpt_that_the_trainer_trains_evaluates_as_torchs(packs, tmp_path):
    """The Trainer's optimizer is torch's fused one, which raises no version counter."""
    pytest.importorskip("accelerate")
    rows = [{"input_ids": ids, "labels": ids} for ids in (torch.arange(12).mul(step).remainder(11) for step in (1, 2))]

    def trained(change):
        torch.manual_seed(5)
        config = transformers.GPTNeoXConfig(**SMALL, hidden_act="gelu", use_parallel_residual=False)
        model = transformers.GPTNeoXForCausalLM(config)
        change(model)
        settings = transformers.TrainingArguments(
            str(tmp_path),
            use_cpu=True,
            max_steps=6,
            learning_rate=0.02,
            lr_scheduler_type="constant",
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        assert settings.optim == "adamw_torch_fused"
        trainer = transformers.Trainer(model, settings, train_dataset=rows, eval_dataset=rows)
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        return model, [before, *losses, trainer.evaluate()["eval_loss"]]

    def change(model):
        report = rt.replace_linear(model, pack=packs == "pack")
        assert len(report.replaced) == 2 * 4 + 1
        if packs == "frozen":
            rt.freeze(model.eval())

    _, expected = trained(lambda model: None)
    with rt.counters() as counts:
        model, losses = trained(change)
    assert counts.layers > 0
    # Frozen layers are thawed by training.
    assert (counts.packed > 0) == (packs != "default")
    assert expected[-1] < expected[0] - 0.5
    assert losses == pytest.approx(expected, rel=2e-3)
    # And the weights that it evaluated with are those that it has.
    plain = transformers.GPTNeoXForCausalLM(model.config).eval()
    plain.load_state_dict(model.state_dict())
    ids = torch.stack([row["input_ids"] for row in rows])
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)


# What the guide's tables say of models by name.
GUIDE = {
    "CLIP": lambda: transformers.CLIPTextModel(
        transformers.CLIPTextConfig(**SMALL, hidden_act="gelu", max_position_embeddings=16)
    ),
    "Mistral": lambda: transformers.MistralModel(transformers.MistralConfig(**SMALL, num_key_value_heads=1)),
    "BERT": bert,
    "DistilBERT": distilbert,
    "Llama": llama,
    "Gemma": gemma,
    "Qwen": qwen,
}


@pytest.mark.parametrize("name", GUIDE)
def test_what_the_guide_names_is_fused(name):
    guide = (Path(__file__).parents[3] / "docs/guides/torch.md").read_text(encoding="utf-8")
    assert name in guide
    report = rt.replace_linear(GUIDE[name]())
    assert len(report.fused) == 2, report
