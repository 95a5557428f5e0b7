# SPDX-License-Identifier: MIT
"""The operands of a call: parsed and checked, and weights that are packed once."""
