# SPDX-License-Identifier: MIT
"""What kernels do with memory: the accesses of an instruction, the arguments that they write to, their frames."""
