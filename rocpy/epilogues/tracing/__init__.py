# SPDX-License-Identifier: MIT
"""Tracing of a user's function into an expression."""
