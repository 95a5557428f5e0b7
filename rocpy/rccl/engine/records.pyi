# SPDX-License-Identifier: MIT
# Types of a rank's last calls; records.pyx has the documentation.
from typing_extensions import disjoint_base

@disjoint_base
class Records: ...
