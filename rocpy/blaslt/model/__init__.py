# SPDX-License-Identifier: MIT
"""Plain data of products: element types, epilogues, problems, options, explanations."""
