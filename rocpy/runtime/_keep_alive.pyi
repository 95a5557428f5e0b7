# SPDX-License-Identifier: MIT
# Types of the list of objects that streams still use; _keep_alive.pyx has the documentation.

def held_count() -> int: ...
