# SPDX-License-Identifier: MIT
# Types of what plans problems; build.pyx has the documentation.
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection.recipes import PlanAnswer

def query(problem: Problem, options: Options, device: int, packed: bool, requested: int) -> PlanAnswer: ...
