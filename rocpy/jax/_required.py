# SPDX-License-Identifier: MIT
"""Imported before all else of this package: says how to install what it stands on, where that is missing or too old."""

from rocpy._messages.suggestions import require

LEAST = "0.9.1"  # as the package's metadata says
require("jax", LEAST)
