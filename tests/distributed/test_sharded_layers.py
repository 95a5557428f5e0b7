# SPDX-License-Identifier: MIT
"""Replaced layers under FSDP in two processes: no step and no load ever gives an old weight."""

import pytest
import torch_ranks

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def sharded(rank, size, store, backend, kind, packs):
    """Train and change a replaced model beside the same one of torch's; return how far their results are apart."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    import rocpy.torch as rt

    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    torch.set_num_threads(1)
    try:

        def made(replace):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)).eval()
            if replace:
                rt.replace_linear(model, pack=packs == "pack")
            if replace and packs == "frozen":
                rt.freeze(model)
            if kind == "fsdp":
                return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
            fully_shard(model[0])
            fully_shard(model)
            if replace:
                rows = rt.freeze(model).not_frozen if packs == "frozen" else []
                assert all("fully_shard" in row.reason or "DTensor" in row.reason for row in rows)
            return model

        torch.manual_seed(2 + rank)
        x = torch.randn(5, 6)
        ours, theirs = models = made(True), made(False)
        apart = []

        def look():
            with torch.no_grad():
                apart.append(float((ours(x) - theirs(x)).abs().max()))

        look()
        optimizers = [torch.optim.AdamW(model.parameters(), lr=0.3) for model in models]
        for _ in range(3):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
            look()
        # In place, without an optimizer.
        for model in models:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(2)
        look()
        if kind == "fully_shard":
            for model in models:
                model.load_state_dict({name: value * 0.25 for name, value in model.state_dict().items()})
            look()
        return apart
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def workers():
    made = torch_ranks.Workers(2)
    yield made
    made.close()


@pytest.mark.parametrize("packs", ["default", "pack", "frozen"])
@pytest.mark.parametrize("kind", ["fsdp", "fully_shard"])
@pytest.mark.parametrize("backend", ["gloo", "rocpy"])
def test_sharded_models_compute_with_todays_weights(workers, tmp_path, backend, kind, packs):
    for apart in workers(sharded, str(tmp_path / "store"), backend, kind, packs):
        assert max(apart) < 1e-4, apart
