# SPDX-License-Identifier: MIT
"""A made-up further collective of RCCL: `all_gather_v`, which gathers another number of rows from each rank."""

from __future__ import annotations

from edits import insert_before

METHODS = "rocpy/rccl/public/remote.py"
ORACLE = "rocpy/testing/cases_collectives.py"
GUIDE = "docs/guides/collectives.md"
FILES = (METHODS, ORACLE, GUIDE)

METHOD = '''    def all_gather_v(self, x: ArrayLike, counts: Sequence[int], *, timeout_s: float | None = None) -> Any:
        """Gather rows of all ranks, another number of each; all of them get the result.

        Parameters
        ----------
        x
            The rank's rows.
        counts
            How many rows each rank gives.
        timeout_s
            How long to wait for each call; the communicator's `timeout_s` by default.

        Examples
        --------
        >>> import numpy as np
        >>> from rocpy import rccl
        >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
        ...     comm.all_gather_v(np.arange(2), [2])
        array([0, 1])
        """
        rows = row_counts("counts", counts, self.nranks)
        own = np.asarray(x)
        copies = np.concatenate([own] * self.nranks)
        return self.all_to_all_v(copies, [rows[self.rank]] * self.nranks, rows, timeout_s=timeout_s)

'''

COMPUTED = """    if case.collective == "all_gather_v":
        whole = np.concatenate([x[: count + rank] for rank, x in enumerate(inputs)])
        return [(whole, np.zeros(len(whole)))] * n
"""

TEST = '''# SPDX-License-Identifier: MIT
"""The made-up collective gives what its oracle says."""

import numpy as np
from rccl_ranks import good, on_threads

from rocpy.testing.cases_collectives import CollectiveCase, collective_oracle


def test_all_gather_v():
    case = CollectiveCase("all_gather_v", "float32", 2, 3)
    inputs = [np.arange(2 + rank, dtype=np.float32) + 10 * rank for rank in range(3)]

    def body(comm):
        return comm.all_gather_v(inputs[comm.rank], [2, 3, 4])

    for seen, (expected, bound) in zip(good(on_threads(3, body)), collective_oracle(case, inputs), strict=True):
        assert seen.shape == expected.shape
        assert (np.abs(seen - expected) <= bound).all()
'''
ANCHOR = """    @overload
    def all_reduce_with_bias(
        self, x: _Array, bias: ArrayLike, *, block: Literal[True]"""
TESTS = ("tests/rccl/test_communicator.py::test_collectives_of_threads",)


def change(texts: dict[str, str]) -> dict[str, str]:
    """Return the files with the collective."""
    return {
        METHODS: insert_before(texts, METHODS, ANCHOR, METHOD),
        ORACLE: insert_before(texts, ORACLE, '    if case.collective in ("all_gather", "gather"):\n', COMPUTED),
        GUIDE: texts[GUIDE].rstrip("\n")
        + "\n\n`all_gather_v(x, counts)` gathers another number of rows from each rank.\n",
    }
