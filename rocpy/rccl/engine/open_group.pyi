# SPDX-License-Identifier: MIT
# Types of the group that is open where a call is made; open_group.pxd has the documentation.
from typing import Any

def current_group() -> Any: ...
