# SPDX-License-Identifier: MIT
"""Call frames of XLA for the tests of the handlers."""
