# SPDX-License-Identifier: MIT
"""The function form and the planned form of one product."""
