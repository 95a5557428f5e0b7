# SPDX-License-Identifier: MIT
"""How large the blocks and grids of a kernel may be, on every AMD GPU and so on the CPU."""

MOST_THREADS = 1024  # of a block
SHARED_LIMIT_BYTES = 65536  # of a block, on every AMD GPU but gfx950
MOST_PRIVATE_BYTES = 2**30  # of a thread's local arrays, on the CPU
MOST_BLOCKS = 2**31 - 1
