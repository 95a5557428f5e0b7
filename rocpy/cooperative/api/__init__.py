# SPDX-License-Identifier: MIT
"""What a kernel names: indices, memory, atomics, groups and the primitives, with the table of those."""
