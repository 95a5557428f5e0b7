# SPDX-License-Identifier: MIT
"""What becomes of a benchmark's results: drawings, a page, and a comparison of two runs."""
