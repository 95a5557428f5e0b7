# SPDX-License-Identifier: MIT
"""Communicators over another library's transport."""
