# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Operators of a communicator that RCCL makes for it."""

from rocpy.errors import InvalidOperandError

cimport abi

from rocpy.rccl.engine.call cimport type_of
from rocpy.rccl.handles.children cimport judge
from rocpy.rccl.handles.communicator cimport Handle, PreMulSum


def make_premul_sum(Handle comm not None, bytes scalar, int hip_type):
    """A sum whose inputs are multiplied by a scalar of their type first (ncclRedOpCreatePreMulSum)."""
    cdef char* at = scalar
    cdef abi.ncclRedOp_t number
    cdef PreMulSum reduction = PreMulSum.__new__(PreMulSum)
    comm.check()
    reduction.type = type_of(hip_type)
    if reduction.type < 0:
        raise InvalidOperandError("dtype: RCCL has no sums of this type")
    judge(
        comm,
        <int>abi.slot_ncclRedOpCreatePreMulSum(
            &number, <void*>at, <abi.ncclDataType_t>reduction.type, abi.ncclScalarHostImmediate, comm.comm
        ),
        "premul_sum",
    )
    reduction.number, reduction.owner, reduction.is_open = <int>number, comm, True
    return reduction
