# SPDX-License-Identifier: MIT
"""Products of many sizes in one call."""
