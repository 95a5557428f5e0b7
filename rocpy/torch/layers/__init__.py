# SPDX-License-Identifier: MIT
"""Layers and the functions behind them: linear layers, feed-forward blocks, packed weights."""
