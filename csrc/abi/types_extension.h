/* SPDX-License-Identifier: MIT */
/* What rocpy adds to the ABI: values that a platform may understand beyond AMD's own. See extension.def. */
#ifndef ROCPY_ABI_TYPES_EXTENSION_H
#define ROCPY_ABI_TYPES_EXTENSION_H

/* Matrix order of an operand that rocpyExtPack made. Chosen far from hipBLASLt's own numbers (0, 1, 99-103). */
#define ROCPY_EXT_ORDER_PACKED 7498593

/* What rocpyExtAlgoTraits promises. Run to run: the same bits at each call, whatever the stream, the threads and what
 * else runs. Batch invariant: the bits of a column of D (of a row, if D is stored in rows) are the same whatever other
 * columns (rows) there are, among all algorithms that say so; such an algorithm takes every number of them. */
#define ROCPY_EXT_ALGO_RUN_TO_RUN 1
#define ROCPY_EXT_ALGO_BATCH_INVARIANT 2

#endif
