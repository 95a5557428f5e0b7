# SPDX-License-Identifier: MIT
"""What rocpy.rccl gives its users: communicators, groups, windows."""
