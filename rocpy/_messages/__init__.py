# SPDX-License-Identifier: MIT
"""What people read: suggestions in errors, the log, tables of notebooks."""
