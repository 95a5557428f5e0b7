# SPDX-License-Identifier: MIT
"""Made-up tuning records."""

import json

from rocpy.blaslt import OperandInfo, Problem
from rocpy.tuning import Record, problem_key

SCOPE = json.dumps({"platform": "amd", "hipblaslt": 100401, "revision": "abc123", "arch": "gfx942"}, sort_keys=True)


def problem(m=8, n=16, k=32, dtype="float16", **more):
    return Problem.make(OperandInfo.dense((m, k), dtype), OperandInfo.dense((k, n), dtype), **more)


def record(number=0, *, scope=SCOPE, date=1000.0, of_problem=None, **changes):
    of_problem = of_problem or problem(m=8 + number)
    values = {
        "scope": scope,
        "key": problem_key(of_problem),
        "problem": of_problem.to_json(),
        "kernel": f"kernel{number}",
        "solution": number,
        "workspace_bytes": 0,
        "measured_us": 80.0,
        "spread": 0.01,
        "baseline_us": 100.0,
        "date": date,
    }
    return Record(**{**values, **changes})
