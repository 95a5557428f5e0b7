# SPDX-License-Identifier: MIT
"""What others' programs share: how long each case took, and XLA's ROCm backend where there is no kernel driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Tell the sizes of a case; they are shown with the time that it took."""
    sizes: list[str] = []
    start = time.perf_counter()
    yield sizes.append
    print(f"\n  {request.node.name}: {', '.join(sizes)}: {time.perf_counter() - start:.2f} s", flush=True)


@pytest.fixture(scope="session")
def rocm_devices() -> list:
    """jax's ROCm devices. The plugin counts the kernel driver's cards before it asks HIP: it is told of two.

    XLA does not choose among kernels by their time, which tells nothing here and takes minutes.
    """
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    import jax
    from jax._src import hardware_utils

    jax.config.update(
        "jax_default_matmul_precision", "highest"
    )  # by default the card's products are of ten-bit factors

    hardware_utils.num_available_amd_gpus = lambda stop_at=None: 2
    devices = jax.devices("rocm")
    assert [device.platform for device in devices] == ["gpu", "gpu"]
    return devices
