# SPDX-License-Identifier: MIT
"""Collectives of tensors under torch's modes: autocast and modes that only watch change nothing."""

import pytest

from rocpy import rccl
from rocpy.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    return FlopCounterMode(display=False)


MODES = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a flop counter": flop_counter,
    "inference mode": torch.inference_mode,
    "a default device": lambda: torch.device("meta"),
}
CALLS = {
    "all_reduce": lambda comm, x: comm.all_reduce(x),
    "in place": lambda comm, x: comm.all_reduce(x, out=x),
    "with a bias": lambda comm, x: comm.all_reduce_with_bias(x, torch.zeros_like(x)),
    "reduce": lambda comm, x: comm.reduce(x, root=0),
    "broadcast": lambda comm, x: comm.broadcast(x, root=0),
    "all_gather": lambda comm, x: comm.all_gather(x),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "all_to_all": lambda comm, x: comm.all_to_all(x),
    "all_to_all_v": lambda comm, x: comm.all_to_all_v(x, [4], [4]),
    "gather": lambda comm, x: comm.gather(x, root=0),
    "scatter": lambda comm, x: comm.scatter(x, root=0),
}


@pytest.fixture(scope="module")
def comm():
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), name="modes") as comm:
        yield comm


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_collectives_under_modes(comm, call, mode):
    with MODES[mode]():
        result = CALLS[call](comm, torch.arange(4.0, device="cpu"))
        assert result.dtype == torch.float32
        assert result.flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_graph_does_not_lose_a_collective(comm):
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(UnsupportedError, match="make_fx"):
        make_fx(lambda x: x + comm.all_reduce(torch.ones(2)))(torch.ones(2))
