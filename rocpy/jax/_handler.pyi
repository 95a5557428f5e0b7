# SPDX-License-Identifier: MIT
# Types of the handlers.

CPU_HANDLER: object
ROCM_HANDLER: object
