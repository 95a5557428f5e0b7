# SPDX-License-Identifier: MIT
"""Imported before all else of this package: says how to install what it stands on, where that is missing or too old."""

from rocpy._messages.suggestions import require

LEAST = "2.10"  # as the package's metadata says
require("torch", LEAST)
