# SPDX-License-Identifier: MIT
"""Handles of communicators: their calls, their children, their memory."""
