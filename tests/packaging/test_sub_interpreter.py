# SPDX-License-Identifier: MIT
"""The import in a sub-interpreter ends at once in an ImportError of ours, and the main interpreter goes on."""

from __future__ import annotations

import pytest

CODE = """
import importlib
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = importlib.import_module(name)
        break
    except ImportError:
        continue
if BEFORE:
    import rocpy
other = interpreters.create()
run = "try:\\n    import {}\\nexcept ImportError as error:\\n    print('refused:', error, flush=True)\\n"
for module in ("rocpy", "rocpy.blaslt", "rocpy.tuning", "rocpy"):
    failure = interpreters.run_string(other, run.format(module))
    assert failure is None, failure
interpreters.destroy(other)
import numpy as np
import rocpy
assert (rocpy.matmul(np.ones((2, 3)), np.ones((3, 2))) == 3).all()
"""


@pytest.mark.parametrize("before", [False, True])
def test_the_import_is_refused_at_once(python, before):
    printed = python(f"BEFORE = {before}\n{CODE}")
    assert printed.count("refused: rocpy cannot be imported in a sub-interpreter") == 4
