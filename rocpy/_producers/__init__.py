# SPDX-License-Identifier: MIT
"""Readers of arrays, one for each sort of producer, and results made by the framework of an operand."""
