# SPDX-License-Identifier: MIT
"""Products as operators of torch: what they compute, their gradients, their shapes, and how torch calls them."""
