# SPDX-License-Identifier: MIT
"""nccl4py's helpers for frameworks: arrays in RCCL's memory, and how an array is described to RCCL."""
