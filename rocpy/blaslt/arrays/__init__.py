# SPDX-License-Identifier: MIT
"""Arrays of other frameworks: copies, operands staged on the device, blocks with scales, quantization."""
