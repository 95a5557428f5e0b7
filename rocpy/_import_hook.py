# SPDX-License-Identifier: MIT
"""Tells a function that a module of another package has been imported, by what torch imports of rocpy by itself."""

from rocpy_torch_backend import when_imported

__all__ = ["when_imported"]
