# SPDX-License-Identifier: MIT
"""accelerate and the Trainer of transformers on two ranks of the backend: what docs/guides/distributed.md says."""

import importlib.util
import json
import os
import socket
import subprocess
import sys

import pytest

ACCELERATE = """
import json, torch, torch.distributed as dist
dist.init_process_group("rocpy")
from accelerate import Accelerator

torch.set_num_threads(1)
torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
x = torch.arange(64.0).reshape(16, 4) / 64
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5), data)
losses = []
for _ in range(3):
    for inputs, wanted in data:
        loss = (model(inputs) - wanted).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
accelerator.wait_for_everyone()
calls = dist.group.WORLD.communicator.status()["ranks"][0]["calls"]
weights = [value.tolist() for value in accelerator.unwrap_model(model).state_dict().values()]
print("RESULT", json.dumps([accelerator.num_processes, type(model).__name__, losses, weights, calls["all_reduce"] > 6]))
dist.destroy_process_group()
"""
TRAINER = """
import json, sys, torch, torch.distributed as dist
dist.init_process_group("rocpy")
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)

class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        found = self.layer(x)
        return {"loss": (found - labels).square().mean(), "logits": found}

rows = [{"x": torch.full((4,), i / 16), "labels": torch.tensor([i / 4])} for i in range(16)]
settings = TrainingArguments(
    output_dir=sys.argv[1], use_cpu=True, num_train_epochs=3, per_device_train_batch_size=4, learning_rate=0.1,
    report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
)
trainer = Trainer(model=Regression(), args=settings, train_dataset=rows, eval_dataset=rows)
trainer.train()
loss = trainer.evaluate()["eval_loss"]
calls = dist.group.WORLD.communicator.status()["ranks"][0]["calls"]
weights = [value.tolist() for value in trainer.model.state_dict().values()]
print("RESULT", json.dumps([settings.world_size, str(settings.parallel_mode), loss, weights, calls["all_reduce"] > 5]))
dist.destroy_process_group()
"""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def needs(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed (requirements/examples.txt)"
    )


def on_two_ranks(program, *arguments):
    """What a program prints as its result on each of two ranks, started with a launcher's variables."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
        found.append(json.loads(line.removeprefix("RESULT ")))
    return found


@needs("accelerate")
def test_accelerate(torch):
    first, second = on_two_ranks(ACCELERATE)
    assert first == second
    count, kind, losses, _, has_reduced = first
    assert (count, kind, has_reduced) == (2, "DistributedDataParallel", True)
    assert losses[-1] < losses[0]


@needs("transformers")
@needs("accelerate")
def test_trainer(torch, tmp_path):
    first, second = on_two_ranks(TRAINER, str(tmp_path))
    assert first == second
    count, mode, loss, _, has_reduced = first
    assert (count, has_reduced) == (2, True)
    assert loss < 5  # 7.02 at first
    assert "DISTRIBUTED" in mode
