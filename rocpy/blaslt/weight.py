# SPDX-License-Identifier: MIT
"""Weights by their public path, for hooks that run after optimizer steps."""

from rocpy.blaslt.operands.weight import Weight, sources_may_have_changed

__all__ = ["Weight", "sources_may_have_changed"]
