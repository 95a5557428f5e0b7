# SPDX-License-Identifier: MIT
"""nccl4py's helpers for frameworks: arrays in RCCL's memory, and what RCCL is told of an array."""
