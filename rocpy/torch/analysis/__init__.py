# SPDX-License-Identifier: MIT
"""Reading of Python code: which activation a function computes, and which methods are straight-line code."""
