# SPDX-License-Identifier: MIT
"""replace_linear on transformers' mixtures of experts, randomly initialised: their experts are grouped products."""

from __future__ import annotations

import copy
import pickle

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
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
IDS = torch.tensor([[1, 7, 3, 9], [4, 4, 2, 0]])


def mixtral():
    return transformers.MixtralConfig(**SMALL, num_key_value_heads=1, num_local_experts=4)


def olmoe():
    return transformers.OlmoeConfig(**SMALL, num_key_value_heads=1, num_experts=4, num_experts_per_tok=2)


def gpt_oss():
    return transformers.GptOssConfig(**SMALL, num_key_value_heads=1, head_dim=8, num_local_experts=4)


def qwen2_moe():
    return transformers.Qwen2MoeConfig(
        **SMALL, num_key_value_heads=1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12
    )


def qwen3_moe():
    return transformers.Qwen3MoeConfig(
        **SMALL, num_key_value_heads=1, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12
    )


def deepseek_v3():
    ranks = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 4}
    return transformers.DeepseekV3Config(
        **SMALL,
        **ranks,
        num_key_value_heads=2,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=12,
        first_k_dense_replace=0,
        n_group=2,
        topk_group=1,
    )


CONFIGS = {f.__name__: f for f in (mixtral, olmoe, gpt_oss, qwen2_moe, qwen3_moe, deepseek_v3)}


def made(name, dtype=torch.float64):
    torch.manual_seed(3)
    config = CONFIGS[name]()
    config.pad_token_id = config.eos_token_id = config.bos_token_id = None
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    # By torch's plain products, an expert at a time: its grouped product takes no float64.
    model.set_experts_implementation("eager")
    return model.to(dtype).eval()


def experts_of(model):
    return [module for name, module in model.named_modules() if name.endswith(".experts")]


def run(model, **options):
    model.zero_grad()
    y = model(input_ids=IDS, **options).logits
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", CONFIGS)
def test_models(name):
    model = made(name)
    expected = run(model)
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    report = rt.replace_linear(model)
    found = experts_of(model)
    assert [row.name for row in report.experts] == [n for n, module in model.named_modules() if module in found]
    assert len(report.experts) == 2
    elements = sum(p.numel() for module in found for p in module.parameters())
    share = 100 * elements / sum(p.numel() for p in model.parameters())
    assert sum(row.share for row in report.experts) == pytest.approx(share, rel=1e-6)
    assert f"2 modules of experts replaced, {share:.0f} % of the parameters" in repr(report)
    assert not any(row.name in {one.name for one in report.experts} for row in report.not_replaced)
    assert list(model.state_dict()) == keys
    with rt.counters() as counts:
        torch.testing.assert_close(run(model), expected, rtol=1e-8, atol=1e-8)
    assert counts.grouped >= 2 * 6
    report.undo()
    assert [type(module) for module in model.modules()] == classes
    with rt.counters() as counts:
        torch.testing.assert_close(run(model), expected, rtol=1e-8, atol=1e-8)
    assert counts.products == 0


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_generation_is_the_same(name):
    model = made(name)
    model.generation_config.pad_token_id = 0
    options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(IDS)}
    expected = model.generate(IDS, **options)
    rt.replace_linear(model)
    with rt.counters() as counts:
        assert torch.equal(model.generate(IDS, **options), expected)
        assert torch.equal(model.generate(IDS[:1, :1], max_new_tokens=1)[:, :1], IDS[:1, :1])  # one token
    assert counts.grouped == 2 * 2 * 7


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_bfloat16_and_autocast(name):
    wide = made(name, torch.float32)
    for parameter in wide.parameters():
        parameter.data.copy_(parameter.data.bfloat16())
    exact = copy.deepcopy(wide).double()
    with torch.no_grad():
        expected = exact(input_ids=IDS).logits
    for model in (copy.deepcopy(wide).bfloat16(), wide):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=model is wide):
            theirs = model(input_ids=IDS).logits.double()
            report = rt.replace_linear(model)
            with rt.counters() as counts:
                ours = model(input_ids=IDS).logits.double()
        assert len(report.experts) == 2
        assert counts.grouped == 4
        # No further from the exact result than torch's own products are, but for a few roundings.
        assert (ours - expected).abs().max() <= 2 * (theirs - expected).abs().max() + 0.05


def test_experts_without_tokens_have_zero_gradients():
    model = made("mixtral")
    rt.replace_linear(model)
    experts = experts_of(model)[0]
    index, weights = torch.zeros(3, 2, dtype=torch.int64), torch.full((3, 2), 0.5, dtype=torch.float64)
    experts(torch.randn(3, 16, dtype=torch.float64), index, weights).sum().backward()
    assert experts.down_proj.grad[0].any()
    assert not experts.down_proj.grad[1:].any()
    assert experts(torch.randn(0, 16, dtype=torch.float64), index[:0], weights[:0]).shape == (0, 16)


def test_training_never_reads_old_weights():
    ours, theirs = made("mixtral"), made("mixtral")
    rt.replace_linear(ours)
    for model in (ours, theirs):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            model(input_ids=IDS, labels=IDS).loss.backward()
            optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, rtol=1e-6, atol=1e-6)


