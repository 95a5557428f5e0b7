# SPDX-License-Identifier: MIT
"""rocpy under torch.compile: its own backend, a pass for Inductor, and what dynamo must know."""
