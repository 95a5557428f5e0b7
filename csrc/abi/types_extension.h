/* SPDX-License-Identifier: MIT */
/* What rocpy adds to the ABI: values that a platform may understand beyond AMD's own. See extension.def. */
#ifndef ROCPY_ABI_TYPES_EXTENSION_H
#define ROCPY_ABI_TYPES_EXTENSION_H

/* Matrix order of an operand that rocpyExtPack made. Chosen far from hipBLASLt's own numbers (0, 1, 99-103). */
#define ROCPY_EXT_ORDER_PACKED 7498593

#endif
