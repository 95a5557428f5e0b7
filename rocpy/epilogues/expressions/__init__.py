# SPDX-License-Identifier: MIT
"""Expressions as data: their operations and types, their values on arrays, and their gradients."""
