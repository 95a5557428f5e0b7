# SPDX-License-Identifier: MIT
"""One call of a collective, from its operands to RCCL and to its end."""
