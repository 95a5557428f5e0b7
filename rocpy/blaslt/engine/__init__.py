# SPDX-License-Identifier: MIT
"""One planned launch: its scales, its streams, the plan and what the stream still reads."""
