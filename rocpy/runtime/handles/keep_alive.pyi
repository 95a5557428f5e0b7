# SPDX-License-Identifier: MIT
# Types of the list of objects that streams still use; keep_alive.pyx has the documentation.

def held_count() -> int: ...
