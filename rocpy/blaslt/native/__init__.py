# SPDX-License-Identifier: MIT
"""The planned product that the library computes by itself."""
