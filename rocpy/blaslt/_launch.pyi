# SPDX-License-Identifier: MIT
# Types of the launch layer; _launch.pyx has the documentation.
from rocpy.blaslt._options import Options
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.problem import Problem

def query(
    problem: Problem, options: Options, device: int, packed: bool, requested: int
) -> tuple[list[Algorithm], int]: ...
