# SPDX-License-Identifier: MIT
"""A made-up primitive: `coop.count`, how many threads of a group bring a true value."""

from __future__ import annotations

from edits import insert_before

API = "rocpy/cooperative/api/movement.py"
BUILDER = "rocpy/cooperative/numba/movement.py"
ORACLE = "rocpy/testing/primitives.py"
PAGE = "docs/kernels/count.md"
FILES = (API, BUILDER, ORACLE, PAGE)

RECORD = '''

@primitive("count", "", payloads=(SCALAR,))
def count(group: Any, value: Any) -> int:
    """Return, in each thread, how many threads of the group bring a true value.

    Parameters
    ----------
    {group}
    value
        A condition of each thread.

    Returns
    -------
    int

    {setup}
    ... def odd(x, out):
    ...     out[coop.threadIdx.x] = coop.count(coop.this_block(), x[coop.threadIdx.x] % 2 == 1)
    >>> out = np.zeros(3, int)
    >>> odd[1, 3](np.array([1, 2, 3]), out)
    >>> out.tolist()
    [2, 2, 2]
    """
    outside("count")
'''

BUILD = """

@builds("count")
def _build_count(call: Call) -> Plan:
    call.payload()

    def function(group: Any, value: Any) -> Any:
        slots = open_slots(group, types.int64, 1)
        slots[group_rank(group)] = types.int64(value)
        if arrive(group):
            total = 0
            for i in range(group_size(group)):
                total += slots[i]
            slots[0] = total
            release(group)
        arrive_and_wait(group)
        return slots[0]

    return Plan(function, {"group": call.group, "value": types.boolean}, types.int64)
"""

COMPUTED = '''def count_oracle(values: Array) -> int:
    """Return how many values of a group are true."""
    return int(np.count_nonzero(values))


'''

DESCRIBED = """# count

Tells every thread how many bring a true value.

```text
coop.count(group, value)
```

## Arrangement

```text
rank               |  0 |  1 |  2 |  3 |
value              |  5 |  6 |  5 |  7 |
count of value > 5 |  2 |  2 |  2 |  2 |
```

## Example

```python
import numpy as np
from rocpy import cooperative as coop


@coop.jit
def counts(x, out):
    i = coop.threadIdx.x
    out[i] = coop.count(coop.this_block(), x[i] > 5)


x, out = np.array([5, 6, 5, 7]), np.zeros(4, int)
counts[1, 4](x, out)
assert out.tolist() == [2, 2, 2, 2]
```
"""

TEST = '''# SPDX-License-Identifier: MIT
"""The made-up primitive gives what its oracle says, on the CPU and compiled for a GPU."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.testing.primitives import ORACLES


@pytest.mark.parametrize("width", [0, 8])
def test_count(width):
    @coop.jit
    def kernel(x, out):
        i = coop.threadIdx.x
        if width:
            out[i] = coop.count(coop.this_warp(width), x[i] > 3)
        else:
            out[i] = coop.count(coop.this_block(), x[i] > 3)

    x, out = np.arange(40) % 7, np.zeros(40, int)
    kernel[1, 40](x, out)
    step = width or 40
    assert out.tolist() == [ORACLES["count"](x[i // step * step :][:step] > 3) for i in range(40)]


def test_count_is_compiled_for_a_gpu():
    @coop.jit
    def kernel(x, out):
        out[coop.threadIdx.x] = coop.count(coop.this_block(), x[coop.threadIdx.x] > 3)

    assert coop.compile(kernel, "void(int64[::1],int64[::1])", "gfx942", threads=64).code
'''
TESTS = (
    "tests/cooperative/primitives/test_primitives.py::test_a_record_is_complete[count]",
    "tests/cooperative/primitives/test_primitives.py::test_examples_run[count]",
    "tests/cooperative/primitives/test_primitives.py::test_public_functions_have_examples",
    "tests/cooperative/primitives/test_kernel_pages.py::test_signatures_are_those_of_the_code[count.md]",
    "tests/cooperative/primitives/test_kernel_pages.py::test_pictures_have_the_numbers_of_the_example[count.md]",
)


def change(texts: dict[str, str]) -> dict[str, str]:
    """Return the files with the primitive."""
    computed = insert_before(texts, ORACLE, "# By family of primitives.\n", COMPUTED)
    return {
        API: insert_before(texts, API, '    "exchange",\n', '    "count",\n') + RECORD,
        BUILDER: texts[BUILDER] + BUILD,
        ORACLE: insert_before(
            {ORACLE: computed}, ORACLE, '    "memory": memory_oracle,\n', '    "count": count_oracle,\n'
        ),
        PAGE: DESCRIBED,
    }
