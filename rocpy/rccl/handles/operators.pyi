# SPDX-License-Identifier: MIT
# Types of a communicator's operators; operators.pyx has the documentation.
from rocpy.rccl.handles.communicator import Handle, PreMulSum

def make_premul_sum(comm: Handle, scalar: bytes, hip_type: int) -> PreMulSum: ...
