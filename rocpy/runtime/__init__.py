# SPDX-License-Identifier: MIT
"""Device, stream, event and buffer: thin owners of HIP's objects on the chosen platform."""

from rocpy.runtime.device import Device
from rocpy.runtime.event import Event
from rocpy.runtime.memory import Buffer
from rocpy.runtime.stream import Stream

__all__ = ["Buffer", "Device", "Event", "Stream"]
