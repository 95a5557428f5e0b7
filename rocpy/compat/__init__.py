# SPDX-License-Identifier: MIT
"""Names and rules of other libraries over rocpy, so that programs written for them run after changing an import."""
