# SPDX-License-Identifier: MIT
"""Products with an epilogue of the user's: how they are bound, planned and launched."""
