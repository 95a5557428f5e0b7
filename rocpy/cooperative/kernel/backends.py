# SPDX-License-Identifier: MIT
"""What kernels run on: the CPU and AMD GPUs, as the modules above register them, so that a kernel names neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class CPU(Protocol):
    """What runs kernels on the CPU."""

    @property
    def Config(self) -> Callable[..., Any]:  # noqa: N802 - a class of the module that implements this
        """Settings of a launch, made of keywords once for many launches."""

    @property
    def Launcher(self) -> Callable[[Any], Any]:  # noqa: N802
        """Makes of a kernel what is called with settings and arguments, and returns when the grid has run."""


class Devices(Protocol):
    """What runs kernels on AMD GPUs."""

    @property
    def device_of(self) -> Callable[[Any], int | None]:
        """Return the number of the device that an argument's memory is on; None for what the CPU can read."""

    @property
    def launch(self) -> Callable[[Any, Any, tuple[Any, ...], int], None]:
        """Queue a kernel: kernel, settings, arguments, number of the device."""


_registered: dict[str, Any] = {}


def register(cpu: CPU, amdgpu: Devices) -> None:
    """Say what runs kernels; the package does so when it is imported."""
    _registered.update(cpu=cpu, amdgpu=amdgpu)


def cpu() -> CPU:
    """Return what runs kernels on the CPU."""
    registered: CPU = _registered["cpu"]
    return registered


def amdgpu() -> Devices:
    """Return what runs kernels on AMD GPUs."""
    registered: Devices = _registered["amdgpu"]
    return registered
