# SPDX-License-Identifier: MIT
"""Imported before all else of this package: says how to install what it stands on, where that is missing."""

from rocpy._messages.suggestions import require

require("jax")
