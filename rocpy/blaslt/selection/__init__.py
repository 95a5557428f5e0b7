# SPDX-License-Identifier: MIT
"""Which algorithm a product takes, or which recipe composes it: choices, the library that is loaded, tuning."""
