# SPDX-License-Identifier: MIT
"""Data and rules of collectives that need no library: shapes, element types, errors."""