def test_copies_pickles_and_checkpoints(tmp_path):
    model = made("mixtral")
    model.report = rt.replace_linear(model)
    with torch.no_grad():
        expected = model(IDS).logits
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            for grouped in (4, 0):
                with rt.counters() as counts:
                    torch.testing.assert_close(other(IDS).logits, expected)
                assert counts.grouped == grouped
                other.report.undo()
        model.save_pretrained(tmp_path)
        options = {"dtype": torch.float64, "experts_implementation": "eager"}
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **options).eval()
        torch.testing.assert_close(loaded(IDS).logits, expected)


def test_the_models_choice_and_the_users_code_decide(monkeypatch):
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    model = made("mixtral", torch.float32)
    model.set_experts_implementation("grouped_mm")
    cls = type(experts_of(model)[0])
    rt.replace_linear(model)

    def grouped():
        with rt.counters() as counts, torch.no_grad():
            y = model(IDS).logits
        return counts.grouped, y

    _, expected = grouped()
    # Another implementation, chosen later.
    model.set_experts_implementation("eager")
    count, y = grouped()
    assert count == 0
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)
    model.set_experts_implementation("grouped_mm")
    assert grouped()[0] == 4
    # An implementation of the user's by the name of one of transformers'.
    before = ALL_EXPERTS_FUNCTIONS["grouped_mm"]
    monkeypatch.setitem(ALL_EXPERTS_FUNCTIONS, "grouped_mm", lambda self, *args: before(self, *args) * 0)
    count, y = grouped()
    assert count == 0
    assert not torch.equal(y, expected)
    monkeypatch.undo()
    # The class' forward, its gate, a parameter, a hook.
    with monkeypatch.context() as patch:
        patch.setattr(cls, "forward", lambda self, states, *_: states)
        assert grouped()[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(cls, "_apply_gate", lambda self, x: x.chunk(2, -1)[1])
        count, y = grouped()
        assert count == 4
        assert not torch.equal(y, expected)
    experts = experts_of(model)[0]
    seen = []
    handle = experts.register_forward_hook(lambda *args: seen.append(args[2].shape))
    grouped()
    handle.remove()
    assert seen == [(8, 16)]
    experts.down_proj = nn.Parameter(torch.zeros_like(experts.down_proj))
    assert not torch.equal(grouped()[1], expected)


def test_parametrizations_that_come_and_go():
    class Half(nn.Module):
        def forward(self, x):
            return x / 2

    model = made("mixtral")
    other = copy.deepcopy(model)
    report = rt.replace_linear(model)
    for one in (model, other):
        for experts in experts_of(one):
            nn.utils.parametrize.register_parametrization(experts, "down_proj", Half())
    with torch.no_grad(), rt.counters() as counts:
        expected = other(IDS).logits
        torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-8, atol=1e-8)
        assert counts.grouped == 4
        report.undo()
        torch.testing.assert_close(model(IDS).logits, expected, rtol=0, atol=0)
        assert counts.grouped == 4
    assert not rt.replace_linear(other).experts  # removing them would remove the class below theirs
    for one in (model, other):
        for experts in experts_of(one):
            nn.utils.parametrize.remove_parametrizations(experts, "down_proj")
            assert type(experts) is transformers.models.mixtral.modeling_mixtral.MixtralExperts
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-8, atol=1e-8)


def test_what_is_not_served_is_said():
    def reasons(model, **options):
        report = rt.replace_linear(model, **options)
        assert not report.experts
        return {row.name.rpartition(".")[2]: row.reason for row in report.not_replaced}["experts"]

    model = made("mixtral")
    assert "excluded by skip=" in reasons(model, skip="*.experts")
    model.set_experts_implementation("deepgemm")
    text = reasons(model)
    assert "experts_implementation='deepgemm'" in text
    assert "gate_up_proj of (4, 48, 16)" in text  # with the share that stays as it was
    assert "% of the model's parameters" in text
    model = made("mixtral")
    for experts in experts_of(model):
        experts.forward = lambda *args: args[0]
    assert "set on the object" in reasons(model)
    model = made("mixtral")
    for experts in experts_of(model):
        experts.gate_up_proj = nn.Parameter(torch.ones_like(experts.gate_up_proj).to(torch.float8_e4m3fn), False)
    assert "its gate_up_proj is float8_e4m3fn" in reasons(model)


@pytest.mark.slow
def test_experts_compile():
    torch._dynamo.reset()
    model = made("mixtral")
    experts = experts_of(model)[0]
    rt.replace_linear(model)
    compiled = torch.compile(experts, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (5, 3, 8):
        states, weights = torch.randn(tokens, 16, dtype=torch.float64), torch.rand(tokens, 2, dtype=torch.float64)
        index = torch.stack([torch.randperm(4)[:2] for _ in range(tokens)])
        args = [x.requires_grad_() if x.is_floating_point() else x for x in (states, index, weights)]
        with rt.counters() as counts:
            ours = compiled(*args)
            grads = torch.autograd.grad(ours.sum(), (states, weights, experts.down_proj))
        expected = experts(*args)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(grads, torch.autograd.grad(expected.sum(), (states, weights, experts.down_proj)))
        assert counts.grouped == 6
    torch._dynamo.reset()
