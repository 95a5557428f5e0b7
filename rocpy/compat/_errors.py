# SPDX-License-Identifier: MIT
"""What the packages for other libraries' programs share: the error of an attribute that is not there for a reason."""

from __future__ import annotations

from rocpy.errors import UnsupportedError, shown_as


@shown_as(UnsupportedError)
class UnsupportedAttributeError(UnsupportedError, AttributeError):
    """An attribute that the other library has and AMD's have nothing for: ``hasattr`` is false for it."""
