# SPDX-License-Identifier: MIT
"""Changes to models that exist: layers replaced, pairs of calls fused, weights frozen."""
