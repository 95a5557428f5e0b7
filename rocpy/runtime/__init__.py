# SPDX-License-Identifier: MIT
"""Devices, streams, events, graphs, modules and buffers: thin owners of HIP objects on the chosen platform."""

from rocpy._signatures import public_names
from rocpy.runtime.device import Device
from rocpy.runtime.event import Event
from rocpy.runtime.graph import Graph
from rocpy.runtime.kernels.module import Kernel, Module
from rocpy.runtime.memory import Buffer
from rocpy.runtime.stream import Stream

__all__ = ["Buffer", "Device", "Event", "Graph", "Kernel", "Module", "Stream"]

__dir__ = public_names(globals())
