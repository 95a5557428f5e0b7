# SPDX-License-Identifier: MIT
"""What the communicators of a machine do, and what is wrong with them."""
